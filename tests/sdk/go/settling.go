// Settling: complete, abandon, defer, dead-letter; locks and their ends.
package main

import (
	"time"

	sb "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// The shortest lock that there is.
var shortLock = Wants{queue: settings{"lock_duration": "PT5S"}}

func init() {
	test("an_abandoned_message_comes_back", plain, func(b *Bus) {
		kept := map[string]any{"kept": int64(1), "changed": int64(1)}
		b.send(&sb.Message{Body: []byte("a"), ApplicationProperties: kept}, "b")
		receiver := b.receiver()
		change := map[string]any{"changed": int64(2), "added": "x"}

		options := &sb.AbandonMessageOptions{PropertiesToModify: change}
		must(receiver.AbandonMessage(b.ctx, b.takeOne(receiver), options))

		again := b.take(receiver, 2)
		same(texts(again), []string{"a", "b"})
		same(again[0].DeliveryCount, 2)
		same(*again[0].SequenceNumber, 1)
		same(again[0].ApplicationProperties, map[string]any{
			"kept": int64(1), "changed": int64(2), "added": "x",
		})
		same(again[1].DeliveryCount, 1)
	})

	test("a_deferred_message_comes_by_its_number_alone", plain, func(b *Bus) {
		b.send("later")
		receiver := b.receiver()
		found := b.takeOne(receiver)
		why := map[string]any{"why": "not yet"}

		options := &sb.DeferMessageOptions{PropertiesToModify: why}
		must(receiver.DeferMessage(b.ctx, found, options))

		b.nothingComes(receiver)
		deferred := b.deferred(receiver, found)[0]
		same(string(deferred.Body), "later")
		same(deferred.State, sb.MessageStateDeferred)
		same(deferred.ApplicationProperties, why)
		check(deferred.LockToken != found.LockToken, "another lock")
		must(receiver.RenewMessageLock(b.ctx, deferred, nil))
		check(deferred.LockedUntil.After(time.Now()), "%v", deferred.LockedUntil)
		b.complete(receiver, deferred)
		same(texts(b.left()), []string{})
	})

	test("deferred_messages_settle_in_every_way", plain, func(b *Bus) {
		b.send("complete", "abandon", "defer", "dead-letter")
		receiver := b.receiver()
		found := b.take(receiver, 4)
		for _, each := range found {
			must(receiver.DeferMessage(b.ctx, each, nil))
		}
		deferred := b.deferred(receiver, found...)
		same(texts(deferred), texts(found))

		b.complete(receiver, deferred[0])
		must(receiver.AbandonMessage(b.ctx, deferred[1], &sb.AbandonMessageOptions{
			PropertiesToModify: map[string]any{"abandoned": true},
		}))
		must(receiver.DeferMessage(b.ctx, deferred[2], &sb.DeferMessageOptions{
			PropertiesToModify: map[string]any{"deferred": true},
		}))
		must(receiver.DeadLetterMessage(b.ctx, deferred[3], &sb.DeadLetterOptions{
			Reason:             ptr("reason"),
			ErrorDescription:   ptr("description"),
			PropertiesToModify: map[string]any{"added": int64(1)},
		}))

		dead := b.deadLetters(1)[0]
		same(string(dead.Body), "dead-letter")
		sameText(dead.DeadLetterReason, "reason")
		sameText(dead.DeadLetterErrorDescription, "description")
		same(dead.ApplicationProperties["added"], any(int64(1)))
		left := b.left()
		same(texts(left), []string{"abandon", "defer"})
		same(left[0].ApplicationProperties["abandoned"], any(true))
		same(left[1].ApplicationProperties["deferred"], any(true))
		same(left[1].State, sb.MessageStateDeferred)
	})

	test("deferred_messages_may_be_received_and_deleted", plain, func(b *Bus) {
		b.send("later")
		receiver := b.receiver()
		found := b.takeOne(receiver)
		must(receiver.DeferMessage(b.ctx, found, nil))

		deferred := b.deferred(b.receiver(deleting), found)

		same(texts(deferred), []string{"later"})
		same(texts(b.left()), []string{})
	})

	test("an_unknown_deferred_message_is_not_found", plain, func(b *Bus) {
		b.send("not deferred")
		receiver := b.receiver()
		number := *b.takeOne(receiver).SequenceNumber

		for _, each := range []int64{number, number + 41} {
			_, err := receiver.ReceiveDeferredMessages(b.ctx, []int64{each}, nil)
			refused(err, "notfound")
		}
	})

	test("a_message_is_dead_lettered_with_its_reason", plain, func(b *Bus) {
		b.send(&sb.Message{ApplicationProperties: map[string]any{"kept": int64(1)}})
		receiver := b.receiver()

		must(receiver.DeadLetterMessage(b.ctx, b.takeOne(receiver), &sb.DeadLetterOptions{
			Reason:             ptr("reason"),
			ErrorDescription:   ptr("description"),
			PropertiesToModify: map[string]any{"added": "x"},
		}))

		b.nothingComes(receiver)
		dead := b.receiver(deadLetter)
		found := b.takeOne(dead)
		sameText(found.DeadLetterReason, "reason")
		sameText(found.DeadLetterErrorDescription, "description")
		same(found.ApplicationProperties["kept"], any(int64(1)))
		same(found.ApplicationProperties["added"], any("x"))
		b.complete(dead, found)
		same(texts(b.left(deadLetter)), []string{})
	})

	test("a_dead_letter_needs_no_reason", plain, func(b *Bus) {
		b.send("bad")
		receiver := b.receiver()

		must(receiver.DeadLetterMessage(b.ctx, b.takeOne(receiver), nil))

		same(texts(b.deadLetters(1)), []string{"bad"})
	})

	test("dead_letters_settle_like_others", plain, func(b *Bus) {
		b.send("defer", "abandon")
		receiver := b.receiver()
		for _, each := range b.take(receiver, 2) {
			must(receiver.DeadLetterMessage(b.ctx, each, nil))
		}
		dead := b.receiver(deadLetter)

		found := b.take(dead, 2)
		must(dead.DeferMessage(b.ctx, found[0], nil))
		must(dead.AbandonMessage(b.ctx, found[1], nil))

		same(string(b.takeOne(dead).Body), "abandon")
		deferred := b.deferred(dead, found[0])
		same(texts(deferred), []string{"defer"})
		b.complete(dead, deferred...)
	})

	three := Wants{queue: settings{"max_delivery_count": 3}}
	test("too_many_deliveries_end_in_the_dead_letters", three, func(b *Bus) {
		b.send("poison")
		receiver := b.receiver()

		for count := range uint32(3) {
			found := b.takeOne(receiver)
			same(found.DeliveryCount, count+1)
			must(receiver.AbandonMessage(b.ctx, found, nil))
		}

		dead := b.deadLetters(1)[0]
		same(string(dead.Body), "poison")
		sameText(dead.DeadLetterReason, "MaxDeliveryCountExceeded")
		b.nothingComes(receiver)
	})

	test("a_lock_ends_and_the_message_comes_back", shortLock, func(b *Bus) {
		b.send("slow")
		slow, other := b.receiver(), b.receiver()
		found := b.takeOne(slow)
		ends := *found.LockedUntil

		again := b.takeOne(other)

		check(time.Now().After(ends.Add(-100*time.Millisecond)), "after its lock")
		same(again.DeliveryCount, 2)
		refused(slow.CompleteMessage(b.ctx, found, nil), "locklost")
		refused(slow.RenewMessageLock(b.ctx, found, nil), "locklost")
		b.complete(other, again)
		same(texts(b.left()), []string{})
	})

	test("late_settlements_are_refused_in_every_way", shortLock, func(b *Bus) {
		b.send("a", "b", "c")
		slow, other := b.receiver(), b.receiver()
		found := b.take(slow, 3)
		again := b.take(other, 3)

		refused(slow.AbandonMessage(b.ctx, found[0], nil), "locklost")
		refused(slow.DeferMessage(b.ctx, found[1], nil), "locklost")
		refused(slow.DeadLetterMessage(b.ctx, found[2], nil), "locklost")

		b.complete(other, again...)
	})

	test("a_renewed_lock_lasts_longer", shortLock, func(b *Bus) {
		b.send("long work")
		receiver, other := b.receiver(), b.receiver()
		found := b.takeOne(receiver)
		ends := *found.LockedUntil
		b.nothingComesUntil(other, ends.Add(-2500*time.Millisecond))

		must(receiver.RenewMessageLock(b.ctx, found, nil))

		check(found.LockedUntil.After(ends.Add(time.Second)), "%v", found.LockedUntil)
		b.nothingComesUntil(other, ends.Add(500*time.Millisecond))
		b.complete(receiver, found)
	})

	test("a_message_may_be_settled_after_its_link_closed", plain, func(b *Bus) {
		b.send("complete", "abandon")
		closed := b.receiver()
		found := b.take(closed, 2)
		must(closed.Close(b.ctx))
		receiver := b.receiver()

		// The client knows such messages by their lock tokens alone.
		token := func(n int) *sb.ReceivedMessage {
			return &sb.ReceivedMessage{LockToken: found[n].LockToken}
		}
		b.complete(receiver, token(0))
		must(receiver.AbandonMessage(b.ctx, token(1), nil))

		again := b.takeOne(receiver)
		same(string(again.Body), "abandon")
		same(again.DeliveryCount, 2)
		same(texts(b.left()), []string{"abandon"})
	})

	test("a_message_is_not_settled_twice", plain, func(b *Bus) {
		b.send("once", "twice")
		receiver := b.receiver()
		found := b.takeOne(receiver)
		b.complete(receiver, found)

		token := &sb.ReceivedMessage{LockToken: found.LockToken}
		refused(receiver.CompleteMessage(b.ctx, token, nil), "locklost")
		same(texts(b.left()), []string{"twice"})
	})

	test("locks_survive_the_connection", shortLock, func(b *Bus) {
		b.send("held")
		client := b.connect(b.server.ConnectionString, nil)
		found := b.takeOne(must1(client.NewReceiverForQueue(b.name, nil)))
		must(client.Close(b.ctx))

		again := b.takeOne(b.receiver())

		check(time.Now().After(found.LockedUntil.Add(-100*time.Millisecond)), "held")
		same(again.DeliveryCount, 2)
	})
}

// deferred receives messages by their numbers.
func (b *Bus) deferred(
	receiver *sb.Receiver, messages ...*sb.ReceivedMessage,
) []*sb.ReceivedMessage {
	return must1(receiver.ReceiveDeferredMessages(b.ctx, numbers(messages), nil))
}
