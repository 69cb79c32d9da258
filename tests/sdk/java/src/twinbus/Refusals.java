package twinbus;

import static twinbus.Bus.inSession;
import static twinbus.Bus.listed;
import static twinbus.Bus.message;
import static twinbus.Bus.nothingComes;
import static twinbus.Bus.takeOne;
import static twinbus.Bus.texts;
import static twinbus.Bus.withKey;
import static twinbus.Cases.NOTHING;
import static twinbus.Cases.PLAIN;
import static twinbus.Cases.SESSIONS;
import static twinbus.Cases.queue;
import static twinbus.Cases.subscription;
import static twinbus.Cases.test;
import static twinbus.Cases.topic;
import static twinbus.Checks.check;
import static twinbus.Checks.list;
import static twinbus.Checks.reasonOf;
import static twinbus.Checks.refused;
import static twinbus.Checks.same;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderAsyncClient;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** Refusals: the server says no, and the client turns that into its own reason. */
final class Refusals {
    private static final String MISSING = "MESSAGING_ENTITY_NOT_FOUND";
    private static final String DISABLED = "MESSAGING_ENTITY_DISABLED";
    private static final String DENIED = "UNAUTHORIZED";
    /** What the client makes of "not allowed". */
    private static final String NOT_ALLOWED = "UnsupportedOperationException";

    private Refusals() {
    }

    private static Object receive(ServiceBusReceiverClient receiver) {
        return texts(listed(receiver.receiveMessages(1, Duration.ofSeconds(5))));
    }

    private static void trySend(Bus bus, ServiceBusClientBuilder builder, Object given) {
        var sender = bus.kept(builder.sender().queueName(bus.name).buildClient());
        sender.sendMessage(message(given));
    }

    static void add() {
        addEntities();
        addKeys();
        addSizes();
        addRates();
        addSessions();
    }

    private static void addEntities() {
        test("an_unknown_queue_is_not_found", NOTHING, bus -> {
            refused(MISSING, () -> bus.send("x"));
            refused("NOT_FOUND", () -> receive(bus.receiver()));
            refused(MISSING, () -> bus.receiver().peekMessage());
        });

        test("an_unknown_subscription_is_not_found", topic(), bus ->
            refused("NOT_FOUND", () -> receive(bus.subscriber("nowhere"))));

        test("an_async_receiver_is_told_that_its_queue_is_not_found", NOTHING, bus -> {
            var receiver = bus.kept(bus.receiving(bus.name).buildAsyncClient());

            refused(MISSING, () -> receiver.receiveMessages().blockFirst(Bus.ARRIVES));
        });

        test("a_topic_is_no_place_to_receive", topic(subscription("all")), bus ->
            refused(NOT_ALLOWED, () -> receive(bus.receiver())));

        var off = queue(Map.of("status", "Disabled"));
        test("a_disabled_queue_is_refused", off, bus -> {
            refused(DISABLED, () -> bus.send("x"));
            refused("ENTITY_DISABLED_ERROR", () -> receive(bus.receiver()));
        });

        test("a_queue_may_refuse_sends_only", queue(Map.of("status", "SendDisabled")),
            bus -> {
                refused(DISABLED, () -> bus.send("x"));
                nothingComes(bus.receiver());
            });

        test("a_queue_may_refuse_receives_only",
            queue(Map.of("status", "ReceiveDisabled")), bus -> {
                bus.send("x");
                refused("ENTITY_DISABLED_ERROR", () -> receive(bus.receiver()));
            });
    }

