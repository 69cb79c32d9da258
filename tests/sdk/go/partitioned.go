// Partitioned queues: fragments in several shards behind one entity.
//
// A sequence number is 64 bits: the fragment above 48 bits of the number inside it.
package main

import (
	"fmt"
	"sort"

	sb "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const shards = 4
const spread = 16

func fragments(numbers []int64) int {
	seen := map[int64]bool{}
	for _, number := range numbers {
		seen[number>>48] = true
	}
	return len(seen)
}

func parted(given settings) Wants {
	all := settings{"enable_partitioning": true}
	for key, value := range given {
		all[key] = value
	}
	return Wants{namespace: "parted", queue: all}
}

func init() {
	names := []string{}
	for n := range spread {
		names = append(names, fmt.Sprintf("m%02d", n))
	}
	sendNames := func(b *Bus) {
		given := []any{}
		for _, name := range names {
			given = append(given, name)
		}
		b.send(given...)
	}
	assertSpread := func(found []*sb.ReceivedMessage) {
		seen := texts(found)
		sort.Strings(seen)
		same(seen, names)
		same(fragments(numbers(found)), shards)
	}

	test("fragments_share_messages_without_a_key", parted(nil), func(b *Bus) {
		sendNames(b)
		receiver := b.receiver()

		found := b.take(receiver, spread)

		assertSpread(found)
		b.complete(receiver, found...)
		same(texts(b.all(receiver)), []string{})
	})

	test("peeks_go_on_from_fragment_to_fragment", parted(nil), func(b *Bus) {
		sendNames(b)
		receiver := b.receiver()

		found := []*sb.ReceivedMessage{}
		for {
			more := must1(receiver.PeekMessages(b.ctx, 3, nil))
			if len(more) == 0 {
				break
			}
			found = append(found, more...)
		}

		assertSpread(found)
	})

	test("schedules_are_cancelled_in_all_fragments", parted(nil), func(b *Bus) {
		messages := []*sb.Message{}
		for _, name := range names {
			messages = append(messages, &sb.Message{PartitionKey: ptr(name)})
		}
		sender := b.sender()

		found := must1(sender.ScheduleMessages(b.ctx, messages, later(), nil))

		same(fragments(found), shards)
		same(len(b.left()), spread)
		must(sender.CancelScheduledMessages(b.ctx, found, nil))
		same(len(b.left()), 0)
	})

	test("deferred_messages_come_by_their_numbers", parted(nil), func(b *Bus) {
		sendNames(b)
		receiver := b.receiver()
		found := b.take(receiver, spread)
		for _, each := range found {
			must(receiver.DeferMessage(b.ctx, each, nil))
		}

		deferred := b.deferred(receiver, found...)

		same(texts(deferred), texts(found))
		must(receiver.RenewMessageLock(b.ctx, deferred[0], nil))
		b.complete(receiver, deferred...)
		same(texts(b.all(receiver)), []string{})
	})

	session := parted(settings{"requires_session": true})
	test("sessions_live_in_one_fragment_each", session, func(b *Bus) {
		ids := []string{"s0", "s1", "s2", "s3", "s4", "s5"}
		for _, id := range ids {
			b.send(inSession(id, "1"), inSession(id, "2"))
		}

		open := []string{}
		for range ids {
			receiver := b.nextSession()
			open = append(open, receiver.SessionID())
			found := b.take(receiver, 2)
			same(texts(found), []string{"1", "2"})
			same(fragments(numbers(found)), 1)
			must(receiver.RenewSessionLock(b.ctx, nil))
			b.complete(receiver, found...)
		}

		sort.Strings(open)
		same(open, ids)
	})
}
