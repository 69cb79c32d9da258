package twinbus;

import static twinbus.Bus.all;
import static twinbus.Bus.listed;
import static twinbus.Bus.message;
import static twinbus.Bus.nothingComes;
import static twinbus.Bus.nothingComesUntil;
import static twinbus.Bus.numbers;
import static twinbus.Bus.take;
import static twinbus.Bus.takeOne;
import static twinbus.Bus.texts;
import static twinbus.Cases.PLAIN;
import static twinbus.Cases.SHORT;
import static twinbus.Cases.queue;
import static twinbus.Cases.test;
import static twinbus.Checks.check;
import static twinbus.Checks.list;
import static twinbus.Checks.refused;
import static twinbus.Checks.same;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Settling: complete, abandon, defer, dead-letter; locks and their ends. */
final class Settling {
    private Settling() {
    }

    static DeadLetterOptions reason(Map<String, Object> properties) {
        return new DeadLetterOptions().setDeadLetterReason("reason")
            .setDeadLetterErrorDescription("description")
            .setPropertiesToModify(properties);
    }

    static List<ServiceBusReceivedMessage> deferred(
        ServiceBusReceiverClient receiver, List<ServiceBusReceivedMessage> messages) {
        return listed(receiver.receiveDeferredMessageBatch(numbers(messages)));
    }

    static void add() {
        addOutcomes();
        addDeadLetters();
        addLocks();
    }

    private static void addOutcomes() {
        test("an_abandoned_message_comes_back", PLAIN, bus -> {
            ServiceBusMessage given = message("a");
            given.getApplicationProperties().putAll(Map.of("kept", 1, "changed", 1));
            bus.send(given, "b");
            var receiver = bus.receiver();

            receiver.abandon(takeOne(receiver), new AbandonOptions()
                .setPropertiesToModify(Map.of("changed", 2, "added", "x")));

            List<ServiceBusReceivedMessage> again = take(receiver, 2);
            same(texts(again), list("a", "b"));
            same(again.get(0).getDeliveryCount(), 1L);
            same(again.get(0).getSequenceNumber(), 1L);
            same(again.get(0).getApplicationProperties(),
                Map.of("kept", 1, "changed", 2, "added", "x"));
            same(again.get(1).getDeliveryCount(), 0L);
        });

        test("a_deferred_message_comes_by_its_number_alone", PLAIN, bus -> {
            bus.send("later");
            var receiver = bus.receiver();
            ServiceBusReceivedMessage found = takeOne(receiver);

            receiver.defer(found, new DeferOptions()
                .setPropertiesToModify(Map.of("why", "not yet")));

            nothingComes(receiver);
            ServiceBusReceivedMessage deferred =
                receiver.receiveDeferredMessage(found.getSequenceNumber());
            same(deferred.getBody().toString(), "later");
            same(deferred.getState(), ServiceBusMessageState.DEFERRED);
            same(deferred.getApplicationProperties(), Map.of("why", "not yet"));
            check(!deferred.getLockToken().equals(found.getLockToken()), "another lock");
            check(receiver.renewMessageLock(deferred).isAfter(OffsetDateTime.now()), "new");
            receiver.complete(deferred);
            same(bus.left(), list());
        });

        test("deferred_messages_settle_in_every_way", PLAIN, bus -> {
            bus.send("complete", "abandon", "defer", "dead-letter");
            var receiver = bus.receiver();
            List<ServiceBusReceivedMessage> found = take(receiver, 4);
            found.forEach(receiver::defer);

            List<ServiceBusReceivedMessage> deferred = deferred(receiver, found);
            same(texts(deferred), texts(found));
            receiver.complete(deferred.get(0));
            receiver.abandon(deferred.get(1), new AbandonOptions()
                .setPropertiesToModify(Map.of("abandoned", true)));
            receiver.defer(deferred.get(2), new DeferOptions()
                .setPropertiesToModify(Map.of("deferred", true)));
            receiver.deadLetter(deferred.get(3), reason(Map.of("added", 1)));

            ServiceBusReceivedMessage dead = bus.deadLetters(1).get(0);
            same(dead.getBody().toString(), "dead-letter");
            same(dead.getDeadLetterReason(), "reason");
            same(dead.getDeadLetterErrorDescription(), "description");
            same(dead.getApplicationProperties().get("added"), 1);
            List<ServiceBusReceivedMessage> left = all(receiver);
            same(texts(left), list("abandon", "defer"));
            same(left.get(0).getApplicationProperties().get("abandoned"), true);
            same(left.get(1).getApplicationProperties().get("deferred"), true);
            same(left.get(1).getState(), ServiceBusMessageState.DEFERRED);
        });

        test("deferred_messages_may_be_received_and_deleted", PLAIN, bus -> {
            bus.send("later");
            var receiver = bus.receiver();
            ServiceBusReceivedMessage found = takeOne(receiver);
            receiver.defer(found);
            var deleting = bus.kept(bus.receiving(bus.name)
                .receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient());

            same(texts(deferred(deleting, list(found))), list("later"));

            same(bus.left(), list());
        });

        test("an_unknown_deferred_message_is_not_found", PLAIN, bus -> {
            bus.send("not deferred");
            var receiver = bus.receiver();
            long number = takeOne(receiver).getSequenceNumber();

            // The client turns the server's answer into an empty list.
            same(listed(receiver.receiveDeferredMessageBatch(
                list(number, number + 41))), list());
        });

        test("a_message_is_not_settled_twice", PLAIN, bus -> {
            bus.send("once", "twice");
            var receiver = bus.receiver();
            ServiceBusReceivedMessage found = takeOne(receiver);
            receiver.complete(found);

            // The client itself refuses.
            refused("IllegalArgumentException", () -> receiver.complete(found));
            same(bus.left(), list("twice"));
        });
    }

