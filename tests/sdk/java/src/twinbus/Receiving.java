package twinbus;

import static twinbus.Bus.message;
import static twinbus.Bus.nothingComes;
import static twinbus.Bus.take;
import static twinbus.Bus.takeOne;
import static twinbus.Bus.texts;
import static twinbus.Cases.PLAIN;
import static twinbus.Cases.SHORT;
import static twinbus.Cases.test;
import static twinbus.Checks.check;
import static twinbus.Checks.list;
import static twinbus.Checks.same;

import com.azure.messaging.servicebus.ServiceBusErrorContext;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessageContext;
import com.azure.messaging.servicebus.ServiceBusReceiverAsyncClient;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.stream.IntStream;

/** Receiving: sync, async and by a processor; both modes, waiting, order. */
final class Receiving {
    private Receiving() {
    }

    private static Object[] numbered(int count) {
        return IntStream.range(0, count).mapToObj(n -> String.format("%03d", n)).toArray();
    }

    /** A processor at work, and what it has seen. */
    static final class Stream {
        final List<ServiceBusReceivedMessage> seen =
            Collections.synchronizedList(new ArrayList<>());
        final List<Throwable> errors = Collections.synchronizedList(new ArrayList<>());
        private final CountDownLatch left;
        ServiceBusProcessorClient client;

        Stream(int count) {
            left = new CountDownLatch(count);
        }

        Consumer<ServiceBusReceivedMessageContext> each(
            Consumer<ServiceBusReceivedMessageContext> body) {
            return context -> {
                seen.add(context.getMessage());
                try {
                    body.accept(context);
                } finally {
                    left.countDown();
                }
            };
        }

        void failed(ServiceBusErrorContext context) {
            errors.add(context.getException());
        }

        /** Runs until so many messages were handled, and the queue is empty. */
        void await(Bus bus) throws InterruptedException {
            bus.kept(client).start();
            check(left.await(Bus.ARRIVES.toSeconds(), TimeUnit.SECONDS), texts(seen));
            bus.emptied();
        }
    }

