// What is in a message: every part arrives as it was sent. And how long it lives.
package main

import (
	"fmt"
	"regexp"
	"time"

	sb "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func init() {
	test("every_property_arrives", plain, func(b *Bus) {
		b.send(&sb.Message{
			Body:                  []byte("body"),
			ContentType:           ptr("text/plain"),
			CorrelationID:         ptr("correlation"),
			MessageID:             ptr("message"),
			PartitionKey:          ptr("session"),
			ReplyTo:               ptr("reply"),
			ReplyToSessionID:      ptr("reply-session"),
			SessionID:             ptr("session"),
			Subject:               ptr("subject"),
			TimeToLive:            ptr(time.Hour),
			To:                    ptr("to"),
			ApplicationProperties: map[string]any{"text": "ä€😀"},
		})

		found := b.takeOne(b.receiver())

		same(string(found.Body), "body")
		sameText(found.ContentType, "text/plain")
		sameText(found.CorrelationID, "correlation")
		same(found.MessageID, "message")
		sameText(found.PartitionKey, "session")
		sameText(found.ReplyTo, "reply")
		sameText(found.ReplyToSessionID, "reply-session")
		sameText(found.SessionID, "session")
		sameText(found.Subject, "subject")
		sameText(found.To, "to")
		same(*found.TimeToLive, time.Hour)
		same(found.ExpiresAt.Sub(*found.EnqueuedTime), time.Hour)
		same(found.ApplicationProperties, map[string]any{"text": "ä€😀"})
	})

	test("application_properties_keep_their_types", plain, func(b *Bus) {
		given := map[string]any{
			"bool": true, "byte": int8(-1), "ubyte": uint8(1), "short": int16(-2),
			"ushort": uint16(2), "int": int32(-3), "uint": uint32(3), "long": int64(-4),
			"ulong": uint64(1) << 63, "float": float32(1.5), "double": 2.5,
			"text": "text", "empty": "", "nothing": nil, "bytes": []byte{0, 255},
			"time": time.UnixMilli(1_709_208_000_123),
		}
		b.send(&sb.Message{ApplicationProperties: given})

		found := b.takeOne(b.receiver())

		same(found.ApplicationProperties, given)
	})

	bodies := map[string]sb.AMQPAnnotatedMessageBody{
		"data":     {Data: [][]byte{[]byte("raw"), []byte("more")}},
		"sequence": {Sequence: [][]any{{"one", int64(2), true}, {"three"}}},
		"value":    {Value: "text"},
		"number":   {Value: int64(-7)},
		"map":      {Value: map[string]any{"one": int64(1)}},
	}
	for kind, body := range bodies {
		test("an_annotated_body_may_be_a_"+kind, plain, func(b *Bus) {
			given := &sb.AMQPAnnotatedMessage{Body: body}
			must(b.sender().SendAMQPAnnotatedMessage(b.ctx, given, nil))

			found := b.takeOne(b.receiver()).RawAMQPMessage.Body

			same(fmt.Sprint(found), fmt.Sprint(body))
		})
	}

	test("an_annotated_message_keeps_its_sections", plain, func(b *Bus) {
		given := &sb.AMQPAnnotatedMessage{
			Body:   sb.AMQPAnnotatedMessageBody{Value: "x"},
			Header: &sb.AMQPAnnotatedMessageHeader{Durable: true, Priority: 7},
			Footer: map[any]any{"x-opt-sum": "abc"},
			MessageAnnotations: map[any]any{
				"x-opt-mine": "kept", "x-opt-sequence-number": int64(99),
			},
			Properties: &sb.AMQPAnnotatedMessageProperties{
				MessageID: "id", To: ptr("to"), ContentEncoding: ptr("utf-8"),
				GroupSequence: ptr(uint32(3)), UserID: []byte("user"),
			},
		}
		must(b.sender().SendAMQPAnnotatedMessage(b.ctx, given, nil))

		found := b.takeOne(b.receiver())

		raw := found.RawAMQPMessage
		same(*found.SequenceNumber, 1)
		same(raw.MessageAnnotations["x-opt-mine"], any("kept"))
		same(raw.MessageAnnotations["x-opt-sequence-number"], any(int64(1)))
		same(raw.Footer, given.Footer)
		same(raw.Header.Durable, true)
		same(raw.Header.Priority, 7)
		same(raw.Properties.MessageID, any("id"))
		sameText(raw.Properties.ContentEncoding, "utf-8")
		same(*raw.Properties.GroupSequence, 3)
		same(string(raw.Properties.UserID), "user")
	})

	test("a_message_without_an_id_is_given_one", plain, func(b *Bus) {
		b.send("a", "b")

		found := b.drained(2)

		shape := regexp.MustCompile("^[0-9a-f]{32}$")
		check(shape.MatchString(found[0].MessageID), "%q", found[0].MessageID)
		check(found[0].MessageID != found[1].MessageID, "%q", found[0].MessageID)
	})

	dead := Wants{queue: settings{"dead_lettering_on_message_expiration": true}}
	test("an_expired_message_is_dead_lettered", dead, func(b *Bus) {
		b.send(&sb.Message{Body: []byte("short"), TimeToLive: ptr(time.Second)}, "long")

		found := b.deadLetters(1)[0]

		same(string(found.Body), "short")
		sameText(found.DeadLetterReason, "TTLExpiredException")
		same(texts(b.drained(1)), []string{"long"})
	})

	quick := Wants{queue: settings{"default_message_time_to_live": "PT1S"}}
	test("an_expired_message_is_gone", quick, func(b *Bus) {
		b.send(&sb.Message{Body: []byte("gone"), TimeToLive: ptr(time.Hour)})
		seen := b.left()[0]
		same(seen.ExpiresAt.Sub(*seen.EnqueuedTime), time.Second)

		ended := seen.ExpiresAt.Add(100 * time.Millisecond)
		b.nothingComesUntil(b.receiver(deadLetter), ended)

		same(texts(b.left()), []string{})
	})

	test("a_locked_message_outlives_its_time", dead, func(b *Bus) {
		brief := ptr(1500 * time.Millisecond)
		b.send(&sb.Message{Body: []byte("held"), TimeToLive: brief},
			&sb.Message{Body: []byte("free"), TimeToLive: brief})
		receiver := b.receiver()
		found := b.takeOne(receiver)

		same(texts(b.deadLetters(1)), []string{"free"})

		b.complete(receiver, found)
		same(texts(b.left()), []string{})
	})

	distinct := Wants{queue: settings{"requires_duplicate_detection": true}}
	test("a_duplicate_is_accepted_and_dropped", distinct, func(b *Bus) {
		with := func(body, id string) *sb.Message {
			return &sb.Message{Body: []byte(body), MessageID: &id}
		}
		b.send(with("first", "id"), with("second", "id"), with("other", "other"))

		same(texts(b.drained(2)), []string{"first", "other"})
		b.send(with("after", "id"))
		same(texts(b.left()), []string{})
	})

	chain := Wants{queues: map[string]settings{
		"go-source": {"forward_to": "go-middle"},
		"go-middle": {"forward_to": "go-target"},
		"go-target": {},
	}}
	test("messages_are_forwarded_along_a_chain", chain, func(b *Bus) {
		b.sendTo("go-source", "a", "b")

		same(texts(b.drainedFrom("go-target", 2, 0)), []string{"a", "b"})
	})

	deadChain := Wants{
		queue:  settings{"forward_dead_lettered_messages_to": "go-dead"},
		queues: map[string]settings{"go-dead": {}},
	}
	test("dead_letters_are_forwarded", deadChain, func(b *Bus) {
		b.send("bad")
		receiver := b.receiver()
		options := &sb.DeadLetterOptions{Reason: ptr("why")}
		must(receiver.DeadLetterMessage(b.ctx, b.takeOne(receiver), options))

		found := b.drainedFrom("go-dead", 1, 0)[0]

		same(string(found.Body), "bad")
		sameText(found.DeadLetterReason, "why")
		sameText(found.DeadLetterSource, b.name)
	})

	hops := Wants{queues: map[string]settings{"go-hop-7": {}}}
	for n := 1; n < 7; n++ {
		next := fmt.Sprint("go-hop-", n+1)
		hops.queues[fmt.Sprint("go-hop-", n)] = settings{"forward_to": next}
	}
	test("too_many_hops_end_in_a_transfer_dead_letter_queue", hops, func(b *Bus) {
		b.sendTo("go-hop-1", "far")

		options := sb.ReceiverOptions{SubQueue: sb.SubQueueTransfer}
		found := []*sb.ReceivedMessage{}
		for n := 1; n <= 7; n++ {
			queue := fmt.Sprint("go-hop-", n)
			if len(b.all(b.receiverOf(queue, options))) > 0 {
				found = append(found, b.takeOne(b.receiverOf(queue, options)))
			}
		}

		same(texts(found), []string{"far"})
		sameText(found[0].DeadLetterReason, "MaxTransferHopCountExceeded")
	})
}
