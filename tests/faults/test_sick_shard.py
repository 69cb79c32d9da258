"""A shard falls sick under its clients: sends go on, and arrive once and in order.

One of two shards has a disk that fails or is full, for real, while official clients
work with the retries that they make by themselves. `make campaigns` lets it hang too,
and lets writes fail and hang as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.sick_shard import (
    CountedSender,
    Probes,
    ask,
    connect,
    health,
    judge,
    peek,
    round_trips,
    two_shards,
)
from tests.faults.small_disk import fill, mounted
from tests.faults.traced_disk import FAIL, HANG, sick_disk
from twinbus.testing.server_process import ServerProcess

MIB = 1 << 20
DISK = f"{64 * MIB}"
# More than the log of the database can take on a full disk without growing.
BODY = b"x" * 20_000
BEFORE, DURING, AFTER = 5, 20, 20

CASES = [
    ("fdatasync", FAIL),
    # A shard that hangs is in test_hanging_shard.py too.
    pytest.param("fdatasync", HANG, marks=pytest.mark.campaign),
    pytest.param("pwrite64", FAIL, marks=pytest.mark.campaign),
    pytest.param("pwrite64", HANG, marks=pytest.mark.campaign),
]


@contextmanager
def senders(server: ServerProcess) -> Iterator[list[CountedSender]]:
    """Two for one queue of the sick shard, one for another; all have sent."""
    with connect(server) as client, ThreadPoolExecutor() as pool:
        each = [
            CountedSender(client, "a", "x"),
            CountedSender(client, "a", "y"),
            CountedSender(client, "b", "z"),
        ]
        list(pool.map(lambda one: one.send(BEFORE), each))
        yield each


def send_all(each: list[CountedSender], count: int, body: bytes = b"") -> None:
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda one: one.send(count, body), each))


@pytest.mark.parametrize(("call", "what"), CASES)
def test_sends_to_a_shard_with_a_failing_disk_arrive_once_and_in_order(
    tmp_path: Path, call: str, what: str
) -> None:
    with two_shards(tmp_path) as server, senders(server) as each:
        probes = Probes(server, "probed")
        with (
            sick_disk(server.pid, call, what, tmp_path / "disk-1"),
            ThreadPoolExecutor() as pool,
        ):
            well = pool.submit(round_trips, server, "well", DURING)
            send_all(each, DURING)
            assert probes.not_refused() == {}
            well.result()
            assert sum(one.retried for one in each) > 0
        send_all(each, AFTER)

        assert judge(server, each) == []
        probes.close()


def test_sends_to_a_shard_with_a_full_disk_arrive_once_and_in_order(
    tmp_path: Path,
) -> None:
    with (
        mounted(tmp_path / "small", DISK) as disk,
        two_shards(tmp_path, disk / "shard") as server,
        senders(server) as each,
    ):
        probes = Probes(server, "probed")
        filler = fill(disk)
        send_all(each, DURING, BODY)
        assert probes.not_refused() == {}
        round_trips(server, "well", DURING)
        assert sum(one.retried for one in each) > 0
        check_told(server)
        filler.unlink()
        send_all(each, AFTER)

        assert judge(server, each) == []
        assert "spools" not in health(server)
        probes.close()


def check_told(server: ServerProcess) -> None:
    """Monitors are told which shard is sick, and what is kept for it."""
    told = health(server)
    (spool,) = told["spools"]
    assert told["status"] == "degraded"
    assert "disk is full" in told["shards"][1]
    assert spool["shard"] == 1
    label = 'namespace="testing",shard="1"'
    lines = ask(server, "/metrics").splitlines()
    assert f"twinbus_spool_rows{{{label}}} {float(spool['rows'])}" in lines
    assert any(line.startswith("twinbus_spool_age_seconds{") for line in lines)


def test_a_shard_with_its_reserve_left_gives_messages_and_takes_none(
    tmp_path: Path,
) -> None:
    with (
        mounted(tmp_path / "small", DISK) as disk,
        two_shards(tmp_path, disk / "shard", "--reserve", f"{2 * MIB}") as server,
        senders(server) as each,
    ):
        filler = fill(disk, leave_bytes=MIB // 2)
        send_all(each, DURING, BODY)
        round_trips(server, "well", DURING)
        with connect(server, retries=0) as client:
            # What was sent last is elsewhere, and the shard can be read.
            there = peek(client, "a")
        assert there[: 2 * BEFORE]
        assert len(there) < 2 * (BEFORE + DURING)
        filler.unlink()
        send_all(each, AFTER)

        assert judge(server, each) == []
