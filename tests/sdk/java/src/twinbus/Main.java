package twinbus;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Runs the cases.
 *
 * <p>`--list` prints their names and the entities that they want. Without it the program
 * reads a JSON object from standard input, the names of cases and where each namespace
 * is, and prints a line of JSON for each case as soon as it is done.
 */
public final class Main {
    // Many cases only wait for a lock to end; more at once would be slow, not wrong.
    private static final int AT_ONCE = 16;
    private static final int CASE_SECONDS_MAX = 60;
    private static final ObjectMapper JSON = new ObjectMapper();

    private Main() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        // What the client prints is not for the reader of the results.
        System.setOut(System.err);
        Cases.addAll();
        if (arguments.length > 0 && arguments[0].equals("--list")) {
            out.println(JSON.writeValueAsString(Cases.described()));
            return;
        }
        trust(Path.of(System.getenv("TWINBUS_CA_FILE")));
        runAll(JSON.readTree(System.in), out);
        // A client that failed may keep threads.
        System.exit(0);
    }

    /** Has every client of this process trust an authority, and no other. */
    private static void trust(Path certificate) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        try (var input = Files.newInputStream(certificate)) {
            CertificateFactory factory = CertificateFactory.getInstance("X.509");
            store.setCertificateEntry("authority", factory.generateCertificate(input));
        }
        Path file = Files.createTempFile("trust", ".p12");
        file.toFile().deleteOnExit();
        try (var output = Files.newOutputStream(file)) {
            store.store(output, "changeit".toCharArray());
        }
        System.setProperty("javax.net.ssl.trustStore", file.toString());
        System.setProperty("javax.net.ssl.trustStorePassword", "changeit");
    }

    private static void runAll(JsonNode wanted, PrintStream out) throws Exception {
        ExecutorService workers = Executors.newFixedThreadPool(AT_ONCE);
        for (JsonNode name : wanted.get("names")) {
            workers.submit(() -> {
                Case entry = Cases.get(name.asText());
                long started = System.currentTimeMillis();
                Map<String, Object> result = new LinkedHashMap<>();
                result.put("name", entry.name());
                result.put("failure", run(entry, wanted.get("servers")));
                result.put("ms", System.currentTimeMillis() - started);
                String line = JSON.writeValueAsString(result);
                synchronized (out) {
                    out.println(line);
                }
                return null;
            });
        }
        workers.shutdown();
        workers.awaitTermination(1, TimeUnit.HOURS);
    }

    /** Runs a case in a thread of its own; returns what went wrong, or null. */
    private static String run(Case entry, JsonNode servers) {
        ExecutorService thread = Executors.newSingleThreadExecutor();
        Future<?> done = thread.submit(() -> {
            JsonNode server = servers.get(entry.namespace());
            try (Bus bus = new Bus(entry.name(), server)) {
                entry.body().run(bus);
            }
            return null;
        });
        try {
            done.get(CASE_SECONDS_MAX, TimeUnit.SECONDS);
            return null;
        } catch (TimeoutException error) {
            done.cancel(true);
            return "not done after " + CASE_SECONDS_MAX + " s";
        } catch (Exception error) {
            StringWriter text = new StringWriter();
            error.getCause().printStackTrace(new PrintWriter(text));
            return text.toString();
        } finally {
            thread.shutdown();
        }
    }
}
