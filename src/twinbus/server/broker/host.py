"""Collect, commit, hand out: the loop that carries a shard of a namespace.

Connections hand in commands and say what they can take. A turn gathers all that have
arrived and runs them in one transaction (`turn.py`), on the event loop. Then the host
commits in a thread (one long sync, without the interpreter's lock) and only after that
hands out replies, deliveries and effects. What arrives meanwhile waits for the next
turn. Each of several shards has a host, and turns in a thread: a disk that hangs does
not hold up the others. What is acknowledged is on disk, and one sync serves all.

If the store fails, nothing of the turn happened: every command in it fails, and the
host refuses what comes until `Store.recover` says that writing works again.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from twinbus import limits
from twinbus.clock import Clock
from twinbus.errors import Bug, StoreFault, TwinbusError
from twinbus.server.broker.clients import (
    ClaimHolder,
    Consumer,
    EntityLinks,
    SessionHolder,
)
from twinbus.server.broker.commands import Send
from twinbus.server.broker.crossing.mover import Mover
from twinbus.server.broker.crossing.recovery import Recovery, SlowTurn
from twinbus.server.broker.crossing.spool import ShardSpool
from twinbus.server.broker.faults import Faults
from twinbus.server.broker.load.counters import COMMANDS, SECONDS, Histogram
from twinbus.server.broker.load.facets import Load
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.namespace_clock import NamespaceClock
from twinbus.server.broker.nodes import as_effects, run_among_nodes, tick_seconds_max
from twinbus.server.broker.store_thread import StoreThread
from twinbus.server.broker.submissions import (
    UNHEARD,
    Awaited,
    CommandOwner,
    InHand,
    Reply,
    Submission,
    Waiting,
    WithAnswers,
)
from twinbus.server.broker.timers import IdleTimer, LoopTimer
from twinbus.server.broker.turn import Command, Taken, Turn, TurnOutcome, Want, Work
from twinbus.store.base import Store, entity_of
from twinbus.store.nodes import News

log = logging.getLogger("twinbus.host")

T = TypeVar("T")


class Host:
    """Runs one shard of a namespace."""

    def __init__(
        self,
        namespace: Namespace,
        clock: Clock,
        reopen: Callable[[], Store] | None = None,
    ) -> None:
        self.namespace = namespace
        # All hosts of the namespace, by the numbers of their shards.
        self.hosts: Sequence[Host] = (self,)
        # Entities that are made now: the shard of each, and how many ask for it.
        self.making: dict[str, tuple[int, int]] = {}
        # What carries parcels between them.
        self.mover: Mover | None = None
        # Keeps sends while this shard is sick; None if there is no other one.
        self.spool: ShardSpool | None = None
        # Tells this start from every other; not a secret.
        self.instance = secrets.token_hex(8)
        self.clock = NamespaceClock(clock, namespace.store, namespace.name)
        # What tokens end by. Where a test moves the clock, clients do not know of it.
        self.token_clock = clock
        self.turns = 0
        self.pending = Waiting()
        # When time has something to do next, as the last turn found.
        self.next_tick_ms: int | None = None
        # Called when the last of too many waiting commands is gone.
        self.on_room: list[Callable[[], None]] = []
        self.turn_commands = Histogram(COMMANDS)
        self.turn_seconds = Histogram(SECONDS)
        self.commit_seconds = Histogram(SECONDS)
        self.load = Load()
        # Told when turns fail again and again.
        self.on_broken: Callable[[str], None] = lambda _text: None
        # Links that hold a session's lock, by container and nonce.
        self.session_holders: dict[tuple[int, int], SessionHolder] = {}
        # Connections and requests that have claims.
        self.claim_holders: set[ClaimHolder] = set()
        self._loop = asyncio.get_running_loop()
        self.answers = WithAnswers(self._loop)
        self._thread = StoreThread(f"commit-{namespace.name}")
        # Those that wait for a rehearsed fault, which is all of their waiting.
        self._delayed: dict[Submission, asyncio.TimerHandle] = {}
        self._consumers: dict[int, Consumer] = {}
        self._consumer_keys = itertools.count(1)
        # How many consumers each container has.
        self._in_use = namespace.in_use = Counter[int]()
        self._wants: dict[int, dict[int, Want]] = {}
        self._to_serve: dict[int, None] = {}
        self.links = EntityLinks()
        self.fault: StoreFault | None = None
        self._turn: InHand | None = None
        self._undoing: asyncio.Task[None] | None = None
        self._after_turn: list[Callable[[], object]] = []
        self.recovery = Recovery(self, reopen)
        self._scheduled = self._closing = False
        self._timer = LoopTimer(self._loop)
        self._idle_timer = IdleTimer(self._loop, self._checkpoint)
        self._tick_due = True
        # How many messages were in quarantine after the last turn.
        self._quarantined = namespace.store.quarantined()

    @property
    def name(self) -> str:
        if len(self.hosts) == 1:
            return self.namespace.name
        return f"{self.namespace.name}, shard {self.namespace.shard}"

    @property
    def faults(self) -> Faults | None:
        """What is rehearsed; None on a server without `--faults`."""
        return self.namespace.faults

    @property
    def in_thread(self) -> bool:
        """Whether turns run in the commit's thread.

        So a shard that hangs holds up no other one. A single one is faster on the loop,
        unless it waits for a network.
        """
        return len(self.hosts) > 1 or self.namespace.store.is_remote

    # -- commands ----------------------------------------------------------------------

    def submit(
        self,
        command: Command[T],
        reply: Reply[T],
        size_bytes: int = 0,
        owner: CommandOwner | None = None,
    ) -> Submission:
        """Hand in a command of a client; its reply is told how it ended."""
        submission = Submission(command, reply, size_bytes, owner)
        if self.spool is not None and self.spool.takes_over(submission):
            return submission
        if self.fault is not None:
            submission.taken = True
            reply.failed(self.fault)
            return submission
        key = command.entity.key if isinstance(command, Send) else ""
        if self.faults is not None and (delay := self.faults.delay_seconds(key)):
            timer = self._loop.call_later(delay, self.queue, submission)
            self._delayed[submission] = timer
        else:
            self.queue(submission)
        return submission

    def hurry(self) -> None:
        """Commands that a rehearsed fault lets wait need wait no longer."""
        for submission, timer in list(self._delayed.items()):
            timer.cancel()
            self.queue(submission)

    def queue(self, submission: Submission) -> None:
        """Let the next turn have a command."""
        submission.host = self
        self._delayed.pop(submission, None)
        self.pending.add(submission)
        self.wake()

    async def run(self, command: Command[T], size_bytes: int = 0) -> T:
        """Do something in a turn; returns when it is on disk."""
        reply: Awaited[T] = Awaited(self._loop.create_future())
        self.submit(command, reply, size_bytes)
        return await reply.future

    def grow(self, submission: Submission, size_bytes: int) -> None:
        """A command that waits has taken more in."""
        submission.size_bytes += size_bytes
        if submission.host is not None:
            submission.host.pending.size_bytes += size_bytes

    @property
    def crowded(self) -> bool:
        """Whether so much waits that no more should be read."""
        return self.pending.size_bytes > limits.PENDING_BYTES_MAX

    # -- consumers ---------------------------------------------------------------------

    def add_consumer(self, container: int, consumer: Consumer) -> int:
        """Let a receiver take part; returns the key that its wants carry."""
        key = next(self._consumer_keys)
        self._consumers[key] = consumer
        self._in_use[container] += 1
        return key

    def remove_consumer(self, container: int, key: int) -> None:
        """Forget a receiver and its want; what is being taken for it goes back."""
        if self._consumers.pop(key, None) is None:
            return
        self.unwant(container, key)
        self._in_use[container] -= 1
        if not self._in_use[container]:
            del self._in_use[container]

    def want(self, want: Want) -> None:
        """Note what a receiver can take now, in place of what it wanted before."""
        self._wants.setdefault(want.container, {})[want.key] = want
        self.serve_soon(want.container)
        if self.fault is not None:
            self._loop.call_soon(self._refuse, want)

    def unwant(self, container: int, key: int) -> None:
        """A receiver can take nothing for now."""
        wants = self._wants.get(container)
        if wants is not None:
            wants.pop(key, None)
            if not wants:
                del self._wants[container]

    def serve_soon(self, container: int) -> None:
        """Let the next turn look at the wants of that container."""
        self._to_serve[container] = None
        self.wake()

    def after_turn(self, call: Callable[[], object]) -> None:
        """Call when the turn in hand is handed out; at once, if there is none.

        What the turn has taken for a consumer that goes meanwhile is back by then.
        """
        if self._turn is None:
            call()
        else:
            self._after_turn.append(call)

    async def turn_over(self) -> None:
        """Wait until the turn in hand, if there is one, is handed out."""
        over = asyncio.Event()
        self.after_turn(over.set)
        await over.wait()

    # -- a turn ------------------------------------------------------------------------

    def wake(self) -> None:
        """Make sure that a turn comes."""
        if not self._scheduled and not self._closing:
            self._scheduled = True
            if self._turn is None:
                start: Callable[[], object] = self._start_turn
                if self.pending.size_bytes < limits.TURN_BYTES_ENOUGH:
                    # What was sent together comes with one more look at the sockets.
                    start = partial(self._loop.call_soon, start)
                self._loop.call_soon(start)

    def tick(self) -> None:
        """Time has passed: the next turn looks at it."""
        self._tick_due = True
        self.wake()

    @property
    def is_looking_at_time(self) -> bool:
        """Whether the turn in hand, or the next one, looks at the time."""
        return self._tick_due or (self._turn is not None and self._turn.work.tick)

    async def close(self) -> None:
        """Finish the turn in hand and stop."""
        self._closing = True
        self._timer.cancel()
        await self.turn_over()
        self._idle_timer.cancel()
        await self.recovery.close()
        for submission in self.pending.take_all():
            submission.reply.failed(StoreFault("The server is shutting down."))
        await self.in_place(self.namespace.store.close)
        self._thread.stop()

    def _start_turn(self) -> None:
        if self._turn is not None or self._closing:
            return
        self._scheduled = False
        seconds = self.pending.pause_seconds(self._loop.time())
        if seconds and not self._to_serve:
            self._timer.set(seconds, self.wake)
        elif self.fault is None:
            try:
                self._run_turn()
            finally:
                if self._turn is None:
                    self._set_timer()

    def _run_turn(self) -> None:
        """Collect and run a turn, and have it committed."""
        submissions, work = self._collect()
        told = self._take_in_hand(submissions, work)
        if self.in_thread:
            self._thread.call(lambda: self._commit(self.run_turn(work)), told)
            return
        try:
            outcome = self.run_turn(work)
        except BaseException as error:  # noqa: BLE001
            told(error)
        else:
            self._thread.call(partial(self._commit, outcome), told)
            # Clients are read from while it is committed.
            self._put_back(submissions, outcome)
            self._tell_room()

    def _take_in_hand(
        self, submissions: list[Submission], work: Work
    ) -> Callable[[tuple[TurnOutcome, float] | BaseException | None], None]:
        """Let no other turn begin before the end of this one is told."""
        is_sick = partial(self.recovery.too_slow, submissions)
        watch = SlowTurn(is_sick) if self.in_thread else None
        self._turn = InHand(submissions, work, self._loop.time(), watch)
        return partial(self._transacted, self._turn)

    def _checkpoint(self) -> bool:
        """Write the log of the store away in the place of a turn, if none comes."""
        if self._turn is not None or self._scheduled or self._closing or self.fault:
            return False
        told = self._take_in_hand([], Work(self.clock.now()))
        self._thread.call(self.namespace.store.checkpoint, told)
        return True

    def _commit(self, outcome: TurnOutcome) -> tuple[TurnOutcome, float]:
        """Commit; adds the seconds. The loop's time has whole milliseconds only."""
        committing = time.monotonic()
        self.namespace.store.commit()
        return outcome, time.monotonic() - committing

    def _transacted(
        self, turn: InHand, result: tuple[TurnOutcome, float] | BaseException | None
    ) -> None:
        """A turn is on disk, or has failed; None after a checkpoint."""
        if turn.watch is not None:
            turn.watch.cancel()
        if isinstance(result, BaseException):
            self._undoing = self._loop.create_task(self._undo(turn, result))
            return
        try:
            if result is not None:
                self._committed(turn, *result)
        finally:
            self._over()

    def _committed(self, turn: InHand, outcome: TurnOutcome, seconds: float) -> None:
        with self.answers:
            self._hand_out(turn.submissions, outcome)
        # After the answers, which wait for nothing else.
        now = self._loop.time()
        self.pending.note(turn.submissions, outcome, turn.started, now)
        self.turn_seconds.observe(now - turn.started)
        self.commit_seconds.observe(seconds)
        self.load.committed(seconds)
        self.recovery.note_success(turn.work)
        self._idle_timer.note(outcome.costs)

    def _over(self) -> None:
        """No turn is in hand: what has waited for that goes on."""
        self._turn = None
        is_wanted, self._scheduled = self._scheduled, False
        if self.fault is not None:
            # It failed or was too slow, and has to prove that it is well.
            self.recovery.later()
        elif self.spool is not None:
            self.spool.look_at_disk()
        self._tell_room()
        waiting, self._after_turn = self._after_turn, []
        for call in waiting:
            self._tell(call)
        self._set_timer()
        if is_wanted:
            self.wake()

    def _collect(self) -> tuple[list[Submission], Work]:
        waited_bytes = self.pending.size_bytes
        submissions = self.pending.take(self._loop.time())
        to_serve, self._to_serve = self._to_serve, {}
        self.load.took(submissions, waited_bytes - self.pending.size_bytes)
        is_due, is_quick = self._tick_due, self.pending.is_quick
        tick, self._tick_due = is_due and not is_quick, is_due and is_quick
        if is_quick:
            self.wake()
        self.turns += 1
        self.turn_commands.observe(len(submissions))
        for submission in submissions:
            submission.taken = True
        commands = [submission.command for submission in submissions]
        work = Work(self.clock.now(), commands, tick, to_serve, self._wants)
        return submissions, work

    async def in_place(self, work: Callable[[], T]) -> T:
        """Do something with the store where turns run."""
        if self.in_thread:
            return await self._thread.run(work)
        return work()

    def run_turn(self, work: Work) -> TurnOutcome:
        """Run a turn, and leave its transaction open."""
        return run_among_nodes(self.namespace, self.clock, work)

    def hear(self, news: News) -> None:
        """Another node has done something that concerns clients of this one."""
        self._hand_out_effects(as_effects(news, Turn(self.clock.now()), self._wants))
        if news.directory:
            self.wake()

    # -- what a turn brought about -----------------------------------------------------

    def _hand_out(self, submissions: list[Submission], outcome: TurnOutcome) -> None:
        """The turn is on disk: tell everyone who waits for a part of it."""
        self.namespace.undo_log.clear()
        self.next_tick_ms = outcome.next_tick_ms
        self._tell_quarantined()
        self._put_back(submissions, outcome)
        for submission, answer in zip(submissions, outcome.answers, strict=False):
            self._answer(submission, answer)
        for want, taken in outcome.deliveries:
            self._deliver(want, taken)
        self._hand_out_effects(outcome.effects)
        if outcome.tick_again:
            self.tick()
        if self.mover is not None and outcome.carries:
            self.mover.look(self)

    def _answer(self, submission: Submission, answer: Any) -> None:
        """Tell a client how its command ended, once."""
        if submission.answered:
            return
        submission.answered = True
        reply = submission.reply
        is_error = isinstance(answer, TwinbusError)
        self._tell(reply.failed if is_error else reply.done, answer)

    def _put_back(self, submissions: list[Submission], outcome: TurnOutcome) -> None:
        """Those that did not fit into the turn come first in the next one."""
        done = len(outcome.answers)
        left = [each for each in submissions[done:] if not each.answered]
        del submissions[done:]
        if left:
            self.pending.put_back(left)
            self.wake()

    def _tell_quarantined(self) -> None:
        count = self.namespace.store.quarantined()
        if count > self._quarantined:
            text = "%d messages of %s cannot be read and are quarantined, %d in all"
            log.error(text, count - self._quarantined, self.namespace.name, count)
        self._quarantined = count

    def _deliver(self, want: Want, taken: Taken) -> None:
        wants = self._wants.get(want.container)
        if wants is not None and wants.get(want.key) is want:
            self.unwant(want.container, want.key)
        consumer = self._consumers.get(want.key)
        if consumer is not None:
            self._tell(consumer.deliver, want, taken)
        else:
            self.give_back(taken)

    def give_back(self, taken: Taken) -> None:
        """What was taken for a client that is gone goes back."""
        command = taken.returned()
        if command is not None:
            self.submit(command, UNHEARD)

    def _hand_out_effects(self, effects: Turn) -> None:
        for session in effects.ended_sessions:
            self._lose_session((session.container, session.nonce))
        if effects.emptied:
            emptied = set(effects.emptied)
            for key in list(self.session_holders):
                if key[0] in emptied:
                    self._lose_session(key)
        for entity in effects.deleted:
            self._detach_all(entity)
        if effects.rules_changed:
            for claim_holder in list(self.claim_holders):
                self._tell(claim_holder.rules_changed)
        if effects.again:
            # They have waited longer than those that were noted meanwhile.
            self._to_serve = dict.fromkeys([*effects.again, *self._to_serve])
            self.wake()

    def _lose_session(self, key: tuple[int, int]) -> None:
        holder = self.session_holders.pop(key, None)
        if holder is not None:
            self._tell(holder.session_lost)

    def _detach_all(self, entity: int) -> None:
        """An entity is gone, and so are the links to it."""
        for link in self.links.pop(entity):
            self._tell(link.entity_deleted)
        # Consumers without a link find out when their wants are looked at.
        gone = [key for key in self._wants if entity_of(key) == entity]
        self._to_serve.update(dict.fromkeys(gone))
        self.wake()

    def _tell(self, call: Callable[..., object], *arguments: Any) -> None:
        """Call one receiver of news; a defect in it must not keep it from others."""
        try:
            call(*arguments)
        except Exception:
            log.exception("a client of %s could not be told", self.namespace.name)

    def _tell_room(self) -> None:
        """Connections that waited because of the crowd may read again."""
        if self.on_room and not self.crowded:
            waiting, self.on_room = self.on_room, []
            for resume in waiting:
                resume()

    # -- time --------------------------------------------------------------------------

    def _set_timer(self) -> None:
        """Look at the time soon enough; a look that comes earlier is not put off."""
        seconds = tick_seconds_max(self.namespace.store)
        if self.next_tick_ms is not None:
            wait_seconds = (self.next_tick_ms - self.clock.now_ms()) / 1000
            seconds = min(max(wait_seconds, limits.TICK_SECONDS_MIN), seconds)
        if self._closing or self.fault is not None:
            self._timer.cancel()
        elif not self._timer.is_due_within(seconds):
            self._timer.set(seconds, self.tick)

    # -- faults ------------------------------------------------------------------------

    async def _undo(self, turn: InHand, error: BaseException) -> None:
        """Nothing of the turn happened."""
        try:
            if isinstance(error, StoreFault):
                log.error("store of %s stopped: %s", self.name, error.text)
                await self.recovery.roll_back()
                self.refuse_all(error, turn.submissions)
                return
            log.error("a turn of %s failed", self.namespace.name, exc_info=error)
            self.recovery.note_failure(error, turn.work)
            await self.recovery.roll_back()
            text = f"The server failed ({type(error).__name__}). Its log says more."
            for submission in turn.submissions:
                self._answer(submission, Bug(text))
            # All wants are looked at again; not at once, in case it fails again.
            self._to_serve.update(dict.fromkeys(self._wants))
            self._loop.call_later(limits.TICK_SECONDS_MIN, self.wake)
        finally:
            self._over()

    def resume(self) -> None:
        """The store takes writes again."""
        self.fault = None
        self.namespace.is_stopped = False
        self._tick_due = True
        self._to_serve.update(dict.fromkeys(self._wants))
        self.wake()

    def use_store(self, store: Store) -> None:
        """The store could be opened at last."""
        self.namespace.use_store(store)
        self.clock.use_store(store)
        self._quarantined = store.quarantined()

    def refuse_all(self, fault: StoreFault, submissions: list[Submission]) -> None:
        """Answer all that waits: the shard is sick. Sends that can be are spooled."""
        self.fault = fault
        self.namespace.is_stopped = True
        if self.spool is not None:
            self.spool.begin()
        for submission in submissions:
            self._answer(submission, fault)
        for submission in self.pending.take_all():
            if self.spool is None or not self.spool.takes_over(submission):
                submission.taken = True
                self._answer(submission, fault)
        for wants in list(self._wants.values()):
            for want in list(wants.values()):
                self._refuse(want)
        self._tell_room()

    def _refuse(self, want: Want) -> None:
        """No turn looks at a want while the shard is sick; its consumer decides."""
        consumer = self._consumers.get(want.key)
        if consumer is not None and self.fault is not None:
            self._tell(consumer.store_failed, self.fault)
