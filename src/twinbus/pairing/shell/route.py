"""How one send reaches its entity, with a pair and without one.

Owns the messages of one call (`SendWork`) and the two routes. `DirectRoute` sends to
the entity and nowhere else: it retries transient errors as the official client does,
by the same options, and a busy service not before ten seconds; it raises all others.

`PairedRoute` sends straight to the primary while the entity is healthy, and does not
even ask the rules: the fast path. If that fails, or the entity is not healthy, or the
rules must watch the time of the attempt, a `SendCall` says what to do next, step by
step, and a `Flight` does it: try the primary, wait, send to a backlog queue or to the
outbox, give up. Nothing is decided here, and every wait ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NoReturn

from twinbus.client.management import Management
from twinbus.client.outcome import Outcome
from twinbus.client.sender import Sender
from twinbus.errors import Disconnected, OperationTimeout, SendRefused
from twinbus.pairing.errors import Moved
from twinbus.pairing.rules import envelope
from twinbus.pairing.rules.classification import Failure, kind_of
from twinbus.pairing.rules.packing import check_size, with_scheduled_time
from twinbus.pairing.rules.policy import EntityState
from twinbus.pairing.rules.retry import is_transient
from twinbus.pairing.rules.rotation import SenderChoice
from twinbus.pairing.rules.send_call import (
    Done,
    GiveUp,
    NextStep,
    SendCall,
    SendRules,
    TryBacklog,
    TryOutbox,
    TryPrimary,
    Wait,
)
from twinbus.pairing.sdk.arguments import SendSettings
from twinbus.pairing.shell.pair import Pair, PairedEntity


class SendWork:
    """Encoded messages on their way: one, or several."""

    __slots__ = ("largest_bytes", "messages")

    def __init__(self, messages: bytes | list[bytes]) -> None:
        self.messages = messages
        # The size of the largest.
        self.largest_bytes = (
            len(messages) if isinstance(messages, bytes) else max(map(len, messages))
        )

    @property
    def size_bytes(self) -> int:
        """What they need while they wait."""
        if isinstance(self.messages, bytes):
            return len(self.messages)
        return sum(map(len, self.messages))

    def each(self) -> Sequence[bytes]:
        """One by one."""
        return (self.messages,) if isinstance(self.messages, bytes) else self.messages

    def submit(self, sender: Sender, seconds: float) -> Outcome:
        """Put them on their way to the primary."""
        return sender.submit(self.messages, seconds)

    def failed(self, error: BaseException) -> None:
        """They were not accepted, or not all of them."""
        if isinstance(error, SendRefused):
            self.messages = [self.each()[place] for place in sorted(error.failures)]

    def diverted(self, path: str, wall_ms: int, limit_bytes: int) -> list[bytes]:
        """As a backlog queue takes them; raises `MessageTooLargeForBacklog`."""
        diverted = [envelope.divert(each, path, wall_ms) for each in self.each()]
        for message in diverted:
            check_size(message, path, limit_bytes)
        return diverted


class Scheduled(SendWork):
    """Messages for a later time. The primary alone gives numbers to cancel them by."""

    __slots__ = ("_management", "numbers")

    def __init__(
        self, messages: Sequence[bytes], time_ms: int, management: Management
    ) -> None:
        super().__init__([with_scheduled_time(each, time_ms) for each in messages])
        self._management = management
        self.numbers: list[int | None] = [None] * len(messages)

    def submit(self, sender: Sender, seconds: float) -> Outcome:
        del sender
        outcome = Outcome()
        task = asyncio.ensure_future(self._schedule(seconds))

        def take_back(future: asyncio.Future[None]) -> None:
            if future.cancelled():
                task.cancel()

        def end(task: asyncio.Task[None]) -> None:
            if not task.cancelled():
                outcome.end(task.exception())

        task.add_done_callback(end)
        outcome.future.add_done_callback(take_back)
        return outcome

    async def _schedule(self, seconds: float) -> None:
        self.numbers[:] = await self._management.schedule(self.each(), seconds)


class DirectRoute:
    """The way of the sends of one unpaired sender."""

    __slots__ = ("_check", "_settings", "sender")

    def __init__(
        self, sender: Sender, check: Callable[[], None], settings: SendSettings
    ) -> None:
        self.sender = sender
        # Raises once the factory takes no more sends.
        self._check = check
        self._settings = settings

    async def send(self, work: SendWork, within_seconds: float | None) -> bool:
        """Send; returns when it is accepted, raises why not."""
        settings, loop = self._settings, asyncio.get_running_loop()
        end = None if within_seconds is None else loop.time() + within_seconds
        failures = 0
        while True:
            seconds = settings.attempt_seconds
            if end is not None:
                seconds = min(seconds, max(end - loop.time(), 0))
            try:
                await work.submit(self.sender, seconds)
            except Exception as error:
                work.failed(error)
                failures += 1
                if failures > settings.retries or not is_transient(error):
                    raise
                busy = kind_of(error) is Failure.BUSY
                pause_seconds = settings.pause_ms(failures, busy) / 1000
                if end is not None and loop.time() + pause_seconds >= end:
                    raise
            else:
                return True
            await asyncio.sleep(pause_seconds)
            self._check()


class PairedRoute:
    """The way of the sends of one sender: to its entity, or to its backlog queue."""

    __slots__ = (
        "_attempt_seconds",
        "_check",
        "_choice",
        "_entity",
        "_pair",
        "_policy",
        "_rules",
        "_slow_send",
        "_unanswered",
        "_watch",
    )

    def __init__(
        self,
        pair: Pair,
        path: str,
        check: Callable[[], None],
        rules: SendRules | None = None,
    ) -> None:
        self._pair = pair
        self._rules = rules or pair.rules
        self._entity = pair.entity(path)
        # Read by every send, so kept as attributes.
        self._policy = self._entity.policy
        self._watch = self._entity.watch
        self._unanswered = self._entity.unanswered
        self._choice = SenderChoice(pair.rotation)
        self._attempt_seconds = self._rules.attempt_ms / 1000
        self._slow_send = bool(self._policy.slow_send_ms)
        # Raises once the factory takes no more sends.
        self._check = check

    @property
    def entity(self) -> PairedEntity:
        return self._entity

    async def send(self, work: SendWork, within_seconds: float | None) -> bool:
        """Send; returns whether the primary took it, raises if it was not accepted."""
        if work.largest_bytes > self._watch.threshold_bytes:
            self._check_headroom(work)
        policy, unanswered = self._policy, self._unanswered
        deadline_ms = None
        seconds = self._attempt_seconds
        if within_seconds is not None:
            deadline_ms = self._now_ms() + round(within_seconds * 1000)
            seconds = min(seconds, within_seconds)
            careful = self._slow_send or policy.fails_over_at_once
        else:
            careful = self._slow_send
        # As `policy.direct`, written out: nearly every send passes here. The rules know
        # when an attempt is slow, and how much of the caller's time the backlog needs.
        if (
            policy.state is not EntityState.HEALTHY
            or policy.line.turn is not None
            or careful
        ):
            flight = Flight(self, work, deadline_ms)
            return await flight.run(flight.call.start(self._now_ms()))
        outcome = work.submit(self._entity.sender, seconds)
        unanswered[outcome] = None
        try:
            await outcome.future
        except Moved:
            self._check()
            flight = Flight(self, work, deadline_ms)
            following = flight.call.adopt(self._now_ms())
        except Exception as error:  # noqa: BLE001
            flight = Flight(self, work, deadline_ms)
            work.failed(error)
            following = flight.call.fast_path_failed(
                error, self._now_ms(), round(seconds * 1000)
            )
        else:
            if self._policy.state is not EntityState.HEALTHY:
                self._pair.carry_out(policy.accepted(0, self._now_ms()))
            return True
        finally:
            del unanswered[outcome]
            if self._pair.idle is not None:
                self._pair.send_ended()
        return await flight.run(following)

    def _now_ms(self) -> int:
        return self._pair.clock.now_ms()

    def _check_headroom(self, work: SendWork) -> None:
        """Tell, once, of a message that could not fail over."""
        now_ms = self._now_ms()
        for message in work.each():
            event = self._watch.check(message, now_ms)
            if event is not None:
                self._pair.telling.tell(event)
                return


class Flight:
    """One call of send that needs the rules."""

    def __init__(
        self, route: PairedRoute, work: SendWork, deadline_ms: int | None
    ) -> None:
        self._pair = route._pair
        self._entity = route._entity
        self._check = route._check
        self._work = work
        self.call = SendCall(
            route._rules,
            self._entity.policy,
            route._choice,
            work.size_bytes,
            deadline_ms,
        )
        self.call.on_wake = self.wake
        # An attempt on the primary that has no answer yet.
        self._attempt: Outcome | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._woken = False

    def wake(self) -> None:
        """Something has changed: look again."""
        self._woken = True
        self._stir()

    def _stir(self, _: object = None) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def run(self, following: NextStep) -> bool:
        """Take step after step; says whether the primary took it in the end."""
        entity = self._entity
        entity.flights[self] = None
        try:
            while True:
                self._pair.carry_out(following.decisions)
                step = following.step
                if isinstance(step, Done):
                    return True
                if isinstance(step, GiveUp):
                    self._give_up(step)
                if isinstance(step, TryBacklog | TryOutbox):
                    following = await self._try_backlog(step)
                    if isinstance(following.step, Done):
                        self._pair.carry_out(following.decisions)
                        return False
                else:
                    following = await self._try_primary(step)
        except BaseException:
            self._pair.carry_out(self.call.cancelled())
            if self._attempt is not None:
                self._attempt.cancel()
            raise
        finally:
            del entity.flights[self]
            self._pair.send_ended()

    # -- steps -------------------------------------------------------------------------

    async def _try_primary(self, step: TryPrimary | Wait) -> NextStep:
        """Try, or go on waiting; whatever comes first is the next event."""
        pair, call = self._pair, self.call
        until_ms: int | None
        if isinstance(step, TryPrimary):
            seconds = max(step.deadline_ms - pair.clock.now_ms(), 0) / 1000
            self._attempt = self._work.submit(self._entity.sender, seconds)
            # The attempt ends by itself at its deadline.
            until_ms = step.slow_ms
        else:
            until_ms = step.until_ms
        await self._pause(until_ms)
        self._check()
        attempt, now_ms = self._attempt, pair.clock.now_ms()
        if attempt is None or not attempt.future.done():
            self._woken = False
            return call.woken(now_ms)
        self._attempt = None
        error = attempt.future.exception()
        if error is None:
            return call.primary_accepted(now_ms)
        self._work.failed(error)
        return call.primary_failed(error, now_ms)

    async def _try_backlog(self, step: TryBacklog | TryOutbox) -> NextStep:
        """Try a backlog queue, or the outbox."""
        pair, work, call = self._pair, self._work, self.call
        self._leave_attempt(diverted=True)
        outbox = pair.outbox if isinstance(step, TryOutbox) else None
        if isinstance(step, TryBacklog):
            sender = pair.backlog_sender(step.index)
        else:
            assert outbox is not None, "the rules know whether there is an outbox"
            sender = outbox.sender
        now_ms = pair.clock.now_ms()
        seconds = max(step.deadline_ms - now_ms, 0) / 1000
        try:
            path, limit = self._entity.policy.path, sender.message_bytes_max
            # Another process reads the time that it was diverted at.
            diverted = work.diverted(path, pair.clock.now().wall_ms, limit)
            await sender.send(diverted, seconds)
        except Exception as error:  # noqa: BLE001
            work.failed(error)
            self._check()
            failed = call.backlog_failed if outbox is None else call.outbox_failed
            return failed(error, pair.clock.now_ms())
        if outbox is not None:
            outbox.taken(len(diverted))
            return call.outbox_accepted()
        pair.diverted()
        if pair.telling.ledger is not None:
            pair.telling.ledger.diverted(path, [len(each) for each in diverted])
        return call.backlog_accepted(pair.clock.now_ms(), len(diverted))

    async def _pause(self, until_ms: int | None) -> None:
        """Until woken, until the attempt has an answer, or until that time."""
        attempt = self._attempt
        if self._woken or (attempt is not None and attempt.future.done()):
            return
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = None
        if until_ms is not None:
            seconds = max(until_ms - self._pair.clock.now_ms(), 0) / 1000
            timer = loop.call_later(seconds, self._stir)
        if attempt is not None:
            attempt.future.add_done_callback(self._stir)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()
            if attempt is not None:
                attempt.future.remove_done_callback(self._stir)

    def _give_up(self, step: GiveUp) -> NoReturn:
        self._leave_attempt()
        if step.timed_out:
            text = "The time for the send is over."
            raise OperationTimeout(text) from step.cause
        if step.cause is None:
            raise Disconnected("No backlog queue is left that takes messages.")
        # The same error may be raised by many sends: each has a trace of its own.
        raise step.cause.with_traceback(None)

    def _leave_attempt(self, *, diverted: bool = False) -> None:
        """The attempt goes on by itself; what becomes of it is still news.

        What was not sent yet is cancelled, or it would be a needless copy.
        """
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            if not attempt.begun:
                attempt.cancel()
            late = diverted or self.call.is_slow
            self._pair.left(self._entity, self.call.attempt, attempt.future, late)
