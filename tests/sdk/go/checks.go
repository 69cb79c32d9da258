// What cases check with: a check that fails ends its case.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
)

func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("failed: %v", err))
	}
}

func must1[T any](value T, err error) T {
	must(err)
	return value
}

func check(holds bool, format string, values ...any) {
	if !holds {
		panic(fmt.Sprintf("does not hold: "+format, values...))
	}
}

// same compares what was found with what was wanted.
func same[T any](found, wanted T) {
	if !reflect.DeepEqual(found, wanted) {
		panic(fmt.Sprintf("found  %s\nwanted %s", shown(found), shown(wanted)))
	}
}

// shown follows pointers, where it can.
func shown(value any) string {
	if text, err := json.Marshal(value); err == nil {
		return string(text)
	}
	return fmt.Sprintf("%#v", value)
}

func sameText(found *string, wanted string) {
	check(found != nil, "a text is missing: %q", wanted)
	same(*found, wanted)
}

// reason is the code of the client's error, or else the condition that the server gave.
func reason(err error) string {
	var known *azservicebus.Error
	var condition *amqp.Error
	var response *azcore.ResponseError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &known) && known.Code != azservicebus.CodeConnectionLost:
		return string(known.Code)
	case errors.As(err, &condition):
		return string(condition.Condition)
	case errors.Is(err, azservicebus.ErrMessageTooLarge):
		return "too large"
	case errors.Is(err, context.DeadlineExceeded):
		return "late"
	case errors.As(err, &response):
		return fmt.Sprint(response.StatusCode)
	}
	return err.Error()
}

// refused checks that an operation ended with an error for this reason.
func refused(err error, wanted string) {
	found := reason(err)
	if found != wanted && !(wanted != "" && strings.Contains(found, wanted)) {
		panic(fmt.Sprintf("refused with %q, not %q: %v", found, wanted, err))
	}
}
