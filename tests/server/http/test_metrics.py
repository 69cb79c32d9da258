"""Metrics: what is counted, and the right that a remote scraper needs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.requests import Request

from tests.server.http.rest_site import KEY, RestSite, serving, signed
from twinbus.errors import StoreFault, Unauthorized
from twinbus.server.broker.load.counters import Histogram
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.server.http import metrics
from twinbus.store.sqlite.store import SqliteStore


@pytest.fixture
async def site() -> AsyncIterator[RestSite]:
    async with serving() as started:
        yield started


class Scrape:
    """The values of one answer."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.values = {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def of(self, name: str, **labels: str) -> float:
        given = {"namespace": "contoso", **labels}
        return self.values[(name, *sorted(given.items()))]

    def of_queue(self, name: str, **labels: str) -> float:
        return self.of(name, entity="q", kind="queue", **labels)


async def scraped(site: RestSite) -> Scrape:
    answer = await site.ask("GET", "/metrics", {"Authorization": ""})
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return Scrape(answer.body.decode())


async def test_entities_have_counts_and_counters(site: RestSite) -> None:
    for number in range(4):
        await site.send(b"x" * 100, MessageId=str(number))
    await site.send(ScheduledEnqueueTimeUtc="Tue, 14 Nov 2023 23:13:20 GMT")
    done = await site.lock()
    await site.ask("DELETE", done.place)
    for _ in range(2):
        await site.ask("PUT", (await site.lock()).place)
    await site.ask(
        "POST",
        "/q/messages",
        {"Content-Type": "application/vnd.ms-servicebus-ping"},
    )

    scrape = await scraped(site)

    messages = {
        state: scrape.of_queue("twinbus_messages", state=state)
        for state in ("active", "scheduled", "deferred", "dead_letter")
    }
    assert messages == {"active": 2, "scheduled": 1, "deferred": 0, "dead_letter": 1}
    assert scrape.of_queue("twinbus_size_bytes") > 300
    assert scrape.of_queue("twinbus_messages_in_total") == 5
    assert scrape.of_queue("twinbus_messages_out_total") == 3
    assert scrape.of_queue("twinbus_messages_completed_total") == 1
    assert scrape.of_queue("twinbus_messages_dead_lettered_total") == 1
    assert scrape.of_queue("twinbus_pings_total") == 1
    assert scrape.of("twinbus_messages_in_total", entity="q2", kind="queue") == 0


async def test_quarantined_messages_are_counted_and_logged(
    site: RestSite, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        await site.send(b"x", MessageId=str(number))

    def damage(namespace: Namespace, _turn: Turn) -> None:
        store = namespace.store
        assert isinstance(store, SqliteStore)
        sql = "UPDATE message SET source = CAST(x'ff' AS TEXT) WHERE id & 0xff = ?"
        store._run(sql, (2,))

    await site.host.run(damage)
    with caplog.at_level(logging.ERROR, "twinbus.host"):
        taken = [(await site.lock()).broker["MessageId"] for _ in range(2)]

    scrape = await scraped(site)

    assert taken == ["0", "2"]
    assert scrape.of("twinbus_messages_quarantined") == 1
    assert scrape.of_queue("twinbus_messages", state="active") == 2
    assert [record.getMessage() for record in caplog.records] == [
        "1 messages of contoso cannot be read and are quarantined, 1 in all"
    ]


async def test_expired_and_throttled_messages_are_counted(site: RestSite) -> None:
    await site.send(TimeToLive=1)
    site.advance(1001)
    await site.take()
    for _ in range(3):
        await site.ask("POST", "/slow/messages")

    scrape = await scraped(site)

    slow = {"entity": "slow", "kind": "queue"}
    assert scrape.of_queue("twinbus_messages_expired_total") == 1
    assert scrape.of("twinbus_messages_throttled_total", **slow) >= 1


async def test_turns_and_commits_are_counted(site: RestSite) -> None:
    await asyncio.gather(*(site.send() for _ in range(5)))

    scrape = await scraped(site)

    turns = scrape.of("twinbus_turns_total")
    assert turns >= 1
    assert scrape.of("twinbus_commit_seconds_count") == turns
    assert scrape.of("twinbus_turn_seconds_count") == turns
    assert scrape.of("twinbus_turn_commands_sum") == 5
    assert scrape.of("twinbus_commit_seconds_bucket", le="+Inf") == turns
    assert scrape.of("twinbus_pending_bytes") == 0
    assert scrape.of("twinbus_connections") == 0
    assert scrape.of("twinbus_entities") == len(site.host.namespace.entities)
    assert scrape.of("twinbus_store_up") == 1


async def test_scrapes_within_a_second_share_one_turn(site: RestSite) -> None:
    await site.send()
    before = site.host.turns

    scrapes = await asyncio.gather(*(scraped(site) for _ in range(5)))
    scrapes.append(await scraped(site))

    assert len({scrape.text for scrape in scrapes}) == 1
    assert site.host.turns == before + 1


async def test_a_stopped_store_is_shown_with_the_last_counts(site: RestSite) -> None:
    scrapes = metrics.Scrapes(site.port, cached_seconds=0)
    await site.send()
    await scrapes.text()
    site.host.fault = StoreFault("The disk is full.")

    scrape = Scrape(await scrapes.text())

    assert scrape.of("twinbus_store_up") == 0
    assert scrape.of_queue("twinbus_messages", state="active") == 1


async def test_a_stopped_store_is_shown(site: RestSite) -> None:
    site.host.fault = StoreFault("The disk is full.")

    assert (await scraped(site)).of("twinbus_store_up") == 0


async def test_no_key_is_in_the_text(site: RestSite) -> None:
    assert KEY.reveal() not in (await scraped(site)).text


@pytest.mark.parametrize(
    ("address", "header", "is_open"),
    [
        ("127.0.0.1", "", True),
        ("::1", "", True),
        ("10.0.0.1", "", False),
        ("10.0.0.1", signed(), True),
        ("10.0.0.1", signed(name="listens"), False),
        ("10.0.0.1", signed(expires_s=1), False),
    ],
)
async def test_remote_scrapers_need_the_right_to_read_the_namespace(
    site: RestSite, address: str, header: str, is_open: bool
) -> None:
    scope = {
        "type": "http",
        "client": (address, 5),
        "headers": [(b"authorization", header.encode())],
    }

    try:
        metrics._admit(site.port, Request(scope))
        opened = True
    except Unauthorized:
        opened = False

    assert opened == is_open


@pytest.mark.parametrize(
    "header", ["X-Forwarded-For", "x-forwarded-proto", "X-Forwarded-Host", "Forwarded"]
)
async def test_a_proxy_on_this_machine_does_not_open_the_metrics(
    site: RestSite, header: str
) -> None:
    forwarded = {header: "for=203.0.113.7", "Authorization": ""}

    refused = await site.ask("GET", "/metrics", forwarded)
    signed_in = await site.ask("GET", "/metrics", {header: "for=203.0.113.7"})

    assert (refused.status, signed_in.status) == (401, 200)
    assert b"twinbus_" not in refused.body


def test_a_value_falls_into_the_first_range_that_holds_it() -> None:
    histogram = Histogram((1, 2, 5))
    for value in (0, 1, 1.5, 2, 5, 5.1, 100):
        histogram.observe(value)

    assert list(histogram.cumulative()) == [(1, 2), (2, 4), (5, 5), (float("inf"), 7)]
    assert (histogram.count, histogram.total) == (7, 114.6)
