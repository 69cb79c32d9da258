package twinbus;

import static twinbus.Bus.listed;
import static twinbus.Bus.message;
import static twinbus.Bus.numbers;
import static twinbus.Bus.take;
import static twinbus.Bus.takeOne;
import static twinbus.Bus.texts;
import static twinbus.Bus.with;
import static twinbus.Cases.NOTHING;
import static twinbus.Cases.PLAIN;
import static twinbus.Cases.queue;
import static twinbus.Cases.test;
import static twinbus.Checks.check;
import static twinbus.Checks.list;
import static twinbus.Checks.same;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusSenderAsyncClient;
import com.azure.messaging.servicebus.models.CreateMessageBatchOptions;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import reactor.core.publisher.Flux;

/** Sending: one message, several, batches, and what is accepted but not stored. */
final class Sending {
    private Sending() {
    }

    /** Bytes that differ from place to place. */
    static byte[] pattern(int count) {
        byte[] body = new byte[count];
        for (int n = 0; n < count; n++) {
            body[n] = (byte) (n * 7 + (n >> 8));
        }
        return body;
    }

    static void add() {
        test("a_message_arrives", PLAIN, bus -> {
            bus.sender().sendMessage(message("hello"));

            ServiceBusReceivedMessage found = takeOne(bus.receiver());

            same(found.getBody().toString(), "hello");
            same(found.getSequenceNumber(), 1L);
            same(found.getDeliveryCount(), 0L);
            same(found.getState(), ServiceBusMessageState.ACTIVE);
            check(found.getLockToken().length() == 36, found.getLockToken());
            Duration age = Duration.between(found.getEnqueuedTime(), OffsetDateTime.now());
            check(age.abs().toSeconds() < 30, age);
            check(found.getLockedUntil().isAfter(found.getEnqueuedTime()), "a lock");
        });

        test("a_list_is_sent_as_one_batch_in_order", PLAIN, bus -> {
            bus.send("a", "b", "c");

            List<ServiceBusReceivedMessage> found = bus.drained(3);

            same(texts(found), list("a", "b", "c"));
            same(numbers(found), list(1L, 2L, 3L));
        });

        test("a_batch_is_filled_to_the_brim", PLAIN, bus -> {
            var sender = bus.sender();
            ServiceBusMessageBatch batch = sender.createMessageBatch();
            same(batch.getMaxSizeInBytes(), 256 * 1024);
            while (batch.tryAddMessage(new ServiceBusMessage(filled(batch.getCount())))) {
                check(batch.getCount() < 100, batch.getCount());
            }
            check(batch.getCount() > 20, batch.getCount());

            sender.sendMessages(batch);

            List<ServiceBusReceivedMessage> found = bus.drained(batch.getCount());
            for (int n = 0; n < found.size(); n++) {
                same(found.get(n).getBody().toBytes()[0], (byte) n);
            }
        });

        test("a_batch_keeps_to_the_size_that_the_caller_gives", PLAIN, bus -> {
            var sender = bus.sender();
            var options = new CreateMessageBatchOptions().setMaximumSizeInBytes(1_000);
            ServiceBusMessageBatch batch = sender.createMessageBatch(options);
            while (batch.tryAddMessage(message("x".repeat(100)))) {
                check(batch.getSizeInBytes() <= 1_000, batch.getSizeInBytes());
            }

            sender.sendMessages(batch);

            same(bus.drained(batch.getCount()).size(), batch.getCount());
        });

        test("a_batch_keeps_properties_of_each_message", PLAIN, bus -> {
            bus.send(with("a", "n", 1).setMessageId("m1"),
                with("b", "n", 2).setMessageId("m2").setSubject("s"));

            List<ServiceBusReceivedMessage> found = bus.drained(2);

            same(found.get(0).getMessageId(), "m1");
            same(found.get(0).getApplicationProperties(), Map.of("n", 1));
            same(found.get(0).getSubject(), null);
            same(found.get(1).getMessageId(), "m2");
            same(found.get(1).getApplicationProperties(), Map.of("n", 2));
            same(found.get(1).getSubject(), "s");
        });

        test("many_sends_at_once_are_all_stored", PLAIN, bus -> {
            int count = 1_500;
            ServiceBusSenderAsyncClient sender =
                bus.kept(bus.builder.sender().queueName(bus.name).buildAsyncClient());

            Flux.range(0, count).flatMap(n -> sender.sendMessage(message("" + n)), 100)
                .blockLast(Bus.ARRIVES);

            Set<String> seen = new HashSet<>(texts(bus.drained(count)));
            same(seen.size(), count);
        });

        test("a_message_of_1_kib_is_settled", PLAIN, bus -> {
            bus.sender().sendMessage(message("x".repeat(1024)));

            var receiver = bus.receiver();
            receiver.complete(takeOne(receiver));
        });

        test("a_message_of_200_kb_arrives_whole", PLAIN, bus -> {
            byte[] body = pattern(200_000);
            bus.send(new ServiceBusMessage(body));

            same(takeOne(bus.receiver()).getBody().toBytes(), body);
        });

        var large = queue(Map.of("max_message_size_in_kilobytes", 2048));
        test("a_queue_may_take_larger_messages", large, bus -> {
            byte[] body = pattern(1_500_000);
            var sender = bus.sender();
            same(sender.createMessageBatch().getMaxSizeInBytes(), 2048 * 1024);
            sender.sendMessage(new ServiceBusMessage(body));

            same(takeOne(bus.receiver()).getBody().toBytes(), body);
        });

        test("a_ping_is_accepted_and_never_delivered", PLAIN, bus -> {
            String kind = "application/vnd.ms-servicebus-ping";
            bus.send(message("ping").setContentType(kind));
            bus.send(message("ping").setContentType(kind), "message");

            var receiver = bus.receiver();
            same(takeOne(receiver).getBody().toString(), "message");
            Bus.nothingComes(receiver);
            same(bus.left(), list("message"));
        });

        Map<String, Map<String, Object>> both =
            Map.of("java-first", Map.of(), "java-second", Map.of());
        test("several_links_share_one_connection", NOTHING.withQueues(both), bus -> {
            var first = bus.kept(bus.receiving("java-first").buildClient());
            var second = bus.kept(bus.receiving("java-second").buildClient());
            bus.sendTo("java-first", "1");
            bus.sendTo("java-second", "2");
            first.complete(takeOne(first));
            second.complete(takeOne(second));
            first.close();

            bus.sendTo("java-second", "still");
            same(texts(take(second, 1)), list("still"));
        });

        Map<String, Map<String, Object>> slashes = Map.of("java-team/a/New", Map.of());
        test("names_have_slashes_and_no_case", NOTHING.withQueues(slashes), bus -> {
            bus.sendTo("Java-Team/A/NEW", "x");

            same(texts(bus.drained("java-team/a/new", 1, SubQueue.NONE)), list("x"));
        });

        test("a_message_may_be_sent_on_as_it_came", PLAIN, bus -> {
            bus.send(with("body", "key", "value").setMessageId("id"));
            var receiver = bus.receiver();
            ServiceBusReceivedMessage found = takeOne(receiver);
            receiver.complete(found);

            bus.send(new ServiceBusMessage(found));

            ServiceBusReceivedMessage again = takeOne(receiver);
            same(again.getMessageId(), "id");
            same(again.getApplicationProperties(), Map.of("key", "value"));
            same(listed(list(again.getSequenceNumber())), list(2L));
        });
    }

    private static byte[] filled(int value) {
        byte[] body = new byte[9_000];
        java.util.Arrays.fill(body, (byte) value);
        return body;
    }
}
