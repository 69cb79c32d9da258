package twinbus;

import static twinbus.Bus.message;
import static twinbus.Bus.takeOne;
import static twinbus.Bus.texts;
import static twinbus.Bus.with;
import static twinbus.Bus.withKey;
import static twinbus.Cases.NOTHING;
import static twinbus.Cases.test;
import static twinbus.Checks.check;
import static twinbus.Checks.list;
import static twinbus.Checks.refused;
import static twinbus.Checks.same;

import com.azure.messaging.servicebus.ServiceBusServiceVersion;
import com.azure.messaging.servicebus.administration.models.AccessRights;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.CreateTopicOptions;
import com.azure.messaging.servicebus.administration.models.EntityStatus;
import com.azure.messaging.servicebus.administration.models.FalseRuleFilter;
import com.azure.messaging.servicebus.administration.models.MessagingSku;
import com.azure.messaging.servicebus.administration.models.QueueProperties;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SharedAccessAuthorizationRule;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.SubscriptionProperties;
import com.azure.messaging.servicebus.administration.models.TopicProperties;
import com.azure.messaging.servicebus.administration.models.TrueRuleFilter;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Map;

/**
 * The official administration client, over HTTPS with verification on.
 *
 * <p>Each case makes entities of its own, whose names begin with that of the case.
 */
final class Administration {
    private static final Cases.Wants ADMIN = NOTHING.in("admin");

    private Administration() {
    }

    static void add() {
        addDescriptions();
        addRules();
        addCounts();
        addErrors();
    }

