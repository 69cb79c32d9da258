"""The administration API: rules of subscriptions, and the values in them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.server.http.admin_site import AdminSite, described, local
from twinbus import limits
from twinbus.errors import ArgumentError, TwinbusError
from twinbus.server.http.admin import descriptions as admin_descriptions
from twinbus.server.http.admin import rules as admin_rules
from twinbus.server.http.admin.xml import read_description

SUBSCRIPTION = "/events/subscriptions/s"
TRUE = '<Filter i:type="TrueFilter"><SqlExpression>1=1</SqlExpression></Filter>'
VALUES = {
    "text": ("string", " a &lt;b&gt; "),
    "small": ("int", "-2147483648"),
    "large": ("long", "9223372036854775807"),
    "flag": ("boolean", "true"),
    "ratio": ("double", "1.5"),
    "endless": ("double", "-INF"),
    "moment": ("dateTime", "2020-07-05T11:12:13"),
    "utc": ("dateTime", "2020-07-05T11:12:13.250000Z"),
    "span": ("duration", "P1DT2H3M4.000007S"),
    "back": ("duration", "-P0DT0H0M1S"),
    "id": ("guid", "12345678-1234-5678-1234-567812345678"),
    "bytes": ("base64Binary", "AAE="),
}


@pytest.fixture
async def site() -> AsyncIterator[AdminSite]:
    site = AdminSite()
    await site.put("/events", "TopicDescription")
    await site.put(SUBSCRIPTION, "SubscriptionDescription")
    yield site
    await site.host.close()


def pairs(values: dict[str, tuple[str, str]]) -> str:
    return "".join(
        f"<KeyValueOfstringanyType><Key>{key}</Key>"
        f'<Value xmlns:l28="http://www.w3.org/2001/XMLSchema" i:type="l28:{kind}">'
        f"{text}</Value></KeyValueOfstringanyType>"
        for key, (kind, text) in values.items()
    )


async def test_the_default_rule_lets_everything_through(site: AdminSite) -> None:
    read = await site.get(f"{SUBSCRIPTION}/Rules/$Default")

    assert read.elements == ["Filter", "Action", "CreatedAt", "Name"]
    assert '<Filter i:type="TrueFilter"><SqlExpression>1=1</SqlExpression>' in read.text
    assert "<CompatibilityLevel>20</CompatibilityLevel></Filter>" in read.text
    assert '<Action i:type="EmptyRuleAction"/>' in read.text


async def test_every_kind_of_value_comes_back(site: AdminSite) -> None:
    inner = (
        '<Filter i:type="CorrelationFilter"><Label>x</Label><Properties>'
        f"{pairs(VALUES)}</Properties></Filter>"
    )

    made = await site.put(f"{SUBSCRIPTION}/rules/r", "RuleDescription", inner)

    assert made.status == 201, made.text
    read = await site.get(f"{SUBSCRIPTION}/rules/r")
    filter_ = read.description[0]
    assert [local(e.tag) for e in filter_] == ["Label", "Properties"]
    found = {}
    for key, value in filter_[1]:
        (kind,) = value.attrib.values()
        prefix, _, name = kind.partition(":")
        assert prefix == "d6p1"
        found[key.text] = (name, value.text)
    wanted = {**VALUES, "text": ("string", " a <b> ")}
    assert found == wanted


async def test_all_fields_of_a_correlation_filter_come_back_in_order(
    site: AdminSite,
) -> None:
    names = [
        "CorrelationId",
        "MessageId",
        "To",
        "ReplyTo",
        "Label",
        "SessionId",
        "ReplyToSessionId",
        "ContentType",
    ]
    fields = "".join(f"<{name}>{name}!</{name}>" for name in reversed(names))
    inner = f'<Filter i:type="CorrelationFilter">{fields}</Filter>'

    await site.put(f"{SUBSCRIPTION}/rules/r", "RuleDescription", inner)

    read = (await site.get(f"{SUBSCRIPTION}/rules/r")).description[0]
    assert [(local(e.tag), e.text) for e in read] == [(n, f"{n}!") for n in names]


async def test_sql_comes_back_with_its_parameters(site: AdminSite) -> None:
    parameters = f"<Parameters>{pairs({'@p': ('int', '5')})}</Parameters>"
    inner = (
        '<Filter i:type="SqlFilter"><SqlExpression>a &lt; @p</SqlExpression>'
        f"{parameters}</Filter>"
        '<Action i:type="SqlRuleAction"><SqlExpression>SET b = @p</SqlExpression>'
        f"{parameters}</Action>"
    )

    await site.put(f"{SUBSCRIPTION}/rules/r", "RuleDescription", inner)

    read = (await site.get(f"{SUBSCRIPTION}/rules/r")).description
    kinds = ["SqlExpression", "CompatibilityLevel", "Parameters"]
    assert [local(e.tag) for e in read[0]] == kinds
    assert [local(e.tag) for e in read[1]] == [*kinds, "RequiresPreprocessing"]
    assert (read[0][0].text, read[1][0].text) == ("a < @p", "SET b = @p")


async def test_a_changed_rule_keeps_its_creation_time(site: AdminSite) -> None:
    path = f"{SUBSCRIPTION}/rules/r"
    made = await site.put(path, "RuleDescription", TRUE)
    site.clock.advance(1000)
    inner = TRUE.replace("True", "False")

    changed = await site.put(path.upper(), "RuleDescription", inner, if_match="*")

    assert (made.status, changed.status) == (201, 200)
    assert 'i:type="FalseFilter"' in changed.text
    assert changed.values["CreatedAt"] == made.values["CreatedAt"]
    assert changed.values["Name"] == "r"


async def test_a_subscription_can_be_created_with_its_first_rule(
    site: AdminSite,
) -> None:
    rule = (
        '<DefaultRuleDescription><Filter i:type="SqlFilter"><SqlExpression>a = 1'
        "</SqlExpression></Filter><Name>first</Name></DefaultRuleDescription>"
    )

    await site.put("/events/subscriptions/x", "SubscriptionDescription", rule)

    assert (await site.get("/events/subscriptions/x/rules")).titles == ["first"]


async def test_a_subscription_whose_first_rule_is_bad_is_not_made(
    site: AdminSite,
) -> None:
    rule = (
        '<DefaultRuleDescription><Filter i:type="SqlFilter"><SqlExpression>a ='
        "</SqlExpression></Filter></DefaultRuleDescription>"
    )

    made = await site.put("/events/subscriptions/x", "SubscriptionDescription", rule)

    assert made.status == 400
    assert (await site.get("/events/subscriptions")).titles == ["s"]


async def test_a_subscription_whose_first_rule_exceeds_the_limit_is_not_made(
    site: AdminSite,
) -> None:
    topic = site.host.namespace.entities.find("events")
    assert topic is not None
    full = dict.fromkeys(map(str, range(limits.FILTERS_PER_TOPIC_MAX)))
    subscription = topic.subscriptions["s"]
    subscription.rules, kept = full, subscription.rules  # type: ignore[assignment]
    rule = "<DefaultRuleDescription><Name>first</Name></DefaultRuleDescription>"

    made = await site.put("/events/subscriptions/x", "SubscriptionDescription", rule)

    subscription.rules = kept
    assert made.status == 400
    assert (await site.get("/events/subscriptions")).titles == ["s"]


@pytest.mark.parametrize(
    "inner",
    [
        '<Filter i:type="SqlFilter"><SqlExpression>a =</SqlExpression></Filter>',
        '<Filter i:type="SqlFilter"/>',
        '<Filter i:type="Other"/>',
        "<Filter/>",
        '<Action i:type="Other"/>',
        '<Action i:type="SqlRuleAction"><SqlExpression>x</SqlExpression></Action>',
    ],
)
async def test_a_rule_that_cannot_run_is_refused(site: AdminSite, inner: str) -> None:
    answer = await site.put(f"{SUBSCRIPTION}/rules/r", "RuleDescription", inner)

    assert answer.status == 400
    assert (await site.get(f"{SUBSCRIPTION}/rules")).titles == ["$Default"]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int", "x"),
        ("long", "9223372036854775808"),
        ("boolean", "maybe"),
        ("double", "one"),
        ("dateTime", "yesterday"),
        ("duration", "5 s"),
        ("duration", "P1Y"),
        # One that AMQP could not list: more than 64 bits of 100 nanoseconds.
        ("duration", "P10675199DT2H48M5.999999S"),
        ("guid", "1"),
        ("base64Binary", "?"),
        ("anyURI", "x"),
        ("", "x"),
    ],
)
async def test_a_value_that_cannot_be_read_is_refused(
    site: AdminSite, kind: str, text: str
) -> None:
    inner = (
        f'<Filter i:type="CorrelationFilter"><Properties>{pairs({"k": (kind, text)})}'
        "</Properties></Filter>"
    )

    answer = await site.put(f"{SUBSCRIPTION}/rules/r", "RuleDescription", inner)

    assert answer.status == 400
    assert "'k'" in answer.detail or "of k" in answer.detail or "k:" in answer.detail


def test_a_pair_needs_a_key_and_a_value() -> None:
    inner = (
        '<Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType>'
        "<Key>k</Key></KeyValueOfstringanyType></Properties></Filter>"
    )
    element = read_description(described("RuleDescription", inner).encode())

    with pytest.raises(ArgumentError, match="needs a Key and a Value"):
        admin_rules.read_rule(element, "r", 0)


# -- nothing but our own errors --------------------------------------------------------

_PIECES = st.sampled_from(
    [
        *("<Filter i:type='CorrelationFilter'>", "</Filter>", "<Filter/>"),
        *("<Properties>", "</Properties>", "<Action i:type='SqlRuleAction'/>"),
        *("<LockDuration>", "</LockDuration>", "<Status>", "</Status>", "PT5S", "1"),
        *("<AuthorizationRules>", "</AuthorizationRules>", "<AuthorizationRule>"),
        *("</AuthorizationRule>", "<Rights/>", "<KeyName>k</KeyName>", "<Name/>", "é"),
        pairs({"k": ("int", "1")}),
        pairs({"k": ("dateTime", "9999-99-99")}),
        pairs({"k": ("duration", "-P10675199D")}),
        *("&amp;", "&#0;", "<!--", "-->", "<![CDATA[", "]]>", "<x:y/>", "\x00"),
    ]
)
_KINDS = st.sampled_from(
    [
        "QueueDescription",
        "TopicDescription",
        "SubscriptionDescription",
        "RuleDescription",
    ]
)


@settings(max_examples=500)
@given(_KINDS, st.lists(_PIECES, max_size=12), st.sampled_from(["2017-04", "2024-05"]))
def test_the_parser_raises_only_twinbus_errors(
    kind: str, pieces: list[str], version: str
) -> None:
    try:
        element = read_description(described(kind, "".join(pieces)).encode())
        if kind == "RuleDescription":
            rule = admin_rules.read_rule(element, None, 0)
            rule.validate()
            admin_rules.write_rule(rule)
        else:
            admin_descriptions.read(element, version)
    except TwinbusError:
        pass


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_bytes_that_are_no_entry_are_refused(body: bytes) -> None:
    with pytest.raises(ArgumentError):
        read_description(body)
