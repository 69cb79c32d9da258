"""Where the host uses the store: in a turn, and never beside it."""

from __future__ import annotations

import asyncio
import threading

import pytest
import uvloop

from twinbus.clock import ManualClock, Now
from twinbus.errors import Bug, StoreFault
from twinbus.server.broker.crossing.recovery import Recovery
from twinbus.server.broker.host import Host
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn, Work
from twinbus.store.base import EntityRow
from twinbus.store.sqlite.store import SqliteStore


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
    await host.try_recover()

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
    await host.try_recover()

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
