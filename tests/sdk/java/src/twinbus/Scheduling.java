package twinbus;

import static twinbus.Bus.all;
import static twinbus.Bus.inSession;
import static twinbus.Bus.listed;
import static twinbus.Bus.message;
import static twinbus.Bus.nothingComes;
import static twinbus.Bus.take;
import static twinbus.Bus.takeOne;
import static twinbus.Bus.texts;
import static twinbus.Cases.PLAIN;
import static twinbus.Cases.SESSIONS;
import static twinbus.Cases.subscription;
import static twinbus.Cases.test;
import static twinbus.Cases.topic;
import static twinbus.Checks.check;
import static twinbus.Checks.list;
import static twinbus.Checks.refused;
import static twinbus.Checks.same;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import java.time.OffsetDateTime;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;

/** Scheduling: messages that are to arrive later, or no longer. And browsing. */
final class Scheduling {
    private Scheduling() {
    }

    static OffsetDateTime soon() {
        return OffsetDateTime.now().plusNanos(1_500_000_000).truncatedTo(ChronoUnit.MILLIS);
    }

    static OffsetDateTime later() {
        return OffsetDateTime.now().plusHours(1);
    }

    static List<Long> schedule(Bus bus, OffsetDateTime at, String... bodies) {
        List<ServiceBusMessage> messages = new ArrayList<>();
        for (String each : bodies) {
            messages.add(message(each));
        }
        return listed(bus.sender().scheduleMessages(messages, at));
    }

    static void add() {
        addSchedules();
        addBrowsing();
    }

    private static void addSchedules() {
        test("a_scheduled_message_arrives_at_its_time", PLAIN, bus -> {
            OffsetDateTime at = soon();

            long number = bus.sender().scheduleMessage(message("soon"), at);

            var receiver = bus.receiver();
            ServiceBusReceivedMessage waiting = all(receiver).get(0);
            same(waiting.getState(), ServiceBusMessageState.SCHEDULED);
            same(waiting.getSequenceNumber(), number);
            same(waiting.getScheduledEnqueueTime().toInstant(), at.toInstant());
            ServiceBusReceivedMessage found = takeOne(receiver);
            check(!OffsetDateTime.now().isBefore(at), "not before its time");
            same(found.getBody().toString(), "soon");
            check(!found.getEnqueuedTime().isBefore(at), found.getEnqueuedTime());
            check(found.getSequenceNumber() > number, found.getSequenceNumber());
        });

        test("several_messages_are_scheduled_at_once", PLAIN, bus -> {
            same(schedule(bus, soon(), "a", "b", "c"), list(1L, 2L, 3L));

            same(texts(bus.drained(3)), list("a", "b", "c"));
        });

        test("a_sent_message_may_carry_its_time", PLAIN, bus -> {
            OffsetDateTime at = soon();
            bus.send(message("soon").setScheduledEnqueueTime(at), "now");

            same(texts(take(bus.receiver(), 2)), list("now", "soon"));
            check(!OffsetDateTime.now().isBefore(at), "not before its time");
        });

        test("a_cancelled_message_never_arrives", PLAIN, bus -> {
            List<Long> numbers = schedule(bus, later(), "a", "b", "c");

            bus.sender().cancelScheduledMessage(numbers.get(0));
            bus.sender().cancelScheduledMessages(numbers.subList(2, 3));

            same(bus.left(), list("b"));
        });

        test("a_message_may_be_cancelled_twice", PLAIN, bus -> {
            var sender = bus.sender();
            long number = sender.scheduleMessage(message("x"), later());
            sender.cancelScheduledMessage(number);

            // The client takes the server's answer, that there is none, for success.
            sender.cancelScheduledMessage(number);
            same(bus.left(), list());
        });

        test("a_topic_publishes_at_the_scheduled_time", topic(subscription("all")), bus -> {
            OffsetDateTime at = soon();
            schedule(bus, at, "soon");

            var receiver = bus.subscriber("all");
            same(texts(take(receiver, 1)), list("soon"));
            check(!OffsetDateTime.now().isBefore(at), "not before its time");
            nothingComes(receiver);
        });

        test("a_session_message_may_be_scheduled", SESSIONS, bus -> {
            bus.sender().scheduleMessage(inSession("s", "soon"), soon());

            var receiver = bus.nextSession();

            same(receiver.getSessionId(), "s");
            same(texts(take(receiver, 1)), list("soon"));
        });

        test("a_large_message_is_not_scheduled", PLAIN, bus -> {
            List<ServiceBusMessage> messages =
                List.of(message("x"), new ServiceBusMessage(new byte[300_000]));

            // The client itself refuses.
            refused("MESSAGE_SIZE_EXCEEDED",
                () -> listed(bus.sender().scheduleMessages(messages, later())));
            same(bus.left(), list());
        });
    }

    private static void addBrowsing() {
        test("browsing_takes_nothing", PLAIN, bus -> {
            bus.send("a", "b");
            var receiver = bus.receiver();

            ServiceBusReceivedMessage first = receiver.peekMessage();

            same(first.getBody().toString(), "a");
            same(first.getDeliveryCount(), 0L);
            same(texts(take(receiver, 2)), list("a", "b"));
        });

        test("browsing_an_empty_queue_shows_nothing", PLAIN, bus -> {
            same(bus.receiver().peekMessage(), null);
            same(bus.left(), list());
        });

        test("browsing_goes_on_where_it_stopped", PLAIN, bus -> {
            bus.send("a", "b", "c");
            var receiver = bus.receiver();

            List<List<String>> parts = new ArrayList<>();
            for (int n = 0; n < 3; n++) {
                parts.add(texts(listed(receiver.peekMessages(2))));
            }

            same(parts, list(list("a", "b"), list("c"), list()));
        });

        test("browsing_starts_at_a_sequence_number", PLAIN, bus -> {
            bus.send("a", "b", "c", "d");

            same(texts(listed(bus.receiver().peekMessages(10, 3))), list("c", "d"));
        });

        test("browsing_shows_every_state", PLAIN, bus -> {
            bus.send("deferred", "locked", "active");
            var receiver = bus.receiver();
            receiver.defer(takeOne(receiver));
            takeOne(receiver);
            schedule(bus, later(), "scheduled");

            List<ServiceBusReceivedMessage> found = all(receiver);

            same(texts(found), list("deferred", "locked", "active", "scheduled"));
            same(found.stream().map(ServiceBusReceivedMessage::getState).toList(), list(
                ServiceBusMessageState.DEFERRED, ServiceBusMessageState.ACTIVE,
                ServiceBusMessageState.ACTIVE, ServiceBusMessageState.SCHEDULED));
        });

        test("browsing_shows_dead_letters", PLAIN, bus -> {
            bus.send("dead", "alive");
            var receiver = bus.receiver();
            receiver.deadLetter(takeOne(receiver));

            same(texts(all(bus.deadReceiver())), list("dead"));
            same(texts(all(receiver)), list("alive"));
        });

        test("browsing_shows_large_messages", PLAIN, bus -> {
            String body = "x".repeat(150_000);
            for (int n = 0; n < 3; n++) {
                bus.send(body);
            }
            var receiver = bus.receiver();

            List<String> seen = new ArrayList<>();
            while (seen.size() < 3) {
                List<String> more = texts(listed(receiver.peekMessages(3)));
                check(!more.isEmpty(), seen.size());
                seen.addAll(more);
            }

            same(seen, list(body, body, body));
        });
    }
}
