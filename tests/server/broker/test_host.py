"""Where the host uses the store: in a turn, and never beside it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import uvloop

from twinbus import limits
from twinbus.clock import ManualClock, Now
from twinbus.errors import Bug, StoreFault, TwinbusError
from twinbus.server.broker.crossing.recovery import Recovery
from twinbus.server.broker.host import Host
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.submissions import UNHEARD
from twinbus.server.broker.turn import Turn, Work
from twinbus.store.base import EntityRow
from twinbus.store.sqlite.store import SqliteStore


class HangingStore(SqliteStore):
    """Commits when the disk is well again."""

    def __init__(self, *arguments: object) -> None:
        self.reached, self.well = threading.Event(), threading.Event()
        super().__init__(*arguments)  # type: ignore[arg-type]

    def commit(self) -> None:
        self.reached.set()
        self.well.wait()
        super().commit()


class CheckpointedStore(SqliteStore):
    """Its checkpoint ends when the disk is well again, and then fails on demand."""

    def __init__(self, *arguments: object) -> None:
        self.reached, self.well = threading.Event(), threading.Event()
        self.broken = False
        super().__init__(*arguments)  # type: ignore[arg-type]

    def checkpoint(self) -> None:
        self.reached.set()
        self.well.wait()
        if self.broken:
            raise StoreFault("The disk failed.")
        super().checkpoint()


class WatchedStore(SqliteStore):
    """Notes in which thread the host uses it, and breaks on demand."""

    def __init__(self, *arguments: object) -> None:
        self.used: dict[str, int] = {}
        self.broken = False
        super().__init__(*arguments)  # type: ignore[arg-type]

    def next_wait_ms(self, now: Now) -> int | None:
        self._note("next_wait_ms")
        if self.broken:
            raise StoreFault("The disk is full.")
        return super().next_wait_ms(now)

    def rollback(self) -> None:
        self._note("rollback")
        super().rollback()

    def recover(self) -> bool:
        self._note("recover")
        return super().recover()

    def entities(self) -> list[EntityRow]:
        self._note("entities")
        return super().entities()

    def _note(self, method: str) -> None:
        self.used[method] = threading.get_ident()


def fails(_namespace: Namespace, _turn: Turn) -> None:
    raise StoreFault("The disk is full.")


def nothing(_namespace: Namespace, _turn: Turn) -> None:
    return None


async def test_store_is_used_in_the_thread_of_turns_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Host, "in_thread", True)
    store = WatchedStore.memory()
    host = Host(Namespace("contoso", store), ManualClock())

    await host.run(nothing)
    with pytest.raises(StoreFault):
        await host.run(fails)
    await host.recovery.attempt()

    assert set(store.used) == {"next_wait_ms", "rollback", "recover", "entities"}
    assert threading.get_ident() not in store.used.values()
    await host.close()


async def test_store_that_fails_at_the_end_of_a_turn_stops_and_recovers() -> None:
    store = WatchedStore.memory()
    host = Host(Namespace("contoso", store), ManualClock())
    store.broken = True

    with pytest.raises(StoreFault):
        await host.run(nothing)
    assert host.fault is not None
    store.broken = False
    await host.recovery.attempt()

    await host.run(nothing)
    await host.close()


async def test_an_unexpected_error_of_a_turn_tells_clients_no_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = WatchedStore.memory()
    host = Host(Namespace("contoso", store), ManualClock())

    def commit() -> None:
        raise OSError(28, "No space left on device", "/srv/data/contoso")

    with monkeypatch.context() as patched:
        patched.setattr(store, "commit", commit)
        with pytest.raises(Bug) as refused:
            await host.run(nothing)

    assert refused.value.text == "The server failed (OSError). Its log says more."
    await host.close()


def test_a_pause_shorter_than_a_tick_of_the_loop_ends_with_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For it uvloop has no timer, but a handle that does not tell when it is due."""

    async def pause_once() -> None:
        host = Host(Namespace("contoso", SqliteStore.memory()), ManualClock())
        pauses = iter([0.0001])
        monkeypatch.setattr(host.pending, "pause_seconds", lambda _now: next(pauses, 0))

        later: list[asyncio.Task[None]] = []

        def go_on(_namespace: Namespace, _turn: Turn) -> None:
            later.append(asyncio.create_task(host.run(nothing)))

        await host.run(go_on)
        # It came while the turn after the pause was in hand.
        await later[0]
        await host.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(pause_once())


IDLE, TOLD = Work(Now.at(1), tick=True), Work(Now.at(1), [nothing])


