// Refusals: the server says no, and the client says it in its own words.
package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	sb "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const notAllowed = "amqp:not-allowed"
const disabled = "com.microsoft:entity-disabled"
const missing = "notfound"

// receive asks for a message, for long enough to be refused.
func (b *Bus) receive(receiver Taker) error {
	ctx, cancel := context.WithTimeout(b.ctx, arrives/4)
	defer cancel()
	_, err := receiver.ReceiveMessages(ctx, 1, nil)
	return err
}

func (b *Bus) trySend(client *sb.Client, given any) error {
	sender := must1(client.NewSender(b.name, nil))
	return sender.SendMessage(b.ctx, message(given), nil)
}

func init() {
	test("an_unknown_queue_is_not_found", nothing, func(b *Bus) {
		refused(b.trySend(b.client, "x"), missing)
		refused(b.receive(b.receiver()), missing)
		_, err := b.receiver().PeekMessages(b.ctx, 1, nil)
		refused(err, missing)
	})

	test("an_unknown_subscription_is_not_found", topicOf(), func(b *Bus) {
		refused(b.receive(b.subscriber("nowhere")), missing)
	})

	test("a_wrong_key_is_refused", plain, func(b *Bus) {
		text := withKey(b.server.ConnectionString, "RootManageSharedAccessKey", "wrong")

		refused(b.trySend(b.connect(text, nil), "x"), "unauthorized")
		same(texts(b.left()), []string{})
	})

	test("an_unknown_key_name_is_refused", plain, func(b *Bus) {
		client := b.connect(withKey(b.server.ConnectionString, "unknown", "wrong"), nil)

		receiver := must1(client.NewReceiverForQueue(b.name, nil))
		refused(b.receive(receiver), "unauthorized")
	})

	keys := Wants{queue: settings{"authorization_rules": []settings{
		{"name": "sends", "rights": []string{"Send"}, "primary_key": "c2VuZHM="},
		{"name": "listens", "rights": []string{"Listen"}, "primary_key": "bGlzdGVucw=="},
	}}}
	test("a_key_has_only_its_rights", keys, func(b *Bus) {
		text := b.server.ConnectionString
		sends := b.connect(withKey(text, "sends", "c2VuZHM="), nil)
		listens := b.connect(withKey(text, "listens", "bGlzdGVucw=="), nil)

		must(b.trySend(sends, "x"))
		b.takeOne(must1(listens.NewReceiverForQueue(b.name, nil)))

		denied := must1(sends.NewReceiverForQueue(b.name, nil))
		refused(b.receive(denied), "unauthorized")
		refused(b.trySend(listens, "y"), "unauthorized")
		same(texts(b.left()), []string{"x"})
	})

	test("a_topic_is_no_place_to_receive",
		topicOf(subscription("all", nil)), func(b *Bus) {
			check(b.receive(b.receiver()) != nil, "refused")
		})

	test("a_message_that_is_too_large_is_refused", plain, func(b *Bus) {
		large := &sb.Message{Body: make([]byte, 300_000)}

		refused(b.trySend(b.client, large), "too large")

		b.send("small")
		same(texts(b.left()), []string{"small"})
	})

	small := Wants{queue: settings{"max_size_in_megabytes": 1}}
	test("a_full_queue_is_refused", small, func(b *Bus) {
		sender := b.sender()
		large := &sb.Message{Body: make([]byte, 200_000)}
		var err error
		for n := 0; n < 10 && err == nil; n++ {
			err = sender.SendMessage(b.ctx, large, nil)
		}
		refused(err, "amqp:resource-limit-exceeded")

		receiver := b.receiver()
		b.complete(receiver, b.takeOne(receiver))
		must(sender.SendMessage(b.ctx, large, nil))
	})

	busy := func(sender *sb.Sender, ctx context.Context) int {
		errs := make([]error, 20)
		var group sync.WaitGroup
		for n := range errs {
			group.Go(func() { errs[n] = sender.SendMessage(ctx, message("x"), nil) })
		}
		group.Wait()
		count := 0
		for _, err := range errs {
			if err != nil {
				refused(err, "com.microsoft:server-busy")
				count++
			}
		}
		check(count > 0 && count < 20, "%d refused", count)
		return count
	}

	slow := Wants{queue: settings{"message_rate_per_second": 1}}
	test("a_busy_queue_is_refused_and_may_be_tried_again", slow, func(b *Bus) {
		count := busy(b.sender(), b.ctx)

		patient := b.connect(b.server.ConnectionString, &sb.ClientOptions{
			RetryOptions: sb.RetryOptions{
				MaxRetries: 20, RetryDelay: time.Second / 4, MaxRetryDelay: time.Second,
			},
		})
		must(b.trySend(patient, "patient"))
		left := texts(b.left())
		same(len(left), 20-count+1)
		same(left[len(left)-1], "patient")
	})

	test("a_busy_namespace_is_refused", nothing, func(b *Bus) {
		client := b.connect(b.server.Slow.ConnectionString, nil)

		busy(must1(client.NewSender(b.server.Slow.Queue, nil)), b.ctx)
	})

	stopped := func(status string) Wants { return Wants{queue: settings{"status": status}} }
	test("a_disabled_queue_is_refused", stopped("Disabled"), func(b *Bus) {
		refused(b.trySend(b.client, "x"), disabled)
		refused(b.receive(b.receiver()), disabled)
	})

	test("a_queue_may_refuse_sends_only", stopped("SendDisabled"), func(b *Bus) {
		refused(b.trySend(b.client, "x"), disabled)
		b.nothingComes(b.receiver())
	})

	test("a_queue_may_refuse_receives_only", stopped("ReceiveDisabled"), func(b *Bus) {
		b.send("x")
		refused(b.receive(b.receiver()), disabled)
	})

	test("a_session_queue_wants_a_session_receiver", sessionful, func(b *Bus) {
		refused(b.receive(b.receiver()), notAllowed)
	})

	test("a_session_queue_wants_messages_with_sessions", sessionful, func(b *Bus) {
		refused(b.trySend(b.client, "x"), notAllowed)
		b.send(inSession("s", "y"))
		same(string(b.takeOne(b.nextSession()).Body), "y")
	})

	test("a_plain_queue_has_no_sessions", plain, func(b *Bus) {
		_, err := b.client.AcceptNextSessionForQueue(b.ctx, b.name, nil)
		refused(err, notAllowed)
		_, err = b.client.AcceptSessionForQueue(b.ctx, b.name, "s", nil)
		refused(err, notAllowed)
	})

	test("a_deleted_queue_ends_its_receivers", nothing, func(b *Bus) {
		name := fmt.Sprint(b.name, "-made")
		must1(b.admin().CreateQueue(b.ctx, name, nil))
		receiver := b.receiverOf(name)
		b.nothingComes(receiver)
		must1(b.admin().DeleteQueue(b.ctx, name, nil))

		// The first receive may only notice that its link has ended, and a new link is
		// refused with the client's own word.
		err := b.receive(receiver)
		if err == nil {
			err = b.receive(receiver)
		}
		found := reason(err)
		check(found == "amqp:not-found" || found == missing, "%v", err)
	})
}