    private static void addDescriptions() {
        test("every_property_of_a_queue_comes_back", ADMIN, bus -> {
            var admin = bus.admin();
            String target = bus.name + "-to";
            admin.createQueue(target);
            CreateQueueOptions wanted = new CreateQueueOptions()
                .setAutoDeleteOnIdle(Duration.ofMinutes(7))
                .setDeadLetteringOnMessageExpiration(true)
                .setDefaultMessageTimeToLive(Duration.ofMinutes(11))
                .setDuplicateDetectionHistoryTimeWindow(Duration.ofMinutes(12))
                .setBatchedOperationsEnabled(false)
                .setForwardTo(target).setForwardDeadLetteredMessagesTo(target)
                .setLockDuration(Duration.ofSeconds(13)).setMaxDeliveryCount(14)
                .setMaxMessageSizeInKilobytes(2048).setMaxSizeInMegabytes(3072)
                .setDuplicateDetectionRequired(true)
                .setStatus(EntityStatus.RECEIVE_DISABLED)
                .setUserMetadata("a <b> & 'c' \"d\" é");
            wanted.getAuthorizationRules().add(new SharedAccessAuthorizationRule("owner",
                "p".repeat(44), "s".repeat(44),
                List.of(AccessRights.MANAGE, AccessRights.SEND, AccessRights.LISTEN)));

            for (QueueProperties found : list(
                admin.createQueue(bus.name, wanted), admin.getQueue(bus.name))) {
                same(found.getName(), bus.name);
                same(found.getAutoDeleteOnIdle(), wanted.getAutoDeleteOnIdle());
                same(found.isDeadLetteringOnMessageExpiration(), true);
                same(found.getDefaultMessageTimeToLive(), Duration.ofMinutes(11));
                same(found.getDuplicateDetectionHistoryTimeWindow(),
                    Duration.ofMinutes(12));
                same(found.isBatchedOperationsEnabled(), false);
                check(found.getForwardTo().endsWith("/" + target), found.getForwardTo());
                check(found.getForwardDeadLetteredMessagesTo().endsWith(target), target);
                same(found.getLockDuration(), Duration.ofSeconds(13));
                same(found.getMaxDeliveryCount(), 14);
                same(found.getMaxMessageSizeInKilobytes(), 2048L);
                same((long) found.getMaxSizeInMegabytes(), 3072L);
                same(found.isDuplicateDetectionRequired(), true);
                same(found.isSessionRequired(), false);
                same(found.getStatus(), EntityStatus.RECEIVE_DISABLED);
                same(found.getUserMetadata(), wanted.getUserMetadata());
                var rule = found.getAuthorizationRules().get(0);
                same(rule.getKeyName(), "owner");
                same(rule.getPrimaryKey(), "p".repeat(44));
                same(rule.getSecondaryKey(), "s".repeat(44));
                same(rule.getAccessRights().size(), 3);
            }
        });

        test("every_property_of_a_topic_comes_back", ADMIN, bus -> {
            var admin = bus.admin();
            CreateTopicOptions wanted = new CreateTopicOptions()
                .setAutoDeleteOnIdle(Duration.ofMinutes(7))
                .setDefaultMessageTimeToLive(Duration.ofMinutes(11))
                .setDuplicateDetectionHistoryTimeWindow(Duration.ofMinutes(12))
                .setBatchedOperationsEnabled(false).setMaxMessageSizeInKilobytes(2048)
                .setMaxSizeInMegabytes(3072).setDuplicateDetectionRequired(true)
                .setStatus(EntityStatus.SEND_DISABLED).setUserMetadata("metadata");

            for (TopicProperties found : list(
                admin.createTopic(bus.name, wanted), admin.getTopic(bus.name))) {
                same(found.getAutoDeleteOnIdle(), Duration.ofMinutes(7));
                same(found.getDefaultMessageTimeToLive(), Duration.ofMinutes(11));
                same(found.getDuplicateDetectionHistoryTimeWindow(),
                    Duration.ofMinutes(12));
                same(found.isBatchedOperationsEnabled(), false);
                same(found.getMaxMessageSizeInKilobytes(), 2048L);
                same((long) found.getMaxSizeInMegabytes(), 3072L);
                same(found.isDuplicateDetectionRequired(), true);
                same(found.getStatus(), EntityStatus.SEND_DISABLED);
                same(found.getUserMetadata(), "metadata");
            }
        });

        test("every_property_of_a_subscription_comes_back", ADMIN, bus -> {
            var admin = bus.admin();
            admin.createTopic(bus.name);
            CreateSubscriptionOptions wanted = new CreateSubscriptionOptions()
                .setAutoDeleteOnIdle(Duration.ofMinutes(7))
                .setEnableDeadLetteringOnFilterEvaluationExceptions(false)
                .setDeadLetteringOnMessageExpiration(true)
                .setDefaultMessageTimeToLive(Duration.ofMinutes(11))
                .setBatchedOperationsEnabled(false)
                .setLockDuration(Duration.ofSeconds(13)).setMaxDeliveryCount(14)
                .setSessionRequired(true).setStatus(EntityStatus.DISABLED)
                .setUserMetadata("metadata");

            for (SubscriptionProperties found : list(
                admin.createSubscription(bus.name, "s", wanted),
                admin.getSubscription(bus.name, "s"))) {
                same(found.getTopicName(), bus.name);
                same(found.getSubscriptionName(), "s");
                same(found.getAutoDeleteOnIdle(), Duration.ofMinutes(7));
                same(found.isDeadLetteringOnFilterEvaluationExceptions(), false);
                same(found.isDeadLetteringOnMessageExpiration(), true);
                same(found.getDefaultMessageTimeToLive(), Duration.ofMinutes(11));
                same(found.isBatchedOperationsEnabled(), false);
                same(found.getLockDuration(), Duration.ofSeconds(13));
                same(found.getMaxDeliveryCount(), 14);
                same(found.isSessionRequired(), true);
                same(found.getStatus(), EntityStatus.DISABLED);
                same(found.getUserMetadata(), "metadata");
            }
        });

        test("what_was_read_can_be_changed_and_sent_back", ADMIN, bus -> {
            var admin = bus.admin();
            String topic = bus.name + "-t";
            QueueProperties queue = admin.createQueue(bus.name).setMaxDeliveryCount(3);
            TopicProperties changed = admin.createTopic(topic).setUserMetadata("changed");
            SubscriptionProperties below = admin.createSubscription(topic, "s")
                .setLockDuration(Duration.ofSeconds(20));

            admin.updateQueue(queue);
            admin.updateTopic(changed);
            admin.updateSubscription(below);

            same(admin.getQueue(bus.name).getMaxDeliveryCount(), 3);
            same(admin.getQueue(bus.name).getDefaultMessageTimeToLive(),
                queue.getDefaultMessageTimeToLive());
            same(admin.getTopic(topic).getUserMetadata(), "changed");
            same(admin.getSubscription(topic, "s").getLockDuration(),
                Duration.ofSeconds(20));
        });

        test("names_may_have_slashes", ADMIN, bus -> {
            var admin = bus.admin();
            String name = "java/x-servicebus-transfer/0";

            QueueProperties made =
                admin.createQueue(name, new CreateQueueOptions().setUserMetadata("backlog"));
            bus.sendTo(name, "x");

            same(made.getName(), name);
            same(admin.getQueue(name).getUserMetadata(), "backlog");
            same(admin.getQueueRuntimeProperties(name).getActiveMessageCount(), 1);
            admin.deleteQueue(name);
            same(admin.getQueueExists(name), false);
        });

        test("lists_are_read_whole", NOTHING.in("pages"), bus -> {
            var admin = bus.admin();
            admin.createTopic(bus.name);
            // More than a page of the client.
            for (int n = 0; n < 105; n++) {
                admin.createQueue(String.format("%s-%03d", bus.name, n));
            }
            list("a", "b", "c").forEach(name -> admin.createSubscription(bus.name, name));

            same(admin.listQueues().stream().count(), 105L);
            same(admin.listTopics().stream().map(TopicProperties::getName).toList(),
                list(bus.name));
            same(admin.listSubscriptions(bus.name).stream()
                .map(SubscriptionProperties::getSubscriptionName).toList(),
                list("a", "b", "c"));
        });
    }

