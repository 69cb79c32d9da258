"""Configuration files: our own format, and what both have in common."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus import errors, limits
from twinbus.core.entity import (
    ActiveStatus,
    AuthorizationRule,
    QueueDescription,
    Right,
    RuleDescription,
    TopicDescription,
    default_rule,
)
from twinbus.core.filters import (
    CorrelationFilter,
    FalseFilter,
    SqlFilter,
    SqlRuleAction,
    TrueFilter,
)
from twinbus.core.sas import Secret
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.setup.config import load_config, parse_config

OURS = """
namespaces:
  - name: contoso
    message_rate_per_second: 500
    queues:
      - name: orders
        lock_duration: PT5S
        requires_session: true
        status: senddisabled
        max_delivery_count: 3
        default_message_time_to_live: P1D
        user_metadata: ''
        authorization_rules:
          - {name: writer, rights: [Send], primary_key: planted 0}
      - name: a/b
        forward_to: orders
    topics:
      - name: events
        max_size_in_megabytes: 2048
        subscriptions:
          - name: all
            rules:
          - name: some
            dead_lettering_on_filter_evaluation_exceptions: false
            rules:
              - name: big
                filter: {sql: "amount > 10"}
                action: "SET sys.Label = 'big'"
              - name: with-values
                filter: {sql: "amount > @a", parameters: {"@a": 10}}
                action: {sql: "SET a = @b", parameters: {"@b": true}}
              - name: from
                filter:
                  correlation:
                    label: x
                    properties: {colour: red, size: 5, at: 2024-01-02T03:04:05Z}
              - {name: yes, filter: {true: {}}}
              - {name: "no", filter: {false: {}}}
              - name: bare
    authorization_rules:
      - name: reader
        rights: [Listen, send]
        primary_key: planted 1
        secondary_key: planted 2
  - name: empty
    queues:
    topics: []
""".replace("name: yes", "name: 'yes'")


def test_our_format_becomes_descriptions() -> None:
    contoso, empty = parse_config(OURS, "namespace.yaml")

    assert empty == NamespaceConfig("empty")
    assert contoso.message_rate_per_second == 500
    assert contoso.queues == (
        QueueDescription(
            "orders",
            lock_duration_ms=5_000,
            requires_session=True,
            status=ActiveStatus.SEND_DISABLED,
            max_delivery_count=3,
            default_message_time_to_live_ms=86_400_000,
            authorization_rules=(
                AuthorizationRule("writer", Right.SEND, Secret("planted 0")),
            ),
        ),
        QueueDescription("a/b", forward_to="orders"),
    )
    assert contoso.authorization_rules == (
        AuthorizationRule(
            "reader",
            Right.SEND | Right.LISTEN,
            Secret("planted 1"),
            Secret("planted 2"),
        ),
    )
    assert "planted" not in repr(contoso)


def test_our_rules_become_filters_and_actions() -> None:
    (topic,) = parse_config(OURS, "namespace.yaml")[0].topics

    everything, some = topic.subscriptions

    assert topic.description == TopicDescription("events", max_size_in_megabytes=2048)
    assert everything.rules == (default_rule(),)
    assert not some.description.dead_lettering_on_filter_evaluation_exceptions
    moment = datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
    properties = {"colour": "red", "size": 5, "at": moment}
    assert some.rules == (
        RuleDescription(
            "big", SqlFilter("amount > 10"), SqlRuleAction("SET sys.Label = 'big'")
        ),
        RuleDescription(
            "with-values",
            SqlFilter("amount > @a", {"@a": 10}),
            SqlRuleAction("SET a = @b", {"@b": True}),
        ),
        RuleDescription("from", CorrelationFilter(label="x", properties=properties)),
        RuleDescription("yes", TrueFilter()),
        RuleDescription("no", FalseFilter()),
        RuleDescription("bare", TrueFilter()),
    )


def test_the_format_is_told_by_name_or_looks(tmp_path: Path) -> None:
    data = '\ufeff{"namespaces": [{"name": "a"}]}'
    for name in ("a.json", "a.yaml", "a.yml", "a.txt", "a"):
        path = tmp_path / name
        path.write_text(data, "utf-8")

        assert load_config(path) == [NamespaceConfig("a")]


def test_a_name_alone_is_an_entity() -> None:
    text = """
namespaces:
  - name: contoso
    queues: [orders, {name: copies}]
    topics: [{name: events, subscriptions: [all]}, news]
