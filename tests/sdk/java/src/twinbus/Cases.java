package twinbus;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The list of cases.
 *
 * <p>Every case has entities of its own, so all of them can run at once. Settings are
 * those of the server's configuration file.
 */
final class Cases {
    private static final Map<String, Case> ALL = new LinkedHashMap<>();

    private Cases() {
    }

    /** What a case needs: a queue or a topic with its own name, and other queues. */
    record Wants(
        Map<String, Object> queue,
        Map<String, Object> topic,
        Map<String, Map<String, Object>> queues,
        String namespace) {

        Wants withQueues(Map<String, Map<String, Object>> more) {
            return new Wants(queue, topic, more, namespace);
        }

        Wants in(String other) {
            return new Wants(queue, topic, queues, other);
        }
    }

    static final Wants NOTHING = new Wants(null, null, Map.of(), "plain");
    static final Wants PLAIN = queue(Map.of());
    static final Wants SESSIONS = queue(Map.of("requires_session", true));
    /** The shortest lock that there is. */
    static final Wants SHORT = queue(Map.of("lock_duration", "PT5S"));

    static Wants queue(Map<String, Object> settings) {
        return new Wants(settings, null, Map.of(), "plain");
    }

    @SafeVarargs
    static Wants topic(Map<String, Object>... subscriptions) {
        Map<String, Object> settings = Map.of("subscriptions", List.of(subscriptions));
        return new Wants(null, settings, Map.of(), "plain");
    }

    /** A subscription with these rules; without any it gets every message. */
    @SafeVarargs
    static Map<String, Object> subscription(
        String name, Map<String, Object> settings, Map<String, Object>... rules) {
        Map<String, Object> all = named(name, settings);
        if (rules.length > 0) {
            all.put("rules", List.of(rules));
        }
        return all;
    }

    static Map<String, Object> subscription(String name) {
        return subscription(name, Map.of());
    }

    static Map<String, Object> rule(
        String name, String kind, Object filter, String action) {
        Map<String, Object> all = named(name, Map.of("filter", Map.of(kind, filter)));
        if (action != null) {
            all.put("action", action);
        }
        return all;
    }

    static void test(String name, Wants wants, Case.Body body) {
        List<Map<String, Object>> queues = new ArrayList<>();
        wants.queues().forEach((key, value) -> queues.add(named(key, value)));
        List<Map<String, Object>> topics = new ArrayList<>();
        if (wants.queue() != null) {
            queues.add(named(name, wants.queue()));
        }
        if (wants.topic() != null) {
            topics.add(named(name, wants.topic()));
        }
        Case made = new Case(name, wants.namespace(), queues, topics, body);
        if (ALL.put(name, made) != null) {
            throw new IllegalStateException("There are two cases " + name);
        }
    }

    private static Map<String, Object> named(String name, Map<String, Object> settings) {
        Map<String, Object> all = new LinkedHashMap<>();
        all.put("name", name);
        all.putAll(settings);
        return all;
    }

    static Case get(String name) {
        return ALL.get(name);
    }

    static List<Map<String, Object>> described() {
        List<Map<String, Object>> all = new ArrayList<>();
        for (Case each : ALL.values()) {
            all.add(Map.of(
                "name", each.name(),
                "namespace", each.namespace(),
                "queues", each.queues(),
                "topics", each.topics()));
        }
        return all;
    }

    static void addAll() {
        Sending.add();
        Receiving.add();
        Settling.add();
        Sessions.add();
        Scheduling.add();
        Messages.add();
        Topics.add();
        Refusals.add();
        Transports.add();
        Partitioned.add();
        Transactions.add();
        Administration.add();
    }
}
