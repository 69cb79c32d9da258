"""What all parts of a store share: the moves of messages.

Owns the rules that tie rows together, each in one place:

* A message in `returned` is active, unlocked and at or below its container's head.
  Every other ready message is above the head.
* A session's `head` is at or below which none of its messages is ready; it is 0 while
  the session is not locked.
* All unlocked messages expire after `_passed_over_ms`: those before are held by
  receivers and were passed over by `expired`. So they are not looked at repeatedly.
* A receive passes over expired messages, and the heads move past them. No receive has
  seen a wall time after `_seen_wall_ms`: when the clock is set back, those that have
  not expired any more are listed in `returned`. It is kept, or a bound of it, because
  the clock may be set back while the store is closed.
* A lock with the end `FOREVER_MS` is held as long as its session is, any other until
  its own end.

A database gives the statements (`_sql`) and the ways to run them; it owns the
transaction. Knows nothing of the reasons for a move: those are in the modules that
build on it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from twinbus.errors import TwinbusError
from twinbus.store.base import (
    FOREVER_MS,
    SEQUENCE_BITS,
    SEQUENCE_MASK,
    EndedLock,
    Lock,
    State,
    Stored,
    is_sub_queue,
)
from twinbus.store.tables.containers import Containers
from twinbus.store.tables.old_values import OldValues
from twinbus.store.tables.outbox_counters import OutboxCounters

# The files that a database has its statements in.
TOPICS = (
    "containers",
    "entities",
    "locks",
    "messages",
    "outbox",
    "quarantine",
    "sessions",
    "times",
)

# The setting with the wall time that receives have seen.
SEEN = "seen"

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="Rows")


class Leaving(NamedTuple):
    """A message that goes, as far as the counters need to know it."""

    id: int
    state: int
    session: str | None
    size_bytes: int


class Hold(NamedTuple):
    """A row of `lock` and what is needed of its message."""

    id: int
    nonce: int
    until_ms: int
    state: int
    session: str | None
    size_bytes: int
    deliveries: int
    expires_ms: int | None


# Where rows have text.
STORED_TEXTS = (Stored._fields.index("session"), Stored._fields.index("source"))
HOLD_TEXTS = (Hold._fields.index("session"),)
LEAVING_TEXTS = (Leaving._fields.index("session"),)


def guarded(
    method: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[S, P], R]:
    """Turn every error of the database into one of ours (`Rows._failed`)."""

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self, *args, **kwargs)
        except self._driver_error as error:
            raise self._failed(error) from error

    return call


# As `Stored._make`, but without a Python call for each row.
_as_stored: Callable[[Any], Stored] = partial(tuple.__new__, Stored)


class Rows(ABC):
    """The moves that several parts of the store need."""

    # What the driver of the database raises.
    _driver_error: type[Exception]
    # The statements, by name.
    _sql: Mapping[str, str]
    # Run a statement with its parameters; returns a cursor.
    _run: Callable[..., Any]
    # Insert rows: a statement, and the parameters of each row.
    _insert: Callable[..., object]

    def __init__(self, new_nonce: Callable[[], int]) -> None:
        self._new_nonce = new_nonce
        self._old = OldValues()
        self._containers = Containers(self._old)
        self._outbox = OutboxCounters(self._old)
        # What the last was before this transaction set it back.
        self._set_back_from_ms = -FOREVER_MS
        self._seen_wall_ms = -FOREVER_MS
        self._passed_over_ms = -FOREVER_MS
        # How many messages are in quarantine, and whether that must be counted again.
        self._quarantined = 0
        self._quarantine_changed = False

    # -- what a database gives -------------------------------------------------

    @abstractmethod
    def _failed(self, error: Any) -> TwinbusError:
        """What an error means: the store stops, or a row is not as it should be."""

    @abstractmethod
    def _changes(self, query: str, at: Any) -> int:
        """Run a statement; returns how many rows it has changed."""

    @abstractmethod
    def _ids(self, ids: Iterable[int]) -> Any:
        """Many ids as one parameter of a query."""

    @abstractmethod
    def _fetch(self, query: str, at: Any, texts: Sequence[int]) -> list[Any]:
        """The rows of a query whose first column is the id of a message.

        `texts` are the columns that have text: a database that may hold text which
        cannot be read puts such rows into quarantine.
        """

    def _unpack(self, ids: Iterable[int]) -> None:
        """Give messages rows of their own, where a database keeps some in another way.

        Called before a row is looked for by its id.
        """
        del ids

    # -- life ------------------------------------------------------------------

    def _forget_looks(self) -> None:
        """What was found out about expired messages may have been undone."""
        self._passed_over_ms = -FOREVER_MS
        self._seen_wall_ms = max(self._seen_wall_ms, self._set_back_from_ms)

    def _load_seen(self, row: tuple[str] | None) -> None:
        """Start from the row of the setting `SEEN`.

        Earlier versions had none, and had to do with when a container was used.
        """
        used_ms = self._containers.last_accessed_ms()
        self._seen_wall_ms = used_ms if row is None else int(row[0])

    def _count_quarantined(self) -> None:
        (self._quarantined,) = self._run(self._sql["quarantined"]).fetchone()
        self._quarantine_changed = False

    # -- reading ---------------------------------------------------------------

    def _stored(self, query: str, at: Any) -> list[Stored]:
        """The rows of a query with the columns of `Stored`."""
        return list(map(_as_stored, self._fetch(query, at, STORED_TEXTS)))

    @guarded
    def quarantine(self, id: int, reason: str) -> None:
        self._unpack([id])
        for query in ("quarantine_message", "quarantine_scheduled"):
            self._run(self._sql[query], (reason, id))
        row = self._run(self._sql["quarantined_counters"], (id,)).fetchone()
        if row is None or not self._containers.has(id >> SEQUENCE_BITS):
            return
        self._quarantine_changed = True
        state, size_bytes, in_session = row
        container = self._containers.change(id >> SEQUENCE_BITS)
        array = self._ids([id])
        for query in ("messages", "scheduled", "locks", "returned"):
            self._run(self._sql[f"delete_{query}"], (array,))
        self._discount([Leaving(id, state, None, size_bytes)])
        if in_session:
            self._leave_session(container.id, id, state == State.ACTIVE)

    def _leave_session(self, container: int, id: int, is_active: bool) -> None:
        """Take a message in quarantine out of the counters of its session."""
        fewer = (int(is_active), container, id)
        if self._changes(self._sql["lower_quarantined_session"], fewer) == 0:
            # The name is damaged: it is unknown which session has a message less.
            first = container << SEQUENCE_BITS
            ids = {"first": first, "last": first | SEQUENCE_MASK}
            self._run(self._sql["recount_sessions"], {**ids, "container": container})
        self._run(self._sql["drop_empty_sessions"], (container,))

    def quarantined(self) -> int:
        return self._quarantined

    # -- locks -----------------------------------------------------------------

    def _holds(self, locks: Sequence[Lock], steady_ms: int) -> list[Hold | None]:
        """What each lock holds; None if it is not held, or was named before.

        Any number may come as an id or a nonce: they are what a client sent.
        """
        wanted = [lock.id for lock in locks]
        self._unpack(wanted)
        rows = self._fetch(self._sql["holds"], (self._ids(wanted),), HOLD_TEXTS)
        there = {row[0]: row for row in rows}
        sessions: dict[tuple[int, str | None], int | None] = {}
        holds: list[Hold | None] = []
        for message_id, nonce in locks:
            row = there.pop(message_id, None)
            if row is None or row[1] != nonce or row[2] <= steady_ms:
                holds.append(None)
                if row is not None:
                    there[message_id] = row
                continue
            hold = Hold._make(row)
            if hold.until_ms == FOREVER_MS:
                key = (message_id >> SEQUENCE_BITS, hold.session)
                if key not in sessions:
                    sessions[key] = self._holder(*key, steady_ms)
                if sessions[key] != nonce:
                    holds.append(None)
                    continue
            holds.append(hold)
        return holds

    def _locked(self, ids: Sequence[int]) -> list[Hold]:
        """The lock rows of these messages, held or not."""
        self._unpack(ids)
        rows = self._fetch(self._sql["holds"], (self._ids(ids),), HOLD_TEXTS)
        return [Hold._make(row) for row in rows]

    def _holder(
        self, container: int, session: str | None, steady_ms: int
    ) -> int | None:
        """The nonce of a session's lock, if it is locked now."""
        row = self._run(self._sql["session"], (container, session)).fetchone()
        if row is None or row[0] is None or row[1] <= steady_ms:
            return None
        nonce: int = row[0]
        return nonce

    # -- moves -----------------------------------------------------------------

    def _give_back(self, holds: Sequence[Hold], count: bool) -> list[EndedLock]:
        """Unlock messages; active ones are ready again."""
        if not holds:
            return []
        ids = self._ids([hold.id for hold in holds])
        self._run(self._sql["delete_locks"], (ids,))
        counted = [
            hold.id
            for hold in holds
            if count and not is_sub_queue(hold.id >> SEQUENCE_BITS)
        ]
        if counted:
            self._run(self._sql["count_deliveries"], (self._ids(counted),))
        active = [hold for hold in holds if hold.state == State.ACTIVE]
        self._list([hold.id for hold in active])
        self._lower_session_heads(active)
        for hold in holds:
            self._note_expiry(hold.expires_ms)
        more = set(counted)
        return [
            EndedLock(hold.id, hold.deliveries + (hold.id in more), hold.session)
            for hold in holds
        ]

    def _lower_session_heads(self, holds: Sequence[Hold | Leaving]) -> None:
        first: dict[tuple[int, str], int] = {}
        for hold in holds:
            if hold.session is not None:
                key = (hold.id >> SEQUENCE_BITS, hold.session)
                sequence = hold.id & SEQUENCE_MASK
                first[key] = min(first.get(key, sequence), sequence)
        for key, sequence in first.items():
            self._run(self._sql["lower_session_head"], (sequence - 1, *key))

    def _note_expiry(self, expires_ms: int | None) -> None:
        """An unlocked message expires then."""
        if expires_ms is not None and expires_ms <= self._passed_over_ms:
            self._passed_over_ms = expires_ms - 1

    @abstractmethod
    def _note_due(self, due_ms: int) -> None:
        """A message is scheduled for then."""

    def _see(self, wall_ms: int) -> None:
        """A receive looks at the ready messages by this time."""
        if wall_ms < self._seen_wall_ms:
            times = (wall_ms, self._seen_wall_ms)
            rows = self._fetch(self._sql["passed_over"], times, LEAVING_TEXTS)
            messages = [Leaving._make(row) for row in rows]
            # Some may be listed already.
            self._unlist(message.id for message in messages)
            self._list(message.id for message in messages)
            self._lower_session_heads(messages)
            self._set_back_from_ms = max(self._set_back_from_ms, self._seen_wall_ms)
        self._seen_wall_ms = wall_ms

    def _list(self, ids: Iterable[int]) -> None:
        """Messages are ready again; above the head, none is listed."""
        heads = self._containers.change
        listed = [
            key
            for key in ids
            if key & SEQUENCE_MASK <= heads(key >> SEQUENCE_BITS).head
        ]
        if listed:
            self._run(self._sql["insert_returned"], (self._ids(listed),))

    def _discount(self, leaving: Iterable[Leaving | Hold]) -> None:
        """Take messages that go, or go aside, out of the counters."""
        sessions: dict[tuple[int, str], list[int]] = {}
        for message in leaving:
            container = self._containers.change(message.id >> SEQUENCE_BITS)
            container.size_bytes -= message.size_bytes
            self._containers.stored_bytes -= message.size_bytes
            active = 0
            if message.state == State.ACTIVE:
                container.active -= 1
                active = 1
            elif message.state == State.DEFERRED:
                container.deferred -= 1
            else:
                container.scheduled -= 1
            if message.session is not None:
                key = (container.id, message.session)
                counters = sessions.setdefault(key, [0, 0])
                counters[0] += active
                counters[1] += 1
        for key, (active, messages) in sessions.items():
            self._run(self._sql["lower_session"], (active, messages, *key))
            self._run(self._sql["drop_session"], key)

    def _forget(self, leaving: Sequence[Leaving | Hold]) -> None:
        """Delete the rows of active and deferred messages, and count them out."""
        if leaving:
            ids = self._ids([message.id for message in leaving])
            self._run(self._sql["delete_messages"], (ids,))
            self._discount(leaving)

    def _unlist(self, ids: Iterable[int]) -> None:
        """Messages that were ready are so no longer; above the head, none is listed."""
        heads = self._containers.get
        listed = [
            key
            for key in ids
            if key & SEQUENCE_MASK <= heads(key >> SEQUENCE_BITS).head
        ]
        if listed:
            self._run(self._sql["delete_returned"], (self._ids(listed),))
