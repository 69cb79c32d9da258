"""Upkeep and figures of a partitioned queue: all fragments, as one entity."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.http.upkeep_site import UpkeepSite, serving
from twinbus.cli.offline import count_at, opened, shards_at
from twinbus.cli.output import entity_json
from twinbus.core.entity import QueueDescription
from twinbus.core.names import EntityPath
from twinbus.errors import StoreFault
from twinbus.server.broker.directory import maintenance
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.setup.server import Server
from twinbus.server.setup.vitals import Vitals

CONFIG = NamespaceConfig(
    "n", queues=(QueueDescription("q", enable_partitioning=True), QueueDescription("p"))
)
COUNT = 8


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[UpkeepSite]:
    async with serving(tmp_path, CONFIG, shards=4) as running:
        await fill(running)
        yield running


async def fill(site: UpkeepSite) -> None:
    """Two messages for each fragment."""
    await site.server.settle()
    shards = site.server.host.namespace.shards
    for number in range(COUNT):
        assert (await site.ask("POST", "/q/messages", b"%d" % number)).status == 201
    queue = shards.find("q")
    assert queue is not None
    for each in shards.fragments(queue):
        assert shards[each.shard].store.counts(each.id).active == 2


async def test_a_purge_empties_all_fragments(site: UpkeepSite) -> None:
    answer = await site.ask("POST", "/q/$purge")
    assert json.loads(answer.body) == {"purged": COUNT}


async def test_a_purge_needs_all_fragments(site: UpkeepSite) -> None:
    host = site.server.host.hosts[3]
    host.fault = StoreFault("rehearsed")
    assert (await site.ask("POST", "/q/$purge")).status == 500
    host.fault = None
    answer = await site.ask("POST", "/q/$purge")
    assert json.loads(answer.body) == {"purged": COUNT}


async def test_a_reset_makes_all_fragments_anew(site: UpkeepSite) -> None:
    # Shard 0 holds most now, so that the queue gets another home.
    for _ in range(50):
        assert (await site.ask("POST", "/p/messages", b"x" * 1000)).status == 201
    for _ in range(3):
        answer = await site.ask("POST", "/$reset")
        assert json.loads(answer.body) == {"deleted": 2, "made": 2}
        await site.server.settle()
        shards = site.server.host.namespace.shards
        queue = shards.find("q")
        assert queue is not None
        assert len(shards.fragments(queue)) == 4
        assert shards.counts(queue).active == 0


async def test_metrics_add_fragments_up(site: UpkeepSite) -> None:
    text = (await site.ask("GET", "/metrics")).body.decode()
    samples = [line.rpartition(" ") for line in text.splitlines() if line[0] != "#"]
    labels = Counter(label for label, _, _ in samples)
    assert max(labels.values()) == 1
    found = {label: float(value) for label, _, value in samples}
    one = 'entity="q",kind="queue",namespace="n"'
    assert found[f'twinbus_messages{{{one},state="active"}}'] == COUNT
    assert found[f"twinbus_messages_in_total{{{one}}}"] == COUNT


async def test_vitals_add_fragments_up(site: UpkeepSite) -> None:
    server: Server = site.server._server
    vitals = Vitals(server)
    vitals.text()
    for task in vitals._readers.values():
        await task

    counts = json.loads(vitals.text())["namespaces"]["n"]["counts"]

    assert (counts["q"]["active"], counts["q"]["received"]) == (COUNT, COUNT)
    assert counts["q"]["kind"] == "queue"
    for task in vitals._readers.values():
        await task


async def test_commands_on_the_folder_count_and_purge_all(tmp_path: Path) -> None:
    async with serving(tmp_path, CONFIG, shards=4) as site:
        await fill(site)

    path = EntityPath("q")
    with opened(tmp_path, None) as (shards, turn):
        assert count_at(shards, path) == COUNT
        assert entity_json(shards.get(path), shards)["active_messages"] == COUNT
        found = shards_at(shards, path)
        purged = [maintenance.purge(each, path, turn) for each in found]
    assert purged == [2, 2, 2, 2]


async def test_shards_and_fragments_are_told(site: UpkeepSite) -> None:
    answer = await site.ask("GET", "/$shards")
    found = json.loads(answer.body)

    assert (answer.status, found["namespace"]) == (200, "n")
    assert [each["shard"] for each in found["shards"]] == [0, 1, 2, 3]
    assert {each["state"] for each in found["shards"]} == {"open"}
    assert sum(each["entities"] for each in found["shards"]) == 5
    assert all(each["size_bytes"] > 0 for each in found["shards"])
    assert [each["outbox_rows"] for each in found["shards"]] == [0, 0, 0, 0]
    (queue,) = found["partitioned"]
    assert (queue["name"], queue["kind"]) == ("q", "queue")
    assert sorted(each["shard"] for each in queue["fragments"]) == [0, 1, 2, 3]
    assert [each["messages"] for each in queue["fragments"]] == [2, 2, 2, 2]

    site.server.host.hosts[2].namespace.is_stopped = True
    found = json.loads((await site.ask("GET", "/$shards")).body)
    states = [each["state"] for each in found["shards"]]
    assert states == ["open", "open", "sick", "open"]
    assert (await site.ask("POST", "/$shards")).status == 405
