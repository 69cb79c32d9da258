"""The syphon in the large: 200,000 messages, a cluster, and kills of every kind.

`make campaigns` runs these. Each prints what it saw.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from tests.spark.syphon_drain import Drain, descendants, standalone
from tests.spark.syphon_pair import (
    PRIMARY,
    Maker,
    Pair,
    Server,
    Shape,
    filled,
    judged,
    left_behind,
    receipts,
    serving,
)
from twinbus.clock import SystemClock
from twinbus.pairing.rules.envelope import divert
from twinbus.pairing.rules.naming import backlog_path

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(3600)]

LARGE = Shape(
    queues=("orders", "billing", "stock", "mail", "audit", "search"),
    topics=("events", "prices"),
    backlog_queues=10,
    lock="PT1M",
)
MESSAGES = 200_000
# Two tasks at a time, each with so many in hand.
TASKS, CHUNK = 2, 200
KILLED = 20_000
SEEDS = range(5)
LOCAL = "local[2,8]"


@contextmanager
def _local(folder: Path) -> Iterator[str]:
    del folder
    yield "local[2,4]"


@contextmanager
def _cluster(folder: Path) -> Iterator[str]:
    with standalone(folder / "cluster", workers=2) as address:
        yield address


@pytest.mark.parametrize("place", [_local, _cluster], ids=["local", "standalone"])
def test_two_hundred_thousand_messages_come_home(
    tmp_path: Path, place: Callable[[Path], nullcontext[str]]
) -> None:
    with serving(tmp_path, LARGE) as pair, place(tmp_path) as master:
        expected = filled(pair, MESSAGES, seed=1)
        with Drain(pair, master) as drain:
            assert drain.moved(1), drain.log.read_text()
            begun = time.monotonic()
            drain.wait(1800)
        seconds = time.monotonic() - begun
        whole = time.monotonic() - drain.begun
        home = judged(pair, expected)
        written, distinct = receipts(pair)

    print(
        f"{master}: {MESSAGES} messages in {seconds:.1f} s after the first, "
        f"{MESSAGES / seconds:.0f}/s; {whole:.0f} s with start"
    )
    assert home.duplicates() == 0
    assert (written, distinct) == (MESSAGES, MESSAGES)


# -- kills ---------------------------------------------------------------------------


def _worker(drain: Drain, pair: Pair[Server], chance: random.Random) -> None:
    del pair
    os.kill(chance.choice(drain.worker_pids()), signal.SIGKILL)


def _executor(drain: Drain, pair: Pair[Server], chance: random.Random) -> None:
    """As if its machine had gone: with the Python workers below it."""
    del pair
    victim = chance.choice(drain.executor_pids())
    for pid in [victim, *descendants(victim)]:
        os.kill(pid, signal.SIGKILL)


def _driver(drain: Drain, pair: Pair[Server], chance: random.Random) -> None:
    del pair, chance
    drain.kill()


def _secondary(drain: Drain, pair: Pair[Server], chance: random.Random) -> None:
    del drain, chance
    pair.secondary.stop(signal.SIGKILL)
    pair.secondary.start()


def _primary(drain: Drain, pair: Pair[Server], chance: random.Random) -> None:
    del drain, chance
    pair.primary.stop(signal.SIGKILL)
    pair.primary.start()


KILLS = {
    "worker": (_worker, LOCAL),
    "executor": (_executor, "local-cluster[2,1,1024]"),
    "driver": (_driver, LOCAL),
    "secondary": (_secondary, LOCAL),
    "primary": (_primary, LOCAL),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KILLS)
def test_a_kill_loses_nothing_and_doubles_little(
    tmp_path: Path, kind: str, seed: int
) -> None:
    kill, master = KILLS[kind]
    chance = random.Random(f"{kind} {seed}")
    shape = Shape(detecting=("orders", "events"))
    options = ("--chunk-size", CHUNK, "--task-seconds", 3)
    with serving(tmp_path, shape) as pair:
        expected = filled(pair, KILLED, seed)
        with Drain(pair, master, *options) as drain:
            moment = chance.randrange(KILLED // 20, KILLED // 2)
            assert drain.moved(moment), drain.log.read_text()[-3000:]
            # Between two micro-batches no task has messages in hand.
            assert drain.busy(), "it ended before it was killed"
            kill(drain, pair, chance)
            killed_at = drain.look().moved
            if kind != "driver":
                drain.wait(600)
            again = drain.look()
        if kind == "driver":
            with Drain(pair, master, *options) as drain:
                drain.wait(600)
                again = drain.look()
        home = judged(pair, expected, ordered=False)
        written, distinct = receipts(pair)

    print(
        f"{kind} {seed}: killed at {killed_at} of {KILLED}; "
        f"{home.duplicates()} duplicates, {home.duplicates(*shape.detecting)} where "
        f"they are detected; {again.redelivered} redelivered, {again.skipped} of them "
        f"known; {written - distinct} receipts twice"
    )
    assert home.duplicates(*shape.detecting) == 0
    assert home.duplicates() <= CHUNK * TASKS
    assert distinct == KILLED


# -- memory --------------------------------------------------------------------------


def _resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024**2


def _watched(drain: Drain) -> list[tuple[int, float]]:
    """Let it drain; how much was moved when a worker had so many MiB."""
    seen: list[tuple[int, float]] = []
    assert drain.moved(1), drain.log.read_text()[-3000:]
    while drain.process.poll() is None:
        moved = drain.look().moved
        with contextlib.suppress(FileNotFoundError):
            seen += [(moved, _resident_mib(pid)) for pid in drain.worker_pids()]
        drain.pause(0.2)
    drain.wait(600)
    return seen


def _assert_flat(seen: list[tuple[int, float]], count: int, what: str) -> None:
    early = max(mib for moved, mib in seen if moved <= count // 2)
    late = max(mib for moved, mib in seen if moved > count // 2)
    print(f"{what}: {early:.0f} MiB in the first half, {late:.0f} in the second")
    # Two chunks in hand, received and restored, and what the allocator keeps.
    assert late < early + 64
    assert late < 512


def test_a_worker_needs_no_more_memory_for_large_messages(tmp_path: Path) -> None:
    # What a message of 256 KiB may hold beside the aliases that bring it home.
    count, size = 1500, 254_000
    shape = Shape(topics=(), session_queues=(), backlog_queues=2, lock="PT1M")
    with serving(tmp_path, shape) as pair:
        expected = filled(pair, count, seed=1, size=size)
        with Drain(pair, LOCAL) as drain:
            seen = _watched(drain)
        assert judged(pair, expected).duplicates() == 0

    _assert_flat(seen, count, f"{count} messages of {size} bytes")


async def _fill_fast(pair: Pair[Server], count: int) -> None:
    """Many small messages for one queue, which repeat themselves."""
    maker = Maker(seed=1, body_bytes=100)
    path, now_ms = pair.shape.queues[0], SystemClock().now_ms()
    async with pair.secondary.connection() as connection:
        for index in range(pair.shape.backlog_queues):
            sender = connection.sender(backlog_path(PRIMARY, index))
            await sender.open()
            made = [maker.make(None)[1] for _ in range(1000)]
            batch = [divert(each, path, now_ms) for each in made]
            for _ in range(count // pair.shape.backlog_queues // len(batch)):
                await sender.send(batch)


def test_a_worker_needs_no_more_memory_for_a_million_messages(tmp_path: Path) -> None:
    count = 1_000_000
    shape = Shape(topics=(), session_queues=(), backlog_queues=10, lock="PT1M")
    with serving(tmp_path, shape) as pair:
        asyncio.run(_fill_fast(pair, count))
        with Drain(pair, LOCAL) as drain:
            seen = _watched(drain)
        assert asyncio.run(left_behind(pair)) == 0
        assert receipts(pair) == (count, count)

    _assert_flat(seen, count, f"{count} messages")
