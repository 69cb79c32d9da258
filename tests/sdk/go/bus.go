// The official client at work: what a case holds in its hands.
//
// Short words for what nearly every case does; the rest is the client's own interface.
// The client does not retry, so a case sees the first answer of the server.
package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	sb "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// Long enough for a busy machine; what is expected comes much sooner.
const arrives = 20 * time.Second

// What should not come would come at once: the server is idle and near.
const briefly = 300 * time.Millisecond

// Server is where a namespace is found.
type Server struct {
	ConnectionString string `json:"connection_string"`
	AmqpsPort        int    `json:"amqps_port"`
	HTTPPort         int    `json:"http_port"`
	HTTPSPort        int    `json:"https_port"`
	Slow             *struct {
		ConnectionString string `json:"connection_string"`
		Queue            string `json:"queue"`
	} `json:"slow"`
}

// Bus is a client of one case.
type Bus struct {
	name    string
	server  Server
	ctx     context.Context
	client  *sb.Client
	clients []*sb.Client
}

func newBus(ctx context.Context, name string, server Server) *Bus {
	bus := &Bus{name: name, server: server, ctx: ctx}
	bus.client = bus.connect(server.ConnectionString, nil)
	return bus
}

// connect makes another client; it is closed with this one.
func (b *Bus) connect(text string, options *sb.ClientOptions) *sb.Client {
	if options == nil {
		options = &sb.ClientOptions{}
	}
	if options.RetryOptions.MaxRetries == 0 {
		options.RetryOptions.MaxRetries = -1
	}
	client := must1(sb.NewClientFromConnectionString(text, options))
	b.clients = append(b.clients, client)
	return client
}

func (b *Bus) close() {
	for _, client := range b.clients {
		_ = client.Close(b.ctx)
	}
}

// secured is the connection string for a port with TLS.
func (b *Bus) secured(port int) string {
	plain := regexp.MustCompile("UseDevelopmentEmulator=true;?")
	text := plain.ReplaceAllString(b.server.ConnectionString, "")
	endpoint := regexp.MustCompile("Endpoint=[^;]*")
	return endpoint.ReplaceAllString(text, fmt.Sprintf("Endpoint=sb://localhost:%d/", port))
}

// withKey is a connection string with another key.
func withKey(text, name, key string) string {
	text = regexp.MustCompile("SharedAccessKeyName=[^;]*").
		ReplaceAllString(text, "SharedAccessKeyName="+name)
	return regexp.MustCompile("SharedAccessKey=[^;]*").
		ReplaceAllString(text, "SharedAccessKey="+key)
}

func (b *Bus) admin() *admin.Client {
	return b.adminWith(b.secured(b.server.HTTPSPort), "")
}

func (b *Bus) adminWith(text, version string) *admin.Client {
	return must1(admin.NewClientFromConnectionString(text, &admin.ClientOptions{
		ClientOptions: azcore.ClientOptions{
			APIVersion: version,
			Retry:      policy.RetryOptions{MaxRetries: -1},
		},
	}))
}

func (b *Bus) sender() *sb.Sender {
	return must1(b.client.NewSender(b.name, nil))
}

// send sends each message of its own; texts become bodies.
func (b *Bus) send(messages ...any) {
	b.sendTo(b.name, messages...)
}

func (b *Bus) sendTo(entity string, messages ...any) {
	sender := must1(b.client.NewSender(entity, nil))
	for _, each := range messages {
		must(sender.SendMessage(b.ctx, message(each), nil))
	}
	must(sender.Close(b.ctx))
}

func message(given any) *sb.Message {
	if text, is := given.(string); is {
		return &sb.Message{Body: []byte(text)}
	}
	return given.(*sb.Message)
}

func inSession(id, body string) *sb.Message {
	return &sb.Message{SessionID: &id, Body: []byte(body)}
}

var deleting = sb.ReceiverOptions{ReceiveMode: sb.ReceiveModeReceiveAndDelete}
var deadLetter = sb.ReceiverOptions{SubQueue: sb.SubQueueDeadLetter}

func (b *Bus) receiver(options ...sb.ReceiverOptions) *sb.Receiver {
	return b.receiverOf(b.name, options...)
}

func (b *Bus) receiverOf(queue string, options ...sb.ReceiverOptions) *sb.Receiver {
	return must1(b.client.NewReceiverForQueue(queue, first(options)))
}

