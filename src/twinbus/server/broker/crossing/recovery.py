"""When a shard is sick, and how it comes back: it proves that it takes writes again.

Owns the watch over a turn that hangs, and the tries. Each of them opens the database
anew where that is needed; with several shards it also writes and syncs a row, and a
disk that is too slow for that stays sick. Knows nothing about commands or clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from twinbus import limits
from twinbus.errors import ConfigError, ShardAway, StoreFault
from twinbus.server.broker.crossing.outbox import compare
from twinbus.store.base import (
    PROBE,
    Store,
    id_of,
)
from twinbus.store.records import Record

if TYPE_CHECKING:
    from twinbus.server.broker.host import Host
    from twinbus.server.broker.submissions import Submission
    from twinbus.server.broker.turn import Work

log = logging.getLogger("twinbus.host")


def _parts(work: Work) -> frozenset[str]:
    """Which kinds of work a turn had."""
    found = {"commands": work.commands, "tick": work.tick, "serve": work.to_serve}
    return frozenset(name for name, value in found.items() if value)


class SlowTurn:
    """Calls back when a turn takes so long that its shard is sick.

    Looks several times: if the whole process is stopped for a while, as with a machine
    that is suspended, that is one look, and no shard is sick because of it.
    """

    def __init__(self, is_sick: Callable[[], None]) -> None:
        self._is_sick = is_sick
        self._looks = 0
        self._loop = asyncio.get_running_loop()
        self._timer = self._wait()

    def _wait(self) -> asyncio.TimerHandle:
        seconds = limits.SICK_TURN_SECONDS / limits.SICK_TURN_LOOKS
        return self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._looks += 1
        if self._looks == limits.SICK_TURN_LOOKS:
            self._is_sick()
        else:
            self._timer = self._wait()

    def cancel(self) -> None:
        """The turn is over."""
        self._timer.cancel()


class Recovery:
    """Tries, again and again, whether the store of a host takes writes."""

    def __init__(self, host: Host, reopen: Callable[[], Store] | None) -> None:
        self._host = host
        # Opens the store, which could not be opened yet; None if it is open.
        self._reopen = reopen
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        # Where the last turn has failed, and what it had to do.
        self._failed_at = ""
        self._failed_parts: frozenset[str] = frozenset()

    def note_success(self, work: Work) -> None:
        """A turn was well; it proves nothing of what it had not to do."""
        if self._failed_at and self._failed_parts <= _parts(work):
            self._failed_at = ""

    def note_failure(self, error: BaseException, work: Work) -> None:
        """A turn has failed with a defect; the second time it is said aloud."""
        place = traceback.extract_tb(error.__traceback__)[-1]
        failed_at = f"{type(error).__name__} at {place.filename}:{place.lineno}"
        if failed_at == self._failed_at:
            name = self._host.namespace.name
            self._host.on_broken(f"a turn of {name} failed twice with {failed_at}")
        self._failed_at, self._failed_parts = failed_at, _parts(work)

    def too_slow(self, submissions: list[Submission]) -> None:
        """The turn in hand takes so long that its shard is sick."""
        name, after = self._host.name, f"{limits.SICK_TURN_SECONDS:g} seconds"
        text = f"The storage of {name} has not answered for {after}."
        log.error("%s", text)
        self._host.refuse_all(StoreFault(f"{text} Try again."), submissions)

    async def roll_back(self) -> None:
        """A turn has failed: go back to what is on disk."""
        self._host.clock.keep_again()
        with contextlib.suppress(StoreFault):
            await self._host.in_place(self._roll_back)

    def _roll_back(self) -> None:
        self._host.namespace.store.rollback()
        self._host.namespace.reload()

    def stay_away(self, problem: str) -> None:
        """The store could not be opened: refuse everything until it can be."""
        host = self._host
        host.fault = StoreFault(ShardAway(host.namespace.shard).text)
        host.namespace.is_stopped = True
        log.error("%s is not open: %s", host.name, problem)
        self.later()

    def later(self) -> None:
        """Try after a while."""
        if not self._closing:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(
                limits.STORE_RECOVERY_SECONDS, self._start
            )

    async def close(self) -> None:
        """Try no more."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await self._task

    def _start(self) -> None:
        if not self._closing and (self._task is None or self._task.done()):
            self._task = self._loop.create_task(self.attempt())

    async def attempt(self) -> None:
        """Ask a stopped store whether it takes writes again."""
        await self._host.turn_over()
        try:
            is_well = await self._host.in_place(self._is_well)
        except Exception:
            # A defect, or a disk that fails in an unknown way: it is tried again.
            log.exception("%s could not be looked at", self._host.name)
            is_well = False
        if not is_well:
            self.later()
            return
        host = self._host
        log.warning("store of %s accepts again", host.name)
        host.resume()
        if host.mover is not None:
            host.mover.accepts_again(host)
        if host.spool is not None:
            host.spool.look_at_disk()

    def _is_well(self) -> bool:
        host = self._host
        try:
            if self._reopen is not None:
                store = self._reopen()
                store.keep_tokens()
                host.use_store(store)
                self._reopen = None
            elif not host.namespace.store.recover():
                return False
            host.namespace.reload()
            compare(host.namespace)
            return len(host.hosts) == 1 or self._is_quick(host.namespace.store)
        except (StoreFault, ConfigError):
            return False

    def _is_quick(self, store: Store) -> bool:
        """Whether a row can be written and synced in time."""
        started = time.monotonic()
        store.begin()
        now = self._host.clock.now()
        sequence = store.append(PROBE, [Record(b"", b"")], now)
        store.remove([id_of(PROBE, sequence)])
        store.commit()
        return time.monotonic() - started < limits.SICK_PROOF_SECONDS