    private static void addKeys() {
        test("a_wrong_key_is_refused", PLAIN, bus -> {
            var builder = bus.connect(
                withKey(bus.address(), "RootManageSharedAccessKey", "wrong"));

            refused(DENIED, () -> trySend(bus, builder, "x"));
            same(bus.left(), list());
        });

        test("an_unknown_key_name_is_refused", PLAIN, bus -> {
            var builder = bus.connect(withKey(bus.address(), "unknown", "wrong"));

            refused("UNAUTHORIZED_ACCESS",
                () -> receive(bus.kept(Bus.receiving(builder, bus.name).buildClient())));
        });

        var keys = queue(Map.of("authorization_rules", List.of(
            Map.of("name", "sends", "rights", List.of("Send"), "primary_key", "c2VuZHM="),
            Map.of("name", "listens", "rights", List.of("Listen"),
                "primary_key", "bGlzdGVucw=="))));
        test("a_key_has_only_its_rights", keys, bus -> {
            var sends = bus.connect(withKey(bus.address(), "sends", "c2VuZHM="));
            var listens = bus.connect(withKey(bus.address(), "listens", "bGlzdGVucw=="));

            trySend(bus, sends, "x");
            takeOne(bus.kept(Bus.receiving(listens, bus.name).buildClient()));

            var denied = bus.kept(Bus.receiving(sends, bus.name).buildClient());
            refused("UNAUTHORIZED_ACCESS", () -> receive(denied));
            refused(DENIED, () -> trySend(bus, listens, "y"));
            same(bus.left(), list("x"));
        });
    }

    private static void addSizes() {
        test("a_message_that_is_too_large_is_refused", PLAIN, bus -> {
            var sender = bus.sender();

            refused("MESSAGE_SIZE_EXCEEDED",
                () -> sender.sendMessage(new ServiceBusMessage(new byte[300_000])));

            sender.sendMessage(message("small"));
            same(bus.left(), list("small"));
        });

        var small = queue(Map.of("max_size_in_megabytes", 1));
        test("a_full_queue_is_refused", small, bus -> {
            var sender = bus.sender();
            byte[] body = new byte[200_000];

            refused("QUOTA_EXCEEDED", () -> {
                for (int n = 0; n < 10; n++) {
                    sender.sendMessage(new ServiceBusMessage(body));
                }
            });

            var receiver = bus.receiver();
            receiver.complete(takeOne(receiver));
            sender.sendMessage(new ServiceBusMessage(body));
        });
    }

    /** Sends 20 messages at once, and returns how many were refused as too many. */
    private static int crowd(ServiceBusSenderAsyncClient sender) {
        List<String> reasons = Flux.range(0, 20)
            .flatMap(n -> sender.sendMessage(message("x")).thenReturn("")
                .onErrorResume(error -> Mono.just(reasonOf(error))))
            .filter(reason -> !reason.isEmpty()).collectList().block(Bus.ARRIVES);
        check(!reasons.isEmpty() && reasons.size() < 20, reasons);
        reasons.forEach(reason -> same(reason, "SERVER_BUSY_ERROR"));
        return reasons.size();
    }

    private static void addRates() {
        var slow = queue(Map.of("message_rate_per_second", 1));
        test("a_busy_queue_is_refused_and_may_be_tried_again", slow, bus -> {
            int refused = crowd(
                bus.kept(bus.builder.sender().queueName(bus.name).buildAsyncClient()));

            var patient = bus.connect(bus.address()).retryOptions(Bus.retry(40));
            trySend(bus, patient, "patient");
            List<String> left = bus.left();
            same(left.size(), 20 - refused + 1);
            same(left.get(left.size() - 1), "patient");
        });

        test("a_busy_namespace_is_refused", NOTHING, bus -> {
            var other = bus.server.get("slow");
            var builder = bus.connect(other.get("connection_string").asText());

            crowd(bus.kept(builder.sender().queueName(other.get("queue").asText())
                .buildAsyncClient()));
        });
    }

    private static void addSessions() {
        test("a_session_queue_wants_a_session_receiver", SESSIONS, bus ->
            refused(NOT_ALLOWED, () -> receive(bus.receiver())));

        test("a_session_queue_wants_messages_with_sessions", SESSIONS, bus -> {
            refused(NOT_ALLOWED, () -> bus.send("x"));
            bus.send(inSession("s", "y"));
            same(takeOne(bus.nextSession()).getBody().toString(), "y");
        });

        test("a_plain_queue_has_no_sessions", PLAIN, bus -> {
            refused(NOT_ALLOWED, bus::nextSession);
            refused(NOT_ALLOWED, () -> bus.session("s"));
        });
    }
}
