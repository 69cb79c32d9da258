// Receiving: both modes, waiting, order, credit that is left over.
package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"time"

	sb "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func init() {
	test("a_locked_message_is_not_given_to_others", plain, func(b *Bus) {
		b.send("mine")
		mine := b.receiver()

		found := b.takeOne(mine)

		b.nothingComes(b.receiver())
		b.complete(mine, found)
		same(texts(b.left()), []string{})
	})

	test("receive_and_delete_leaves_nothing", plain, func(b *Bus) {
		b.send("a", "b")

		found := b.drained(2)

		same(texts(found), []string{"a", "b"})
		same(found[0].LockToken, [16]byte{})
		same(texts(b.left()), []string{})
	})

	test("an_empty_receive_ends_after_its_wait", plain, func(b *Bus) {
		receiver := b.receiver()
		b.nothingComes(receiver)
		started := time.Now()
		ctx, cancel := context.WithTimeout(b.ctx, 400*time.Millisecond)
		defer cancel()

		_, err := receiver.ReceiveMessages(ctx, 5, nil)

		check(errors.Is(err, context.DeadlineExceeded), "%v", err)
		check(time.Since(started) >= 390*time.Millisecond, "%v", time.Since(started))
	})

	test("a_waiting_receiver_gets_a_message_at_once", plain, func(b *Bus) {
		came := make(chan *sb.ReceivedMessage, 1)
		receiver := b.receiver()
		go func() {
			found, _ := receiver.ReceiveMessages(b.ctx, 1, nil)
			came <- found[0]
		}()
		b.left()
		sent := time.Now()
		b.send("now")

		same(string((<-came).Body), "now")
		check(time.Since(sent) < arrives/4, "%v", time.Since(sent))
	})

	test("a_receive_takes_what_is_there", plain, func(b *Bus) {
		b.send("a", "b")
		options := &sb.ReceiveMessagesOptions{TimeAfterFirstMessage: time.Second}

		found := must1(b.receiver().ReceiveMessages(b.ctx, 10, options))

		same(texts(found), []string{"a", "b"})
	})

	test("messages_come_in_the_order_of_sending", plain, func(b *Bus) {
		wanted := b.sendNumbers(200)
		receiver := b.receiver()

		found := append(b.take(receiver, 50), b.take(receiver, 150)...)

		same(texts(found), wanted)
		b.complete(receiver, found...)
		same(texts(b.left()), []string{})
	})

	test("a_message_for_left_over_credit_is_released", plain, func(b *Bus) {
		// The client leaves its credit at the server, and releases what comes for it.
		idle := b.receiver()
		b.nothingComes(idle)
		b.send("free")

		found := b.takeOne(b.receiver())

		same(string(found.Body), "free")
	})

	test("left_over_credit_serves_the_next_receive", plain, func(b *Bus) {
		receiver := b.receiver()
		b.nothingComes(receiver)
		b.nothingComes(receiver)
		for n := range 5 {
			b.send(fmt.Sprint(n))
			found := b.takeOne(receiver)
			same(string(found.Body), fmt.Sprint(n))
			b.complete(receiver, found)
		}
		same(texts(b.left()), []string{})
	})

	test("receivers_compete_and_each_message_goes_to_one", plain, func(b *Bus) {
		wanted := b.sendNumbers(40)
		parts := make([][]*sb.ReceivedMessage, 2)
		var group sync.WaitGroup
		for n := range parts {
			group.Go(func() { parts[n] = b.take(b.receiver(), 20) })
		}
		group.Wait()

		found := append(texts(parts[0]), texts(parts[1])...)
		sort.Strings(found)
		sort.Strings(wanted)
		same(found, wanted)
	})

	test("a_receiver_is_closed_while_it_waits", plain, func(b *Bus) {
		receiver := b.receiver()
		b.nothingComes(receiver)
		must(receiver.Close(b.ctx))
		b.send("after")

		same(texts(b.drained(1)), []string{"after"})
	})
}

// sendNumbers sends numbers in one batch, and returns them.
func (b *Bus) sendNumbers(count int) []string {
	sender := b.sender()
	batch := must1(sender.NewMessageBatch(b.ctx, nil))
	all := []string{}
	for n := range count {
		text := fmt.Sprintf("%03d", n)
		must(batch.AddMessage(message(text), nil))
		all = append(all, text)
	}
	must(sender.SendMessageBatch(b.ctx, batch, nil))
	return all
}
