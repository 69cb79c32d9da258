"""Steady time goes on over restarts, and a wall clock that is set is followed."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.server.desk import desk_at
from twinbus import limits
from twinbus.clock import ManualClock, Now, SystemClock
from twinbus.core.entity import QueueDescription
from twinbus.server.amqp.sessions import ticks
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.broker.namespace_clock import NamespaceClock
from twinbus.store.records import Record
from twinbus.store.sqlite.store import SqliteStore
from twinbus.wire.events import Answered, Delivered
from twinbus.wire.message import sections
from twinbus.wire.message.fast_delivery import read_stamp
from twinbus.wire.performatives import Accepted, Attach, Source, Target
from twinbus.wire.types import Symbol

HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000
CONFIG = NamespaceConfig(
    "n",
    queues=(
        QueueDescription("q", lock_duration_ms=30_000),
        QueueDescription("s", lock_duration_ms=30_000, requires_session=True),
    ),
)


class Run:
    """One run of a server, as far as its clock is concerned."""

    def __init__(self, store: SqliteStore, wall_ms: int) -> None:
        self.machine = ManualClock(wall_ms)
        self.store = store
        self.clock = NamespaceClock(self.machine, store, "n")

    def turn(self, *, committed: bool = True) -> bool:
        """A turn; tells whether the clock was set."""
        self.store.begin()
        was_set = self.clock.keep(self.clock.now())
        if committed:
            self.store.commit()
        else:
            self.store.rollback()
            self.clock.keep_again()
        return was_set


@pytest.fixture
def store() -> SqliteStore:
    return SqliteStore.memory()


def test_both_clocks_show_the_same_at_the_first_start(store: SqliteStore) -> None:
    assert Run(store, START_MS).clock.now() == Now.at(START_MS)


def test_time_without_a_server_counts(store: SqliteStore) -> None:
    run = Run(store, START_MS)
    run.turn()
    run.machine.advance(5_000)

    again = Run(store, START_MS + 60_000)

    assert again.clock.now() == Now.at(START_MS + 60_000)


@pytest.mark.parametrize("step_ms", [2 * HOUR_MS, -2 * HOUR_MS])
def test_a_step_moves_the_wall_clock_alone_also_after_a_restart(
    store: SqliteStore, step_ms: int
) -> None:
    run = Run(store, START_MS)
    run.turn()
    run.machine.advance(1_000)
    run.machine.step(step_ms)
    run.turn()
    assert run.clock.now() == Now(START_MS + 1_000, START_MS + 1_000 + step_ms)

    again = Run(store, START_MS + 3_000 + step_ms)

    assert again.clock.now() == Now(START_MS + 3_000, START_MS + 3_000 + step_ms)


def test_steady_time_does_not_go_back_if_the_clock_did_without_a_server(
    store: SqliteStore,
) -> None:
    Run(store, START_MS).turn()

    again = Run(store, START_MS - HOUR_MS)

    assert again.clock.now() == Now(START_MS, START_MS - HOUR_MS)


def test_the_time_is_kept_every_hour(store: SqliteStore) -> None:
    run = Run(store, START_MS)
    run.turn()
    run.machine.advance(limits.CLOCK_KEEP_MS)
    run.turn()
    run.machine.advance(limits.CLOCK_KEEP_MS - 1)
    run.turn()

    assert Run(store, 0).clock.now().steady_ms == START_MS + limits.CLOCK_KEEP_MS


def test_what_a_failed_turn_has_kept_is_kept_again(store: SqliteStore) -> None:
    run = Run(store, START_MS)
    run.turn(committed=False)
    run.turn()

    assert Run(store, 0).clock.now().steady_ms == START_MS


def test_a_step_is_logged_once_with_its_size(
    store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(store, START_MS)
    steps_ms = [0, 999, -7_200_000, 0, 400, 1_800_000]
    with caplog.at_level(logging.WARNING, "twinbus.clock"):
        seen = []
        for step_ms in steps_ms:
            run.machine.advance(10)
            run.machine.step(step_ms)
            seen.append(run.turn())

    assert seen == [False, False, True, False, False, True]
    assert [record.getMessage() for record in caplog.records] == [
        "the clock was set by -7199.0 seconds; n keeps its locks",
        "the clock was set by +1800.4 seconds; n keeps its locks",
    ]


def test_locks_that_last_too_long_are_cut_at_start(store: SqliteStore) -> None:
    store.begin()
    queue = store.insert_entity("queue", "q", "{}", 0)
    store.append(queue, [Record(b"", b"")], Now.at(START_MS))
    store.lock(queue, 1, START_MS + HOUR_MS, Now.at(START_MS))
    store.commit()

    run = Run(store, START_MS)
    run.turn()

    assert store.next_wait_ms(run.clock.now()) == limits.LOCK_MS_MAX


def test_the_clocks_of_the_machine_agree_at_first() -> None:
    clock = SystemClock()

    steady_ms, wall_ms = clock.now()

    assert abs(wall_ms - steady_ms) < limits.CLOCK_STEP_MS
    assert clock.now_ms() >= steady_ms


# -- a server whose clock is set -------------------------------------------------------


@pytest.mark.parametrize("step_ms", [2 * HOUR_MS, -2 * HOUR_MS])
async def test_a_receiver_keeps_its_lock_and_is_told_its_end_in_the_new_time(
    tmp_path: Path, step_ms: int
) -> None:
    async with desk_at(tmp_path, CONFIG) as desk:
        for name in ("a", "b"):
            fields = {sections.MESSAGE_ID: name}
            await desk.send("q", sections.encode_message(b"x", fields))
        first = await desk.receive("q")
        desk.server.clock.step(step_ms)
        await desk.advance(29)
        second = await desk.receive("q")
        for delivery in (first, second):
            desk.settle(delivery, Accepted())
            outcome = await desk.client.wait(Answered)
            assert isinstance(outcome.state, Accepted)

        assert desk.counts("q").active == 0
        stamp = read_stamp(second.payload)
        assert stamp is not None
        wall_ms = desk.server.clock.now().wall_ms
        assert stamp.enqueued_ms == START_MS
        assert stamp.locked_until_ms == wall_ms + 30_000
        desk.client.abort()


@pytest.mark.parametrize("step_ms", [2 * HOUR_MS, -2 * HOUR_MS])
async def test_a_session_and_its_messages_show_the_same_end(
    tmp_path: Path, step_ms: int
) -> None:
    async with desk_at(tmp_path, CONFIG) as desk:
        fields = {sections.MESSAGE_ID: "a", sections.GROUP_ID: "s"}
        await desk.send("s", sections.encode_message(b"x", fields))
        desk.server.clock.step(step_ms)
        wanted = {Symbol("com.microsoft:session-filter"): None}
        source = Source(address="s", filter=wanted)
        attach = Attach(source=source, target=Target())
        link = await desk.client.attach(desk.session, False, attach)
        await desk.advance(10)
        link.grant(1)
        desk.client.flush()
        delivery = await desk.client.wait(Delivered)

        until_ms = START_MS + step_ms + 30_000
        shown = (link.peer_attach.properties or {})[
            Symbol("com.microsoft:locked-until-utc")
        ]
        assert shown == ticks(until_ms)
        stamp = read_stamp(delivery.payload)
        assert stamp is not None
        assert stamp.locked_until_ms == until_ms
        desk.client.abort()


async def test_a_turn_of_the_host_keeps_the_time(tmp_path: Path) -> None:
    async with desk_at(tmp_path, CONFIG) as desk:
        desk.server.clock.step(HOUR_MS)
        await desk.advance(1)

        kept = desk.server.host.namespace.store.setting("clock")

        assert kept == f"{START_MS + 1_000} {START_MS + HOUR_MS + 1_000}"
        desk.client.abort()
