"""`$filter` of lists: what is documented works, and the rest is refused by name."""

from __future__ import annotations

import urllib.parse

import pytest

from tests.server.http.admin_site import VERSION, AdminSite, Answer
from twinbus import limits
from twinbus.errors import ArgumentError, ArgumentOutOfRange
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.server.http.admin.filters import Facts, parse_filter
from twinbus.store.records import Record

# As the site's clock shows it when nothing has moved it.
START = "2023-11-14T22:13:20.000Z"
FACTS = Facts("Area/Orders", 1000, 2000, lambda: 3000, lambda: 4)


def holds(text: str) -> bool:
    return parse_filter(text, has_path=True)(FACTS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("startswith(path, 'area') eq true", True),
        ("STARTSWITH( Path ,'AREA/o') EQ True", True),
        ("startsWith(path, '/area/') eq false", False),
        ("startswith(path, 'orders')", False),
        ("startswith(path, '') eq true", True),
        ("startswith(path, 'it''s') eq true", False),
        ("path eq 'area/orders'", True),
        ("path ne 'area/orders'", False),
        ("messageCount gt 0", True),
        ("messageCount Gt 4", False),
        ("messageCount ge 4", True),
        ("messageCount lt 5 AND messageCount le 4 and messageCount ne 5", True),
        ("messageCount eq 4 and startswith(path, 'b') eq true", False),
        ("createdAt eq 1970-01-01T00:00:01Z", True),
        ("createdAt eq '1970-01-01T00:00:01'", True),
        ("createdat eq datetime'1970-01-01T01:00:01+01:00'", True),
        ("updatedAt gt 1970-01-01T00:00:01.9990000Z", True),
        ("modifiedAt lt 1970-01-01T00:00:02.0010000Z", True),
        ("accessedAt le 1970-01-01", False),
    ],
)
def test_documented_filters_are_parsed(text: str, expected: bool) -> None:
    assert holds(text) is expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "at its end"),
        ("a", "at 'a'"),
        ("path", "comparison"),
        ("path eq orders", "cannot be read"),
        ("path gt 'a'", "eq or ne"),
        ("path eq 5", "'text'"),
        ("startswith(name, 'a') eq true", "startswith(path"),
        ("startswith(path, 'a') eq maybe", "'and'"),
        ("startswith(path, 'a') ne true", "'and'"),
        ("startswith(path, 'a", "startswith(path"),
        ("endswith(path, 'a') eq true", "startswith(path"),
        ("messageCount gt '0'", "whole number"),
        ("messageCount gt -1", "whole number"),
        ("messageCount gt 1.5", "whole number"),
        ("messageCount gt 1 or messageCount lt 1", "'and'"),
        ("not messageCount gt 1", "cannot be read"),
        ("(messageCount gt 1)", "cannot be read"),
        ("messageCount gt 1 and", "at its end"),
        ("sizeInBytes gt 1", "'sizeInBytes' is not known"),
        ("createdAt gt 5", "no time"),
        ("createdAt gt yesterday", "cannot be read"),
    ],
)
def test_other_filters_are_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        holds(text)

    assert why in refused.value.text


def test_a_filter_has_bounds() -> None:
    condition = "messageCount gt 0"
    most = limits.FILTER_EXPRESSIONS_MAX
    assert holds(" and ".join([condition] * most))
    with pytest.raises(ArgumentOutOfRange, match="conditions"):
        holds(" and ".join([condition] * (most + 1)))
    longest = limits.FILTER_CHARS_MAX
    assert not holds(f"path eq '{'x' * (longest - 10)}'")
    with pytest.raises(ArgumentOutOfRange, match="characters"):
        holds(f"path eq '{'x' * (longest - 9)}'")


# -- over HTTP -------------------------------------------------------------------------


async def listed(site: AdminSite, path: str, text: str, more: str = "") -> Answer:
    quoted = urllib.parse.quote(text)
    return await site.get(f"{path}?api-version={VERSION}&$filter={quoted}{more}")


@pytest.fixture
async def site() -> AdminSite:
    made = AdminSite()
    for name in ("area/a", "area/b", "other"):
        await made.put(f"/{name}", "QueueDescription")
    made.clock.advance(1000)
    await made.put("/events", "TopicDescription")
    await made.put("/events/subscriptions/s1", "SubscriptionDescription")
    return made


async def test_lists_are_filtered(site: AdminSite) -> None:
    def fill(namespace: Namespace, turn: Turn) -> None:
        queue = namespace.entities.find("area/b")
        assert queue is not None
        namespace.store.append(queue.id, [Record(b"", b"m")], turn.now)

    await site.host.run(fill)
    queues, topics = "/$Resources/queues", "/$Resources/topics"

    for path, text, titles in (
        (queues, "startswith(path, 'area/') eq true", ["area/a", "area/b"]),
        (queues, "messageCount gt 0", ["area/b"]),
        (queues, "messageCount eq 0 and startswith(path,'a') eq true", ["area/a"]),
        (queues, f"createdAt gt {START}", []),
        (topics, f"createdAt gt {START}", ["events"]),
        ("/events/subscriptions", "messageCount eq 0", ["s1"]),
        ("/events/subscriptions", "messageCount gt 0", []),
    ):
        answer = await listed(site, path, text)
        assert (answer.status, answer.titles) == (200, titles), text


async def test_the_next_page_has_the_same_filter(site: AdminSite) -> None:
    text = "startswith(path, 'area/') eq true"

    first = await listed(site, "/$Resources/queues", text, "&$top=1")
    link = urllib.parse.urlsplit(first.links["next"])
    second = await site.get(f"{link.path}?{link.query}")

    assert (first.titles, second.titles) == (["area/a"], ["area/b"])
    assert "next" not in second.links


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/$Resources/queues", "nonsense"),
        ("/events/subscriptions", "startswith(path, 's') eq true"),
        ("/events/subscriptions", "path eq 's1'"),
        ("/events/subscriptions/s1/rules", "messageCount eq 0"),
        ("/other", "messageCount eq 0"),
        ("/$namespaceinfo", "messageCount eq 0"),
    ],
)
async def test_a_filter_that_cannot_be_used_is_refused(
    site: AdminSite, path: str, text: str
) -> None:
    answer = await listed(site, path, text)

    assert answer.status == 400
    assert "$filter" in answer.detail
