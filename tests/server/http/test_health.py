"""Health: a message is sent and received, and a failure is described."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from twinbus.clock import ManualClock
from twinbus.errors import StoreFault
from twinbus.server.broker.host import Host
from twinbus.server.broker.namespace import Namespace
from twinbus.server.http.health import HealthProbe
from twinbus.store.base import PROBE
from twinbus.store.opening import open_store


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    running = Host(Namespace("contoso", open_store(None)), ManualClock())
    yield running
    await running.close()


async def test_a_message_is_sent_and_received(host: Host) -> None:
    assert await HealthProbe(host).problem() is None

    counts = host.namespace.store.counts(PROBE)
    assert (counts.last_sequence, counts.active, counts.size_bytes) == (1, 0, 0)


async def test_requests_within_a_second_share_one_probe(host: Host) -> None:
    health = HealthProbe(host)

    answers = await asyncio.gather(*(health.problem() for _ in range(5)))
    answers.append(await health.problem())

    assert answers == [None] * 6
    assert host.namespace.store.counts(PROBE).last_sequence == 1


async def test_an_old_answer_is_not_used_again(host: Host) -> None:
    health = HealthProbe(host, cached_seconds=0)

    await health.problem()
    await health.problem()

    assert host.namespace.store.counts(PROBE).last_sequence == 2


async def test_a_stopped_store_is_not_healthy(host: Host) -> None:
    host.fault = StoreFault("The disk is full.")

    assert await HealthProbe(host).problem() == "The disk is full."


async def test_a_commit_that_fails_is_not_healthy(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise StoreFault("The disk is full.")

    monkeypatch.setattr(host.namespace.store, "commit", full)

    assert await HealthProbe(host).problem() == "The disk is full."


async def test_a_commit_that_hangs_is_not_healthy_until_it_ends(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = host.namespace.store
    commit = store.commit
    go_on = threading.Event()

    def hang() -> None:
        assert go_on.wait(10)
        commit()

    monkeypatch.setattr(store, "commit", hang)
    health = HealthProbe(host, deadline_seconds=0.01, cached_seconds=0)
    problems = [await health.problem(), await health.problem()]
    go_on.set()
    patient = HealthProbe(host, cached_seconds=0)

    assert problems == ["A message could not be stored within 0.01 seconds."] * 2
    assert await patient.problem() is None
    # The second question waited for the first probe.
    assert store.counts(PROBE).last_sequence == 2
