package twinbus;

import static twinbus.Bus.all;
import static twinbus.Bus.inSession;
import static twinbus.Bus.message;
import static twinbus.Bus.take;
import static twinbus.Bus.takeOne;
import static twinbus.Cases.PLAIN;
import static twinbus.Cases.SESSIONS;
import static twinbus.Cases.test;
import static twinbus.Checks.list;
import static twinbus.Checks.same;

import com.azure.core.amqp.AmqpTransportType;
import com.azure.core.credential.AzureSasCredential;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Base64;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Transports: TLS, WebSocket, and other ways to say who one is. */
final class Transports {
    private Transports() {
    }

    private static void roundTrip(Bus bus, ServiceBusClientBuilder builder) {
        byte[] body = Sending.pattern(200_000);
        var sender = bus.kept(builder.sender().queueName(bus.name).buildClient());
        sender.sendMessage(new ServiceBusMessage(body));
        sender.sendMessages(List.of(message("a"), message("b")));
        var receiver = bus.kept(Bus.receiving(builder, bus.name).buildClient());
        List<ServiceBusReceivedMessage> found = take(receiver, 3);
        found.forEach(receiver::complete);
        same(found.get(0).getBody().toBytes(), body);
        same(found.get(2).getBody().toString(), "b");
        same(all(receiver), list());
    }

    private static String part(Bus bus, String name) {
        Matcher found = Pattern.compile(name + "=([^;]*)").matcher(bus.address());
        found.find();
        return found.group(1);
    }

    /** A token for everything in the namespace. */
    private static String signature(Bus bus, String resource) throws Exception {
        String encoded = URLEncoder.encode(resource, StandardCharsets.UTF_8);
        long end = Instant.now().getEpochSecond() + 3_600;
        Mac mac = Mac.getInstance("HmacSHA256");
        byte[] key = part(bus, "SharedAccessKey").getBytes(StandardCharsets.UTF_8);
        mac.init(new SecretKeySpec(key, "HmacSHA256"));
        byte[] signed = mac.doFinal((encoded + "\n" + end).getBytes(StandardCharsets.UTF_8));
        String text = Base64.getEncoder().encodeToString(signed);
        return "SharedAccessSignature sr=" + encoded + "&sig="
            + URLEncoder.encode(text, StandardCharsets.UTF_8) + "&se=" + end + "&skn="
            + part(bus, "SharedAccessKeyName");
    }

    static void add() {
        test("tls_works", PLAIN, bus ->
            roundTrip(bus, bus.connect(bus.secured(bus.port("amqps")))));

        test("a_websocket_works", PLAIN, bus ->
            roundTrip(bus, bus.connect(bus.secured(bus.port("https")))
                .transportType(AmqpTransportType.AMQP_WEB_SOCKETS)));

        test("sessions_work_over_a_websocket", SESSIONS, bus -> {
            var builder = bus.connect(bus.secured(bus.port("https")))
                .transportType(AmqpTransportType.AMQP_WEB_SOCKETS);
            bus.kept(builder.sender().queueName(bus.name).buildClient())
                .sendMessage(inSession("s", "x"));

            var receiver = bus.kept(bus.kept(builder.sessionReceiver()
                .queueName(bus.name).buildClient()).acceptNextSession());

            ServiceBusReceivedMessage found = takeOne(receiver);
            receiver.setSessionState("state".getBytes(StandardCharsets.UTF_8));
            receiver.complete(found);
            same(new String(receiver.getSessionState(), StandardCharsets.UTF_8), "state");
        });

        // Runs behind a proxy that cuts the first connection, too.
        test("sends_and_receives_go_on_after_a_cut", PLAIN, bus -> {
            var builder = bus.connect(bus.address()).retryOptions(Bus.retry(5));
            var sender = bus.kept(builder.sender().queueName(bus.name).buildClient());
            Set<String> wanted = new TreeSet<>();
            for (int n = 0; n < 30; n++) {
                wanted.add("" + n);
                sender.sendMessage(message("" + n));
            }

            // A message whose answer was lost may have been stored twice.
            var receiver = bus.kept(Bus.receiving(builder, bus.name).buildClient());
            Set<String> seen = new TreeSet<>();
            while (!all(receiver).isEmpty()) {
                ServiceBusReceivedMessage found = takeOne(receiver);
                seen.add(found.getBody().toString());
                receiver.complete(found);
            }
            same(seen, wanted);
        });

        test("a_custom_endpoint_address_is_used", PLAIN, bus -> {
            String somewhere = bus.secured(1).replace("localhost:1", "localhost");
            String endpoint = "https://localhost:" + bus.port("amqps");

            roundTrip(bus, bus.connect(somewhere).customEndpointAddress(endpoint));
        });

        test("a_ready_signature_is_taken", PLAIN, bus -> {
            String token = signature(bus, "sb://localhost/" + bus.name);
            var builder = new ServiceBusClientBuilder()
                .credential("localhost", new AzureSasCredential(token))
                .customEndpointAddress("https://localhost:" + bus.port("amqps"))
                .retryOptions(Bus.retry(0));

            roundTrip(bus, builder);
        });

        test("the_connection_string_may_name_the_queue", PLAIN, bus -> {
            String address = bus.address().replaceAll(";$", "");

            roundTrip(bus, bus.connect(address + ";EntityPath=" + bus.name));
        });

        test("clients_that_share_a_connection_end_alone", PLAIN, bus -> {
            var sender = bus.sender();
            var receiver = bus.receiver();
            sender.sendMessage(message("a"));
            sender.close();
            receiver.complete(takeOne(receiver));
            receiver.close();

            // The last client takes the connection with it; the next one makes another.
            bus.send("b");
            same(bus.left(), list("b"));
        });
    }
}
