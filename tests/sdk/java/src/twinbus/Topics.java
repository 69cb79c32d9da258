package twinbus;

import static twinbus.Bus.all;
import static twinbus.Bus.listed;
import static twinbus.Bus.message;
import static twinbus.Bus.nothingComes;
import static twinbus.Bus.takeOne;
import static twinbus.Bus.texts;
import static twinbus.Bus.with;
import static twinbus.Cases.rule;
import static twinbus.Cases.subscription;
import static twinbus.Cases.test;
import static twinbus.Cases.topic;
import static twinbus.Checks.list;
import static twinbus.Checks.refused;
import static twinbus.Checks.same;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusRuleManagerClient;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.TrueRuleFilter;
import com.azure.messaging.servicebus.models.SubQueue;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.stream.Collectors;

/** Topics: filters choose, actions change, each subscription has its own copy. */
final class Topics {
    private Topics() {
    }

    static void add() {
        addFilters();
        addSubscriptions();
        addRules();
    }

    private static void addFilters() {
        Map<String, Object> several = Map.of("correlation_id", "c",
            "content_type", "text/plain", "properties", Map.of("region", "north"));
        var filters = topic(
            subscription("true", Map.of(), rule("all", "true", Map.of(), null)),
            subscription("false", Map.of(), rule("none", "false", Map.of(), null)),
            subscription("sql", Map.of(),
                rule("big", "sql", "amount > 10 AND sys.Label LIKE 'order%'", null)),
            subscription("label", Map.of(),
                rule("label", "correlation", Map.of("label", "order-1"), null)),
            subscription("several", Map.of(),
                rule("several", "correlation", several, null)),
            subscription("either", Map.of(), rule("first", "sql", "amount = 5", null),
                rule("second", "sql", "region = 'north'", null)));
        test("filters_choose", filters, bus -> {
            ServiceBusMessage north = with("north", "region", "north")
                .setCorrelationId("c").setContentType("text/plain");
            north.getApplicationProperties().put("amount", 5);
            bus.send(with("small", "amount", 5).setSubject("order-1"),
                with("big", "amount", 50).setSubject("order-2"), north,
                message("nothing").setCorrelationId("c"));

            Map<String, List<String>> wanted = Map.of(
                "true", list("small", "big", "north", "nothing"), "false", list(),
                "sql", list("big"), "label", list("small"), "several", list("north"),
                "either", list("small", "north"));
            wanted.forEach((name, texts) ->
                same(texts(all(bus.subscriber(name))), texts));
        });

        var actions = topic(
            subscription("changed", Map.of(), rule("change", "sql", "kind = 'x'",
                "SET sys.Label = 'new'; SET added = amount + 1; REMOVE kind")),
            subscription("copies", Map.of(),
                rule("first", "true", Map.of(), "SET rule = 'first'"),
                rule("second", "true", Map.of(), "SET rule = 'second'")));
        test("actions_change_the_copy", actions, bus -> {
            ServiceBusMessage given = with("x", "kind", "x").setSubject("old");
            given.getApplicationProperties().put("amount", 1);
            bus.send(given);

            ServiceBusReceivedMessage changed = bus.collected("changed", 1).get(0);
            List<ServiceBusReceivedMessage> copies = bus.collected("copies", 2);

            same(changed.getSubject(), "new");
            Map<String, Object> properties = changed.getApplicationProperties();
            same(properties.get("RuleName"), "change");
            same(((Number) properties.get("added")).intValue(), 2);
            same(properties.containsKey("kind"), false);
            same(copies.stream().map(each -> each.getApplicationProperties().get("rule"))
                .sorted().toList(), list("first", "second"));
            same(copies.get(0).getSubject(), "old");
        });
    }

