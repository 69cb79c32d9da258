"""A small broker in memory that can be broken on purpose.

Owns the defects that the history checker must see. Without a defect the broker keeps
every promise, and no seed may be convicted. All time is counted, none passes.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from twinbus.testing.history import QueueRules, Rules

LOCK_MS = 1000.0
MAX_DELIVERIES = 4
WINDOW_MS = 2000.0
DEAD = "/$deadletterqueue"
QUEUES = ("plain", "sessions", "unique", "fast", "topic/a", "topic/b")

_STRICT = QueueRules(
    lock_ms=LOCK_MS, max_delivery_count=MAX_DELIVERIES, strict_locks=True
)
RULES = Rules(
    default=_STRICT,
    queues={"unique": replace(_STRICT, duplicate_window_ms=WINDOW_MS)},
    routes={"topic": ("topic/a", "topic/b")},
)


@dataclass(slots=True)
class Message:
    key: str
    sequence: int
    session: str = ""
    digest: str = ""
    not_before: float = 0
    dies_at: float = float("inf")
    count: int = 0
    state: str = "active"
    token: str = ""
    lock_until: float = 0


class LockLost(Exception):
    """The lock is not held, or no longer."""


@dataclass(slots=True)
class Broker:
    """A namespace in memory. Each `has` is a place where it can be broken."""

    defect: str
    random: random.Random
    now: float = 0
    queues: dict[str, list[Message]] = field(default_factory=lambda: defaultdict(list))
    window: dict[tuple[str, str], float] = field(default_factory=dict)
    holders: dict[str, tuple[str, float]] = field(default_factory=dict)
    unsynced: list[tuple[str, Message]] = field(default_factory=list)
    removed: list[tuple[str, Message]] = field(default_factory=list)
    sequences: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    tokens: Iterator[int] = field(default_factory=itertools.count)

    def has(self, defect: str, chance: float = 1) -> bool:
        return self.defect == defect and self.random.random() < chance

    # -- sending -------------------------------------------------------------------

    def send(self, name: str, message: Message) -> None:
        for queue in RULES.destinations(name):
            if name == "topic" and self.has("fan-out misses a subscription", 0.1):
                break
            self._store(queue, replace(message))

    def _store(self, queue: str, message: Message) -> None:
        if queue == "unique":
            key = message.key
            if self.has("duplicates found by a short hash"):
                key = str(sum(key.encode()) % 16)
            fresh = self.window.get((queue, key), -1) < self.now
            if not fresh and not self.has("duplicates not found"):
                return
            if fresh:
                self.window[queue, key] = self.now + WINDOW_MS
        if self.has("accepted but dropped", 0.05):
            return
        self.sequences[queue] += 1
        message.sequence = self.sequences[queue]
        if self.has("contents mixed up", 0.05):
            message.digest = "other"
        if self.has("session mixed up", 0.1) and message.session:
            message.session = "s9"
        if self.has("stored twice", 0.05):
            self.sequences[queue] += 1
            twin = replace(message, sequence=self.sequences[queue])
            self.queues[queue].append(twin)
        if self.has("number used twice", 0.1):
            self.sequences[queue] -= 1
        if message.not_before and not self.has("schedule ignored"):
            message.state = "scheduled"
        self.queues[queue].append(message)
        self.unsynced.append((queue, message))

    def cancel(self, queue: str, key: str) -> None:
        for message in self.queues[queue]:
            if message.key == key and message.state == "scheduled":
                if not self.has("cancellation forgotten"):
                    self.queues[queue].remove(message)
                return
        raise LockLost

    # -- receiving -----------------------------------------------------------------

    def tick(self) -> None:
        """Let locks end, schedules come due and messages expire."""
        for queue, messages in list(self.queues.items()):
            for message in list(messages):
                if message.not_before and message.not_before <= self.now:
                    self._enqueue(queue, message)
                early_ms = 900 if self.has("lock ends early") else 0
                if message.token and message.lock_until - early_ms <= self.now:
                    self._free(queue, message)
                self._expire(queue, message)

    def _expire(self, queue: str, message: Message) -> None:
        early_ms = 3000 if self.has("expires too early") else 0
        mortal = message.dies_at - early_ms <= self.now
        if not mortal or message.token or queue.endswith(DEAD):
            return
        if message in self.queues[queue] and not self.has("expired but delivered"):
            self.queues[queue].remove(message)

    def _enqueue(self, queue: str, message: Message) -> None:
        """A scheduled message is appended, with a new number, when it is due."""
        message.not_before = 0
        if message.state == "scheduled":
            message.state = "active"
            self.queues[queue].remove(message)
            self.sequences[queue] += 1
            message.sequence = self.sequences[queue]
            self.queues[queue].append(message)

    def accept(self, holder: str) -> str:
        """Give a free session that has messages."""
        for message in self.queues["sessions"]:
            _, until = self.holders.get(message.session, ("", 0))
            shared = self.has("session given to two", 0.5)
            if message.state == "active" and (until <= self.now or shared):
                if until <= self.now:
                    self._free_session(message.session)
                self.holders[message.session] = (holder, self.now + LOCK_MS)
                return message.session
        raise LockLost

    def leave(self, session: str) -> None:
        if session in self.holders:
            del self.holders[session]
            self._free_session(session)

    def _free_session(self, session: str) -> None:
        for message in list(self.queues["sessions"]):
            if message.token and message.session == session:
                self._free("sessions", message)

    def receive_from(self, session: str, holder: str) -> Message | None:
        held_by, until = self.holders.get(session, ("", 0))
        if until <= self.now:
            raise LockLost
        if held_by != holder and not self.has("session open to a former holder"):
            raise LockLost
        return self.receive("sessions", session)

    def receive(self, queue: str, session: str = "") -> Message | None:
        ready = [
            message
            for message in self.queues[queue]
            if message.session == session and self._is_ready(message)
        ]
        if not ready:
            return None
        message = ready[0]
        if len(ready) > 1 and session and self.has("order not kept", 0.2):
            message = ready[1]
        message.token = f"t{next(self.tokens)}"
        message.lock_until = self.now + LOCK_MS
        if session:
            message.lock_until = self.holders[session][1]
        if not queue.endswith(DEAD):
            message.count += 2 if self.has("counted twice", 0.2) else 1
        return replace(message)

    def _is_ready(self, message: Message) -> bool:
        if message.state == "deferred":
            return self.has("deferred but delivered", 0.3)
        if message.token:
            return self.has("lock ignored", 0.2)
        return message.state == "active"

    def receive_and_delete(self, queue: str) -> Message | None:
        message = self.receive(queue)
        if message and not self.has("not deleted on receipt", 0.2):
            self._remove(queue, self._find(queue, message.token))
        elif message:
            self._free(queue, self._find(queue, message.token))
        return message

    def receive_deferred(self, queue: str, sequence: int) -> Message | None:
        for message in self.queues[queue]:
            if (message.sequence, message.state) == (sequence, "deferred"):
                message.token = f"t{next(self.tokens)}"
                message.lock_until = self.now + LOCK_MS
                message.count += 1
                return replace(message)
        return None

    # -- settling ------------------------------------------------------------------

    def settle(self, queue: str, held: Message, op: str) -> None:
        message = self._held(queue, held)
        if self.has("settlement refused", 0.1):
            raise LockLost
        if op == "complete":
            if not self.has("completed but kept", 0.1):
                self._remove(queue, message)
        elif op == "defer":
            message.token = ""
            message.state = "deferred"
            if self.has("deferral forgotten", 0.3):
                message.state = "active"
        elif op == "dead_letter":
            self._bury(queue, message)
        elif self.has("abandoned and deleted", 0.2):
            self.queues[queue].remove(message)
        else:
            self._free(queue, message, counted=op == "abandon")

    def renew(self, queue: str, held: Message) -> float:
        message = self._held(queue, held)
        if not self.has("renewal forgotten"):
            message.lock_until = self.now + LOCK_MS
        return self.now + LOCK_MS

    def renew_session(self, session: str, holder: str) -> float:
        held_by, until = self.holders.get(session, ("", 0))
        if held_by != holder or until <= self.now:
            raise LockLost
        until = self.now + LOCK_MS
        self.holders[session] = (holder, until)
        for message in self.queues["sessions"]:
            if message.session == session and message.token:
                message.lock_until = until
        return until

    def _held(self, queue: str, held: Message) -> Message:
        if held.session and self.holders.get(held.session, ("", 0))[1] <= self.now:
            raise LockLost
        if self.has("any token settles"):
            for message in self.queues[queue]:
                if message.sequence == held.sequence:
                    return message
        if self.has("next one settled", 0.2) and self.queues[queue]:
            return self.queues[queue][-1]
        return self._find(queue, held.token)

    def _find(self, queue: str, token: str) -> Message:
        for message in self.queues[queue]:
            if message.token == token:
                return message
        raise LockLost

    def _free(self, queue: str, message: Message, *, counted: bool = True) -> None:
        message.token = ""
        if not counted or self.has("not counted"):
            message.count -= 1
        limit = MAX_DELIVERIES - (1 if self.has("dead-lettered one early") else 0)
        mortal = message.state == "active" and not queue.endswith(DEAD)
        if mortal and message.count >= limit and not self.has("never dead-lettered"):
            self._bury(queue, message)

    def _bury(self, queue: str, message: Message) -> None:
        if not self.has("dead-lettered but kept"):
            self.queues[queue].remove(message)
        if not self.has("dead-lettered and lost"):
            self.sequences[queue + DEAD] += 1
            number = self.sequences[queue + DEAD]
            buried = replace(message, sequence=number, token="", state="active")
            self.queues[queue + DEAD].append(buried)

    def _remove(self, queue: str, message: Message) -> None:
        self.queues[queue].remove(message)
        self.removed.append((queue, message))

    # -- faults --------------------------------------------------------------------

    def detach(self, tokens: set[str]) -> None:
        """A client lost its link. Locks stay; a session would be freed."""
        if self.has("link lost, message dropped"):
            for messages in self.queues.values():
                messages[:] = [one for one in messages if one.token not in tokens]

    def restart(self) -> None:
        """Kill and start again. A sound broker comes back as it was."""
        for session in list(self.holders):
            self.leave(session)
        recent = {id(message) for _, message in self.unsynced[-3:]}
        for queue, messages in self.queues.items():
            if self.has("accepted before it was synced"):
                messages[:] = [one for one in messages if id(one) not in recent]
            for message in messages:
                if self.has("locks forgotten") and queue != "sessions":
                    message.token = ""
                if self.has("counts forgotten"):
                    message.count = 0
        for queue, message in self.removed[-3:]:
            if self.has("completion not synced"):
                self.queues[queue].append(replace(message, token=""))
        for queue, message in self.unsynced[-3:]:
            if self.has("log replayed twice"):
                self.sequences[queue] += 1
                again = replace(message, sequence=self.sequences[queue], token="")
                self.queues[queue].append(again)
        if self.has("window forgotten"):
            self.window.clear()
        if self.has("a message from nowhere"):
            self.queues["plain"].append(Message("ghost", 999_999))