    private static void addDeadLetters() {
        test("a_message_is_dead_lettered_with_its_reason", PLAIN, bus -> {
            bus.send(Bus.with("bad", "kept", 1));
            var receiver = bus.receiver();

            receiver.deadLetter(takeOne(receiver), reason(Map.of("added", "x")));

            nothingComes(receiver);
            var dead = bus.deadReceiver();
            ServiceBusReceivedMessage found = takeOne(dead);
            same(found.getDeadLetterReason(), "reason");
            same(found.getDeadLetterErrorDescription(), "description");
            same(found.getApplicationProperties().get("kept"), 1);
            same(found.getApplicationProperties().get("added"), "x");
            dead.complete(found);
            same(all(dead), list());
        });

        test("a_dead_letter_needs_no_reason", PLAIN, bus -> {
            bus.send("bad");
            var receiver = bus.receiver();

            receiver.deadLetter(takeOne(receiver));

            ServiceBusReceivedMessage dead = bus.deadLetters(1).get(0);
            same(dead.getBody().toString(), "bad");
            same(dead.getDeadLetterReason(), null);
        });

        test("dead_letters_settle_like_others", PLAIN, bus -> {
            bus.send("defer", "abandon");
            var receiver = bus.receiver();
            take(receiver, 2).forEach(receiver::deadLetter);
            var dead = bus.deadReceiver();

            List<ServiceBusReceivedMessage> found = take(dead, 2);
            dead.defer(found.get(0));
            dead.abandon(found.get(1));

            same(takeOne(dead).getBody().toString(), "abandon");
            List<ServiceBusReceivedMessage> deferred = deferred(dead, found.subList(0, 1));
            same(texts(deferred), list("defer"));
            dead.complete(deferred.get(0));
        });

        var three = queue(Map.of("max_delivery_count", 3));
        test("too_many_deliveries_end_in_the_dead_letters", three, bus -> {
            bus.send("poison");
            var receiver = bus.receiver();
            List<Long> counts = new ArrayList<>();

            for (int n = 0; n < 3; n++) {
                ServiceBusReceivedMessage found = takeOne(receiver);
                counts.add(found.getDeliveryCount());
                receiver.abandon(found);
            }

            same(counts, list(0L, 1L, 2L));
            ServiceBusReceivedMessage dead = bus.deadLetters(1).get(0);
            same(dead.getDeadLetterReason(), "MaxDeliveryCountExceeded");
            nothingComes(receiver);
        });
    }

