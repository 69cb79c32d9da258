"""Collect, commit, release: the loop that carries a namespace.

Connections hand in commands. A turn takes all that have arrived, applies them in one
transaction on the event loop, lets waiting receivers lock what is ready, commits in a
thread (one long sync, without the interpreter's lock) and only then releases replies
and deliveries. Parsing goes on meanwhile; what arrives waits for the next turn.

So nothing is acknowledged before it is on disk, and one sync serves everybody.

If the store fails, nothing of the turn happened: every command in it fails, and the
host refuses what comes until `Store.recover` says that writing works again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from twinbus.clock import Clock
from twinbus.errors import Bug, StoreFault, TwinbusError
from twinbus.server.broker.counters import COMMANDS, SECONDS, Histogram
from twinbus.server.broker.namespace import Namespace
from twinbus.wire.link import Link, LinkState
from twinbus.wire.performatives import Error

log = logging.getLogger("twinbus.host")

# How often a stopped store is asked whether it works again.
_RECOVER_SECONDS = 1.0
# A timer that waits longer is set anew; clocks may be moved by hand.
_TIMER_SECONDS_MAX = 60.0
# What is due but cannot be worked off yet must not keep the loop busy.
_TIMER_SECONDS_MIN = 0.01
# Bytes of commands that may wait for a turn before reading stops. More would not be
# faster, and a single send beside a flood would wait for a longer turn.
PENDING_BYTES_MAX = 4 * 1024 * 1024


class Command(Protocol):
    """Something that a client wants done."""

    # How much memory it holds while it waits.
    size_bytes: int

    def apply(self, namespace: Namespace, now_ms: int) -> None:
        """Do it, inside the transaction. A `CallerError` fails this command alone."""

    def release(self) -> None:
        """It is on disk: tell the client."""

    def fail(self, error: TwinbusError) -> None:
        """It did not happen: tell the client."""


class Consumer(Protocol):
    """Somebody who waits for messages of a container."""

    def stage(self, namespace: Namespace, now_ms: int, share: int) -> bool:
        """Lock up to `share` messages, inside the transaction.

        True if `release` must be called after the commit.
        """

    def release(self) -> None:
        """What was staged is on disk: deliver it."""

    def fail(self, error: TwinbusError) -> None:
        """What was staged did not happen."""


class SessionHolder(Protocol):
    """A link that stands for a session's lock."""

    def session_lost(self) -> None:
        """The lock has ended."""


class ClaimHolder(Protocol):
    """Somebody whose claims end with the rules that they came from."""

    def rules_changed(self) -> None:
        """Look at the claims again."""


class LinkCloser(Protocol):
    """A connection, as far as the host needs it."""

    def close_link(self, link: Link) -> None:
        """Forget a link that was detached from our side."""