    private static void addSubscriptions() {
        var copies = topic(subscription("one"), subscription("two"));
        test("every_subscription_gets_a_copy", copies, bus -> {
            bus.send("a", "b");

            var receiver = bus.subscriber("one");
            ServiceBusReceivedMessage found = takeOne(receiver);
            receiver.complete(found);

            same(found.getSequenceNumber(), 1L);
            same(texts(all(receiver)), list("b"));
            same(texts(bus.collected("two", 2)), list("a", "b"));
        });

        var once = topic(subscription("all", Map.of("max_delivery_count", 1)));
        test("a_subscription_has_dead_letters", once, bus -> {
            bus.send("poison");
            var receiver = bus.subscriber("all");

            receiver.abandon(takeOne(receiver));

            nothingComes(receiver);
            var dead = bus.kept(bus.subscribing("all")
                .subQueue(SubQueue.DEAD_LETTER_QUEUE).buildClient());
            ServiceBusReceivedMessage found = takeOne(dead);
            same(found.getDeadLetterReason(), "MaxDeliveryCountExceeded");
            dead.complete(found);
            same(all(dead), list());
        });

        var forwarded = topic(subscription("on", Map.of("forward_to", "java-topics-to")))
            .withQueues(Map.of("java-topics-to", Map.of()));
        test("a_subscription_forwards_to_a_queue", forwarded, bus -> {
            bus.send(message("x").setMessageId("id"));

            var found = bus.drained("java-topics-to", 1, SubQueue.NONE).get(0);

            same(found.getMessageId(), "id");
        });

        test("a_subscription_defers_and_browses", topic(subscription("all")), bus -> {
            bus.send("later");
            var receiver = bus.subscriber("all");
            ServiceBusReceivedMessage found = takeOne(receiver);
            receiver.renewMessageLock(found);
            receiver.defer(found);

            same(texts(all(receiver)), list("later"));
            Settling.deferred(receiver, list(found)).forEach(receiver::complete);
            nothingComes(receiver);
        });
    }

    private static ServiceBusRuleManagerClient rules(Bus bus) {
        return bus.kept(bus.builder.ruleManager().topicName(bus.name)
            .subscriptionName("some").buildClient());
    }

    private static void addRules() {
        var some = topic(subscription("some"));
        test("rules_can_be_listed_added_and_removed", some, bus -> {
            var rules = rules(bus);
            same(listed(rules.listRules()).get(0).getName(), "$Default");
            // The client makes a text of every value.
            CorrelationRuleFilter correlation =
                new CorrelationRuleFilter("c").setLabel("label");
            correlation.getProperties().putAll(Map.of("text", "x", "more", "y"));

            rules.createRule("sql", new CreateRuleOptions(new SqlRuleFilter("amount > 10"))
                .setAction(new SqlRuleAction("SET size = 'big'")));
            rules.createRule("correlation", new CreateRuleOptions(correlation));
            rules.createRule("all", new CreateRuleOptions(new TrueRuleFilter()));
            rules.deleteRule("$Default");

            Map<String, RuleProperties> found = listed(rules.listRules()).stream()
                .collect(Collectors.toMap(RuleProperties::getName, Function.identity()));
            same(found.keySet(), java.util.Set.of("sql", "correlation", "all"));
            same(((SqlRuleFilter) found.get("sql").getFilter()).getSqlExpression(),
                "amount > 10");
            same(((SqlRuleAction) found.get("sql").getAction()).getSqlExpression(),
                "SET size = 'big'");
            var back = (CorrelationRuleFilter) found.get("correlation").getFilter();
            same(back.getLabel(), "label");
            same(back.getCorrelationId(), "c");
            same(back.getProperties(), correlation.getProperties());
            same(((SqlRuleFilter) found.get("all").getFilter()).getSqlExpression(), "1=1");
        });

        test("rules_work_from_the_next_message_on", some, bus -> {
            var rules = rules(bus);
            bus.send(message("before").setSubject("no"));
            rules.createRule("label",
                new CreateRuleOptions(new CorrelationRuleFilter().setLabel("yes")));
            rules.deleteRule("$Default");

            bus.send(message("no").setSubject("no"), message("yes").setSubject("yes"));

            same(texts(bus.collected("some", 2)), list("before", "yes"));
            same(all(bus.subscriber("some")), list());
        });

        test("rules_are_refused", some, bus -> {
            var rules = rules(bus);
            var twice = new CreateRuleOptions(new SqlRuleFilter("1=1"));
            rules.createRule("same", twice);

            refused("MESSAGING_ENTITY_ALREADY_EXISTS",
                () -> rules.createRule("same", twice));
            refused("MESSAGING_ENTITY_NOT_FOUND", () -> rules.deleteRule("nowhere"));
            refused("ARGUMENT_ERROR", () -> rules.createRule("bad",
                new CreateRuleOptions(new SqlRuleFilter("amount >"))));
            same(listed(rules.listRules()).size(), 2);
        });
    }
}
