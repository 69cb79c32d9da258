// Sending: one message, several, batches, and what is accepted but not stored.
package main

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"time"

	sb "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func init() {
	test("a_message_arrives", plain, func(b *Bus) {
		must(b.sender().SendMessage(b.ctx, message("hello"), nil))

		found := b.takeOne(b.receiver())

		same(string(found.Body), "hello")
		same(*found.SequenceNumber, 1)
		// The client counts this delivery too.
		same(found.DeliveryCount, 1)
		same(found.State, sb.MessageStateActive)
		check(found.LockToken != [16]byte{}, "a lock token")
		check(time.Since(*found.EnqueuedTime).Abs() < 30*time.Second, "just now")
		check(found.LockedUntil.After(*found.EnqueuedTime), "a lock")
	})

	test("a_batch_is_sent_in_order", plain, func(b *Bus) {
		sender := b.sender()
		batch := must1(sender.NewMessageBatch(b.ctx, nil))
		for _, text := range []string{"a", "b", "c"} {
			must(batch.AddMessage(message(text), nil))
		}
		must(sender.SendMessageBatch(b.ctx, batch, nil))

		found := b.drained(3)

		same(texts(found), []string{"a", "b", "c"})
		same(numbers(found), []int64{1, 2, 3})
	})

	test("a_batch_is_filled_to_the_brim", plain, func(b *Bus) {
		sender := b.sender()
		batch := must1(sender.NewMessageBatch(b.ctx, nil))
		body := func() []byte {
			return bytes.Repeat([]byte{byte(batch.NumMessages())}, 9_000)
		}
		for batch.AddMessage(&sb.Message{Body: body()}, nil) == nil {
		}
		check(batch.NumMessages() > 20, "%d messages", batch.NumMessages())
		check(batch.NumBytes() <= 256*1024, "%d bytes", batch.NumBytes())

		must(sender.SendMessageBatch(b.ctx, batch, nil))

		for n, found := range b.drained(int(batch.NumMessages())) {
			same(found.Body[0], byte(n))
		}
	})

	test("a_batch_keeps_to_the_size_that_the_caller_gives", plain, func(b *Bus) {
		sender := b.sender()
		options := &sb.MessageBatchOptions{MaxBytes: 1_000}
		batch := must1(sender.NewMessageBatch(b.ctx, options))
		body := bytes.Repeat([]byte("x"), 100)
		for batch.AddMessage(&sb.Message{Body: body}, nil) == nil {
		}

		must(sender.SendMessageBatch(b.ctx, batch, nil))

		same(int32(len(b.drained(int(batch.NumMessages())))), batch.NumMessages())
	})

	test("a_batch_keeps_properties_of_each_message", plain, func(b *Bus) {
		sender := b.sender()
		batch := must1(sender.NewMessageBatch(b.ctx, nil))
		for n := range int64(2) {
			must(batch.AddMessage(&sb.Message{
				MessageID:             ptr(fmt.Sprint("m", n)),
				ApplicationProperties: map[string]any{"n": n},
			}, nil))
		}
		must(sender.SendMessageBatch(b.ctx, batch, nil))

		for n, found := range b.drained(2) {
			same(found.MessageID, fmt.Sprint("m", n))
			same(found.ApplicationProperties, map[string]any{"n": int64(n)})
		}
	})

	test("many_sends_at_once_are_all_stored", plain, func(b *Bus) {
		sender := b.sender()
		const count = 1_500
		var group sync.WaitGroup
		errs := make([]error, count)
		for n := range count {
			group.Go(func() {
				errs[n] = sender.SendMessage(b.ctx, message(fmt.Sprint(n)), nil)
			})
		}
		group.Wait()
		for _, err := range errs {
			must(err)
		}

		seen := map[string]bool{}
		for _, text := range texts(b.drained(count)) {
			seen[text] = true
		}
		same(len(seen), count)
	})

	test("a_message_of_1_kib_is_settled", plain, func(b *Bus) {
		b.send(strings.Repeat("x", 1024))

		receiver := b.receiver()
		b.complete(receiver, b.takeOne(receiver))
	})

	test("a_message_of_200_kb_arrives_whole", plain, func(b *Bus) {
		body := pattern(200_000)
		must(b.sender().SendMessage(b.ctx, &sb.Message{Body: body}, nil))

		check(bytes.Equal(b.takeOne(b.receiver()).Body, body), "the same bytes")
	})

	large := Wants{queue: settings{"max_message_size_in_kilobytes": 2048}}
	test("a_queue_may_take_larger_messages", large, func(b *Bus) {
		body := pattern(1_500_000)
		must(b.sender().SendMessage(b.ctx, &sb.Message{Body: body}, nil))

		check(bytes.Equal(b.takeOne(b.receiver()).Body, body), "the same bytes")
	})

	test("a_ping_is_accepted_and_never_delivered", plain, func(b *Bus) {
		kind := "application/vnd.ms-servicebus-ping"
		b.send(&sb.Message{Body: []byte("ping"), ContentType: &kind}, "message")

		receiver := b.receiver()
		same(string(b.takeOne(receiver).Body), "message")
		b.nothingComes(receiver)
		same(texts(b.left()), []string{"message"})
	})

	both := Wants{queues: map[string]settings{"go-first": {}, "go-second": {}}}
	test("several_links_share_one_connection", both, func(b *Bus) {
		names := []string{"go-first", "go-second"}
		receivers := []*sb.Receiver{b.receiverOf(names[0]), b.receiverOf(names[1])}
		found := make([]*sb.ReceivedMessage, 2)
		var group sync.WaitGroup
		for n := range names {
			group.Go(func() { found[n] = b.takeOne(receivers[n]) })
		}
		for _, name := range names {
			b.sendTo(name, name)
		}
		group.Wait()
		for n, receiver := range receivers {
			b.complete(receiver, found[n])
		}
		must(receivers[0].Close(b.ctx))

		same(texts(found), names)
		b.sendTo(names[1], "still")
		same(string(b.takeOne(receivers[1]).Body), "still")
	})

	slashes := Wants{queues: map[string]settings{"go-team/orders/New": {}}}
	test("names_have_slashes_and_no_case", slashes, func(b *Bus) {
		b.sendTo("Go-Team/Orders/NEW", "x")

		found := b.drainedFrom("go-team/orders/new", 1, 0)

		same(texts(found), []string{"x"})
	})
}

// pattern is bytes that differ from place to place.
func pattern(count int) []byte {
	body := make([]byte, count)
	for n := range body {
		body[n] = byte(n*7 + n>>8)
	}
	return body
}