@pytest.mark.parametrize(
    ("failed", "between", "broken"),
    [(TOLD, IDLE, 1), (IDLE, TOLD, 1), (TOLD, TOLD, 0), (IDLE, IDLE, 0)],
)
async def test_a_turn_heals_only_what_it_had_to_do(
    failed: Work, between: Work, broken: int
) -> None:
    host = Host(Namespace("contoso", WatchedStore.memory()), ManualClock())
    said: list[str] = []
    host.on_broken = said.append
    recovery = Recovery(host, None)
    with pytest.raises(AttributeError) as caught:
        raise AttributeError("a defect")

    recovery.note_failure(caught.value, failed)
    recovery.note_success(between)
    recovery.note_failure(caught.value, failed)

    assert len(said) == broken
    await host.close()


async def test_turns_do_not_put_off_the_look_at_time() -> None:
    host = Host(Namespace("contoso", WatchedStore.memory()), ManualClock())
    await host.run(nothing)
    await host.turn_over()
    handle = host._timer._handle
    assert handle is not None

    for _ in range(3):
        await host.run(nothing)
        await host.turn_over()

    assert host._timer._handle is handle
    assert not handle.cancelled()
    await host.close()


async def test_what_is_sent_together_is_in_one_turn() -> None:
    host = Host(Namespace("contoso", WatchedStore.memory()), ManualClock())
    first = asyncio.ensure_future(host.run(nothing))
    # It waits, and is not begun before the loop has looked at the sockets again.
    await asyncio.sleep(0)
    second = asyncio.ensure_future(host.run(nothing))

    await asyncio.gather(first, second)

    assert host.turns == 1
    await host.close()


@pytest.mark.parametrize("in_thread", [False, True])
async def test_close_waits_for_the_turn_in_hand(
    monkeypatch: pytest.MonkeyPatch, in_thread: bool
) -> None:
    monkeypatch.setattr(Host, "in_thread", in_thread)
    store = HangingStore.memory()
    host = Host(Namespace("contoso", store), ManualClock())
    sent = asyncio.ensure_future(host.run(nothing))
    assert await asyncio.to_thread(store.reached.wait, 10)
    # It waits for its turn behind the one that hangs.
    late = asyncio.ensure_future(host.run(nothing))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(host.close())
    await asyncio.sleep(0)
    assert not sent.done()
    assert not closing.done()

    store.well.set()
    await closing

    assert sent.done()
    assert sent.exception() is None
    assert isinstance(late.exception(), StoreFault)
    assert host.turns == 1


async def test_a_wake_while_a_turn_is_collected_is_not_lost() -> None:
    store = HangingStore.memory()
    host = Host(Namespace("contoso", store), ManualClock())
    now = host.clock.now

    def wake_and_look() -> Now:
        host.clock.now = now  # type: ignore[method-assign]
        host.wake()
        return now()

    host.clock.now = wake_and_look  # type: ignore[method-assign]
    sent = asyncio.ensure_future(host.run(nothing))
    assert await asyncio.to_thread(store.reached.wait, 10)
    # The loop has come to the start of a turn, and one is in hand.
    for _ in range(3):
        await asyncio.sleep(0)
    store.reached.clear()
    store.well.set()
    await sent

    assert await asyncio.to_thread(store.reached.wait, 10)
    assert host.turns == 2
    await host.close()


async def test_a_look_at_time_lasts_until_its_turn_is_over() -> None:
    store = HangingStore.memory()
    host = Host(Namespace("contoso", store), ManualClock())
    host.tick()
    assert await asyncio.to_thread(store.reached.wait, 10)

    in_hand = host.is_looking_at_time
    store.well.set()
    await host.turn_over()

    assert (in_hand, host.is_looking_at_time) == (True, False)
    await host.close()


async def test_clients_are_read_from_while_a_turn_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "TURN_WORK_MAX", 1)
    store = HangingStore.memory()
    host = Host(Namespace("contoso", store), ManualClock())
    told: list[int] = []
    host.on_room.append(lambda: told.append(host.pending.size_bytes))
    for _ in range(3):
        host.submit(nothing, UNHEARD, size_bytes=10)
    assert await asyncio.to_thread(store.reached.wait, 10)

    # The two that did not fit into the turn are among those that wait.
    assert told == [20]
    store.well.set()
    await host.run(nothing)
    assert host.turns == 4
    assert host.pending.size_bytes == 0
    await host.close()