    private static void addLocks() {
        test("a_lock_ends_and_the_message_comes_back", SHORT, bus -> {
            bus.send("slow");
            var slow = bus.receiver();
            var other = bus.receiver();
            ServiceBusReceivedMessage found = takeOne(slow);

            ServiceBusReceivedMessage again = takeOne(other);

            OffsetDateTime end = found.getLockedUntil().minusNanos(100_000_000);
            check(OffsetDateTime.now().isAfter(end), end);
            same(again.getDeliveryCount(), 1L);
            refused("MESSAGE_LOCK_LOST", () -> slow.complete(found));
            refused("MESSAGE_LOCK_LOST", () -> slow.renewMessageLock(found));
            other.complete(again);
            same(bus.left(), list());
        });

        test("late_settlements_are_refused_in_every_way", SHORT, bus -> {
            bus.send("a", "b", "c");
            var slow = bus.receiver();
            var other = bus.receiver();
            List<ServiceBusReceivedMessage> found = take(slow, 3);
            List<ServiceBusReceivedMessage> again = take(other, 3);

            refused("MESSAGE_LOCK_LOST", () -> slow.abandon(found.get(0)));
            refused("MESSAGE_LOCK_LOST", () -> slow.defer(found.get(1)));
            // The client takes every rejection of a dead letter for its success.
            slow.deadLetter(found.get(2));

            again.forEach(other::complete);
            same(all(bus.deadReceiver()), list());
        });

        test("a_renewed_lock_lasts_longer", SHORT, bus -> {
            bus.send("long work");
            var receiver = bus.receiver();
            var other = bus.receiver();
            ServiceBusReceivedMessage found = takeOne(receiver);
            OffsetDateTime first = found.getLockedUntil();
            nothingComesUntil(other, first.minusNanos(2_500_000_000L));

            OffsetDateTime until = receiver.renewMessageLock(found);

            check(until.isAfter(first.plusSeconds(1)), until);
            nothingComesUntil(other, first.plusNanos(500_000_000));
            receiver.complete(found);
        });

        test("the_client_renews_a_lock_for_a_while", SHORT, bus -> {
            bus.send("long work");
            var receiver = bus.receiver();
            ServiceBusReceivedMessage found = takeOne(receiver);
            List<Throwable> errors = new ArrayList<>();

            receiver.renewMessageLock(found, Duration.ofSeconds(30), errors::add);

            nothingComesUntil(bus.receiver(), found.getLockedUntil().plusSeconds(2));
            receiver.complete(found);
            same(errors, list());
            same(bus.left(), list());
        });

        test("a_message_may_be_settled_after_its_link_closed", PLAIN, bus -> {
            bus.send("complete", "abandon");
            var closed = bus.receiver();
            List<ServiceBusReceivedMessage> found = take(closed, 2);
            closed.close();
            var receiver = bus.receiver();

            // The client sends these through the management link, with the lock token.
            receiver.complete(found.get(0));
            receiver.abandon(found.get(1), new AbandonOptions()
                .setPropertiesToModify(Map.of("added", 1)));

            ServiceBusReceivedMessage again = takeOne(receiver);
            same(again.getBody().toString(), "abandon");
            same(again.getDeliveryCount(), 1L);
            same(again.getApplicationProperties(), Map.of("added", 1));
        });

        test("locks_survive_the_connection", SHORT, bus -> {
            bus.send("held");
            ServiceBusReceivedMessage found;
            try (var other = Bus.receiving(bus.connect(bus.address()), bus.name)
                .buildClient()) {
                found = takeOne(other);
            }

            ServiceBusReceivedMessage again = takeOne(bus.receiver());

            OffsetDateTime end = found.getLockedUntil().minusNanos(100_000_000);
            check(OffsetDateTime.now().isAfter(end), end);
            same(again.getDeliveryCount(), 1L);
        });
    }
}
