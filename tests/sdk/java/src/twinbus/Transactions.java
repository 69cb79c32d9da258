package twinbus;

import static twinbus.Bus.all;
import static twinbus.Bus.message;
import static twinbus.Bus.take;
import static twinbus.Bus.takeOne;
import static twinbus.Bus.texts;
import static twinbus.Cases.PLAIN;
import static twinbus.Cases.test;
import static twinbus.Checks.list;
import static twinbus.Checks.refused;
import static twinbus.Checks.same;

import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import java.util.List;
import java.util.Map;

/** Transactions: sends, schedules and settlements that happen together, or not at all. */
final class Transactions {
    private Transactions() {
    }

    private static CompleteOptions within(ServiceBusTransactionContext transaction) {
        return new CompleteOptions().setTransactionContext(transaction);
    }

    static void add() {
        test("a_transaction_sends_when_it_is_committed", PLAIN, bus -> {
            var sender = bus.sender();
            ServiceBusTransactionContext transaction = sender.createTransaction();
            sender.sendMessage(message("a"), transaction);
            sender.sendMessages(list(message("b"), message("c")), transaction);
            same(bus.left(), list());

            sender.commitTransaction(transaction);

            same(bus.left(), list("a", "b", "c"));
        });

        test("a_transaction_that_is_rolled_back_sends_nothing", PLAIN, bus -> {
            var sender = bus.sender();
            ServiceBusTransactionContext transaction = sender.createTransaction();
            sender.sendMessage(message("never"), transaction);

            sender.rollbackTransaction(transaction);

            same(bus.left(), list());
            sender.sendMessage(message("after"));
            same(bus.left(), list("after"));
        });

        test("a_transaction_schedules_with_a_send", PLAIN, bus -> {
            var sender = bus.sender();
            ServiceBusTransactionContext kept = sender.createTransaction();
            sender.sendMessage(
                message("kept").setScheduledEnqueueTime(Scheduling.later()), kept);
            sender.commitTransaction(kept);
            ServiceBusTransactionContext dropped = sender.createTransaction();
            sender.sendMessage(
                message("dropped").setScheduledEnqueueTime(Scheduling.later()), dropped);
            sender.rollbackTransaction(dropped);

            same(bus.left(), list("kept"));
        });

        test("a_request_to_schedule_is_refused_in_a_transaction", PLAIN, bus -> {
            var sender = bus.sender();
            ServiceBusTransactionContext transaction = sender.createTransaction();

            refused("UnsupportedOperationException", () -> sender.scheduleMessage(
                message("x"), Scheduling.later(), transaction));

            sender.rollbackTransaction(transaction);
            same(bus.left(), list());
        });

        test("a_transaction_settles_in_every_way", PLAIN, bus -> {
            bus.send("complete", "abandon", "defer", "dead-letter");
            var receiver = bus.receiver();
            List<ServiceBusReceivedMessage> found = take(receiver, 4);
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            receiver.complete(found.get(0), within(transaction));
            receiver.abandon(found.get(1),
                new AbandonOptions().setTransactionContext(transaction));
            receiver.defer(found.get(2),
                new DeferOptions().setTransactionContext(transaction));
            receiver.deadLetter(found.get(3), new DeadLetterOptions()
                .setDeadLetterReason("why").setTransactionContext(transaction));
            same(bus.left().size(), 4);

            receiver.commitTransaction(transaction);

            same(bus.left(), list("abandon", "defer"));
            same(bus.deadLetters(1).get(0).getDeadLetterReason(), "why");
        });

        test("a_transaction_that_is_rolled_back_settles_nothing", PLAIN, bus -> {
            bus.send("kept");
            var receiver = bus.receiver();
            ServiceBusReceivedMessage found = takeOne(receiver);
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            receiver.complete(found, within(transaction));

            receiver.rollbackTransaction(transaction);

            same(texts(all(receiver)), list("kept"));
        });

        test("a_transaction_receives_and_sends_on", PLAIN, bus -> {
            bus.send("in");
            var receiver = bus.receiver();
            var sender = bus.sender();
            ServiceBusTransactionContext transaction = sender.createTransaction();
            receiver.complete(takeOne(receiver), within(transaction));
            sender.sendMessage(message("out"), transaction);

            sender.commitTransaction(transaction);

            same(bus.left(), list("out"));
        });

        var other = PLAIN.withQueues(Map.of("java-across", Map.of()));
        test("a_transaction_goes_across_entities", other, bus -> {
            bus.send("in");
            var builder = bus.connect(bus.address()).enableCrossEntityTransactions();
            var receiver = bus.kept(Bus.receiving(builder, bus.name).buildClient());
            ServiceBusReceivedMessage found = takeOne(receiver);
            var sender = bus.kept(builder.sender().queueName("java-across").buildClient());
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            sender.sendMessage(message("out"), transaction);
            receiver.complete(found, within(transaction));

            receiver.commitTransaction(transaction);

            same(bus.left(), list());
            var target = bus.kept(bus.receiving("java-across").buildClient());
            same(texts(all(target)), list("out"));
        });

        test("an_ended_transaction_is_refused", PLAIN, bus -> {
            var sender = bus.sender();
            ServiceBusTransactionContext transaction = sender.createTransaction();
            sender.commitTransaction(transaction);

            // The client has no name for the condition.
            refused("null", () -> sender.commitTransaction(transaction));
            same(bus.left(), list());
        });

        test("a_transaction_with_a_refused_send_is_not_committed", PLAIN, bus -> {
            var sender = bus.sender();
            ServiceBusTransactionContext transaction = sender.createTransaction();
            // More than a transaction takes; the client does not show that it is refused.
            for (int n = 0; n <= 100; n++) {
                sender.sendMessage(message("" + n), transaction);
            }

            refused("null", () -> sender.commitTransaction(transaction));

            same(bus.left(), list());
        });
    }
}
