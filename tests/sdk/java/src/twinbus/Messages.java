package twinbus;

import static twinbus.Bus.all;
import static twinbus.Bus.message;
import static twinbus.Bus.nothingComesUntil;
import static twinbus.Bus.takeOne;
import static twinbus.Bus.texts;
import static twinbus.Cases.NOTHING;
import static twinbus.Cases.PLAIN;
import static twinbus.Cases.queue;
import static twinbus.Cases.test;
import static twinbus.Checks.check;
import static twinbus.Checks.list;
import static twinbus.Checks.same;

import com.azure.core.amqp.models.AmqpAnnotatedMessage;
import com.azure.core.amqp.models.AmqpMessageBody;
import com.azure.core.amqp.models.AmqpMessageBodyType;
import com.azure.core.amqp.models.AmqpMessageId;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/** What is in a message: every part arrives as it was sent. And how long it lives. */
final class Messages {
    private Messages() {
    }

    static void add() {
        addParts();
        addLifetimes();
        addForwarding();
    }

    private static void addParts() {
        test("every_property_arrives", PLAIN, bus -> {
            ServiceBusMessage given = Bus.with("body", "text", "ä€😀")
                .setContentType("text/plain").setCorrelationId("correlation")
                .setMessageId("message").setPartitionKey("session").setReplyTo("reply")
                .setReplyToSessionId("reply-session").setSessionId("session")
                .setSubject("subject").setTimeToLive(Duration.ofHours(1)).setTo("to");
            bus.send(given);

            ServiceBusReceivedMessage found = takeOne(bus.receiver());

            same(found.getBody().toString(), "body");
            same(found.getContentType(), "text/plain");
            same(found.getCorrelationId(), "correlation");
            same(found.getMessageId(), "message");
            same(found.getPartitionKey(), "session");
            same(found.getReplyTo(), "reply");
            same(found.getReplyToSessionId(), "reply-session");
            same(found.getSessionId(), "session");
            same(found.getSubject(), "subject");
            same(found.getTo(), "to");
            same(found.getTimeToLive(), Duration.ofHours(1));
            same(Duration.between(found.getEnqueuedTime(), found.getExpiresAt()),
                Duration.ofHours(1));
            same(found.getApplicationProperties(), Map.of("text", "ä€😀"));
        });

        test("application_properties_keep_their_types", PLAIN, bus -> {
            Map<String, Object> given = new LinkedHashMap<>();
            given.put("boolean", true);
            given.put("byte", (byte) -1);
            given.put("short", (short) -2);
            given.put("integer", -3);
            given.put("long", Long.MIN_VALUE);
            given.put("float", 1.5f);
            given.put("double", 2.5);
            given.put("character", 'c');
            given.put("text", "text");
            given.put("empty", "");
            given.put("uuid", UUID.fromString("00112233-4455-6677-8899-aabbccddeeff"));
            given.put("date", new Date(1_709_208_000_123L));
            ServiceBusMessage message = message("x");
            message.getApplicationProperties().putAll(given);
            bus.send(message);

            same(takeOne(bus.receiver()).getApplicationProperties(), given);
        });

        test("an_annotated_body_may_be_a_sequence", PLAIN, bus -> {
            List<Object> items = List.of("one", 2L, true);
            bus.send(new ServiceBusMessage(AmqpMessageBody.fromSequence(items)));

            AmqpMessageBody body = takeOne(bus.receiver()).getRawAmqpMessage().getBody();

            same(body.getBodyType(), AmqpMessageBodyType.SEQUENCE);
            same(body.getSequence(), items);
        });

        test("an_annotated_body_may_be_a_value", PLAIN, bus -> {
            List<Object> values = List.of("text", -7L, true, Map.of("one", 1L), 2.5);
            var sender = bus.sender();
            for (Object each : values) {
                sender.sendMessage(new ServiceBusMessage(AmqpMessageBody.fromValue(each)));
            }

            for (int n = 0; n < values.size(); n++) {
                var body = bus.drained(1).get(0).getRawAmqpMessage().getBody();
                same(body.getBodyType(), AmqpMessageBodyType.VALUE);
                same(body.getValue(), values.get(n));
            }
        });

        test("an_annotated_message_keeps_its_sections", PLAIN, bus -> {
            ServiceBusMessage given = message("x");
            AmqpAnnotatedMessage raw = given.getRawAmqpMessage();
            raw.getHeader().setDurable(true).setPriority((short) 7);
            raw.getProperties().setMessageId(new AmqpMessageId("id"))
                .setContentEncoding("utf-8").setGroupSequence(3L)
                .setUserId(new byte[] {1, 2});
            bus.send(given);

            ServiceBusReceivedMessage found = takeOne(bus.receiver());

            AmqpAnnotatedMessage seen = found.getRawAmqpMessage();
            same(found.getSequenceNumber(), 1L);
            same(seen.getHeader().isDurable(), true);
            same(seen.getHeader().getPriority(), (short) 7);
            same(seen.getProperties().getMessageId().toString(), "id");
            same(seen.getProperties().getContentEncoding(), "utf-8");
            same(seen.getProperties().getGroupSequence(), 3L);
            same(seen.getProperties().getUserId(), new byte[] {1, 2});
        });

        test("a_message_without_an_id_is_given_one", PLAIN, bus -> {
            bus.send("a", "b");

            List<ServiceBusReceivedMessage> found = bus.drained(2);

            String id = found.get(0).getMessageId();
            check(id.matches("[0-9a-f]{32}"), id);
            check(!id.equals(found.get(1).getMessageId()), id);
        });
    }