func (b *Bus) subscriber(name string, options ...sb.ReceiverOptions) *sb.Receiver {
	return must1(b.client.NewReceiverForSubscription(b.name, name, first(options)))
}

func (b *Bus) session(id string) *sb.SessionReceiver {
	return must1(b.client.AcceptSessionForQueue(b.ctx, b.name, id, nil))
}

func (b *Bus) nextSession() *sb.SessionReceiver {
	return must1(b.client.AcceptNextSessionForQueue(b.ctx, b.name, nil))
}

func first[T any](options []T) *T {
	if len(options) == 0 {
		return nil
	}
	return &options[0]
}

// Taker is a receiver, with or without a session.
type Taker interface {
	ReceiveMessages(
		context.Context, int, *sb.ReceiveMessagesOptions,
	) ([]*sb.ReceivedMessage, error)
	PeekMessages(
		context.Context, int, *sb.PeekMessagesOptions,
	) ([]*sb.ReceivedMessage, error)
	CompleteMessage(context.Context, *sb.ReceivedMessage, *sb.CompleteMessageOptions) error
}

// take receives exactly so many messages; a receive alone may return fewer.
func (b *Bus) take(receiver Taker, count int) []*sb.ReceivedMessage {
	var messages []*sb.ReceivedMessage
	ctx, cancel := context.WithTimeout(b.ctx, arrives)
	defer cancel()
	for len(messages) < count {
		more, err := receiver.ReceiveMessages(ctx, count-len(messages), nil)
		check(err == nil, "only %v of %d messages came: %v", texts(messages), count, err)
		messages = append(messages, more...)
	}
	return messages
}

func (b *Bus) takeOne(receiver Taker) *sb.ReceivedMessage {
	return b.take(receiver, 1)[0]
}

func (b *Bus) complete(receiver Taker, messages ...*sb.ReceivedMessage) {
	for _, each := range messages {
		must(receiver.CompleteMessage(b.ctx, each, nil))
	}
}

// drained takes so many messages out of a queue.
func (b *Bus) drained(count int) []*sb.ReceivedMessage {
	return b.drainedFrom(b.name, count, 0)
}

func (b *Bus) drainedFrom(queue string, count int, sub sb.SubQueue) []*sb.ReceivedMessage {
	options := sb.ReceiverOptions{ReceiveMode: deleting.ReceiveMode, SubQueue: sub}
	return b.take(b.receiverOf(queue, options), count)
}

func (b *Bus) deadLetters(count int) []*sb.ReceivedMessage {
	return b.drainedFrom(b.name, count, sb.SubQueueDeadLetter)
}

// collected takes so many messages out of a subscription.
func (b *Bus) collected(subscription string, count int) []*sb.ReceivedMessage {
	return b.take(b.subscriber(subscription, deleting), count)
}

// all shows all messages behind a receiver, whatever their state.
func (b *Bus) all(receiver Taker) []*sb.ReceivedMessage {
	from := int64(1)
	options := &sb.PeekMessagesOptions{FromSequenceNumber: &from}
	return must1(receiver.PeekMessages(b.ctx, 100, options))
}

func (b *Bus) left(options ...sb.ReceiverOptions) []*sb.ReceivedMessage {
	return b.all(b.receiver(options...))
}

// nothingComes looks for a moment; the receiver releases what comes later.
func (b *Bus) nothingComes(receiver Taker) {
	b.nothingComesUntil(receiver, time.Now().Add(briefly))
}

func (b *Bus) nothingComesUntil(receiver Taker, moment time.Time) {
	ctx, cancel := context.WithDeadline(b.ctx, moment)
	defer cancel()
	messages, err := receiver.ReceiveMessages(ctx, 1, nil)
	same(texts(messages), []string{})
	check(errors.Is(err, context.DeadlineExceeded), "another error came: %v", err)
}

func texts(messages []*sb.ReceivedMessage) []string {
	all := []string{}
	for _, each := range messages {
		all = append(all, string(each.Body))
	}
	return all
}

func numbers(messages []*sb.ReceivedMessage) []int64 {
	all := []int64{}
	for _, each := range messages {
		all = append(all, *each.SequenceNumber)
	}
	return all
}

func ptr[T any](value T) *T { return &value }
