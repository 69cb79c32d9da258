// Transports: TLS, WebSocket, and other ways to say who one is.
package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"
	"time"

	sb "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/coder/websocket"
)

func (b *Bus) roundTrip(client *sb.Client) {
	body := pattern(200_000)
	must(b.trySend(client, &sb.Message{Body: body}))
	must(b.trySend(client, "small"))
	receiver := must1(client.NewReceiverForQueue(b.name, nil))
	found := b.take(receiver, 2)
	b.complete(receiver, found...)
	check(bytes.Equal(found[0].Body, body), "the same bytes")
	same(string(found[1].Body), "small")
	same(texts(b.all(receiver)), []string{})
}

// overWebSocket gives a client the sockets that it asks for, with or without TLS.
func overWebSocket(scheme string) *sb.ClientOptions {
	return &sb.ClientOptions{
		NewWebSocketConn: func(
			ctx context.Context, args sb.NewWebSocketConnArgs,
		) (net.Conn, error) {
			host := scheme + strings.TrimPrefix(args.Host, "wss")
			options := &websocket.DialOptions{Subprotocols: []string{"amqp"}}
			socket, _, err := websocket.Dial(ctx, host, options)
			if err != nil {
				return nil, err
			}
			socket.SetReadLimit(-1)
			return websocket.NetConn(context.Background(), socket,
				websocket.MessageBinary), nil
		},
	}
}

func init() {
	test("tls_works", plain, func(b *Bus) {
		// The client compares the certificate with the host and the port, unless told.
		options := &sb.ClientOptions{TLSConfig: &tls.Config{ServerName: "localhost"}}
		b.roundTrip(b.connect(b.secured(b.server.AmqpsPort), options))
	})

	test("a_websocket_works", plain, func(b *Bus) {
		b.roundTrip(b.connect(b.secured(b.server.HTTPSPort), overWebSocket("wss")))
	})

	test("a_websocket_works_without_tls", plain, func(b *Bus) {
		b.roundTrip(b.connect(b.secured(b.server.HTTPPort), overWebSocket("ws")))
	})

	test("sessions_work_over_a_websocket", sessionful, func(b *Bus) {
		client := b.connect(b.secured(b.server.HTTPSPort), overWebSocket("wss"))
		must(b.trySend(client, inSession("s", "x")))

		receiver := must1(client.AcceptNextSessionForQueue(b.ctx, b.name, nil))

		found := b.takeOne(receiver)
		must(receiver.SetSessionState(b.ctx, []byte("state"), nil))
		b.complete(receiver, found)
		same(string(must1(receiver.GetSessionState(b.ctx, nil))), "state")
	})

	// Runs behind a proxy that cuts the first connection, too.
	test("sends_and_receives_go_on_after_a_cut", plain, func(b *Bus) {
		client := b.connect(b.server.ConnectionString, &sb.ClientOptions{
			RetryOptions: sb.RetryOptions{MaxRetries: 5, RetryDelay: time.Second / 10},
		})
		sender := must1(client.NewSender(b.name, nil))
		wanted := []string{}
		for n := range 30 {
			wanted = append(wanted, fmt.Sprintf("%02d", n))
			must(sender.SendMessage(b.ctx, message(wanted[n]), nil))
		}

		// A message whose answer was lost may have been stored twice.
		receiver := must1(client.NewReceiverForQueue(b.name, nil))
		seen := map[string]bool{}
		for len(b.all(receiver)) > 0 {
			for _, found := range b.take(receiver, 1) {
				seen[string(found.Body)] = true
				b.complete(receiver, found)
			}
		}
		for _, each := range wanted {
			check(seen[each], "%s is missing", each)
		}
	})

	test("a_custom_endpoint_address_is_used", plain, func(b *Bus) {
		somewhere := strings.Replace(b.secured(1), "localhost:1", "localhost", 1)
		endpoint := fmt.Sprintf("localhost:%d", b.server.AmqpsPort)

		b.roundTrip(b.connect(somewhere, &sb.ClientOptions{CustomEndpoint: endpoint}))
	})

	test("a_ready_signature_is_taken", plain, func(b *Bus) {
		read := func(part string) string {
			found := regexp.MustCompile(part + "=([^;]*)")
			return found.FindStringSubmatch(b.server.ConnectionString)[1]
		}
		endpoint := read("Endpoint")
		resource := url.QueryEscape(strings.TrimSuffix(endpoint, "/") + "/" + b.name)
		ends := fmt.Sprint(time.Now().Add(time.Hour).Unix())
		mac := hmac.New(sha256.New, []byte(read("SharedAccessKey")))
		mac.Write([]byte(resource + "\n" + ends))
		signature := base64.StdEncoding.EncodeToString(mac.Sum(nil))
		text := fmt.Sprintf("Endpoint=%s;UseDevelopmentEmulator=true;"+
			"SharedAccessSignature=SharedAccessSignature sr=%s&sig=%s&se=%s&skn=%s",
			endpoint, resource, url.QueryEscape(signature), ends,
			read("SharedAccessKeyName"))

		must(b.trySend(b.connect(text, nil), "x"))

		same(texts(b.left()), []string{"x"})
	})

	test("the_connection_string_may_name_the_queue", plain, func(b *Bus) {
		text := b.server.ConnectionString + ";EntityPath=" + b.name

		must(b.trySend(b.connect(text, nil), "x"))

		same(texts(b.left()), []string{"x"})
	})
}
