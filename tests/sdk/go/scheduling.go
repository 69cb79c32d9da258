// Scheduling: messages that are to arrive later, or no longer. And browsing.
package main

import (
	"strings"
	"time"

	sb "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func soon() time.Time  { return time.Now().Add(1500 * time.Millisecond).UTC() }
func later() time.Time { return time.Now().Add(time.Hour).UTC() }

func (b *Bus) schedule(at time.Time, given ...any) []int64 {
	messages := []*sb.Message{}
	for _, each := range given {
		messages = append(messages, message(each))
	}
	return must1(b.sender().ScheduleMessages(b.ctx, messages, at, nil))
}

func init() {
	test("a_scheduled_message_arrives_at_its_time", plain, func(b *Bus) {
		at := soon()

		number := b.schedule(at, "soon")[0]

		waiting := b.left()[0]
		same(waiting.State, sb.MessageStateScheduled)
		same(*waiting.SequenceNumber, number)
		same(waiting.ScheduledEnqueueTime.UnixMilli(), at.UnixMilli())
		found := b.takeOne(b.receiver())
		check(!time.Now().Before(at), "not before its time")
		same(string(found.Body), "soon")
		check(found.EnqueuedTime.UnixMilli() >= at.UnixMilli(), "%v", found.EnqueuedTime)
		check(*found.SequenceNumber > number, "a number of its own")
	})

	test("several_messages_are_scheduled_at_once", plain, func(b *Bus) {
		same(b.schedule(soon(), "a", "b", "c"), []int64{1, 2, 3})

		same(texts(b.drained(3)), []string{"a", "b", "c"})
	})

	test("a_sent_message_may_carry_its_time", plain, func(b *Bus) {
		at := soon()
		b.send(&sb.Message{Body: []byte("soon"), ScheduledEnqueueTime: &at}, "now")
		receiver := b.receiver()

		same(texts(b.take(receiver, 2)), []string{"now", "soon"})
		check(!time.Now().Before(at), "not before its time")
	})

	test("a_cancelled_message_never_arrives", plain, func(b *Bus) {
		numbers := b.schedule(later(), "a", "b", "c")

		cancelled := []int64{numbers[0], numbers[2]}
		must(b.sender().CancelScheduledMessages(b.ctx, cancelled, nil))

		same(texts(b.left()), []string{"b"})
	})

	test("an_unknown_message_cannot_be_cancelled", plain, func(b *Bus) {
		numbers := b.schedule(later(), "x")
		must(b.sender().CancelScheduledMessages(b.ctx, numbers, nil))

		refused(b.sender().CancelScheduledMessages(b.ctx, numbers, nil), "notfound")
	})

	test("a_topic_publishes_at_the_scheduled_time",
		topicOf(subscription("all", nil)), func(b *Bus) {
			at := soon()
			b.schedule(at, "soon")

			receiver := b.subscriber("all")
			same(string(b.takeOne(receiver).Body), "soon")
			check(!time.Now().Before(at), "not before its time")
			b.nothingComes(receiver)
		})

	test("a_session_message_may_be_scheduled", sessionful, func(b *Bus) {
		b.schedule(soon(), inSession("s", "soon"))

		receiver := b.nextSession()

		same(receiver.SessionID(), "s")
		same(string(b.takeOne(receiver).Body), "soon")
	})

	test("a_large_message_is_not_scheduled", plain, func(b *Bus) {
		large := &sb.Message{Body: make([]byte, 300_000)}
		messages := []*sb.Message{message("x"), large}

		_, err := b.sender().ScheduleMessages(b.ctx, messages, later(), nil)

		check(err != nil, "too large")
		same(texts(b.left()), []string{})
	})

	test("browsing_takes_nothing", plain, func(b *Bus) {
		b.send("a", "b")
		receiver := b.receiver()

		found := must1(receiver.PeekMessages(b.ctx, 1, nil))

		same(texts(found), []string{"a"})
		same(found[0].DeliveryCount, 1)
		same(texts(b.take(receiver, 2)), []string{"a", "b"})
	})

	test("browsing_an_empty_queue_shows_nothing", plain, func(b *Bus) {
		same(texts(b.left()), []string{})
	})

	test("browsing_goes_on_where_it_stopped", plain, func(b *Bus) {
		b.send("a", "b", "c")
		receiver := b.receiver()

		parts := [][]string{}
		for range 3 {
			parts = append(parts, texts(must1(receiver.PeekMessages(b.ctx, 2, nil))))
		}

		same(parts, [][]string{{"a", "b"}, {"c"}, {}})
	})

	test("browsing_starts_at_a_sequence_number", plain, func(b *Bus) {
		b.send("a", "b", "c", "d")
		options := &sb.PeekMessagesOptions{FromSequenceNumber: ptr(int64(3))}

		found := must1(b.receiver().PeekMessages(b.ctx, 10, options))

		same(texts(found), []string{"c", "d"})
	})

	test("browsing_shows_every_state", plain, func(b *Bus) {
		b.send("deferred", "locked", "active")
		receiver := b.receiver()
		must(receiver.DeferMessage(b.ctx, b.takeOne(receiver), nil))
		b.takeOne(receiver)
		b.schedule(later(), "scheduled")

		found := b.left()

		same(texts(found), []string{"deferred", "locked", "active", "scheduled"})
		for n, state := range []sb.MessageState{1, 0, 0, 2} {
			same(found[n].State, state)
		}
	})

	test("browsing_shows_large_messages", plain, func(b *Bus) {
		body := strings.Repeat("x", 150_000)
		b.send(body, body, body)
		receiver := b.receiver()

		seen := []string{}
		for len(seen) < 3 {
			more := texts(must1(receiver.PeekMessages(b.ctx, 3, nil)))
			check(len(more) > 0, "%d seen", len(seen))
			seen = append(seen, more...)
		}

		same(seen, []string{body, body, body})
	})
}
