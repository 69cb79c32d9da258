package twinbus;

import static twinbus.Checks.check;
import static twinbus.Checks.same;

import com.azure.core.amqp.AmqpRetryMode;
import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.http.policy.FixedDelayOptions;
import com.azure.core.http.policy.HttpPipelinePolicy;
import com.azure.core.http.policy.RetryOptions;
import com.azure.core.util.UrlBuilder;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusClientBuilder.ServiceBusReceiverClientBuilder;
import com.azure.messaging.servicebus.ServiceBusClientBuilder.ServiceBusSessionReceiverClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.stream.StreamSupport;

/**
 * The official client at work: what a case holds in its hands.
 *
 * <p>Short words for what nearly every case does; the rest is the client's own interface.
 * The client does not retry, so a case sees the first answer of the server.
 */
final class Bus implements AutoCloseable {
    /** Long enough for a busy machine; what is expected comes much sooner. */
    static final Duration ARRIVES = Duration.ofSeconds(20);
    /** What should not come would come at once: the server is idle and near. */
    static final Duration BRIEFLY = Duration.ofMillis(400);

    final String name;
    final JsonNode server;
    /** Clients of one builder share a connection. */
    final ServiceBusClientBuilder builder;
    private final Deque<AutoCloseable> open = new ArrayDeque<>();

    Bus(String name, JsonNode server) {
        this.name = name;
        this.server = server;
        this.builder = connect(address());
    }

    @Override
    public void close() throws Exception {
        while (!open.isEmpty()) {
            open.pop().close();
        }
    }

    /** Closes a client with this one. */
    <T extends AutoCloseable> T kept(T client) {
        open.push(client);
        return client;
    }

    // -- connections -------------------------------------------------------------------

    String address() {
        return server.get("connection_string").asText();
    }

    int port(String kind) {
        return server.get(kind + "_port").asInt();
    }

    static AmqpRetryOptions retry(int count) {
        return new AmqpRetryOptions().setMaxRetries(count).setMode(AmqpRetryMode.FIXED)
            .setDelay(Duration.ofMillis(250)).setTryTimeout(ARRIVES);
    }

    /** The start of another connection. */
    ServiceBusClientBuilder connect(String address) {
        return new ServiceBusClientBuilder().connectionString(address)
            .retryOptions(retry(0));
    }

    /** The connection string for a port with TLS. */
    String secured(int port) {
        return address().replaceAll("UseDevelopmentEmulator=true;?", "")
            .replaceAll("Endpoint=[^;]*", "Endpoint=sb://localhost:" + port + "/");
    }

    static String withKey(String address, String name, String key) {
        return address
            .replaceAll("SharedAccessKeyName=[^;]*", "SharedAccessKeyName=" + name)
            .replaceAll("SharedAccessKey=[^;]*", "SharedAccessKey=" + key);
    }

    ServiceBusAdministrationClient admin() {
        return admin(secured(port("https"))).buildClient();
    }

    /** The client knows the standard port alone; a policy of the program names ours. */
    ServiceBusAdministrationClientBuilder admin(String address) {
        HttpPipelinePolicy policy = (context, next) -> {
            var request = context.getHttpRequest();
            UrlBuilder url = UrlBuilder.parse(request.getUrl());
            request.setUrl(url.setPort(port("https")).toString());
            return next.process();
        };
        FixedDelayOptions once = new FixedDelayOptions(0, Duration.ofMillis(1));
        return new ServiceBusAdministrationClientBuilder().connectionString(address)
            .addPolicy(policy).retryOptions(new RetryOptions(once));
    }

    // -- sending -----------------------------------------------------------------------

    ServiceBusSenderClient sender() {
        return sender(name);
    }

    ServiceBusSenderClient sender(String entity) {
        return kept(builder.sender().queueName(entity).buildClient());
    }

    /** Sends texts or messages, in order, as one batch. */
    void send(Object... messages) {
        sendTo(name, messages);
    }

    void sendTo(String entity, Object... messages) {
        List<ServiceBusMessage> all = new ArrayList<>();
        for (Object each : messages) {
            all.add(message(each));
        }
        sender(entity).sendMessages(all);
    }

    static ServiceBusMessage message(Object given) {
        return given instanceof ServiceBusMessage message
            ? message : new ServiceBusMessage((String) given);
    }

    static ServiceBusMessage inSession(String id, String body) {
        return new ServiceBusMessage(body).setSessionId(id);
    }

    static ServiceBusMessage with(String body, String key, Object value) {
        ServiceBusMessage message = new ServiceBusMessage(body);
        message.getApplicationProperties().put(key, value);
        return message;
    }

