"""Which backlog queue takes a diverted message.

Owns the set of backlog queues that work, for all senders of a factory. A sender picks
one at random when it first diverts and stays with it. A queue that fails is out for
every sender; it is probed after a pause, which doubles until the queue has really taken
a message again, and comes back by itself. While no queue is left and calls wait for
one, queues are probed at a short pace, and the first that is back wakes the calls.
Chance comes in as a function. Knows nothing about messages, nor about how a probe is
made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from twinbus import limits
from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.pairing.rules.classification import Failure
from twinbus.pairing.rules.decisions import Decision, ProbeQueue, Tell, Wake, Wakeable
from twinbus.pairing.rules.naming import backlog_path
from twinbus.pairing.rules.retry import QUEUE_BACKOFF
from twinbus.pairing.status import QueueStatus

# Takes n, returns one of 0..n-1: `random.Random.randrange`.
Chance = Callable[[int], int]


class _RotatedQueue:
    __slots__ = ("accepted", "busy_until_ms", "cause", "failures", "probe_ms")

    def __init__(self) -> None:
        self.accepted = 0
        # It asked to be left alone until then.
        self.busy_until_ms = 0
        self.cause: BaseException | None = None
        # Since it last took a message.
        self.failures = 0
        # When it is probed; None while it is in the rotation.
        self.probe_ms: int | None = None


class Rotation:
    """The backlog queues of a factory."""

    def __init__(self, primary: str, indexes: Iterable[int], chance: Chance) -> None:
        self._primary = primary
        self._queues = {index: _RotatedQueue() for index in sorted(indexes)}
        self._chance = chance
        # Why the last queue was taken out; what a send raises when none is left.
        self.last_cause: BaseException | None = None
        # How long the last accepted send to a queue took.
        self.recent_ms = 0
        # Calls that wait for a queue, in the order in which they came.
        self._waiting: dict[Wakeable, None] = {}

    def add(self, indexes: Iterable[int]) -> list[Decision]:
        """These queues exist; those that are known already stay as they are."""
        fresh = [index for index in sorted(indexes) if index not in self._queues]
        self._queues.update((index, _RotatedQueue()) for index in fresh)
        return self._wake() if fresh else []

    def path(self, index: int) -> str:
        """The path of a queue on the secondary."""
        return backlog_path(self._primary, index)

    def is_in(self, index: int) -> bool:
        """Whether a queue may be sent to."""
        return self._queues[index].probe_ms is None

    def pick(self) -> int | None:
        """Any queue that works; None if none is left."""
        usable = [index for index in self._queues if self.is_in(index)]
        return usable[self._chance(len(usable))] if usable else None

    def accepted(self, index: int, count: int = 1) -> None:
        """A queue took messages: it is as good as new."""
        queue = self._queues[index]
        queue.accepted += count
        queue.failures = 0

    def failed(
        self, index: int, kind: Failure, cause: BaseException, now_ms: int
    ) -> list[Decision]:
        """A send to a queue failed, and neither message nor caller is to blame."""
        queue = self._queues[index]
        queue.cause = self.last_cause = cause
        if queue.probe_ms is not None:
            # Sends that were under way together fail together.
            return []
        due_ms = self._take_out(queue, now_ms, busy=kind is Failure.BUSY)
        event = PairingEvent(
            EventKind.BACKLOG_QUEUE_OUT, self.path(index), now_ms, cause
        )
        return [Tell(event), ProbeQueue(index, due_ms)]

    def probe_ended(
        self, index: int, cause: BaseException | None, now_ms: int
    ) -> list[Decision]:
        """A probe succeeded (no cause), or why not."""
        queue = self._queues[index]
        if queue.probe_ms is None:
            return []
        if cause is not None:
            queue.cause = cause
            if now_ms < queue.probe_ms:
                # It was planned before another one that is still to come.
                return []
            return [ProbeQueue(index, self._take_out(queue, now_ms))]
        queue.probe_ms = None
        event = PairingEvent(EventKind.BACKLOG_QUEUE_IN, self.path(index), now_ms)
        return [Tell(event), *self._wake()]

    def wait(self, call: Wakeable, now_ms: int) -> list[Decision]:
        """A call waits until a queue is back, and is woken then; none is left now."""
        self._waiting[call] = None
        decisions: list[Decision] = []
        for index, queue in self._queues.items():
            soon_ms = self._soon_ms(queue, now_ms)
            # One that is due already is under way.
            if queue.probe_ms is not None and queue.probe_ms > soon_ms:
                queue.probe_ms = soon_ms
                decisions.append(ProbeQueue(index, soon_ms))
        return decisions

    def _wake(self) -> list[Decision]:
        waiting, self._waiting = self._waiting, {}
        return [Wake(call) for call in waiting]

    def forget(self, call: Wakeable) -> None:
        """A call does not wait any more."""
        self._waiting.pop(call, None)

    def _take_out(
        self, queue: _RotatedQueue, now_ms: int, *, busy: bool = False
    ) -> int:
        """Take a queue out; returns when to probe it."""
        if busy:
            queue.busy_until_ms = now_ms + QUEUE_BACKOFF.pause_ms(0, busy=True)
        if self._waiting:
            # These probes are many and say no more than a few: the pause stays.
            queue.probe_ms = self._soon_ms(queue, now_ms)
        else:
            queue.failures += 1
            due_ms = now_ms + QUEUE_BACKOFF.pause_ms(queue.failures)
            queue.probe_ms = max(due_ms, queue.busy_until_ms)
        return queue.probe_ms

    @staticmethod
    def _soon_ms(queue: _RotatedQueue, now_ms: int) -> int:
        return max(now_ms + limits.QUEUE_AWAITED_PAUSE_MS, queue.busy_until_ms)

    def status(self) -> list[QueueStatus]:
        """What is known of every queue."""
        return [
            QueueStatus(
                path=self.path(index),
                index=index,
                usable=queue.probe_ms is None,
                probe_ms=queue.probe_ms,
                accepted=queue.accepted,
                last_cause=None
                if queue.cause is None
                else f"{type(queue.cause).__name__}: {queue.cause}",
            )
            for index, queue in self._queues.items()
        ]


class SenderChoice:
    """The backlog queue of one sender."""

    __slots__ = ("_index", "_rotation")

    def __init__(self, rotation: Rotation) -> None:
        self._rotation = rotation
        self._index: int | None = None

    def queue(self) -> int | None:
        """The queue to send to: always the same one, as long as it works."""
        if self._index is None or not self._rotation.is_in(self._index):
            self._index = self._rotation.pick()
        return self._index
