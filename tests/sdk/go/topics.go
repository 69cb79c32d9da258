// Topics: filters choose, actions change, each subscription has its own copy.
package main

import (
	"sort"

	sb "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func init() {
	copies := topicOf(subscription("one", nil), subscription("two", nil))
	test("every_subscription_gets_a_copy", copies, func(b *Bus) {
		b.send("a", "b")

		receiver := b.subscriber("one")
		found := b.takeOne(receiver)
		b.complete(receiver, found)

		same(*found.SequenceNumber, 1)
		same(texts(b.collected("two", 2)), []string{"a", "b"})
		same(texts(b.all(receiver)), []string{"b"})
	})

	filters := topicOf(
		subscription("true", nil, rule("all", "true", settings{}, "")),
		subscription("false", nil, rule("none", "false", settings{}, "")),
		subscription("sql", nil,
			rule("big", "sql", "amount > 10 AND sys.Label LIKE 'order%'", "")),
		subscription("label", nil,
			rule("label", "correlation", settings{"label": "order-1"}, "")),
		subscription("several", nil, rule("several", "correlation", settings{
			"correlation_id": "c",
			"content_type":   "text/plain",
			"properties":     settings{"region": "north"},
		}, "")),
		subscription("either", nil,
			rule("first", "sql", "amount = 5", ""),
			rule("second", "sql", "region = 'north'", "")),
	)
	test("filters_choose", filters, func(b *Bus) {
		amount := func(value int64) map[string]any {
			return map[string]any{"amount": value}
		}
		north := map[string]any{"region": "north", "amount": int64(5)}
		b.send(
			&sb.Message{Body: []byte("small"), Subject: ptr("order-1"),
				ApplicationProperties: amount(5)},
			&sb.Message{Body: []byte("big"), Subject: ptr("order-2"),
				ApplicationProperties: amount(50)},
			&sb.Message{Body: []byte("north"), CorrelationID: ptr("c"),
				ContentType: ptr("text/plain"), ApplicationProperties: north},
			&sb.Message{Body: []byte("nothing"), CorrelationID: ptr("c")},
		)

		for name, wanted := range map[string][]string{
			"true":    {"small", "big", "north", "nothing"},
			"false":   {},
			"sql":     {"big"},
			"label":   {"small"},
			"several": {"north"},
			"either":  {"small", "north"},
		} {
			same(texts(b.all(b.subscriber(name))), wanted)
		}
	})

	actions := topicOf(
		subscription("changed", nil, rule("change", "sql", "kind = 'x'",
			"SET sys.Label = 'new'; SET added = amount + 1; REMOVE kind")),
		subscription("copies", nil,
			rule("first", "true", settings{}, "SET rule = 'first'"),
			rule("second", "true", settings{}, "SET rule = 'second'")),
	)
	test("actions_change_the_copy", actions, func(b *Bus) {
		given := map[string]any{"kind": "x", "amount": int64(1)}
		b.send(&sb.Message{Subject: ptr("old"), ApplicationProperties: given})

		changed := b.collected("changed", 1)[0]
		copies := b.collected("copies", 2)

		sameText(changed.Subject, "new")
		same(changed.ApplicationProperties["RuleName"], any("change"))
		same(changed.ApplicationProperties["added"], any(int64(2)))
		_, kept := changed.ApplicationProperties["kind"]
		same(kept, false)
		rules := []string{}
		for _, each := range copies {
			rules = append(rules, each.ApplicationProperties["rule"].(string))
			sameText(each.Subject, "old")
		}
		sort.Strings(rules)
		same(rules, []string{"first", "second"})
	})

	once := topicOf(subscription("all", settings{"max_delivery_count": 1}))
	test("a_subscription_has_dead_letters", once, func(b *Bus) {
		b.send("poison")
		receiver := b.subscriber("all")

		must(receiver.AbandonMessage(b.ctx, b.takeOne(receiver), nil))

		b.nothingComes(receiver)
		dead := b.subscriber("all", deadLetter)
		found := b.takeOne(dead)
		sameText(found.DeadLetterReason, "MaxDeliveryCountExceeded")
		b.complete(dead, found)
		same(texts(b.all(dead)), []string{})
	})

	forwarded := topicOf(subscription("on", settings{"forward_to": "go-topics-to"}))
	forwarded.queues = map[string]settings{"go-topics-to": {}}
	test("a_subscription_forwards_to_a_queue", forwarded, func(b *Bus) {
		b.send(&sb.Message{Body: []byte("x"), MessageID: ptr("id")})

		found := b.drainedFrom("go-topics-to", 1, 0)[0]

		same(found.MessageID, "id")
	})

	test("a_subscription_defers_and_browses",
		topicOf(subscription("all", nil)), func(b *Bus) {
			b.send("later")
			receiver := b.subscriber("all")
			found := b.takeOne(receiver)
			must(receiver.RenewMessageLock(b.ctx, found, nil))
			must(receiver.DeferMessage(b.ctx, found, nil))

			same(texts(b.all(receiver)), []string{"later"})
			b.complete(receiver, b.deferred(receiver, found)...)
			b.nothingComes(receiver)
		})
}