    // -- receiving ---------------------------------------------------------------------

    /** Locks end when they should, unless a case asks for renewal. */
    ServiceBusReceiverClientBuilder receiving(String queue) {
        return receiving(builder, queue);
    }

    static ServiceBusReceiverClientBuilder receiving(
        ServiceBusClientBuilder builder, String queue) {
        return builder.receiver().queueName(queue)
            .maxAutoLockRenewDuration(Duration.ZERO).disableAutoComplete();
    }

    ServiceBusReceiverClientBuilder subscribing(String subscription) {
        return builder.receiver().topicName(name).subscriptionName(subscription)
            .maxAutoLockRenewDuration(Duration.ZERO).disableAutoComplete();
    }

    ServiceBusReceiverClient receiver() {
        return kept(receiving(name).buildClient());
    }

    ServiceBusReceiverClient deadReceiver() {
        return kept(receiving(name).subQueue(SubQueue.DEAD_LETTER_QUEUE).buildClient());
    }

    ServiceBusReceiverClient subscriber(String subscription) {
        return kept(subscribing(subscription).buildClient());
    }

    ServiceBusSessionReceiverClientBuilder sessions() {
        return builder.sessionReceiver().queueName(name)
            .maxAutoLockRenewDuration(Duration.ZERO).disableAutoComplete();
    }

    ServiceBusReceiverClient session(String id) {
        return kept(kept(sessions().buildClient()).acceptSession(id));
    }

    ServiceBusReceiverClient nextSession() {
        return kept(kept(sessions().buildClient()).acceptNextSession());
    }

    /** Receives exactly so many messages; a receive alone may return fewer. */
    static List<ServiceBusReceivedMessage> take(ServiceBusReceiverClient from, int count) {
        List<ServiceBusReceivedMessage> messages = new ArrayList<>();
        Instant end = Instant.now().plus(ARRIVES);
        while (messages.size() < count) {
            check(Instant.now().isBefore(end), "only " + texts(messages) + " came");
            // The client closes its link when much more than this comes at once.
            int wanted = Math.min(count - messages.size(), 200);
            from.receiveMessages(wanted, ARRIVES).forEach(messages::add);
        }
        return messages;
    }

    static ServiceBusReceivedMessage takeOne(ServiceBusReceiverClient from) {
        return take(from, 1).get(0);
    }

    List<ServiceBusReceivedMessage> drained(int count) {
        return drained(name, count, SubQueue.NONE);
    }

    /** Takes so many messages out of a queue, or a queue below it. */
    List<ServiceBusReceivedMessage> drained(String queue, int count, SubQueue below) {
        return take(kept(receiving(queue).subQueue(below)
            .receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient()), count);
    }

    List<ServiceBusReceivedMessage> deadLetters(int count) {
        return drained(name, count, SubQueue.DEAD_LETTER_QUEUE);
    }

    List<ServiceBusReceivedMessage> collected(String subscription, int count) {
        return take(kept(subscribing(subscription)
            .receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient()), count);
    }

    /** Shows all messages behind a receiver, whatever their state. */
    static List<ServiceBusReceivedMessage> all(ServiceBusReceiverClient receiver) {
        return listed(receiver.peekMessages(100, 1));
    }

    /** Waits until nothing is left: a processor completes after its handler. */
    void emptied() {
        Instant end = Instant.now().plus(ARRIVES);
        var receiver = receiver();
        while (receiver.peekMessage(1) != null) {
            check(Instant.now().isBefore(end), "a message is left");
        }
    }

    List<String> left() {
        return texts(all(receiver()));
    }

    static void nothingComes(ServiceBusReceiverClient receiver) {
        same(texts(listed(receiver.receiveMessages(1, BRIEFLY))), List.of());
    }

    /** Receives until a moment has passed: time for the server, and nothing may come. */
    static void nothingComesUntil(ServiceBusReceiverClient receiver, OffsetDateTime at) {
        Duration wait = Duration.between(Instant.now(), at.toInstant());
        if (!wait.isNegative() && !wait.isZero()) {
            same(texts(listed(receiver.receiveMessages(1, wait))), List.of());
        }
    }

    static <T> List<T> listed(Iterable<T> items) {
        return StreamSupport.stream(items.spliterator(), false).toList();
    }

    static List<String> texts(List<ServiceBusReceivedMessage> messages) {
        return messages.stream().map(each -> each.getBody().toString()).toList();
    }

    static List<Long> numbers(List<ServiceBusReceivedMessage> messages) {
        return messages.stream().map(ServiceBusReceivedMessage::getSequenceNumber).toList();
    }
}
