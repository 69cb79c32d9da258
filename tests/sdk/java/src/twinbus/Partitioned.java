package twinbus;

import static twinbus.Bus.all;
import static twinbus.Bus.inSession;
import static twinbus.Bus.listed;
import static twinbus.Bus.message;
import static twinbus.Bus.numbers;
import static twinbus.Bus.take;
import static twinbus.Bus.texts;
import static twinbus.Cases.queue;
import static twinbus.Cases.test;
import static twinbus.Checks.list;
import static twinbus.Checks.same;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

/**
 * Partitioned queues: fragments in several shards behind one entity.
 *
 * <p>A sequence number is 64 bits: the fragment above 48 bits of the number inside it.
 */
final class Partitioned {
    private static final int SHARDS = 4;
    private static final List<String> NAMES =
        IntStream.range(0, 16).mapToObj(n -> String.format("m%02d", n)).toList();

    private Partitioned() {
    }

    private static long fragments(List<Long> numbers) {
        return numbers.stream().map(number -> number >>> 48).distinct().count();
    }

    /** Sends each message alone, so that those without a key take turns. */
    private static void sendNames(Bus bus) {
        var sender = bus.sender();
        NAMES.forEach(name -> sender.sendMessage(message(name)));
    }

    private static void assertSpread(List<ServiceBusReceivedMessage> found) {
        same(texts(found).stream().sorted().toList(), NAMES);
        same(fragments(numbers(found)), (long) SHARDS);
    }

    static void add() {
        var parted = queue(Map.of("enable_partitioning", true)).in("parted");

        test("fragments_share_messages_without_a_key", parted, bus -> {
            sendNames(bus);
            var receiver = bus.receiver();

            List<ServiceBusReceivedMessage> found = take(receiver, NAMES.size());

            assertSpread(found);
            found.forEach(receiver::complete);
            same(all(receiver), list());
        });

        test("peeks_go_on_from_fragment_to_fragment", parted, bus -> {
            sendNames(bus);
            var receiver = bus.receiver();

            List<ServiceBusReceivedMessage> found = new ArrayList<>();
            List<ServiceBusReceivedMessage> more = listed(receiver.peekMessages(3));
            while (!more.isEmpty()) {
                found.addAll(more);
                more = listed(receiver.peekMessages(3));
            }

            assertSpread(found);
        });

        test("schedules_are_cancelled_in_all_fragments", parted, bus -> {
            List<ServiceBusMessage> given = NAMES.stream()
                .map(name -> message(name).setPartitionKey(name)).toList();
            var sender = bus.sender();

            List<Long> found = listed(sender.scheduleMessages(given, Scheduling.later()));

            same(fragments(found), (long) SHARDS);
            same(bus.left().size(), NAMES.size());
            sender.cancelScheduledMessages(found);
            same(bus.left(), list());
        });

        test("deferred_messages_come_by_their_numbers", parted, bus -> {
            sendNames(bus);
            var receiver = bus.receiver();
            List<ServiceBusReceivedMessage> found = take(receiver, NAMES.size());
            found.forEach(receiver::defer);

            List<ServiceBusReceivedMessage> deferred = Settling.deferred(receiver, found);

            same(texts(deferred), texts(found));
            receiver.renewMessageLock(deferred.get(0));
            deferred.forEach(receiver::complete);
            same(all(receiver), list());
        });

        var sessions = queue(
            Map.of("enable_partitioning", true, "requires_session", true)).in("parted");
        test("sessions_live_in_one_fragment_each", sessions, bus -> {
            List<String> ids = list("s0", "s1", "s2", "s3", "s4", "s5");
            ids.forEach(id -> bus.send(inSession(id, "1"), inSession(id, "2")));

            List<String> open = new ArrayList<>();
            for (int n = 0; n < ids.size(); n++) {
                var receiver = bus.nextSession();
                open.add(receiver.getSessionId());
                List<ServiceBusReceivedMessage> found = take(receiver, 2);
                same(texts(found), list("1", "2"));
                same(fragments(numbers(found)), 1L);
                receiver.renewSessionLock();
                found.forEach(receiver::complete);
            }

            same(open.stream().sorted().toList(), ids);
        });
    }
}
