// Sessions: one holder, first in first out, state, locks.
package main

import (
	"context"
	"sort"
	"time"

	sb "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func init() {
	short := Wants{queue: settings{"requires_session": true, "lock_duration": "PT5S"}}

	test("a_session_gets_its_own_messages_in_order", sessionful, func(b *Bus) {
		b.send(inSession("a", "1"), inSession("b", "2"), inSession("a", "3"))

		receiver := b.session("a")
		found := b.take(receiver, 2)

		same(receiver.SessionID(), "a")
		check(receiver.LockedUntil().After(time.Now()), "%v", receiver.LockedUntil())
		same(texts(found), []string{"1", "3"})
		sameText(found[0].SessionID, "a")
		b.nothingComes(receiver)
		b.complete(receiver, found...)
		same(texts(b.all(receiver)), []string{"2"})
	})

	test("a_session_keeps_its_order_when_a_message_comes_back", sessionful,
		func(b *Bus) {
			b.send(inSession("s", "1"), inSession("s", "2"))
			receiver := b.session("s")

			must(receiver.AbandonMessage(b.ctx, b.takeOne(receiver), nil))

			found := b.take(receiver, 2)
			same(texts(found), []string{"1", "2"})
			same(found[0].DeliveryCount, 2)
		})

	test("a_session_has_one_holder", sessionful, func(b *Bus) {
		receiver := b.session("s")

		_, err := b.client.AcceptSessionForQueue(b.ctx, b.name, "s", nil)
		refused(err, "com.microsoft:session-cannot-be-locked")

		must(receiver.Close(b.ctx))
		same(b.session("s").SessionID(), "s")
	})

	test("the_next_session_has_messages_and_no_holder", sessionful, func(b *Bus) {
		b.send(inSession("a", "1"), inSession("b", "2"))

		one, two := b.nextSession(), b.nextSession()

		ids := []string{one.SessionID(), two.SessionID()}
		sort.Strings(ids)
		same(ids, []string{"a", "b"})
		sameText(b.takeOne(one).SessionID, one.SessionID())
	})

	test("the_next_session_is_waited_for", sessionful, func(b *Bus) {
		came := make(chan *sb.SessionReceiver, 1)
		go func() {
			receiver, _ := b.client.AcceptNextSessionForQueue(b.ctx, b.name, nil)
			came <- receiver
		}()

		b.send(inSession("late", "1"))

		receiver := <-came
		same(receiver.SessionID(), "late")
		same(string(b.takeOne(receiver).Body), "1")
	})

	test("the_next_session_may_not_come", sessionful, func(b *Bus) {
		ctx, cancel := context.WithTimeout(b.ctx, 2*time.Second)
		defer cancel()

		_, err := b.client.AcceptNextSessionForQueue(ctx, b.name, nil)

		// The wait that the client asks for ends within 1 % of its own.
		check(reason(err) == "timeout" || reason(err) == "late", "%v", err)
		b.send(inSession("s", "1"))
		same(b.nextSession().SessionID(), "s")
	})

	test("a_wait_for_a_session_ends_with_its_connection", sessionful, func(b *Bus) {
		client := b.connect(b.server.ConnectionString, nil)
		ctx, cancel := context.WithTimeout(b.ctx, time.Second)
		defer cancel()
		_, err := client.AcceptNextSessionForQueue(ctx, b.name, nil)
		check(err != nil, "no session is there")
		must(client.Close(b.ctx))

		b.send(inSession("s", "1"))

		same(string(b.takeOne(b.nextSession()).Body), "1")
	})

	test("session_state_is_kept", sessionful, func(b *Bus) {
		receiver := b.session("s")
		same(len(must1(receiver.GetSessionState(b.ctx, nil))), 0)

		must(receiver.SetSessionState(b.ctx, []byte("state ä"), nil))

		same(string(must1(receiver.GetSessionState(b.ctx, nil))), "state ä")
		must(receiver.Close(b.ctx))
		again := b.session("s")
		same(string(must1(again.GetSessionState(b.ctx, nil))), "state ä")
		must(again.SetSessionState(b.ctx, nil, nil))
		same(len(must1(again.GetSessionState(b.ctx, nil))), 0)
	})

	test("a_session_lock_is_renewed", short, func(b *Bus) {
		receiver := b.session("s")
		ends := receiver.LockedUntil()
		b.nothingComesUntil(receiver, ends.Add(-2500*time.Millisecond))

		must(receiver.RenewSessionLock(b.ctx, nil))

		check(receiver.LockedUntil().After(ends.Add(time.Second)), "renewed")
		b.nothingComesUntil(receiver, ends.Add(500*time.Millisecond))
		_, err := b.client.AcceptSessionForQueue(b.ctx, b.name, "s", nil)
		refused(err, "com.microsoft:session-cannot-be-locked")
	})

	test("a_session_lock_ends_and_the_messages_come_back", short, func(b *Bus) {
		b.send(inSession("s", "1"))
		slow := b.session("s")
		held := b.takeOne(slow)
		ends := slow.LockedUntil()

		next := b.nextSession()

		check(time.Now().After(ends.Add(-100*time.Millisecond)), "after its lock")
		again := b.takeOne(next)
		same(again.DeliveryCount, 2)
		// The client asks for the session again and again before it gives up.
		ctx, cancel := context.WithTimeout(b.ctx, time.Second)
		defer cancel()
		check(slow.CompleteMessage(ctx, held, nil) != nil, "the lock is lost")
		b.complete(next, again)
	})

	test("a_closed_session_gives_its_messages_back", sessionful, func(b *Bus) {
		b.send(inSession("s", "1"), inSession("s", "2"))
		receiver := b.session("s")
		b.take(receiver, 2)
		must(receiver.Close(b.ctx))

		same(texts(b.take(b.session("s"), 2)), []string{"1", "2"})
	})

	test("a_session_defers_and_dead_letters", sessionful, func(b *Bus) {
		b.send(inSession("s", "deferred"), inSession("s", "dead"))
		receiver := b.session("s")
		found := b.take(receiver, 2)

		must(receiver.DeferMessage(b.ctx, found[0], nil))
		must(receiver.DeadLetterMessage(b.ctx, found[1], nil))

		// The client does not say in which session it looks for deferred messages.
		_, err := receiver.ReceiveDeferredMessages(b.ctx, numbers(found[:1]), nil)
		refused(err, "'session-id' is missing")
		// The dead letters of a queue with sessions have none.
		dead := b.deadLetters(1)[0]
		same(string(dead.Body), "dead")
		sameText(dead.SessionID, "s")
	})

	test("a_session_shows_all_messages", sessionful, func(b *Bus) {
		b.send(inSession("a", "1"), inSession("b", "2"), inSession("a", "3"))

		// The client does not say which session it wants to see.
		same(texts(b.all(b.session("a"))), []string{"1", "2", "3"})
	})

	test("a_session_may_receive_and_delete", sessionful, func(b *Bus) {
		b.send(inSession("s", "1"), inSession("s", "2"))
		options := &sb.SessionReceiverOptions{ReceiveMode: deleting.ReceiveMode}
		receiver := must1(b.client.AcceptSessionForQueue(b.ctx, b.name, "s", options))

		same(texts(b.take(receiver, 2)), []string{"1", "2"})
		same(texts(b.all(receiver)), []string{})
	})

	test("sessions_are_listed", sessionful, func(b *Bus) {
		b.send(inSession("a", "1"), inSession("b", "2"))
		must(b.session("c").SetSessionState(b.ctx, []byte("state"), nil))

		found := []string{}
		pager := b.client.NewListSessionsForQueuePager(b.name, nil)
		for pager.More() {
			found = append(found, must1(pager.NextPage(b.ctx)).Sessions...)
		}

		sort.Strings(found)
		same(found, []string{"a", "b", "c"})
	})

	ordered := topicOf(subscription("ordered", settings{"requires_session": true}))
	test("a_subscription_may_have_sessions", ordered, func(b *Bus) {
		b.send(inSession("s", "1"), inSession("s", "2"))

		receiver := must1(b.client.AcceptSessionForSubscription(
			b.ctx, b.name, "ordered", "s", nil,
		))

		same(texts(b.take(receiver, 2)), []string{"1", "2"})
	})
}