class Host:
    """Runs one namespace."""

    def __init__(self, namespace: Namespace, clock: Clock) -> None:
        self.namespace = namespace
        # Tells this start of this namespace from every other; not a secret.
        self.instance = secrets.token_hex(8)
        self.clock = clock
        # What tokens end by. Where a test moves the clock, clients do not know of it.
        self.token_clock = clock
        self.fault: StoreFault | None = None
        self.pending_bytes = 0
        # Called when the last of too many waiting commands is gone.
        self.on_room: list[Callable[[], None]] = []
        self.turns = 0
        self.turn_commands = Histogram(COMMANDS)
        # From the start of a turn to its replies, and the commit's part of it.
        self.turn_seconds = Histogram(SECONDS)
        self.commit_seconds = Histogram(SECONDS)
        namespace.in_use = self._in_use
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, f"commit-{namespace.name}")
        self._pending: list[Command] = []
        self._consumers: dict[int, list[Consumer]] = {}
        self._hungry: set[int] = set()
        self._turn: asyncio.Task[None] | None = None
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._tick_due = True
        self._closing = False
        # Links that hold a session's lock, by container and nonce.
        self.session_holders: dict[tuple[int, int], SessionHolder] = {}
        # Who has claims, or waits on the strength of one.
        self.claim_holders: set[ClaimHolder] = set()
        # Links to entities, with the entity and the connection of each.
        self._links: dict[Link, tuple[int, LinkCloser]] = {}

    # -- what connections call ---------------------------------------------------------

    def submit(self, command: Command) -> None:
        """Hand in a command; it is answered by its `release` or `fail`."""
        if self.fault is not None:
            command.fail(self.fault)
            return
        self._pending.append(command)
        self.pending_bytes += command.size_bytes
        self.wake()

    def grow(self, size_bytes: int) -> None:
        """A command that waits has taken more in."""
        self.pending_bytes += size_bytes

    @property
    def crowded(self) -> bool:
        """Whether so much waits that no more should be read."""
        return self.pending_bytes > PENDING_BYTES_MAX

    def add_consumer(self, container: int, consumer: Consumer) -> None:
        """Let a receiver take part; `hungry` says when it has credit."""
        self._consumers.setdefault(container, []).append(consumer)

    def remove_consumer(self, container: int, consumer: Consumer) -> None:
        """Forget a receiver."""
        consumers = self._consumers.get(container, [])
        if consumer in consumers:
            consumers.remove(consumer)
        if not consumers:
            self._consumers.pop(container, None)

    def know_link(self, entity: int, link: Link, connection: LinkCloser) -> None:
        """Detach this link when the entity is deleted."""
        self._links[link] = (entity, connection)

    def forget_link(self, link: Link) -> None:
        """The link is gone."""
        self._links.pop(link, None)

    def hungry(self, container: int) -> None:
        """A receiver of that container can take messages."""
        self._hungry.add(container)
        self.wake()

    def wake(self) -> None:
        """Make sure that a turn comes."""
        if not self._scheduled and not self._closing:
            self._scheduled = True
            if self._turn is None:
                self._loop.call_soon(self._start_turn)

    def tick(self) -> None:
        """Time has passed: look at what is due."""
        self._tick_due = True
        self.wake()

    async def close(self) -> None:
        """Finish the turn in hand and stop."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        if self._turn is not None:
            await self._turn
        for command in self._pending:
            command.fail(StoreFault("The server is shutting down."))
        self._pending = []
        self._thread.shutdown()
        self.namespace.store.close()

    # -- a turn ------------------------------------------------------------------------

    def _start_turn(self) -> None:
        self._scheduled = False
        if self._turn is None and not self._closing:
            self._turn = self._loop.create_task(self._run_turn())

    async def _run_turn(self) -> None:
        try:
            if self.fault is None:
                await self._collect_commit_release()
        finally:
            self._turn = None
            self._set_timer()
            if self._scheduled and not self._closing:
                self._loop.call_soon(self._start_turn)

    async def _collect_commit_release(self) -> None:
        commands, self._pending = self._pending, []
        self.pending_bytes = 0
        now_ms = self.clock.now_ms()
        staged: list[Consumer] = []
        refused: list[tuple[Command, TwinbusError]] = []
        done: list[Command] = []
        self.turns += 1
        self.turn_commands.observe(len(commands))
        started = self._loop.time()
        try:
            self.namespace.store.begin()
            for command in commands:
                try:
                    command.apply(self.namespace, now_ms)
                    done.append(command)
                except StoreFault:
                    raise
                except TwinbusError as error:
                    refused.append((command, error))
            self._run_tick(now_ms)
            self._feed(now_ms, staged)
            committing = self._loop.time()
            await self._loop.run_in_executor(self._thread, self.namespace.store.commit)
            self.commit_seconds.observe(self._loop.time() - committing)
        except StoreFault as fault:
            self._stop_accepting(fault, commands, staged)
            self._tell_room()
            return
        except Exception as error:
            log.exception("a turn of %s failed", self.namespace.name)
            self._undo(Bug(f"{type(error).__name__}: {error}"), commands, staged)
            # Who would have been fed looks again; not at once, if it fails again.
            self._hungry.update(self._consumers)
            self._loop.call_later(_TIMER_SECONDS_MIN, self.wake)
            self._tell_room()
            return
        for command in done:
            self._tell(command.release)
        for command, reason in refused:
            self._tell(command.fail, reason)
        for consumer in staged:
            self._tell(consumer.release)
        self._tell_changes()
        self.turn_seconds.observe(self._loop.time() - started)
        self._tell_room()

    def _tell(self, call: Callable[..., None], *arguments: TwinbusError) -> None:
        """Tell one; a defect in that must not keep the news from the others."""
        try:
            call(*arguments)
        except Exception:
            log.exception("somebody in %s could not be told", self.namespace.name)

    def _tell_room(self) -> None:
        """Connections that waited because of the crowd may read again."""
        if self.on_room and not self.crowded:
            waiting, self.on_room = self.on_room, []
            for resume in waiting:
                resume()

    def _run_tick(self, now_ms: int) -> None:
        if not self._tick_due:
            return
        self._tick_due = False
        if self.namespace.tick(now_ms):
            self._tick_due = self._scheduled = True

    def _feed(self, now_ms: int, staged: list[Consumer]) -> None:
        """Let receivers lock what is ready, each its share."""
        ready = self.namespace.router.ready
        containers = ready | self._hungry
        # Cleared first: who takes a full share asks for another turn meanwhile.
        ready.clear()
        self._hungry.clear()
        for container in containers:
            consumers = self._consumers.get(container)
            if not consumers:
                continue
            share = 1000 if len(consumers) == 1 else 100
            # The first in line goes to the end of it.
            consumers.append(consumers.pop(0))
            staged.extend(
                consumer
                for consumer in list(consumers)
                if consumer.stage(self.namespace, now_ms, share)
            )

    def _tell_changes(self) -> None:
        ended, self.namespace.ended_sessions = self.namespace.ended_sessions, []
        for session in ended:
            key = (session.container, session.nonce)
            holder = self.session_holders.pop(key, None)
            if holder is not None:
                holder.session_lost()
        deleted, self.namespace.deleted = self.namespace.deleted, []
        for entity in deleted:
            self._detach_all(entity.id)
        namespace = self.namespace
        if namespace.rules_changed or namespace.entities.rules_changed:
            namespace.rules_changed = namespace.entities.rules_changed = False
            for claim_holder in list(self.claim_holders):
                self._tell(claim_holder.rules_changed)

    def _detach_all(self, entity: int) -> None:
        """An entity is gone, and so are the links to it."""
        error = Error(
            condition="amqp:not-found", description="The messaging entity was deleted."
        )
        for link, (owner, connection) in list(self._links.items()):
            if owner == entity:
                if link.state is LinkState.ASKED:
                    link.refuse(error)
                link.detach(error)
                connection.close_link(link)
        # Who waits without a link finds out by looking.
        self._hungry.update(key for key in self._consumers if key & ~3 == entity)
        self.wake()

    # -- time --------------------------------------------------------------------------

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._closing or self.fault is not None:
            return
        due_ms = self.namespace.next_tick_ms()
        seconds = _TIMER_SECONDS_MAX
        if due_ms is not None:
            wait_seconds = (due_ms - self.clock.now_ms()) / 1000
            seconds = min(max(wait_seconds, _TIMER_SECONDS_MIN), seconds)
        self._timer = self._loop.call_later(seconds, self.tick)

    # -- faults ------------------------------------------------------------------------

    def _stop_accepting(
        self, fault: StoreFault, commands: list[Command], staged: list[Consumer]
    ) -> None:
        log.error("store of %s stopped: %s", self.namespace.name, fault.text)
        self.fault = fault
        commands = commands + self._pending
        self._pending = []
        self.pending_bytes = 0
        self._undo(fault, commands, staged)
        self._loop.call_later(_RECOVER_SECONDS, self.try_recover)

    def _undo(
        self, error: TwinbusError, commands: list[Command], staged: list[Consumer]
    ) -> None:
        """Nothing of the turn happened: say so to everybody in it."""
        namespace = self.namespace
        with contextlib.suppress(StoreFault):
            namespace.store.rollback()
            namespace.reload()
        namespace.router.ready.clear()
        namespace.ended_sessions.clear()
        namespace.deleted.clear()
        for command in commands:
            self._tell(command.fail, error)
        for consumer in staged:
            self._tell(consumer.fail, error)

    def try_recover(self) -> None:
        """Ask a stopped store whether it takes writes again."""
        if self._closing:
            return
        if not self._recovered():
            self._loop.call_later(_RECOVER_SECONDS, self.try_recover)
            return
        log.warning("store of %s accepts again", self.namespace.name)
        self.fault = None
        self._tick_due = True
        self._hungry.update(self._consumers)
        self.wake()

    def _recovered(self) -> bool:
        try:
            if not self.namespace.store.recover():
                return False
            self.namespace.reload()
        except StoreFault:
            return False
        return True

    def _in_use(self, entity: int) -> bool:
        return any(entity + which in self._consumers for which in range(3))