    private static void addRules() {
        test("rules_come_back", ADMIN, bus -> {
            var admin = bus.admin();
            admin.createTopic(bus.name);
            admin.createSubscription(bus.name, "s");
            CorrelationRuleFilter correlation = new CorrelationRuleFilter("c")
                .setLabel("l").setTo("t").setReplyTo("r").setReplyToSessionId("rs")
                .setSessionId("s").setMessageId("m").setContentType("ct");
            // The client makes a text of every value.
            correlation.getProperties().putAll(Map.of("text", "x", "more", "y"));
            SqlRuleFilter sql = new SqlRuleFilter("a = @p");
            sql.getParameters().put("@p", "5");
            SqlRuleAction action = new SqlRuleAction("SET b = @q");
            action.getParameters().put("@q", "x");

            admin.createRule(bus.name, "correlation", "s",
                new CreateRuleOptions(correlation).setAction(action));
            admin.createRule(bus.name, "sql", "s", new CreateRuleOptions(sql));
            admin.createRule(bus.name, "true", "s",
                new CreateRuleOptions(new TrueRuleFilter()));
            admin.createRule(bus.name, "false", "s",
                new CreateRuleOptions(new FalseRuleFilter()));

            RuleProperties found = admin.getRule(bus.name, "s", "correlation");
            var filter = (CorrelationRuleFilter) found.getFilter();
            same(filter.getLabel(), "l");
            same(filter.getContentType(), "ct");
            same(filter.getProperties(), correlation.getProperties());
            same(((SqlRuleAction) found.getAction()).getParameters(), Map.of("@q", "x"));
            SqlRuleFilter back = (SqlRuleFilter) admin.getRule(bus.name, "s", "sql")
                .getFilter();
            same(back.getSqlExpression(), "a = @p");
            same(back.getParameters(), Map.of("@p", "5"));
            same(admin.listRules(bus.name, "s").stream().map(RuleProperties::getName)
                .sorted().toList(), list("$Default", "correlation", "false", "sql", "true"));
            found.setFilter(new CorrelationRuleFilter().setLabel("other"));
            admin.updateRule(bus.name, "s", found);
            var changed = (CorrelationRuleFilter) admin
                .getRule(bus.name, "s", "correlation").getFilter();
            same(changed.getLabel(), "other");
            admin.deleteRule(bus.name, "s", "sql");
            refused("404", () -> admin.getRule(bus.name, "s", "sql"));
        });

        test("a_subscription_may_bring_its_first_rule", ADMIN, bus -> {
            var admin = bus.admin();
            admin.createTopic(bus.name);
            admin.createSubscription(bus.name, "s", "big", new CreateSubscriptionOptions(),
                new CreateRuleOptions(new SqlRuleFilter("n > 5")));

            same(admin.listRules(bus.name, "s").stream().map(RuleProperties::getName)
                .toList(), list("big"));
            bus.send(with("small", "n", 1), with("big", "n", 9));
            same(texts(bus.collected("s", 1)), list("big"));
        });
    }

