// The official administration client, over HTTPS with verification on.
//
// Each case makes entities of its own, whose names begin with that of the case.
package main

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	sb "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

var administered = Wants{namespace: "admin"}

func keys(name string, rights ...admin.AccessRight) []admin.AuthorizationRule {
	return []admin.AuthorizationRule{{
		KeyName:      &name,
		AccessRights: rights,
		PrimaryKey:   ptr(strings.Repeat("p", 44)),
		SecondaryKey: ptr(strings.Repeat("s", 44)),
	}}
}

// sameRules compares authorization rules without their times.
func sameRules(found, wanted []admin.AuthorizationRule) {
	for n := range found {
		found[n].CreatedTime, found[n].ModifiedTime = nil, nil
	}
	same(found, wanted)
}

func init() {
	test("every_property_of_a_queue_comes_back", administered, func(b *Bus) {
		client, target := b.admin(), b.name+"-to"
		must1(client.CreateQueue(b.ctx, target, nil))
		rules := keys("owner", "Manage", "Send", "Listen")
		wanted := admin.QueueProperties{
			AutoDeleteOnIdle:                    ptr("PT7M"),
			DeadLetteringOnMessageExpiration:    ptr(true),
			DefaultMessageTimeToLive:            ptr("PT11M"),
			DuplicateDetectionHistoryTimeWindow: ptr("PT12M"),
			EnableBatchedOperations:             ptr(false),
			EnablePartitioning:                  ptr(false),
			ForwardTo:                           &target,
			ForwardDeadLetteredMessagesTo:       &target,
			LockDuration:                        ptr("PT13S"),
			MaxDeliveryCount:                    ptr(int32(14)),
			MaxMessageSizeInKilobytes:           ptr(int64(2048)),
			MaxSizeInMegabytes:                  ptr(int32(3072)),
			RequiresDuplicateDetection:          ptr(true),
			RequiresSession:                     ptr(false),
			Status:                              ptr(admin.EntityStatusReceiveDisabled),
			UserMetadata:                        ptr("a <b> & 'c' \"d\" é"),
			AuthorizationRules:                  rules,
		}

		options := &admin.CreateQueueOptions{Properties: &wanted}
		made := must1(client.CreateQueue(b.ctx, b.name, options)).QueueProperties

		shown := must1(client.GetQueue(b.ctx, b.name, nil)).QueueProperties
		url := fmt.Sprintf("sb://localhost:%d/%s", b.server.HTTPSPort, target)
		wanted.ForwardTo, wanted.ForwardDeadLetteredMessagesTo = &url, &url
		for _, found := range []admin.QueueProperties{made, shown} {
			sameRules(found.AuthorizationRules, rules)
			same(found, wanted)
		}
	})

	test("every_property_of_a_topic_comes_back", administered, func(b *Bus) {
		rules := keys("sender", "Send")
		wanted := admin.TopicProperties{
			AutoDeleteOnIdle:                    ptr("PT7M"),
			DefaultMessageTimeToLive:            ptr("PT11M"),
			DuplicateDetectionHistoryTimeWindow: ptr("PT12M"),
			EnableBatchedOperations:             ptr(false),
			EnablePartitioning:                  ptr(false),
			MaxMessageSizeInKilobytes:           ptr(int64(2048)),
			MaxSizeInMegabytes:                  ptr(int32(3072)),
			RequiresDuplicateDetection:          ptr(true),
			Status:                              ptr(admin.EntityStatusSendDisabled),
			SupportOrdering:                     ptr(false),
			UserMetadata:                        ptr("metadata"),
			AuthorizationRules:                  rules,
		}

		options := &admin.CreateTopicOptions{Properties: &wanted}
		made := must1(b.admin().CreateTopic(b.ctx, b.name, options)).TopicProperties

		shown := must1(b.admin().GetTopic(b.ctx, b.name, nil)).TopicProperties
		for _, found := range []admin.TopicProperties{made, shown} {
			sameRules(found.AuthorizationRules, rules)
			same(found, wanted)
		}
	})

	test("every_property_of_a_subscription_comes_back", administered, func(b *Bus) {
		must1(b.admin().CreateTopic(b.ctx, b.name, nil))
		wanted := admin.SubscriptionProperties{
			AutoDeleteOnIdle:                                ptr("PT7M"),
			DeadLetteringOnMessageExpiration:                ptr(true),
			DefaultMessageTimeToLive:                        ptr("PT11M"),
			EnableBatchedOperations:                         ptr(false),
			EnableDeadLetteringOnFilterEvaluationExceptions: ptr(false),
			LockDuration:                                    ptr("PT13S"),
			MaxDeliveryCount:                                ptr(int32(14)),
			RequiresSession:                                 ptr(true),
			// The client does not send another one.
			Status:       ptr(admin.EntityStatusActive),
			UserMetadata: ptr("metadata"),
		}

		options := &admin.CreateSubscriptionOptions{Properties: &wanted}
		made := must1(b.admin().CreateSubscription(b.ctx, b.name, "s", options))

		shown := must1(b.admin().GetSubscription(b.ctx, b.name, "s", nil))
		same(made.SubscriptionProperties, wanted)
		same(shown.SubscriptionProperties, wanted)
	})

	test("what_was_read_can_be_changed_and_sent_back", administered, func(b *Bus) {
		client := b.admin()
		queue := must1(client.CreateQueue(b.ctx, b.name, nil)).QueueProperties
		topic := must1(client.CreateTopic(b.ctx, b.name+"-t", nil)).TopicProperties
		made := must1(client.CreateSubscription(b.ctx, b.name+"-t", "s", nil))
		queue.MaxDeliveryCount = ptr(int32(3))
		topic.UserMetadata = ptr("changed")
		made.LockDuration = ptr("PT20S")

		must1(client.UpdateQueue(b.ctx, b.name, queue, nil))
		must1(client.UpdateTopic(b.ctx, b.name+"-t", topic, nil))
		must1(client.UpdateSubscription(
			b.ctx, b.name+"-t", "s", made.SubscriptionProperties, nil,
		))

		same(must1(client.GetQueue(b.ctx, b.name, nil)).QueueProperties, queue)
		same(must1(client.GetTopic(b.ctx, b.name+"-t", nil)).TopicProperties, topic)
		shown := must1(client.GetSubscription(b.ctx, b.name+"-t", "s", nil))
		sameText(shown.LockDuration, "PT20S")
	})

	test("rules_come_back", administered, func(b *Bus) {
		client := b.admin()
		must1(client.CreateTopic(b.ctx, b.name, nil))
		must1(client.CreateSubscription(b.ctx, b.name, "s", nil))
		moment := time.Date(2020, 7, 5, 11, 12, 13, 250_000_000, time.UTC)
		filters := map[string]admin.RuleFilter{
			"correlation": &admin.CorrelationFilter{
				CorrelationID: ptr("c"), Subject: ptr("l"), To: ptr("t"),
				ReplyTo: ptr("r"), ReplyToSessionID: ptr("rs"), SessionID: ptr("s"),
				MessageID: ptr("m"), ContentType: ptr("ct"),
				ApplicationProperties: map[string]any{
					"text": "x", "number": 1.5, "whole": int64(2), "flag": false,
					"moment": moment,
				},
			},
			"sql": &admin.SQLFilter{
				Expression: "a = @p", Parameters: map[string]any{"@p": int64(5)},
			},
			"true":  &admin.TrueFilter{},
			"false": &admin.FalseFilter{},
		}
		action := &admin.SQLAction{
			Expression: "SET b = @q", Parameters: map[string]any{"@q": "x"},
		}
		for name, filter := range filters {
			options := &admin.CreateRuleOptions{Name: &name, Filter: filter, Action: action}
			must1(client.CreateRule(b.ctx, b.name, "s", options))
		}

		for name, filter := range filters {
			found := must1(client.GetRule(b.ctx, b.name, "s", name, nil))
			same(found.Filter, filter)
			same(found.Action, admin.RuleAction(action))
		}
		names := b.rules(client, "s")
		same(names, []string{"$Default", "correlation", "false", "sql", "true"})
		changed := admin.RuleProperties{
			Name: "sql", Filter: &admin.CorrelationFilter{Subject: ptr("other")},
		}
		must1(client.UpdateRule(b.ctx, b.name, "s", changed))
		found := must1(client.GetRule(b.ctx, b.name, "s", "sql", nil))
		same(found.Filter, changed.Filter)
		must1(client.DeleteRule(b.ctx, b.name, "s", "sql", nil))
		gone := must1(client.GetRule(b.ctx, b.name, "s", "sql", nil))
		check(gone == nil, "the rule is gone")
	})

	test("a_subscription_may_bring_its_first_rule", administered, func(b *Bus) {
		client := b.admin()
		must1(client.CreateTopic(b.ctx, b.name, nil))
		properties := &admin.SubscriptionProperties{DefaultRule: &admin.RuleProperties{
			Name: "big", Filter: &admin.SQLFilter{Expression: "n > 5"},
		}}
		options := &admin.CreateSubscriptionOptions{Properties: properties}
		must1(client.CreateSubscription(b.ctx, b.name, "s", options))

		same(b.rules(client, "s"), []string{"big"})
		with := func(body string, n int64) *sb.Message {
			return &sb.Message{
				Body: []byte(body), ApplicationProperties: map[string]any{"n": n},
			}
		}
		b.send(with("small", 1), with("big", 9))
		same(texts(b.collected("s", 1)), []string{"big"})
	})

	test("counts_are_exact", administered, func(b *Bus) {
		client := b.admin()
		must1(client.CreateQueue(b.ctx, b.name, nil))
		b.send("dead", "active")
		b.schedule(later(), "scheduled")
		receiver := b.receiver()
		must(receiver.DeadLetterMessage(b.ctx, b.takeOne(receiver), nil))

		found := must1(client.GetQueueRuntimeProperties(b.ctx, b.name, nil))

		same(found.ActiveMessageCount, 1)
		same(found.DeadLetterMessageCount, 1)
		same(found.ScheduledMessageCount, 1)
		same(found.TransferMessageCount, 0)
		same(found.TransferDeadLetterMessageCount, 0)
		same(found.TotalMessageCount, 3)
		check(found.SizeInBytes > 0, "%d bytes", found.SizeInBytes)
		for _, at := range []time.Time{found.CreatedAt, found.UpdatedAt, found.AccessedAt} {
			check(time.Since(at).Abs() < time.Minute, "%v", at)
		}
		pager := client.NewListQueuesRuntimePropertiesPager(nil)
		for pager.More() {
			for _, each := range must1(pager.NextPage(b.ctx)).QueueRuntimeProperties {
				check(each.QueueName != b.name || each.TotalMessageCount == 3, "%v", each)
			}
		}
	})

	test("topics_and_subscriptions_have_counts", administered, func(b *Bus) {
		client := b.admin()
		must1(client.CreateTopic(b.ctx, b.name, nil))
		must1(client.CreateSubscription(b.ctx, b.name, "s", nil))
		filter := &admin.CorrelationFilter{Subject: ptr("x")}
		options := &admin.CreateRuleOptions{Name: ptr("more"), Filter: filter}
		must1(client.CreateRule(b.ctx, b.name, "s", options))
		b.send("x")

		topic := must1(client.GetTopicRuntimeProperties(b.ctx, b.name, nil))
		found := must1(client.GetSubscriptionRuntimeProperties(b.ctx, b.name, "s", nil))

		same(topic.SubscriptionCount, 1)
		same(topic.SQLFilterCount, 1)
		same(topic.CorrelationFilterCount, 1)
		same(found.ActiveMessageCount, 1)
		same(found.TotalMessageCount, 1)
		pager := client.NewListSubscriptionsRuntimePropertiesPager(b.name, nil)
		page := must1(pager.NextPage(b.ctx)).SubscriptionRuntimeProperties
		same(len(page), 1)
		same(page[0].ActiveMessageCount, 1)
	})

	test("lists_are_read_page_by_page", Wants{namespace: "pages"}, func(b *Bus) {
		client, wanted := b.admin(), []string{}
		must1(client.CreateTopic(b.ctx, b.name, nil))
		for _, letter := range []string{"a", "b", "c", "d", "e"} {
			wanted = append(wanted, b.name+"-"+letter)
			must1(client.CreateQueue(b.ctx, b.name+"-"+letter, nil))
			must1(client.CreateSubscription(b.ctx, b.name, letter, nil))
		}

		queues := client.NewListQueuesPager(&admin.ListQueuesOptions{MaxPageSize: 2})
		found, pages := []string{}, 0
		for queues.More() {
			page := must1(queues.NextPage(b.ctx)).Queues
			for _, each := range page {
				found = append(found, each.QueueName)
			}
			pages++
		}
		same(found, wanted)
		same(pages, 3)
		below := client.NewListSubscriptionsPager(b.name, nil)
		same(len(must1(below.NextPage(b.ctx)).Subscriptions), 5)
		topics := client.NewListTopicsPager(nil)
		same(must1(topics.NextPage(b.ctx)).Topics[0].TopicName, b.name)
	})

	test("errors_are_the_ones_the_client_knows", administered, func(b *Bus) {
		client := b.admin()
		made := must1(client.CreateQueue(b.ctx, b.name, nil)).QueueProperties

		_, err := client.CreateQueue(b.ctx, b.name, nil)
		refused(err, "409")
		_, err = client.CreateTopic(b.ctx, b.name, nil)
		refused(err, "409")
		missing := must1(client.GetQueue(b.ctx, b.name+"-no", nil))
		check(missing == nil, "no such queue")
		_, err = client.DeleteQueue(b.ctx, b.name+"-no", nil)
		refused(err, "404")
		_, err = client.UpdateQueue(b.ctx, b.name+"-no", made, nil)
		refused(err, "404")
		made.RequiresSession = ptr(true)
		_, err = client.UpdateQueue(b.ctx, b.name, made, nil)
		refused(err, "400")
		var response *azcore.ResponseError
		check(errors.As(err, &response), "%v", err)
		check(strings.Contains(err.Error(), "SubCode=40000"), "%v", err)
		long := &admin.QueueProperties{LockDuration: ptr("PT6M")}
		options := &admin.CreateQueueOptions{Properties: long}
		_, err = client.CreateQueue(b.ctx, b.name+"-no", options)
		refused(err, "400")
		text := b.secured(b.server.HTTPSPort)
		stranger := b.adminWith(withKey(text, "RootManageSharedAccessKey", "guess"), "")
		_, err = stranger.GetQueue(b.ctx, b.name, nil)
		refused(err, "401")
	})

	test("entities_are_deleted", administered, func(b *Bus) {
		client := b.admin()
		must1(client.CreateQueue(b.ctx, b.name, nil))
		must1(client.CreateTopic(b.ctx, b.name+"-t", nil))
		must1(client.CreateSubscription(b.ctx, b.name+"-t", "s", nil))

		must1(client.DeleteSubscription(b.ctx, b.name+"-t", "s", nil))
		must1(client.DeleteTopic(b.ctx, b.name+"-t", nil))
		must1(client.DeleteQueue(b.ctx, b.name, nil))

		queue := must1(client.GetQueue(b.ctx, b.name, nil))
		topic := must1(client.GetTopic(b.ctx, b.name+"-t", nil))
		check(queue == nil && topic == nil, "both are gone")
	})

	test("the_namespace_is_described", administered, func(b *Bus) {
		found := must1(b.admin().GetNamespaceProperties(b.ctx, nil))

		same(found.Name, "admin")
		same(found.SKU, "Premium")
		check(time.Since(found.CreatedTime).Abs() < 10*time.Minute, "just made")
	})

	test("older_versions_of_the_interface_work", administered, func(b *Bus) {
		for _, version := range []string{"2017-04", "2021-05"} {
			client := b.adminWith(b.secured(b.server.HTTPSPort), version)
			name := b.name + version

			made := must1(client.CreateQueue(b.ctx, name, nil))

			large := made.MaxMessageSizeInKilobytes != nil
			same(large, version == "2021-05")
		}
	})
}

// rules are the names of a subscription's rules, sorted.
func (b *Bus) rules(client *admin.Client, subscription string) []string {
	names := []string{}
	pager := client.NewListRulesPager(b.name, subscription, nil)
	for pager.More() {
		for _, each := range must1(pager.NextPage(b.ctx)).Rules {
			names = append(names, each.Name)
		}
	}
	sort.Strings(names)
	return names
}