    private static void addLifetimes() {
        var dead = queue(Map.of("dead_lettering_on_message_expiration", true));

        test("an_expired_message_is_dead_lettered", dead, bus -> {
            bus.send(message("short").setTimeToLive(Duration.ofSeconds(1)), "long");

            ServiceBusReceivedMessage found = bus.deadLetters(1).get(0);

            same(found.getBody().toString(), "short");
            same(found.getDeadLetterReason(), "TTLExpiredException");
            same(texts(bus.drained(1)), list("long"));
        });

        var quick = queue(Map.of("default_message_time_to_live", "PT1S"));
        test("an_expired_message_is_gone", quick, bus -> {
            bus.send(message("gone").setTimeToLive(Duration.ofHours(1)));
            var seen = all(bus.receiver()).get(0);
            same(Duration.between(seen.getEnqueuedTime(), seen.getExpiresAt()),
                Duration.ofSeconds(1));

            nothingComesUntil(bus.deadReceiver(), seen.getExpiresAt().plusNanos(100_000_000));

            same(bus.left(), list());
        });

        test("a_locked_message_outlives_its_time", dead, bus -> {
            Duration brief = Duration.ofMillis(2_500);
            bus.send(message("held").setTimeToLive(brief),
                message("free").setTimeToLive(brief));
            var receiver = bus.receiver();
            ServiceBusReceivedMessage found = takeOne(receiver);

            same(texts(bus.deadLetters(1)), list("free"));

            receiver.complete(found);
            same(bus.left(), list());
        });

        var distinct = queue(Map.of("requires_duplicate_detection", true));
        test("a_duplicate_is_accepted_and_dropped", distinct, bus -> {
            bus.send(message("first").setMessageId("id"));
            bus.send(message("second").setMessageId("id"),
                message("other").setMessageId("other"));

            same(texts(bus.drained(2)), list("first", "other"));
            bus.send(message("after").setMessageId("id"));
            same(bus.left(), list());
        });
    }

    private static void addForwarding() {
        Map<String, Map<String, Object>> chain = Map.of(
            "java-source", Map.of("forward_to", "java-middle"),
            "java-middle", Map.of("forward_to", "java-target"),
            "java-target", Map.of());
        test("messages_are_forwarded_along_a_chain", NOTHING.withQueues(chain), bus -> {
            bus.sendTo("java-source", "a", "b");

            var found = bus.drained("java-target", 2, SubQueue.NONE);

            same(texts(found), list("a", "b"));
        });

        var dead = queue(Map.of("forward_dead_lettered_messages_to", "java-dead"))
            .withQueues(Map.of("java-dead", Map.of()));
        test("dead_letters_are_forwarded", dead, bus -> {
            bus.send("bad");
            var receiver = bus.receiver();
            receiver.deadLetter(takeOne(receiver), Settling.reason(null));

            var found = bus.drained("java-dead", 1, SubQueue.NONE).get(0);

            same(found.getBody().toString(), "bad");
            same(found.getDeadLetterReason(), "reason");
            same(found.getDeadLetterSource(), bus.name);
        });

        Map<String, Map<String, Object>> hops = new LinkedHashMap<>();
        for (int n = 1; n < 7; n++) {
            hops.put("java-hop-" + n, Map.of("forward_to", "java-hop-" + (n + 1)));
        }
        hops.put("java-hop-7", Map.of());
        test("too_many_hops_end_in_a_transfer_dead_letter_queue",
            NOTHING.withQueues(hops), bus -> {
                bus.sendTo("java-hop-1", "far");

                List<String> reasons = new ArrayList<>();
                for (String queue : hops.keySet()) {
                    var receiver = bus.kept(bus.receiving(queue)
                        .subQueue(SubQueue.TRANSFER_DEAD_LETTER_QUEUE).buildClient());
                    all(receiver).forEach(each -> reasons.add(each.getDeadLetterReason()));
                }

                same(reasons, list("MaxTransferHopCountExceeded"));
            });
    }
}
