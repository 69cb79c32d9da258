"""Messages over HTTP to and from a partitioned queue in four shards."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.http.rest_site import Answer
from tests.server.http.upkeep_site import UpkeepSite, serving
from twinbus import limits
from twinbus.core.entity import QueueDescription
from twinbus.errors import StoreFault
from twinbus.server.broker.clients import Consumer
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.host import Host
from twinbus.server.broker.submissions import UNHEARD
from twinbus.server.http.rest.messages import BATCH_TYPE

CONFIG = NamespaceConfig(
    "n",
    queues=(
        QueueDescription("q", enable_partitioning=True),
        QueueDescription("d", enable_partitioning=True, max_delivery_count=1),
    ),
)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[UpkeepSite]:
    async with serving(tmp_path, CONFIG, shards=4) as running:
        await running.server.settle()
        yield running


def fragments(site: UpkeepSite, name: str = "q") -> list[Entity]:
    shards = site.server.host.namespace.shards
    entity = shards.find(name)
    assert entity is not None
    return shards.fragments(entity)


def host_of(site: UpkeepSite, fragment: Entity) -> Host:
    return site.server.host.hosts[fragment.shard]


def held(site: UpkeepSite, name: str = "q") -> list[int]:
    """How many messages each fragment holds."""
    return [
        host_of(site, each).namespace.store.counts(each.id).active
        for each in fragments(site, name)
    ]


async def send(site: UpkeepSite, text: str, path: str = "q", **broker: Any) -> Answer:
    broker_text = json.dumps(broker)
    return await site.ask(
        "POST", f"/{path}/messages", text.encode(), BrokerProperties=broker_text
    )


async def send_to_each(site: UpkeepSite, count: int, path: str = "q") -> list[str]:
    """As many as go round so often."""
    texts = [f"m{number}" for number in range(count * 4)]
    for text in texts:
        assert (await send(site, text, path)).status == 201
    return texts


async def lock(site: UpkeepSite, wait_seconds: int = 0) -> Answer:
    return await site.ask("POST", f"/q/messages/head?timeout={wait_seconds}")


def key_of(site: UpkeepSite, place: int) -> str:
    """A partition key that leads to that fragment."""
    shards = site.server.host.namespace.shards
    found = fragments(site)
    keys = "abcdefgh"
    return next(k for k in keys if shards.fragment_for(found[0], k) is found[place])


def place_of(site: UpkeepSite, answer: Answer) -> str:
    return answer.headers["location"].removeprefix(f"http://{site.authority}")


# -- send ------------------------------------------------------------------------------


async def test_messages_without_a_key_go_round(site: UpkeepSite) -> None:
    await send_to_each(site, 2)
    assert held(site) == [2, 2, 2, 2]


async def test_a_key_leads_to_one_fragment(site: UpkeepSite) -> None:
    shards = site.server.host.namespace.shards
    expected = dict.fromkeys((each.shard for each in fragments(site)), 0)
    for key in "abcdef":
        for _ in range(2):
            assert (await send(site, key, PartitionKey=key)).status == 201
        expected[shards.fragment_for(fragments(site)[0], key).shard] += 2
    assert held(site) == list(expected.values())


async def test_a_batch_goes_to_one_fragment(site: UpkeepSite) -> None:
    async def send_batch(*keys: str | None) -> Answer:
        listed = [
            {"Body": "x", "BrokerProperties": {"PartitionKey": key}} for key in keys
        ]
        return await site.ask(
            "POST",
            "/q/messages",
            json.dumps(listed).encode(),
            Content_Type=BATCH_TYPE,
        )

    refused = await send_batch("a", "b")
    assert refused.status == 400
    assert b"same session id or partition key" in refused.body
    assert held(site) == [0, 0, 0, 0]
    assert (await send_batch("a", "a", None)).status == 201
    assert sorted(held(site)) == [0, 0, 0, 3]


# -- receive ---------------------------------------------------------------------------


async def test_each_message_is_locked_once_and_settled_by_its_place(
    site: UpkeepSite,
) -> None:
    texts = await send_to_each(site, 2)

    answers = [await lock(site) for _ in texts]

    assert sorted(answer.body.decode() for answer in answers) == texts
    numbers = [answer.broker["SequenceNumber"] for answer in answers]
    wanted = [place << 48 | number for place in range(4) for number in (1, 2)]
    assert sorted(numbers) == wanted
    # What was locked at other fragments meanwhile was not counted.
    assert {answer.broker["DeliveryCount"] for answer in answers} == {1}
    assert (await lock(site)).status == 204
    for answer, number in zip(answers, numbers, strict=True):
        place = place_of(site, answer)
        assert f"/messages/{number}/" in place
        assert (await site.ask("POST", place)).status == 200
        wrong = place.replace(f"/{number}/", f"/{number ^ 1 << 48}/")
        assert (await site.ask("DELETE", wrong)).status == 404
        assert (await site.ask("DELETE", place)).status == 200
    assert held(site) == [0, 0, 0, 0]


async def test_an_unlocked_message_comes_back_from_its_fragment(
    site: UpkeepSite,
) -> None:
    await send(site, "x", PartitionKey=key_of(site, 2))
    first = await lock(site)
    assert first.broker["SequenceNumber"] == 2 << 48 | 1
    assert (await site.ask("PUT", place_of(site, first))).status == 200
    again = await lock(site)
    assert again.broker["SequenceNumber"] == first.broker["SequenceNumber"]
    assert again.broker["DeliveryCount"] == 2


async def test_receive_and_delete_loses_nothing_at_other_fragments(
    site: UpkeepSite,
) -> None:
    texts = await send_to_each(site, 3, "d")
    assert held(site, "d") == [3, 3, 3, 3]
    found = []
    for left in reversed(range(len(texts))):
        answer = await site.ask("DELETE", "/d/messages/head?timeout=0")
        assert answer.status == 200
        found.append(answer.body.decode())
        assert sum(held(site, "d")) == left
    assert sorted(found) == sorted(texts)
    assert (await site.ask("DELETE", "/d/messages/head?timeout=0")).status == 204


async def test_a_receive_waits_at_all_fragments(
    site: UpkeepSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = asyncio.Event()
    hosts = site.server.host.hosts
    add_consumer = Host.add_consumer

    def add(host: Host, container: int, consumer: Consumer) -> int:
        key = add_consumer(host, container, consumer)
        if all(each.namespace.in_use for each in hosts):
            waiting.set()
        return key

    monkeypatch.setattr(Host, "add_consumer", add)
    for number in range(4):
        waiting.clear()
        receive = asyncio.create_task(lock(site, wait_seconds=50))
        await asyncio.wait_for(waiting.wait(), 10)
        assert (await send(site, f"m{number}")).status == 201
        answer = await receive
        assert (answer.status, answer.body) == (201, f"m{number}".encode())
    assert all(not each.namespace.in_use for each in hosts)


# -- a shard that has stopped ----------------------------------------------------------


async def test_a_stopped_shard_is_passed_over(site: UpkeepSite) -> None:
    await send_to_each(site, 1)
    stopped = fragments(site)[0]
    host = host_of(site, stopped)
    host.fault = StoreFault("rehearsed")
    host.namespace.is_stopped = True

    answers = [await lock(site) for _ in range(4)]
    assert sorted(answer.status for answer in answers) == [201, 201, 201, 204]
    assert await send_to_each(site, 1)
    assert held(site)[0] == 1

    for each in site.server.host.hosts:
        each.fault = host.fault
    assert (await lock(site)).status == 500
    for each in site.server.host.hosts:
        each.fault = None


async def test_a_receive_ends_while_a_shard_hangs(
    site: UpkeepSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REST_LOOK_SECONDS_MAX", 0.1)
    hanging = host_of(site, fragments(site)[1])
    # Its turn does not end, as with a disk that does not answer.
    answers = threading.Event()
    hanging.submit(lambda _namespace, _turn: answers.wait(60), UNHEARD)
    try:
        assert (await lock(site)).status == 204
        # Without a key, it might go to the fragment that hangs.
        sent = await send(site, "x", PartitionKey=key_of(site, 2))
        assert sent.status == 201
        assert held(site) == [0, 0, 1, 0]
        assert (await lock(site)).body == b"x"
    finally:
        answers.set()