    static void add() {
        test("a_locked_message_is_not_given_to_others", PLAIN, bus -> {
            bus.send("mine");
            var mine = bus.receiver();

            ServiceBusReceivedMessage found = takeOne(mine);

            nothingComes(bus.receiver());
            mine.complete(found);
            same(bus.left(), list());
        });

        test("receive_and_delete_leaves_nothing", PLAIN, bus -> {
            bus.send("a", "b");

            same(texts(bus.drained(2)), list("a", "b"));
            same(bus.left(), list());
        });

        test("an_empty_receive_ends_after_its_wait", PLAIN, bus -> {
            var receiver = bus.receiver();
            nothingComes(receiver);
            Instant started = Instant.now();

            same(Bus.listed(receiver.receiveMessages(5, Duration.ofMillis(400))), list());

            Duration waited = Duration.between(started, Instant.now());
            check(waited.toMillis() >= 390, waited);
        });

        test("a_receiver_that_has_waited_receives_again", PLAIN, bus -> {
            var receiver = bus.receiver();
            nothingComes(receiver);
            nothingComes(receiver);
            for (String text : list("a", "b", "c")) {
                bus.send(text);
                ServiceBusReceivedMessage found = takeOne(receiver);
                same(found.getBody().toString(), text);
                same(found.getDeliveryCount(), 0L);
                receiver.complete(found);
            }
            same(bus.left(), list());
        });

        test("a_message_goes_to_the_receiver_that_waits", PLAIN, bus -> {
            nothingComes(bus.receiver());
            bus.send("free");

            same(texts(take(bus.receiver(), 1)), list("free"));
        });

        test("a_waiting_receiver_gets_a_message_at_once", PLAIN, bus -> {
            var receiver = bus.receiver();
            var waiting = CompletableFuture.supplyAsync(() -> takeOne(receiver));
            bus.left();
            Instant sent = Instant.now();
            bus.send("now");

            same(waiting.get().getBody().toString(), "now");
            check(Duration.between(sent, Instant.now()).toSeconds() < 5, sent);
        });

        test("messages_come_in_the_order_of_sending", PLAIN, bus -> {
            Object[] wanted = numbered(200);
            bus.send(wanted);
            var receiver = bus.receiver();

            List<ServiceBusReceivedMessage> found = new ArrayList<>(take(receiver, 50));
            found.addAll(take(receiver, 150));

            same(texts(found).toArray(), wanted);
            found.forEach(receiver::complete);
            same(bus.left(), list());
        });

        test("receivers_compete_and_each_message_goes_to_one", PLAIN, bus -> {
            Object[] wanted = numbered(40);
            bus.send(wanted);
            var first = bus.receiver();
            var second = bus.receiver();

            var one = CompletableFuture.supplyAsync(() -> take(first, 20));
            var two = CompletableFuture.supplyAsync(() -> take(second, 20));

            List<String> found = new ArrayList<>(texts(one.get()));
            found.addAll(texts(two.get()));
            same(found.stream().sorted().toArray(), wanted);
        });

        test("an_async_receiver_completes_by_itself", PLAIN, bus -> {
            Object[] wanted = numbered(30);
            ServiceBusReceiverAsyncClient receiver =
                bus.kept(bus.builder.receiver().queueName(bus.name).buildAsyncClient());
            var seen = receiver.receiveMessages().take(30)
                .map(each -> each.getBody().toString()).collectList().toFuture();

            bus.send(wanted);

            same(seen.get(20, TimeUnit.SECONDS).toArray(), wanted);
        });

        test("an_async_receiver_settles_by_hand", PLAIN, bus -> {
            bus.send("complete", "defer", "dead-letter", "abandon");
            AbandonOptions kept = new AbandonOptions();
            ServiceBusReceiverAsyncClient receiver =
                bus.kept(bus.receiving(bus.name).buildAsyncClient());

            // The client closes its link when enough was taken: settle first.
            receiver.receiveMessages().concatMap(each -> (
                switch (each.getBody().toString()) {
                    case "complete" -> receiver.complete(each);
                    case "abandon" -> receiver.abandon(each, kept);
                    case "defer" -> receiver.defer(each);
                    default -> receiver.deadLetter(each);
                }).thenReturn(each)).take(4).blockLast(Bus.ARRIVES);

            same(bus.left(), list("defer", "abandon"));
            same(texts(bus.deadLetters(1)), list("dead-letter"));
        });

        test("an_async_receiver_prefetches", PLAIN, bus -> {
            Object[] wanted = numbered(100);
            bus.send(wanted);
            ServiceBusReceiverAsyncClient receiver =
                bus.kept(bus.receiving(bus.name).prefetchCount(20).buildAsyncClient());

            var seen = receiver.receiveMessages()
                .concatMap(each -> receiver.complete(each)
                    .thenReturn(each.getBody().toString()))
                .take(100).collectList().block(Bus.ARRIVES);

            same(seen.toArray(), wanted);
            same(bus.left(), list());
        });

        test("a_processor_completes_by_itself", PLAIN, bus -> {
            bus.send(numbered(30));
            Stream stream = new Stream(30);
            stream.client = bus.builder.processor().queueName(bus.name)
                .maxConcurrentCalls(4).processMessage(stream.each(context -> { }))
                .processError(stream::failed).buildProcessorClient();

            stream.await(bus);

            same(stream.errors, list());
        });

        test("a_processor_abandons_what_its_handler_refuses", PLAIN, bus -> {
            bus.send("twice");
            Stream stream = new Stream(2);
            stream.client = bus.builder.processor().queueName(bus.name)
                .processMessage(stream.each(context -> {
                    if (context.getMessage().getDeliveryCount() == 0) {
                        throw new IllegalStateException("fails on purpose");
                    }
                })).processError(stream::failed).buildProcessorClient();

            stream.await(bus);

            same(stream.seen.get(1).getDeliveryCount(), 1L);
        });

        test("a_processor_may_receive_and_delete", PLAIN, bus -> {
            bus.send("a", "b");
            Stream stream = new Stream(2);
            stream.client = bus.builder.processor().queueName(bus.name)
                .receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE)
                .processMessage(stream.each(context -> { }))
                .processError(stream::failed).buildProcessorClient();

            stream.await(bus);

            same(texts(stream.seen), list("a", "b"));
        });

        test("a_processor_renews_locks_by_itself", SHORT, bus -> {
            bus.send(message("long work"));
            var other = bus.receiver();
            Stream stream = new Stream(1);
            stream.client = bus.builder.processor().queueName(bus.name)
                .maxAutoLockRenewDuration(Duration.ofMinutes(1))
                .processMessage(stream.each(context -> {
                    var end = context.getMessage().getLockedUntil();
                    Bus.nothingComesUntil(other, end.plusSeconds(2));
                })).processError(stream::failed).buildProcessorClient();

            stream.await(bus);

            same(stream.errors, list());
        });
    }
}
