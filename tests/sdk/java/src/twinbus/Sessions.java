package twinbus;

import static twinbus.Bus.all;
import static twinbus.Bus.inSession;
import static twinbus.Bus.nothingComes;
import static twinbus.Bus.nothingComesUntil;
import static twinbus.Bus.take;
import static twinbus.Bus.takeOne;
import static twinbus.Bus.texts;
import static twinbus.Cases.SESSIONS;
import static twinbus.Cases.queue;
import static twinbus.Cases.subscription;
import static twinbus.Cases.test;
import static twinbus.Cases.topic;
import static twinbus.Checks.check;
import static twinbus.Checks.list;
import static twinbus.Checks.refused;
import static twinbus.Checks.same;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;

/** Sessions: one holder, first in first out, state, locks. */
final class Sessions {
    private Sessions() {
    }

    static void add() {
        addMessages();
        addLocks();
        addStreams();
    }

    /** A client with a connection of its own. */
    private static ServiceBusSessionReceiverClient otherClient(Bus bus) {
        return bus.kept(bus.connect(bus.address()).sessionReceiver().queueName(bus.name)
            .maxAutoLockRenewDuration(Duration.ZERO).disableAutoComplete().buildClient());
    }

    private static String text(byte[] state) {
        return state == null ? null : new String(state, StandardCharsets.UTF_8);
    }

    private static void addMessages() {
        test("a_session_gets_its_own_messages_in_order", SESSIONS, bus -> {
            bus.send(inSession("a", "1"));
            bus.send(inSession("b", "2"));
            bus.send(inSession("a", "3"), inSession("a", "4"));

            var receiver = bus.session("a");
            List<ServiceBusReceivedMessage> found = take(receiver, 3);

            same(receiver.getSessionId(), "a");
            same(texts(found), list("1", "3", "4"));
            same(found.get(0).getSessionId(), "a");
            nothingComes(receiver);
            found.forEach(receiver::complete);
            same(texts(all(receiver)), list());
            same(bus.left(), list("2"));
        });

        test("a_session_keeps_its_order_when_a_message_comes_back", SESSIONS, bus -> {
            bus.send(inSession("s", "1"), inSession("s", "2"), inSession("s", "3"));
            var receiver = bus.session("s");

            receiver.abandon(takeOne(receiver));

            List<ServiceBusReceivedMessage> found = take(receiver, 3);
            same(texts(found), list("1", "2", "3"));
            same(found.get(0).getDeliveryCount(), 1L);
        });

        test("a_session_has_one_holder", SESSIONS, bus -> {
            var receiver = bus.session("s");

            // On one connection the client would share its link.
            var other = otherClient(bus);
            refused("SESSION_CANNOT_BE_LOCKED", () -> other.acceptSession("s"));

            receiver.close();
            same(bus.kept(other.acceptSession("s")).getSessionId(), "s");
        });

        test("the_next_session_has_messages_and_no_holder", SESSIONS, bus -> {
            bus.send(inSession("a", "1"));
            bus.send(inSession("b", "2"));

            var first = bus.nextSession();
            var second = bus.nextSession();

            same(Stream.of(first, second).map(ServiceBusReceiverClient::getSessionId)
                .sorted().toList(), list("a", "b"));
            same(takeOne(first).getSessionId(), first.getSessionId());
            same(takeOne(second).getSessionId(), second.getSessionId());
        });

        test("the_next_session_is_waited_for", SESSIONS, bus -> {
            var waiting = CompletableFuture.supplyAsync(bus::nextSession);
            bus.sender();

            bus.send(inSession("late", "1"));

            var receiver = waiting.get();
            same(receiver.getSessionId(), "late");
            same(texts(take(receiver, 1)), list("1"));
        });

        test("the_next_session_may_not_come", SESSIONS, bus -> {
            AmqpRetryOptions quick = Bus.retry(0).setTryTimeout(Duration.ofSeconds(1));
            var builder = bus.connect(bus.address()).retryOptions(quick);
            var client = bus.kept(builder.sessionReceiver().queueName(bus.name)
                .buildClient());

            try {
                client.acceptNextSession();
                throw new AssertionError("a session came");
            } catch (RuntimeException error) {
                bus.send(inSession("s", "1"));
            }

            same(bus.nextSession().getSessionId(), "s");
        });

        test("a_session_defers_and_dead_letters", SESSIONS, bus -> {
            bus.send(inSession("s", "deferred"), inSession("s", "dead"));
            var receiver = bus.session("s");
            List<ServiceBusReceivedMessage> found = take(receiver, 2);

            receiver.defer(found.get(0));
            receiver.deadLetter(found.get(1));

            var deferred = Settling.deferred(receiver, found.subList(0, 1));
            same(texts(deferred), list("deferred"));
            receiver.complete(deferred.get(0));
            // The dead letters of a queue with sessions have none.
            ServiceBusReceivedMessage dead = bus.deadLetters(1).get(0);
            same(dead.getBody().toString(), "dead");
            same(dead.getSessionId(), "s");
        });

        test("a_session_shows_its_own_messages", SESSIONS, bus -> {
            bus.send(inSession("a", "1"), inSession("a", "3"));
            bus.send(inSession("b", "2"));

            same(texts(all(bus.session("a"))), list("1", "3"));
        });

        test("a_session_may_receive_and_delete", SESSIONS, bus -> {
            bus.send(inSession("s", "1"), inSession("s", "2"));
            var receiver = bus.kept(bus.kept(bus.sessions()
                .receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient())
                .acceptSession("s"));

            same(texts(take(receiver, 2)), list("1", "2"));
            same(all(receiver), list());
        });

        var ordered = topic(subscription("ordered", Map.of("requires_session", true)));
        test("a_subscription_may_have_sessions", ordered, bus -> {
            bus.send(inSession("s", "1"), inSession("s", "2"));

            var receiver = bus.kept(bus.kept(bus.builder.sessionReceiver()
                .topicName(bus.name).subscriptionName("ordered").buildClient())
                .acceptSession("s"));

            same(texts(take(receiver, 2)), list("1", "2"));
        });
    }

