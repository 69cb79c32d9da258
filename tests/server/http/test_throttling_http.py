"""What a shard with too much to do denies over HTTP, and where it says so."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.server.http.rest_site import RestSite, serving
from twinbus.errors import StoreFault
from twinbus.server.broker.load.facets import FULL, Facet, Load

MIB = 1 << 20
FULL_TEXT = "memory is 2.0 MiB, with a limit of 1.0 MiB"


@pytest.fixture
async def site() -> AsyncIterator[RestSite]:
    async with serving() as started:
        yield started


def fill_memory(site: RestSite) -> None:
    """The process has more memory than it may have."""
    memory = Facet("memory", "bytes", MIB, MIB)
    memory.set(2 * MIB, 0)
    site.host.load = Load(process=[memory])
    site.host.load.look(0, 0)
    assert site.host.load.level == FULL


async def test_sends_and_receives_are_denied_and_settlements_are_not(
    site: RestSite,
) -> None:
    await site.send(b"x")
    held = await site.lock()
    fill_memory(site)

    send = await site.ask("POST", "/q/messages")
    receive = await site.ask("POST", "/q/messages/head?timeout=0")
    renewed = await site.ask("POST", held.place)
    completed = await site.ask("DELETE", held.place)

    for denied in (send, receive):
        assert denied.status == 503
        assert denied.headers["retry-after"] == "10"
        assert FULL_TEXT in denied.body.decode()
    assert (renewed.status, completed.status) == (200, 200)


async def test_health_and_metrics_say_what_is_throttled(site: RestSite) -> None:
    fill_memory(site)
    for _ in range(3):
        await site.ask("POST", "/q/messages")

    health = await site.ask("GET", "/health")
    metrics = await site.ask("GET", "/metrics", {"Authorization": ""})

    assert health.status == 200
    assert json.loads(health.body) == {
        "status": "throttled",
        "message": f"Sends are denied: {FULL_TEXT}.",
        "throttled": [FULL_TEXT],
    }
    values = {
        (sample.name, sample.labels.get("facet"), sample.labels.get("entity")): value
        for family in text_string_to_metric_families(metrics.body.decode())
        for sample in family.samples
        for value in [sample.value]
    }
    assert values["twinbus_messages_denied_total", "memory", "q"] == 3
    assert values["twinbus_messages_denied_total", "rate", "q"] == 0
    assert values["twinbus_throttle_level", "memory", None] == 2
    assert values["twinbus_throttle_value", "memory", None] == 2 * MIB
    assert values["twinbus_throttle_level", "commit_latency", None] == 0


async def test_a_shard_with_a_fault_is_not_throttled(site: RestSite) -> None:
    fill_memory(site)
    site.host.fault = StoreFault("The disk is gone.")
    send = await site.ask("POST", "/q/messages")
    health = await site.ask("GET", "/health")
    site.host.fault = None

    assert "The disk is gone." in send.body.decode()
    assert json.loads(health.body) == {
        "status": "unhealthy",
        "message": "The disk is gone.",
    }