"""

    (found,) = parse_config(text, "ours.yaml")

    assert [queue.name for queue in found.queues] == ["orders", "copies"]
    events, news = found.topics
    assert [each.description.name for each in events.subscriptions] == ["all"]
    assert (news.description.name, news.subscriptions) == ("news", ())


@pytest.mark.parametrize("text", ["", "# nothing yet", "---"])
def test_an_empty_file_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(errors.ConfigError, match="the file is empty"):
        parse_config(text, "ours.yaml")


def test_yaml_may_share_values() -> None:
    text = """
    namespaces:
      - name: a
        queues: [&q {name: q, lock_duration: PT5S}, {<<: *q, name: r}]
    """

    (namespace,) = parse_config(text, "a.yaml")

    assert [queue.lock_duration_ms for queue in namespace.queues] == [5_000, 5_000]


# -- refusals ----------------------------------------------------------------------


def refused(text: str, file: str = "a.yaml") -> str:
    """The refusal of a text, without the file. Lines are named in YAML alone."""
    with pytest.raises(errors.ConfigError) as refusal:
        parse_config(text, file)
    assert refusal.value.text.startswith(f"{file}: ")
    return refusal.value.text.removeprefix(f"{file}: ")


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("namespaces:\n- name: a\n  queues:\n  - name: q\n    colour: 1", "line 5: "),
        ("namespaces:\n- name: a\n- name: b\n  queues: 1", "line 4: "),
        ("namespaces:\n- name: a\n  name: b", "line 3: the key 'name' is there twice"),
        ("namespaces:\n- &a {name: a, shards: no}\n- {<<: *a, name: b}", "line 2: "),
    ],
)
def test_a_refusal_of_yaml_names_the_line(text: str, refusal: str) -> None:
    assert refused(text).startswith(refusal)


def queue(**values: object) -> str:
    queues = [{"name": "q", **values}]
    return json.dumps({"namespaces": [{"name": "a", "queues": queues}]})


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("lock_duration", 5, "this is 5; it must be an ISO 8601 duration"),
        ("lock_duration", "5s", "'5s' is not a duration"),
        ("requires_session", "yes", "this is 'yes'; it must be true or false"),
        ("requires_session", 1, "this is 1; it must be true or false"),
        ("max_delivery_count", "3", "this is '3'; it must be a whole number"),
        ("max_delivery_count", True, "this is True; it must be a whole number"),
        ("max_delivery_count", 1.5, "this is 1.5; it must be a whole number"),
        ("forward_to", 5, "this is 5; it must be text"),
        ("status", "Closed", "'Closed' is not a status. Use one of Active,"),
        ("lock_duratoin", "PT5S", "not known. Did you mean 'lock_duration'?"),
        ("lock_duratoin", None, "not known. Did you mean 'lock_duration'?"),
        ("lock_duration_ms", 5, "not known. Did you mean 'lock_duration'?"),
        ("created_at_ms", 5, "this key is not known."),
        ("zzz", 5, "this key is not known. Known are name, lock_duration,"),
        ("authorization_rules", {}, "this is a mapping; it must be a list."),
    ],
)
def test_a_wrong_value_is_named_with_its_place(
    name: str, value: object, problem: str
) -> None:
    text = refused(queue(**{name: value}), "a.json")

    assert text.startswith(f"namespaces[0].queues[0].{name}: {problem}") or (
        problem in text and text.startswith(f"namespaces[0].queues[0].{name}: ")
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (queue(lock_duration="PT6M"), "queues[0]: lock_duration must be between PT5S"),
        (queue(name="a b"), "queues[0]: The queue name 'a b' has a character"),
        (queue(name=None), "queues[0]: the key 'name' is missing."),
        (queue(name=5), "queues[0].name: this is 5; it must be text"),
        ("namespaces: [{}]", "namespaces[0]: the key 'name' is missing."),
        ("namespaces: [{name: a b}]", "namespaces[0].name: The namespace name 'a b'"),
        ("namespaces: [1]", "namespaces[0]: this is 1; it must be a mapping"),
        ("namespaces: {}", "namespaces: this is a mapping; it must be a list."),
        ("namespaces:", "the key 'namespaces' is missing."),
        ("{}", "the key 'namespaces' is missing."),
        ("", "the file is empty. Write 'namespaces:'"),
        ("[]", "this is a list; it must be a mapping"),
        ("namespace: []", "namespace: this key is not known. Did you mean"),
        ("namespaces: []\n5: x", "the key 5 is not text."),
        ("namespaces: []\nnamespaces: []", "the key 'namespaces' is there twice."),
        ("namespaces: [", "line 1, column 14: not YAML: "),
        ("namespaces: !!python/object:os.system []", "not YAML: "),
        ("? [a]\n: b", "not YAML: "),
        ("at: 2024-99-99", "this is neither YAML nor JSON."),
        ("\x00", "this is neither YAML nor JSON."),
        ("namespaces: " + "[" * 5000, "is nested too deeply."),
        ("namespaces: [{name: a}, {name: A}]", "already a namespace of this name"),
        ("namespaces: [{name: a, message_rate_per_second: 0}]", "between 1 and"),
        ("namespaces: [{name: a, ledger: true}]", "ledger, or false for none."),
        ("namespaces: [{name: a, ledger: 5}]", ".ledger: this must be the folder"),
        ("namespaces: [{name: a, tier: gold}]", ".tier: 'gold' is not a tier. Use sta"),
        ("namespaces: [{name: a, shards: 0}]", ".shards: 0 shards are not possible"),
        ("namespaces: [{name: a, shards: 65}]", "a namespace has 1 to 64."),
        ("namespaces: [{name: a, shards: []}]", "0 shards are not possible"),
        ("namespaces: [{name: a, shards: two}]", "this is 'two'; it must be a whole"),
        ("namespaces: [{name: a, shards: [/a, 5]}]", ".shards[1]: this is 5; it must"),
        ("namespaces: [{name: a, shards: [/a, '']}]", "must be the folder of a shard"),
    ],
)
def test_a_bad_file_is_refused_with_the_place(text: str, problem: str) -> None:
    assert problem in refused(text)


@pytest.mark.parametrize(
    ("text", "shards"),
    [
        ("[]", None),
        ("[], shards:", None),
        ("[], shards: 3", 3),
        ("[], shards: [/disk1/a, b]", (Path("/disk1/a"), Path("/etc/twinbus/b"))),
    ],
)
def test_shards_are_a_number_or_folders_beside_the_file(
    text: str, shards: object
) -> None:
    config = f"namespaces: [{{name: a, queues: {text}}}]"

    assert parse_config(config, "/etc/twinbus/a.yaml")[0].shards == shards


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "line 1, column 2: not JSON: "),
        ('{"namespaces": [], "namespaces": []}', "there twice"),
        ("[" * 100_000, "is nested too deeply."),
        ('{"namespaces": ' + "9" * 5000 + "}", "this is neither YAML nor JSON."),
    ],
)
def test_bad_json_is_refused_with_the_place(text: str, problem: str) -> None:
    assert problem in refused(text, "a.json")


@pytest.mark.parametrize(("extra", "fits"), [(-1, True), (0, True), (1, False)])
def test_a_rate_and_a_number_of_rules_have_an_end(extra: int, fits: bool) -> None:
    rate = limits.MESSAGE_RATE_MAX + extra
    count = limits.FILTERS_PER_TOPIC_MAX + extra
    rules = [{"name": f"r{number}"} for number in range(count)]
    topic = {"name": "t", "subscriptions": [{"name": "s", "rules": rules}]}
    rated = json.dumps({"namespaces": [{"name": "a", "message_rate_per_second": rate}]})
    ruled = json.dumps({"namespaces": [{"name": "a", "topics": [topic]}]})

    if fits:
        assert parse_config(rated, "a.json")[0].message_rate_per_second == rate
        assert len(parse_config(ruled, "a.json")[0].topics[0].subscriptions) == 1
    else:
        assert "must be between" in refused(rated, "a.json")
        assert f"the topic has {count} rules" in refused(ruled, "a.json")


def namespace(**values: object) -> str:
    return json.dumps({"namespaces": [{"name": "a", **values}]})


def subscription(*rules: object) -> str:
    below = {"name": "s", "rules": list(rules)}
    return namespace(topics=[{"name": "t", "subscriptions": [below]}])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (namespace(queues=[{"name": "q"}, {"name": "Q"}]), "already a queue or topic"),
        (
            namespace(queues=[{"name": "q"}], topics=[{"name": "q"}]),
            (
                "topics[0]: there is already a queue or topic of this name ('q') at "
                "namespaces[0].queues[0]."
            ),
        ),
        (
            namespace(
                topics=[{"name": "t", "subscriptions": [{"name": "s"}, {"name": "S"}]}]
            ),
            "subscriptions[1]: there is already a subscription",
        ),
        (
            namespace(topics=[{"name": "t", "subscriptions": [{"name": "a/b"}]}]),
            "subscriptions[0]: The subscription name 'a/b'",
        ),
        (subscription({"name": "r"}, {"name": "R"}), "rules[1]: there is already a"),
        (subscription({"name": "a/b"}), "rules[0]: The rule name 'a/b'"),
        (subscription({"name": "r", "filter": {}}), "a filter is one of sql,"),
        (
            subscription({"name": "r", "filter": {"sql": "a = 1", "true": {}}}),
            "rules[0].filter: a filter is one of",
        ),
        (
            subscription({"name": "r", "filter": {"true": {}, "parameters": {}}}),
            "rules[0].filter: a filter is one of",
        ),
        (subscription({"name": "r", "filter": {"true": 1}}), "write {true: {}}"),
        (subscription({"name": "r", "filter": {"sql": "a >"}}), "rules[0]: "),
        (subscription({"name": "r", "filter": {"sql": 5}}), "filter.sql: this is 5"),
        (
            subscription({"name": "r", "filter": {"correlation": {}}}),
            "filter.correlation: a correlation filter needs at least one",
        ),
        (
            subscription({"name": "r", "filter": {"correlation": {"lable": "x"}}}),
            "correlation.lable: this key is not known. Did you mean 'label'?",
        ),
        (
            subscription(
                {"name": "r", "filter": {"correlation": {"properties": {"a": []}}}}
            ),
            "rules[0]: ",
        ),
        (subscription({"name": "r", "action": "SET"}), "rules[0]: "),
        (subscription({"name": "r", "action": 5}), "rules[0].action: this is 5"),
        (subscription({"name": "r", "action": {}}), "rules[0].action: the key 'sql'"),
        (subscription({"name": "r", "color": 1}), "rules[0].color: this key is not"),
    ],
)
def test_bad_topics_and_rules_are_refused(text: str, problem: str) -> None:
    assert problem in refused(text, "a.json")


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ([{"name": "r", "rights": ["Send"]}], "[0]: the key 'primary_key' is missing."),
        ([{"name": "r", "primary_key": "planted"}], "[0]: the key 'rights' is missing"),
        (
            [{"name": "r", "rights": "Send", "primary_key": "planted"}],
            "[0].rights: this is 'Send'; it must be a list.",
        ),
        (
            [{"name": "r", "rights": ["Read"], "primary_key": "planted"}],
            "[0].rights: The right 'Read' is not known.",
        ),
        (
            [{"name": "r", "rights": ["Send"], "primary_key": ["planted"]}],
            "[0].primary_key: this must be a key",
        ),
        (
            [{"name": "r", "rights": ["Send"], "primary_key": 12345}],
            "[0].primary_key: this must be a key",
        ),
        (
            [{"name": "r", "rights": ["Send"], "primary_key": ""}],
            "[0].primary_key: this must be a key",
        ),
        (
            [{"name": "r", "rights": [], "primary_key": "planted"}],
            "The authorization rule 'r' gives no rights.",
        ),
        ({"name": "r", "primary_key": "planted"}, "this is a mapping; it must be a"),
        ([["planted"]], "[0]: this is a list; it must be a mapping"),
    ],
)
def test_bad_authorization_rules_are_refused_without_a_leak(
    rules: object, problem: str
) -> None:
    text = refused(namespace(authorization_rules=rules), "a.json")

    assert f"namespaces[0].authorization_rules{problem}" in text or problem in text
    assert "planted" not in text
    assert "12345" not in text


def test_a_missing_file_a_folder_and_bad_bytes_are_named(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_bytes(b"\xff\xfe\x00")
    for path, problem in (
        (tmp_path / "none.yaml", "cannot be read: No such file or directory."),
        (tmp_path, "cannot be read: Is a directory."),
        (bad, "is not UTF-8."),
    ):
        with pytest.raises(errors.ConfigError) as refusal:
            load_config(path)
        assert f"{path}: {problem}" in refusal.value.text


@pytest.mark.parametrize(("extra", "fits"), [(-1, True), (0, True), (1, False)])
def test_a_file_has_a_maximum_size(tmp_path: Path, extra: int, fits: bool) -> None:
    path = tmp_path / "big.json"
    data = b'{"namespaces": []}'
    path.write_bytes(data + b" " * (limits.CONFIG_BYTES_MAX - len(data) + extra))

    if fits:
        assert load_config(path) == []
    else:
        with pytest.raises(errors.ConfigError, match="is larger than"):
            load_config(path)


_TREES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["name", "queues", "topics", "rules", "filter", "sql", "subscriptions"]
            )
            | st.text(max_size=3),
            below,
            max_size=3,
        )
    ),
)


@given(_TREES, st.sampled_from(["namespaces", "UserConfig"]))
def test_only_config_errors_leave_the_loader(tree: Any, top: str) -> None:
    for value in (tree, [tree], [{"name": "a", "queues": tree}], {"Namespaces": tree}):
        try:
            parse_config(json.dumps({top: value}), "a.json")
        except errors.ConfigError as refusal:
            assert refusal.text.startswith("a.json: ")  # noqa: PT017


@given(st.text())
def test_any_text_is_read_or_refused_with_a_config_error(text: str) -> None:
    for file in ("a.yaml", "a.json", "a"):
        try:
            parse_config(text, file)
        except errors.ConfigError as refusal:
            assert refusal.text.startswith(f"{file}: ")  # noqa: PT017