class _WritingReply:
    """A reply of a client that has to be written to; the first one cannot be."""

    def __init__(self, host: Host, seen: list[str], name: str) -> None:
        self._host, self._seen, self._name = host, seen, name
        self.answered = asyncio.Event()

    def done(self, result: None) -> None:
        del result
        self.answered.set()
        self._seen.append(f"answer {self._name}")
        self._host.answers.soon(self._write)

    def failed(self, error: TwinbusError) -> None:
        raise error

    def _write(self) -> None:
        self._seen.append(f"write {self._name}")
        if self._name == "a":
            raise ConnectionResetError


async def test_clients_are_written_to_with_the_answers_of_a_turn() -> None:
    host = Host(Namespace("contoso", WatchedStore.memory()), ManualClock())
    seen: list[str] = []
    errors: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, told: errors.append(told))
    replies = [_WritingReply(host, seen, name) for name in "ab"]
    for reply in replies:
        host.submit(nothing, reply)

    await replies[0].answered.wait()

    # This goes on when the loop comes round: all of it was in one step.
    assert seen == ["answer a", "answer b", "write a", "write b"]
    assert [type(told["exception"]) for told in errors] == [ConnectionResetError]
    await host.close()


async def test_without_a_turn_clients_are_written_to_when_the_loop_comes_round() -> (
    None
):
    host = Host(Namespace("contoso", WatchedStore.memory()), ManualClock())
    seen: list[str] = []

    host.answers.soon(lambda: seen.append("write"))

    assert not seen
    await asyncio.sleep(0)
    assert seen == ["write"]
    await host.close()


@pytest.fixture
def idle_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host is idle as soon as it has worked off three commands."""
    monkeypatch.setattr(limits, "CHECKPOINT_WORK_MIN", 3)
    monkeypatch.setattr(limits, "CHECKPOINT_IDLE_SECONDS", 0)


@pytest.mark.usefixtures("idle_at_once")
async def test_the_log_is_written_away_when_a_host_is_idle() -> None:
    store = CheckpointedStore.memory()
    host = Host(Namespace("contoso", store), ManualClock())
    for _ in range(2):
        await host.run(nothing)
    await host.turn_over()
    assert not store.reached.is_set()

    await host.run(nothing)
    assert await asyncio.to_thread(store.reached.wait, 10)

    # A command that comes meanwhile waits, and is not lost.
    sent = asyncio.ensure_future(host.run(nothing))
    for _ in range(3):
        await asyncio.sleep(0)
    assert (host.turns, sent.done()) == (3, False)
    store.well.set()
    await sent
    assert host.turns == 4
    await host.close()


@pytest.mark.usefixtures("idle_at_once")
async def test_a_host_whose_log_cannot_be_written_away_stops_and_recovers() -> None:
    store = CheckpointedStore.memory()
    host = Host(Namespace("contoso", store), ManualClock())
    store.broken = True
    for _ in range(3):
        await host.run(nothing)
    assert await asyncio.to_thread(store.reached.wait, 10)
    sent = asyncio.ensure_future(host.run(nothing))
    await asyncio.sleep(0)

    store.well.set()

    with pytest.raises(StoreFault):
        await sent
    assert host.fault is not None
    await host.recovery.attempt()
    await host.run(nothing)
    await host.close()


@pytest.mark.usefixtures("idle_at_once")
async def test_close_waits_for_a_checkpoint() -> None:
    store = CheckpointedStore.memory()
    host = Host(Namespace("contoso", store), ManualClock())
    for _ in range(3):
        await host.run(nothing)
    assert await asyncio.to_thread(store.reached.wait, 10)
    closing = asyncio.ensure_future(host.close())
    await asyncio.sleep(0)

    assert not closing.done()
    store.well.set()
    await closing


@pytest.mark.usefixtures("idle_at_once")
async def test_a_host_that_is_closed_with_a_turn_in_hand_begins_no_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "CHECKPOINT_WORK_MIN", 1)
    store = HangingStore.memory()
    checkpoints: list[None] = []
    monkeypatch.setattr(store, "checkpoint", lambda: checkpoints.append(None))
    host = Host(Namespace("contoso", store), ManualClock())
    sent = asyncio.ensure_future(host.run(nothing))
    assert await asyncio.to_thread(store.reached.wait, 10)
    closing = asyncio.ensure_future(host.close())
    await asyncio.sleep(0)

    store.well.set()
    await closing
    await asyncio.sleep(0)

    assert sent.done()
    assert (checkpoints, host._turn) == ([], None)


async def test_a_turn_with_enough_work_begins_without_another_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "TURN_BYTES_ENOUGH", 10)
    host = Host(Namespace("contoso", WatchedStore.memory()), ManualClock())
    host.submit(nothing, UNHEARD, size_bytes=10)

    await asyncio.sleep(0)

    assert host.turns == 1
    await host.close()
