"""The load of a process: what is measured, and which shards it throttles."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator

import pytest

from twinbus.clock import ManualClock
from twinbus.server.broker.host import Host
from twinbus.server.broker.load.facets import FREE, FULL, SHARED, Thresholds
from twinbus.server.broker.namespace import Namespace
from twinbus.server.setup.load_watch import LoadWatch, available_bytes, resident_bytes
from twinbus.store.opening import open_store


@pytest.fixture
async def hosts() -> AsyncIterator[list[Host]]:
    made = [Host(Namespace(name, open_store(None)), ManualClock()) for name in "ab"]
    yield made
    for host in made:
        await host.close()


def watch(hosts: list[Host], **thresholds: float) -> LoadWatch:
    made = LoadWatch(Thresholds(**thresholds))  # type: ignore[arg-type]
    for host in hosts:
        made.add(host)
    return made


def levels(hosts: list[Host]) -> set[int]:
    return {host.load.level for host in hosts}


async def test_a_loop_that_is_late_throttles_all_shards(
    hosts: list[Host], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    looks = watch(hosts, lag_seconds=0.5)

    # Late once: the machine was stopped for a moment.
    looks.look(3600, 0, 0)
    assert levels(hosts) == {FREE}
    looks.look(2.5, 0, 250)
    assert levels(hosts) == {SHARED}
    looks.look(3, 0, 500)
    looks.look(3, 0, 750)
    assert levels(hosts) == {FULL}
    for number in range(20):
        looks.look(0, 0, 1_000 + 250 * number)
    assert levels(hosts) == {FREE}

    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "a is throttled: event loop lag is 1.25 s, with a limit of 0.50 s",
        "b is throttled: event loop lag is 1.25 s, with a limit of 0.50 s",
        "a is throttled no longer",
        "b is throttled no longer",
    ]


async def test_memory_throttles_some_at_nine_tenths_and_all_at_the_limit(
    hosts: list[Host],
) -> None:
    looks = watch(hosts, memory_bytes=1000)

    looks.look(0, 899, 0)
    assert levels(hosts) == {FREE}
    looks.look(0, 900, 250)
    assert levels(hosts) == {SHARED}
    looks.look(0, 1000, 500)
    assert levels(hosts) == {FULL}


async def test_without_an_option_the_limit_is_a_part_of_what_there_is(
    hosts: list[Host],
) -> None:
    looks = watch(hosts)

    looks.look(0, resident_bytes(), 0)
    assert levels(hosts) == {FREE}
    looks.look(0, available_bytes(), 250)
    assert levels(hosts) == {FULL}


def test_the_process_has_memory_and_less_than_there_is() -> None:
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    assert 1 << 20 < resident_bytes() < available_bytes() <= machine
