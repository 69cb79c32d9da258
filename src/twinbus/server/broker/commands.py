"""Commands and wants that several surfaces hand in.

A command (`turn.Command`) does something; a want (`turn.Want`) says what a consumer can
take: messages of a container, or the lock of a session. Owns the rules of taking: the
entity must be there and open to receivers, the connection must have room, and the bytes
of one turn are bounded. All of it is plain data. Knows nothing about links or HTTP.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from twinbus import limits
from twinbus.errors import (
    EntityDisabled,
    EntityNotFound,
    SessionCannotBeLocked,
    StoreFault,
    TwinbusError,
)
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.sending.letter import error_text
from twinbus.server.broker.turn import Room, Turn, answerable
from twinbus.store.base import Lock, SessionGrant
from twinbus.store.received import ReceivedMessages
from twinbus.wire.message.bundle import Bundle
from twinbus.wire.message.sections import Incoming

if TYPE_CHECKING:
    from twinbus.server.broker.namespace import Namespace


# The messages of one delivery; or a bundle, of one delivery or of several.
Given = Sequence[Incoming] | Bundle


class Send:
    """Deliveries for one entity, each of one message or a batch.

    More may be added until the host takes it. The result has the errors of those
    that were refused, by their place.
    """

    __slots__ = ("_given", "deliveries", "entity", "messages")
    # Each delivery can fail alone.
    divides = True

    def __init__(self, entity: Entity, *given: Given) -> None:
        self.entity = entity
        # How many there are.
        self.deliveries = 0
        self.messages = 0
        self._given: list[Given] = []
        for each in given:
            self.add(each)

    def add(self, given: Given) -> None:
        """Have more sent."""
        self._given.append(given)
        self.messages += len(given)
        is_run = type(given) is Bundle and not given.is_batch
        self.deliveries += len(given) if is_run else 1

    def each(self) -> Iterator[Sequence[Incoming]]:
        """The messages of each delivery."""
        for given in self._given:
            if type(given) is not Bundle:
                yield given
            elif given.is_batch:
                yield given.messages()
            else:
                yield from ([message] for message in given.messages())

    def __call__(self, namespace: Namespace, turn: Turn) -> dict[int, TwinbusError]:
        """Send all in one go; if that is refused, each delivery on its own."""
        entity = self.entity
        if namespace.entities.find(entity.key) is not entity:
            raise EntityNotFound(entity.name)
        if namespace.limits_rate(entity):
            # With a rate each must find room: they arrived together by chance.
            return self._send_each(namespace, turn)
        try:
            with namespace.part():
                self._send_all(namespace, turn)
        except StoreFault:
            raise
        except Exception as error:  # noqa: BLE001
            if self.deliveries == 1:
                return {0: answerable(error, namespace)}
            return self._send_each(namespace, turn)
        return {}

    def _send_all(self, namespace: Namespace, turn: Turn) -> None:
        entity = self.entity
        for _, group in groupby(self._given, type):
            given = list(group)
            bundles = [each for each in given if type(each) is Bundle]
            if bundles:
                namespace.send_bundles(entity, bundles, turn)
                continue
            messages = [m for each in given if type(each) is not Bundle for m in each]
            namespace.send(entity, messages, turn)

    def _send_each(self, namespace: Namespace, turn: Turn) -> dict[int, TwinbusError]:
        refused: dict[int, TwinbusError] = {}
        for place, messages in enumerate(list(self.each())):
            try:
                with namespace.part():
                    namespace.send(self.entity, messages, turn)
            except StoreFault:
                raise
            except Exception as error:  # noqa: BLE001
                refused[place] = answerable(error, namespace)
        return refused


class Unlock:
    """Give back messages that never reached their receiver, uncounted."""

    __slots__ = ("_locks",)

    def __init__(self, locks: Sequence[Lock]) -> None:
        self._locks = locks

    def __call__(self, namespace: Namespace, turn: Turn) -> None:
        namespace.unlock(self._locks, turn)


class Quarantine:
    """Set a message aside that cannot be shown to the receiver that holds it."""

    __slots__ = ("_lock", "_reason")

    def __init__(self, lock: Lock, error: Exception) -> None:
        self._lock = lock
        self._reason = error_text(error)

    def __call__(self, namespace: Namespace, turn: Turn) -> None:
        if namespace.store.holding([self._lock], turn.now)[0]:
            namespace.store.quarantine(self._lock.id, self._reason)


class UnlockSession:
    """End the lock of a session; what its receiver held counts as delivered."""

    __slots__ = ("_container", "_grant")

    def __init__(self, container: int, grant: SessionGrant) -> None:
        self._container = container
        self._grant = grant

    def __call__(self, namespace: Namespace, turn: Turn) -> None:
        namespace.unlock_session(self._container, self._grant, turn)


class SessionKey(NamedTuple):
    """What names a session among all that a connection may hold."""

    shard: int
    container: int
    name: str


# -- wants ---------------------------------------------------------------------------


class TakenMessages(NamedTuple):
    """Messages that were taken (`turn.Taken`)."""

    messages: ReceivedMessages
    # Of their locks; None if they are deleted.
    nonce: int | None = None
    # When the locks end, as receivers are told.
    until_ms: int = 0
    # As much was there as was asked for: there may be more.
    more: bool = False
    # Locks of the want's `unsettled` that have ended.
    lost: Sequence[Lock] = ()
    # Why nothing will ever be taken.
    error: TwinbusError | None = None
    # Whether others of the link got nothing, because this one had the credit.
    missed: bool = False

    def returned(self) -> Unlock | None:
        """Unlock them, uncounted; what was deleted is gone."""
        if self.nonce is None or not self.messages:
            return None
        return Unlock([Lock(stored.id, self.nonce) for stored in self.messages])


class SharedCredit:
    """How many messages several consumers of one link may take together.

    Their turns may run in different threads at the same time.
    """

    __slots__ = ("_left", "_lock", "_missed", "_taken")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left = 0
        # Those that a turn has taken and that are not on their way yet.
        self._taken = 0
        # Whether a turn got none because others had them.
        self._missed = False

    def set(self, room: int) -> None:
        """The link has room for so many."""
        with self._lock:
            self._left = max(room - self._taken, 0)

    def take(self, most: int) -> int:
        """How many of so many may be taken now."""
        with self._lock:
            count = min(most, self._left)
            self._left -= count
            self._taken += count
            if most and not count and self._taken:
                self._missed = True
            return count

    def give_back(self, count: int) -> None:
        """So many were not there, or the turn did not happen."""
        with self._lock:
            self._left += count
            self._taken -= count

    def delivered(self, count: int) -> None:
        """So many are on their way, and the link has room for as many less."""
        with self._lock:
            self._taken -= count

    def was_missed(self) -> bool:
        """Whether a turn got none since this was last asked: it has to look again."""
        with self._lock:
            missed, self._missed = self._missed, False
            return missed

    @property
    def is_waiting(self) -> bool:
        """Whether some are taken and not on their way yet."""
        return self._taken > 0


class _HeldCredit:
    """What one turn has of an credit."""

    __slots__ = ("_count", "_credit")

    def __init__(self, credit: SharedCredit, count: int) -> None:
        self._credit = credit
        self._count = count

    def keep(self, count: int) -> None:
        """No more than so many are needed."""
        self._credit.give_back(self._count - count)
        self._count = count

    def give_back(self) -> None:
        """None are needed."""
        self.keep(0)


@dataclass(slots=True)
class MessageWant:
    """Messages of a container (`turn.Want`)."""

    key: int
    container: int
    entity: Entity
    room: Room
    limit: int
    # The session that they must belong to.
    grant: SessionGrant | None = None
    # Receive and delete: gone when taken.
    deletes: bool = False
    # Whether the consumer waits for an answer, also if nothing is there.
    answer_empty: bool = False
    # Locks of its deliveries, if there are too many of them: those that have ended make
    # room for others.
    unsettled: Sequence[Lock] = ()
    # When they were looked at; once a second is enough.
    looked_ms: int | None = None
    # What it may take together with other wants of its link.
    shared_credit: SharedCredit | None = None

    def take(
        self, namespace: Namespace, turn: Turn, share: int
    ) -> TakenMessages | None:
        """Lock or remove what is ready."""
        error = _obstacle(namespace, self.entity)
        if error is not None:
            return TakenMessages(ReceivedMessages(), error=error)
        if self.room.closed:
            # First noted, then looked at again: the connection may open the room at the
            # same time, in another thread.
            self.room.passed_over[namespace.shard, self.container] = None
            if self.room.closed:
                return None
        lost = self._lost(namespace, turn)
        if lost:
            return TakenMessages(ReceivedMessages(), lost=lost, more=True)
        limit = min(share, self.limit)
        if limit > 0:
            limit = self._fitting(namespace, turn, limit)
            if limit == 0:
                turn.again[self.container] = None
                return None
        if self.shared_credit is None:
            taken = self._take(namespace, turn, limit)
        else:
            allowed = self._take_allowed(namespace, turn, limit, self.shared_credit)
            if allowed is None:
                return None
            taken = allowed
            if not taken.messages and self.shared_credit.was_missed():
                # The link lets the others look again.
                return TakenMessages(ReceivedMessages(), more=True, missed=True)
        return taken if taken.messages or self.answer_empty else None

    def _take_allowed(
        self, namespace: Namespace, turn: Turn, limit: int, credit: SharedCredit
    ) -> TakenMessages | None:
        """Take no more than the others of the link have left."""
        allowed = credit.take(limit)
        if allowed == 0 and credit.is_waiting:
            # Asked again when those are on their way.
            return None
        kept = _HeldCredit(credit, allowed)
        # If the turn does not happen, none were taken.
        namespace.undo_log.note(kept.give_back)
        taken = self._take(namespace, turn, allowed)
        kept.keep(len(taken.messages))
        return taken

    def refused(self, error: TwinbusError) -> TakenMessages:
        """Nothing was taken, and nothing will be."""
        return TakenMessages(ReceivedMessages(), error=error)

    def _lost(self, namespace: Namespace, turn: Turn) -> Sequence[Lock]:
        """Those of `unsettled` that have ended."""
        locks = self.unsettled
        steady_ms = turn.now.steady_ms
        if not locks or (
            self.looked_ms is not None
            and steady_ms - self.looked_ms < limits.LOST_LOCKS_LOOK_MS
        ):
            return ()
        self.looked_ms = steady_ms
        held = namespace.store.holding(locks, turn.now)
        return [lock for lock, ok in zip(locks, held, strict=True) if not ok]

    def _fitting(self, namespace: Namespace, turn: Turn, limit: int) -> int:
        """How many of `limit` messages the connection has memory for in this turn."""
        counts = namespace.store.counts(self.container)
        left_bytes = limits.STAGE_BYTES_MAX - turn.taken_bytes.get(self.room, 0)
        if counts.size_bytes <= left_bytes:
            return limit
        if left_bytes <= 0:
            return 0
        held = counts.active + counts.deferred + counts.scheduled
        average_bytes = counts.size_bytes // max(held, 1)
        return min(limit, max(left_bytes // max(average_bytes, 1), 1))

    def _take(self, namespace: Namespace, turn: Turn, limit: int) -> TakenMessages:
        if limit == 0:
            return TakenMessages(ReceivedMessages())
        store = namespace.store
        now = turn.now
        grant = self.grant
        nonce: int | None = None
        until_ms = now.steady_ms
        if self.deletes:
            messages = store.take(self.container, limit, now, grant)
        else:
            until_ms = (
                until_ms + self.entity.lock_ms if grant is None else grant.until_ms
            )
            nonce, messages = store.lock(self.container, limit, until_ms, now, grant)
        if messages:
            store.touch(self.container, now)
            self.entity.count("delivered", len(messages), namespace.undo_log)
            taken_bytes = turn.taken_bytes
            taken_bytes[self.room] = taken_bytes.get(self.room, 0) + messages.size_bytes
            turn.left -= len(messages)
        more = len(messages) == limit
        return TakenMessages(messages, nonce, now.shown(until_ms), more)


class TakenSession(NamedTuple):
    """A session that was locked, or why it cannot be (`turn.Taken`)."""

    container: int
    grant: SessionGrant | None
    error: TwinbusError | None = None
    # When the lock ends, as the receiver is told.
    until_ms: int = 0

    def returned(self) -> UnlockSession | None:
        """Unlock it."""
        if self.grant is None:
            return None
        return UnlockSession(self.container, self.grant)


@dataclass(slots=True)
class SessionWant:
    """The lock of a session, by its name or of the next one with messages."""

    key: int
    container: int
    entity: Entity
    name: str | None

    def refused(self, error: TwinbusError) -> TakenSession:
        """No session was locked."""
        return TakenSession(self.container, None, error)

    def take(self, namespace: Namespace, turn: Turn, share: int) -> TakenSession | None:
        """Lock the session."""
        del share
        error = _obstacle(namespace, self.entity, disabled=False)
        if error is not None:
            return TakenSession(self.container, None, error)
        # A holder whose time is over must be told before another takes its place.
        namespace.ticker.end_sessions(turn)
        now = turn.now
        until_ms = now.steady_ms + self.entity.lock_ms
        grant = namespace.store.accept_session(self.container, self.name, until_ms, now)
        if grant is not None:
            namespace.store.touch(self.container, now)
            shown_ms = now.shown(until_ms)
            return TakenSession(self.container, grant, until_ms=shown_ms)
        if self.name is None:
            return None
        held = SessionCannotBeLocked(
            f"The session '{self.name}' is held by another receiver."
        )
        return TakenSession(self.container, None, held)


def _obstacle(
    namespace: Namespace, entity: Entity, *, disabled: bool = True
) -> TwinbusError | None:
    """Why nothing can be received from an entity; None if it can."""
    if namespace.entities.find(entity.key) is not entity:
        return EntityNotFound(entity.name)
    if disabled and not entity.description.status.can_receive:
        return EntityDisabled(f"'{entity.name}' is disabled.")
    if namespace.faults is not None:
        return namespace.faults.check_receive(entity.key)
    return None
