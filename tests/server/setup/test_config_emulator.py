"""Configuration files: the Config.json of Microsoft's emulator."""

from __future__ import annotations

import json
from typing import Any

import pytest

from twinbus import errors
from twinbus.core.entity import (
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
    default_rule,
)
from twinbus.core.filters import CorrelationFilter, SqlFilter, SqlRuleAction
from twinbus.server.broker.directory.config import SubscriptionConfig, TopicConfig
from twinbus.server.setup.config import parse_config

EMULATOR: dict[str, Any] = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {
                        "Name": "queue.1",
                        "Properties": {
                            "DeadLetteringOnMessageExpiration": True,
                            "DefaultMessageTimeToLive": "PT1H",
                            "DuplicateDetectionHistoryTimeWindow": "PT5S",
                            "ForwardDeadLetteredMessagesTo": "",
                            "ForwardTo": None,
                            "LockDuration": "PT1M",
                            "MaxDeliveryCount": 3,
                            "RequiresDuplicateDetection": False,
                            "RequiresSession": True,
                        },
                    },
                    {"Name": "queue.2"},
                ],
                "Topics": [
                    {
                        "Name": "topic.1",
                        "Properties": {"RequiresDuplicateDetection": True},
                        "Subscriptions": [
                            {
                                "Name": "by.filter",
                                "Properties": {"ForwardTo": "queue.2"},
                                "Rules": [
                                    {
                                        "Name": "correlated",
                                        "Properties": {
                                            "FilterType": "Correlation",
                                            "CorrelationFilter": {
                                                "ContentType": "application/text",
                                                "ReplyToSessionId": "s",
                                                "Properties": {"PropOne": "v", "n": 1},
                                            },
                                        },
                                    },
                                    {
                                        "Name": "sql",
                                        "Properties": {
                                            "FilterType": "Sql",
                                            "SqlFilter": {"SqlExpression": "a = 1"},
                                            "Action": {"SqlExpression": "SET b = 2"},
                                        },
                                    },
                                ],
                            },
                            {"Name": "all", "Properties": None, "Rules": []},
                        ],
                    }
                ],
            }
        ],
        "Logging": {"Type": "File"},
    }
}


def test_the_emulators_file_becomes_descriptions() -> None:
    (namespace,) = parse_config(json.dumps(EMULATOR), "Config.json")

    correlated = CorrelationFilter(
        content_type="application/text",
        reply_to_session_id="s",
        properties={"PropOne": "v", "n": 1},
    )
    by_filter = SubscriptionConfig(
        SubscriptionDescription("topic.1", "by.filter", forward_to="queue.2"),
        (
            RuleDescription("correlated", correlated),
            RuleDescription("sql", SqlFilter("a = 1"), SqlRuleAction("SET b = 2")),
        ),
    )
    everything = SubscriptionConfig(
        SubscriptionDescription("topic.1", "all"), (default_rule(),)
    )
    assert namespace.name == "sbemulatorns"
    assert namespace.topics == (
        TopicConfig(
            TopicDescription("topic.1", requires_duplicate_detection=True),
            (by_filter, everything),
        ),
    )
    first, second = namespace.queues
    assert second == QueueDescription("queue.2")
    assert first == QueueDescription(
        "queue.1",
        dead_lettering_on_message_expiration=True,
        default_message_time_to_live_ms=3_600_000,
        # Shorter than ours may be, but detection is off.
        duplicate_detection_history_time_window_ms=20_000,
        max_delivery_count=3,
        requires_session=True,
    )


def emulator(**properties: object) -> str:
    queues = [{"Name": "q", "Properties": properties}]
    namespaces = [{"Name": "a", "Queues": queues, "Topics": []}]
    return json.dumps({"UserConfig": {"Namespaces": namespaces}})


def emulator_rule(**properties: object) -> str:
    rules = [{"Name": "r", "Properties": properties}]
    below = [{"Name": "s", "Rules": rules}]
    topics = [{"Name": "t", "Subscriptions": below}]
    return json.dumps({"UserConfig": {"Namespaces": [{"Name": "a", "Topics": topics}]}})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            emulator(LockDuration="PT6M"),
            "UserConfig.Namespaces[0].Queues[0]: lock_duration must be between",
        ),
        (
            emulator(LockDuration=5),
            "UserConfig.Namespaces[0].Queues[0].Properties.LockDuration: this is 5;",
        ),
        (emulator(LockDurations="PT5S"), "Did you mean 'LockDuration'?"),
        (
            emulator(
                RequiresDuplicateDetection=True,
                DuplicateDetectionHistoryTimeWindow="PT5S",
            ),
            "duplicate_detection_history_time_window must be between PT20S and P7D",
        ),
        ('{"UserConfig": {}}', "UserConfig: the key 'Namespaces' is missing."),
        ('{"UserConfig": null}', "the key 'UserConfig' is missing."),
        ('{"UserConfig": {}, "namespaces": []}', "namespaces: this key is not known."),
        ('{"UserConfig": {"Namespaces": [{}]}}', "the key 'Name' is missing."),
        (emulator_rule(), "Rules[0]: the key 'FilterType' is missing."),
        (emulator_rule(FilterType="Sql"), "Rules[0]: the key 'SqlFilter' is missing."),
        (
            emulator_rule(FilterType="Regex"),
            "Properties.FilterType: 'Regex' must be 'Sql' or 'Correlation'.",
        ),
        (
            emulator_rule(FilterType="Sql", SqlFilter={}),
            "SqlFilter: the key 'SqlExpression' is missing.",
        ),
        (
            emulator_rule(FilterType="Correlation", CorrelationFilter={"Lable": "x"}),
            "CorrelationFilter.Lable: this key is not known. Did you mean 'Label'?",
        ),
    ],
)
def test_a_bad_emulator_file_is_refused_in_its_own_words(
    text: str, problem: str
) -> None:
    with pytest.raises(errors.ConfigError) as refusal:
        parse_config(text, "Config.json")

    assert refusal.value.text.startswith("Config.json: ")
    assert problem in refusal.value.text


def test_unused_keys_of_an_emulator_file_are_ignored() -> None:
    text = emulator_rule(
        FilterType="SqlFilter",
        SqlFilter={"SqlExpression": "a = 1", "CompatibilityLevel": 20},
        CorrelationFilter={"Label": "not used", "RequiresPreprocessing": False},
    )

    (namespace,) = parse_config(text, "Config.json")

    (below,) = namespace.topics[0].subscriptions
    assert below.rules == (RuleDescription("r", SqlFilter("a = 1")),)