    private static void addLocks() {
        var brief = queue(Map.of("requires_session", true, "lock_duration", "PT5S"));

        test("session_state_is_kept", SESSIONS, bus -> {
            var first = bus.session("s");
            same(first.getSessionState(), null);

            first.setSessionState("state ä".getBytes(StandardCharsets.UTF_8));

            same(text(first.getSessionState()), "state ä");
            first.close();
            var second = bus.kept(otherClient(bus).acceptSession("s"));
            same(text(second.getSessionState()), "state ä");
            second.setSessionState(null);
            same(second.getSessionState(), null);
            same(bus.session("other").getSessionState(), null);
        });

        test("a_session_lock_is_renewed", brief, bus -> {
            OffsetDateTime first = OffsetDateTime.now().plusSeconds(5);
            var receiver = bus.session("s");
            nothingComesUntil(receiver, first.minusNanos(2_500_000_000L));

            OffsetDateTime until = receiver.renewSessionLock();

            check(until.isAfter(first.plusSeconds(1)), until);
            nothingComesUntil(receiver, first.plusSeconds(1));
            var other = otherClient(bus);
            refused("SESSION_CANNOT_BE_LOCKED", () -> other.acceptSession("s"));
        });

        test("a_session_lock_ends_and_the_messages_come_back", brief, bus -> {
            bus.send(inSession("s", "1"));
            var slow = bus.session("s");
            ServiceBusReceivedMessage held = takeOne(slow);

            var next = bus.kept(otherClient(bus).acceptNextSession());

            ServiceBusReceivedMessage again = takeOne(next);
            same(again.getDeliveryCount(), 1L);
            refused("SESSION_LOCK_LOST", slow::renewSessionLock);
            try {
                slow.complete(held);
                throw new AssertionError("settled after the lock");
            } catch (RuntimeException error) {
                next.complete(again);
            }
        });

        test("a_closed_session_gives_its_messages_back", SESSIONS, bus -> {
            bus.send(inSession("s", "1"), inSession("s", "2"));
            var first = bus.session("s");
            take(first, 2);
            first.close();

            var second = bus.kept(otherClient(bus).acceptSession("s"));
            same(texts(take(second, 2)), list("1", "2"));
        });
    }

    private static void addStreams() {
        test("a_session_processor_handles_sessions", SESSIONS, bus -> {
            for (String id : list("a", "b", "c")) {
                bus.send(inSession(id, "1"), inSession(id, "2"));
            }
            Receiving.Stream stream = new Receiving.Stream(6);
            stream.client = bus.builder.sessionProcessor().queueName(bus.name)
                .maxConcurrentSessions(2).sessionIdleTimeout(Duration.ofSeconds(1))
                .processMessage(stream.each(context -> { }))
                .processError(stream::failed).buildProcessorClient();

            stream.await(bus);

            for (String id : list("a", "b", "c")) {
                same(texts(stream.seen.stream()
                    .filter(each -> each.getSessionId().equals(id)).toList()),
                    list("1", "2"));
            }
        });

        test("a_session_is_received_async", SESSIONS, bus -> {
            bus.send(inSession("s", "1"), inSession("s", "2"));
            var client = bus.kept(bus.sessions().buildAsyncClient());

            var found = client.acceptNextSession().flatMapMany(receiver ->
                receiver.receiveMessages()
                    .concatMap(each -> receiver.complete(each).thenReturn(each))
                    .take(2))
                .map(each -> each.getBody().toString()).collectList().block(Bus.ARRIVES);

            same(found, list("1", "2"));
            same(bus.left(), list());
        });
    }
}