    private static void addCounts() {
        test("counts_are_exact", ADMIN, bus -> {
            var admin = bus.admin();
            admin.createQueue(bus.name);
            bus.send("dead", "active");
            bus.sender().scheduleMessage(message("scheduled"), Scheduling.later());
            var receiver = bus.receiver();
            receiver.deadLetter(takeOne(receiver));

            var found = admin.getQueueRuntimeProperties(bus.name);

            same(found.getActiveMessageCount(), 1);
            same(found.getDeadLetterMessageCount(), 1);
            same(found.getScheduledMessageCount(), 1);
            same(found.getTransferMessageCount(), 0);
            same(found.getTransferDeadLetterMessageCount(), 0);
            same(found.getTotalMessageCount(), 3L);
            check(found.getSizeInBytes() > 0, found.getSizeInBytes());
            for (OffsetDateTime at : list(
                found.getCreatedAt(), found.getUpdatedAt(), found.getAccessedAt())) {
                Duration age = Duration.between(at, OffsetDateTime.now());
                check(age.abs().toSeconds() < 60, at);
            }
        });

        test("topics_and_subscriptions_have_counts", ADMIN, bus -> {
            var admin = bus.admin();
            admin.createTopic(bus.name);
            admin.createSubscription(bus.name, "s");
            bus.send("x");

            var topic = admin.getTopicRuntimeProperties(bus.name);
            var found = admin.getSubscriptionRuntimeProperties(bus.name, "s");

            same(topic.getSubscriptionCount(), 1);
            same(found.getActiveMessageCount(), 1);
            same(found.getTotalMessageCount(), 1L);
        });

        test("the_namespace_is_described", ADMIN, bus -> {
            var found = bus.admin().getNamespaceProperties();

            same(found.getName(), "admin");
            same(found.getMessagingSku(), MessagingSku.PREMIUM);
        });
    }

    private static void addErrors() {
        test("errors_are_the_ones_the_client_knows", ADMIN, bus -> {
            var admin = bus.admin();
            QueueProperties queue = admin.createQueue(bus.name);

            refused("409", () -> admin.createQueue(bus.name));
            refused("409", () -> admin.createTopic(bus.name));
            refused("404", () -> admin.getQueue(bus.name + "-no"));
            refused("404", () -> admin.deleteQueue(bus.name + "-no"));
            refused("404", () -> admin.createSubscription(bus.name + "-no", "s"));
            refused("400", () -> admin.createQueue(bus.name + "-no",
                new CreateQueueOptions().setLockDuration(Duration.ofMinutes(6))));
            same(queue.isSessionRequired(), false);
            var stranger = bus.admin(withKey(bus.secured(bus.port("https")),
                "RootManageSharedAccessKey", "guess")).buildClient();
            refused("401", () -> stranger.getQueue(bus.name));
        });

        test("things_exist_or_do_not", ADMIN, bus -> {
            var admin = bus.admin();
            String topic = bus.name + "-t";
            admin.createQueue(bus.name);
            admin.createTopic(topic);
            admin.createSubscription(topic, "s");

            same(admin.getQueueExists(bus.name), true);
            same(admin.getQueueExists(bus.name + "-no"), false);
            same(admin.getTopicExists(topic), true);
            same(admin.getTopicExists(bus.name + "-no"), false);
            same(admin.getSubscriptionExists(topic, "s"), true);
            same(admin.getSubscriptionExists(topic, "no"), false);
            admin.deleteSubscription(topic, "s");
            admin.deleteTopic(topic);
            admin.deleteQueue(bus.name);
            same(admin.getTopicExists(topic), false);
            same(admin.getQueueExists(bus.name), false);
        });

        test("older_versions_of_the_interface_work", ADMIN, bus -> {
            for (ServiceBusServiceVersion version : ServiceBusServiceVersion.values()) {
                var admin = bus.admin(bus.secured(bus.port("https")))
                    .serviceVersion(version).buildClient();
                String name = bus.name + version.getVersion();

                same(admin.createQueue(name).getName(), name);
                same(admin.getQueue(name).getName(), name);
            }
        });
    }
}
