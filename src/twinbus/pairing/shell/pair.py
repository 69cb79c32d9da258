"""A pair at work: carries out what the rules decide.

Owns the timers, the entities and the backlog senders of one pairing, and is the only
place that turns decisions (`decisions.py`) into things that happen. What a decision is
based on belongs to the rules; how a ping or a probe is made, to `probing.py`; who is
told, to `telling.py`. What one send does is `route.py`. All of it runs on one event
loop, so nothing here needs a lock.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from twinbus import limits
from twinbus.client.connection import Connection
from twinbus.client.outcome import Outcome
from twinbus.client.sender import Sender
from twinbus.clock import Clock, SystemClock
from twinbus.errors import RemoteError
from twinbus.pairing.errors import Moved
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.rules.classification import Failure, kind_of
from twinbus.pairing.rules.decisions import (
    CancelTimer,
    Decision,
    Divert,
    ProbeQueue,
    Resume,
    StartPing,
    StartTimer,
    StopPinging,
    Tell,
    Wake,
)
from twinbus.pairing.rules.packing import HeadroomWatch
from twinbus.pairing.rules.policy import Attempt, EntityPolicy, PairingPolicy
from twinbus.pairing.rules.rotation import Rotation
from twinbus.pairing.rules.send_call import SendRules
from twinbus.pairing.sdk.errors import as_sdk_error
from twinbus.pairing.shell.probing import Probing
from twinbus.pairing.shell.telling import Telling, forget, remember
from twinbus.pairing.status import PairingStatus

if TYPE_CHECKING:
    from twinbus.pairing.shell.outbox import Outbox
    from twinbus.pairing.shell.route import Flight


class PairedEntity:
    """One entity of the primary: its machine, its sender, and what is under way."""

    __slots__ = ("flights", "policy", "sender", "unanswered", "watch")

    def __init__(self, policy: EntityPolicy, sender: Sender) -> None:
        self.policy = policy
        self.sender = sender
        self.watch = HeadroomWatch(policy.path)
        # Sends of the fast path without an answer, the oldest first.
        self.unanswered: dict[Outcome, None] = {}
        # Sends that the rules direct (`route.Flight`), each with a call.
        self.flights: dict[Flight, None] = {}

    @property
    def is_busy(self) -> bool:
        """Whether a send is under way."""
        return bool(self.unanswered or self.flights)


class Pair:
    """A primary and a secondary namespace, as one factory sees them."""

    def __init__(
        self,
        primary: Connection,
        secondary: Connection,
        options: SendAvailabilityPairedNamespaceOptions,
        label: str,
        attempt_ms: int = limits.ATTEMPT_MS_MAX,
    ) -> None:
        self.primary = primary
        self.secondary = secondary
        self.options = options
        self.label = label
        self.clock: Clock = SystemClock()
        self.telling = Telling(label, options.on_event)
        self.policy = PairingPolicy(options.policy_settings())
        self.rotation = Rotation(label, options.usable_indexes, random.randrange)
        self.rules = SendRules(
            self.rotation, random.random, options.classifier, attempt_ms
        )
        # Takes what no backlog queue takes; None if the application wants none.
        self.outbox: Outbox | None = None
        self._loop = asyncio.get_running_loop()
        self._entities: dict[str, PairedEntity] = {}
        self._backlog: dict[int, Sender] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._probing = Probing(self)
        remember(self)
        # Set while `sends_ended` waits.
        self.idle: asyncio.Future[None] | None = None
        self._pings = True
        self._stopped = False
        # Called when something was diverted.
        self.on_diverted: Callable[[], None] | None = None

    # -- what a send needs -------------------------------------------------------------

    def entity(self, path: str) -> PairedEntity:
        """An entity of the primary; one object for all spellings of its path."""
        policy = self.policy.entity(path)
        found = self._entities.get(policy.key)
        if found is None:
            found = PairedEntity(policy, self.primary.sender(policy.path))
            found.watch.set_limit(self.backlog_bytes_max)
            self._entities[policy.key] = found
        return found

    def entity_by_key(self, key: str) -> PairedEntity:
        """An entity that the rules speak of."""
        return self._entities[key]

    def backlog_sender(self, index: int) -> Sender:
        """The sender to a backlog queue, shared by all."""
        found = self._backlog.get(index)
        if found is None:
            found = self.secondary.sender(self.rotation.path(index))
            self._backlog[index] = found
        return found

    @property
    def backlog_bytes_max(self) -> int:
        """The largest message that every backlog queue takes, as far as is known."""
        known = [sender.message_bytes_max for sender in self._backlog.values()]
        return min(known, default=limits.MESSAGE_BYTES_MAX)

    def add_outbox(self, outbox: Outbox) -> None:
        """From now on this takes what no backlog queue takes."""
        self.outbox = outbox
        self.rules = replace(self.rules, outbox=True)

    def add_queues(self, indexes: frozenset[int]) -> None:
        """These backlog queues exist."""
        self.options.set_usable(indexes)
        self.carry_out(self.rotation.add(indexes))

    def diverted(self) -> None:
        """A backlog queue has taken something."""
        if self.on_diverted is not None:
            self.on_diverted()

    def carry_out(self, decisions: Iterable[Decision]) -> None:
        """Do what the rules have decided, in order."""
        for decision in decisions:
            self._carry_out(decision)

    def _carry_out(self, decision: Decision) -> None:
        match decision:
            case StartTimer():
                self._start_timer(decision)
            case CancelTimer():
                self._cancel_timer(decision)
            case StartPing():
                if self._pings:
                    self._probing.start_ping(decision)
            case StopPinging():
                self._probing.stop_ping(decision)
            case ProbeQueue():
                self._probing.plan_queue(decision)
            case Divert():
                self._divert(decision)
            case Resume():
                self._resume(decision)
            case Wake():
                decision.call.wake()
            case Tell():
                self.telling.tell(decision.event)
            case _:
                assert_never(decision)

    def left(
        self,
        entity: PairedEntity,
        attempt: Attempt,
        outcome: asyncio.Future[Any],
        late: bool,
    ) -> None:
        """A send to the primary goes on without its call. Only acceptance is news.

        That it fails is not: it began too long ago to count. `late`: if it is accepted
        now, that is late, as `EntityPolicy.accepted` says.
        """
        outcome.add_done_callback(partial(self._ended_late, entity, attempt, late))

    def _ended_late(
        self,
        entity: PairedEntity,
        attempt: Attempt,
        late: bool,
        outcome: asyncio.Future[Any],
    ) -> None:
        policy = entity.policy
        if outcome.cancelled() or outcome.exception() is not None:
            policy.forgotten(attempt)
        elif not self._stopped:
            now_ms = self.clock.now_ms()
            self.carry_out(policy.accepted(attempt, now_ms, late=late))

    # -- life --------------------------------------------------------------------------

    async def open_backlog(self) -> None:
        """Prove on every backlog queue the rights that the pair needs.

        Send, and Listen for the syphon: a namespace checks them when a link opens.
        Raises if a right is missing, or if no queue can be linked to at all and there
        is no outbox.
        """
        indexes = sorted(self.options.usable_indexes)
        errors = await self._prove("Send", self._open_sender, indexes)
        if len(errors) == len(indexes) and self.outbox is None:
            raise self._of_secondary(errors[indexes[-1]], ": ")
        if self.options.enable_syphon:
            linked = [index for index in indexes if index not in errors]
            # What else is wrong with receiving, the pumps find out and report.
            await self._prove("Listen", self._open_receiver, linked)
        for index, error in errors.items():
            self._probing.queue_failed(index, error)
        for entity in self._entities.values():
            entity.watch.set_limit(self.backlog_bytes_max)

    async def _prove(
        self,
        right: str,
        open_link: Callable[[int], Awaitable[None]],
        indexes: list[int],
    ) -> dict[int, BaseException]:
        """Open a link to each of these queues; returns why some failed, by index."""
        errors: dict[int, BaseException] = {}
        # A wrong key is shown for the first queues only.
        first = limits.BACKLOG_LINKS_FIRST
        for part in (indexes[:first], indexes[first:]):
            links = (open_link(index) for index in part)
            results = await asyncio.gather(*links, return_exceptions=True)
            for index, error in zip(part, results, strict=True):
                if error is None:
                    continue
                errors[index] = error
                if kind_of(error) is Failure.ACCESS:
                    path = self.rotation.path(index)
                    lacks = f" does not give its factory {right} on '{path}': "
                    raise self._of_secondary(error, lacks)
        return errors

    async def _open_sender(self, index: int) -> None:
        await self.backlog_sender(index).open()

    async def _open_receiver(self, index: int) -> None:
        async with self.secondary.receiver(self.rotation.path(index)) as receiver:
            await receiver.open()

    def _of_secondary(self, error: BaseException, what: str) -> BaseException:
        """The error as the official client's, with the namespace that it is about."""
        if not isinstance(error, RemoteError):
            return error
        endpoint = self.secondary.endpoint
        place = f"The secondary '{endpoint.host}:{endpoint.target[1]}'"
        return as_sdk_error(error, place + what)

    async def sends_ended(self) -> None:
        """Wait until no send is under way."""
        while any(entity.is_busy for entity in self._entities.values()):
            self.idle = self._loop.create_future()
            await self.idle

    def send_ended(self) -> None:
        """A send is over: `sends_ended` checks again."""
        if self.idle is not None and not self.idle.done():
            self.idle.set_result(None)

    def stop_pings(self) -> None:
        """No more pings; timers and probes run on for sends that are under way."""
        self._pings = False
        for key in self._entities:
            self._probing.stop_ping(StopPinging(key, 0))

    def stop(self) -> None:
        """No more of anything."""
        self._stopped = True
        self._probing.stop()
        self.policy.stop()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self.telling.end()
        forget(self)

    def break_off(self) -> None:
        """Wake every call, so that it notices that the factory is faulted."""
        for entity in self._entities.values():
            for outcome in list(entity.unanswered):
                outcome.leave(Moved())
            for flight in entity.flights:
                flight.wake()

    def mark_healthy(self, path: str) -> None:
        """The application knows that the entity is healthy."""
        policy = self.entity(path).policy
        self.carry_out(policy.mark_healthy(self.clock.now_ms()))

    def status(self) -> PairingStatus:
        """The whole state, for a dashboard."""
        status = self.policy.status()
        status.backlog_queues = list(self.rotation.status())
        if self.outbox is not None:
            status.outbox = self.outbox.status()
        return status

    # -- decisions ---------------------------------------------------------------------

    def _start_timer(self, decision: StartTimer) -> None:
        self._cancel_timer(decision)
        seconds = max(decision.due_ms - self.clock.now_ms(), 0) / 1000
        fire = partial(self._timer_fired, decision.key, decision.timer_id)
        self._timers[decision.key] = self._loop.call_later(seconds, fire)

    def _cancel_timer(self, decision: StartTimer | CancelTimer) -> None:
        timer = self._timers.pop(decision.key, None)
        if timer is not None:
            timer.cancel()

    def _timer_fired(self, key: str, timer_id: int) -> None:
        policy = self._entities[key].policy
        self.carry_out(policy.timer_fired(timer_id, self.clock.now_ms()))

    def _divert(self, decision: Divert) -> None:
        entity = self._entities[decision.key]
        if not entity.policy.hold:
            # hold_during_failover=False: sends that are under way succeed or raise.
            return
        for outcome in list(entity.unanswered):
            late = outcome.leave(Moved())
            if not outcome.begun:
                # It was not sent, and now it never will be.
                late.cancel()
            self.left(entity, 0, late, late=True)
        for flight in entity.flights:
            flight.wake()

    def _resume(self, decision: Resume) -> None:
        for flight in self._entities[decision.key].flights:
            flight.wake()
