"""The contract of a namespace's store, in words.

A store keeps *containers* of messages. A container is a queue, a subscription, a topic
(which holds only scheduled messages and hands out sequence numbers), or a dead-letter
queue of one of these. The entity with id E (a multiple of 4) owns the containers E
(main), E+1 (dead-letter) and E+2 (transfer dead-letter).

Rules that every store keeps:

* **Everything is in rows.** Messages, locks, delivery counts, sessions, schedules and
  duplicate history survive a restart. Memory does not grow with the depth of a queue,
  and no method costs more because a queue is deep.
* **One transaction at a time.** Every method below that reads or changes messages runs
  between `begin` and `commit`. Nothing that a method returned may be shown to a client
  before `commit` has returned: then it is on disk, synced. `commit` may run in another
  thread; no other method may be called until it returns. After `rollback` (or a failed
  `commit`) the store reads as it did before `begin`, counters included. `undo_part`
  does the same for a part of the transaction.
* **A method either does all of its work or raises before it changed anything**, except
  `StoreFault`, after which only `rollback`, `recover` and `close` are allowed.
* **Time comes in**, from two clocks (`clock.Now`), in whole milliseconds. Durations are
  measured by the *steady* clock: the ends of locks and session locks (`until_ms`),
  duplicate windows, how long a session waits. Moments that people and clients name are
  *wall* time, in milliseconds since the epoch: when a message was enqueued, is due or
  expires, when an entity was made or used. So setting the wall clock ends no lock and
  extends none. What a client is told of a lock's end is wall time (`Now.shown`).
  Steady times are in rows, so the caller must let steady time go on over a restart; it
  keeps a pair of both times as a setting and adds the wall time that has passed since
  (`server/broker/namespace_clock.py`). Nothing else survives the restart of a machine.
  If the wall clock went back meanwhile, rows may end later than they should: the caller
  cuts locks to their longest duration (`cut_locks`).
* **Order** is the order of ids: `id = container << SEQUENCE_BITS | sequence`, and
  sequence numbers count from 1 without gaps in each container. Outside the store ids
  are read by `sequence_of`, `container_of` and the properties of the same names. A
  message that was returned stands at its old place again.
* **A lock is a pair (id, nonce)** and ends at its time, by the `now` that is passed in.
  A lock is held if its row is there, the nonce is equal and `until_ms` is after
  `now.steady_ms`. The upper bits of a nonce are the number of the store's shard
  (`shard_of_nonce`).
  Messages of a session are locked with the session: their own end is `FOREVER_MS`, and
  they are held only while the session lock with the same nonce is.
* **What is for another store goes through the outbox.** It is a row here, written in
  the same transaction as the change it follows from. Numbers count per target, from 1
  without gaps (but for `skip_numbers`), so that one that is away holds up no other. A
  target applies each row once and in order: one transaction does so and notes the
  number (`put_applied`). Then the row is forgotten here (`forget_posted`).
* **Mechanical only.** A store counts deliveries but does not know the maximum; it finds
  what has expired but does not dead-letter. Those rules stand above it.

`head` and `bare` of a record are opaque bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from twinbus.clock import Now
from twinbus.store.nodes import NodesOfStore
from twinbus.store.records import AlikeRecords, Record

if TYPE_CHECKING:
    from twinbus.store.received import ReceivedMessages

SEQUENCE_BITS = 40
SEQUENCE_MASK = (1 << SEQUENCE_BITS) - 1
# The last sequence number that a container can give out.
SEQUENCE_MAX = SEQUENCE_MASK
# A lock end that never comes by itself.
FOREVER_MS = 1 << 62
# The `due_ms` of a message that waits for other work, not for a time.
POSTPONED = -(1 << 62)
CONTAINERS_PER_ENTITY = 4
DEAD_LETTER = 1
TRANSFER_DEAD_LETTER = 2
# The nonce of a lock has 63 bits: the number of its shard, and so many random ones.
NONCE_RANDOM_BITS = 57
# A container that is always there and belongs to no entity. To prove that messages can
# be kept, a health probe or a ping puts one in and takes it out again.
PROBE = 0


def id_of(container: int, sequence: int) -> int:
    """The id of a message."""
    return container << SEQUENCE_BITS | sequence


def sequence_of(id: int) -> int:
    """The sequence number in the id of a message."""
    return id & SEQUENCE_MASK


def container_of(id: int) -> int:
    """The container in the id of a message."""
    return id >> SEQUENCE_BITS


def shard_of_nonce(nonce: int) -> int:
    """The number of the shard whose store has made a nonce."""
    return nonce >> NONCE_RANDOM_BITS


def entity_of(container: int) -> int:
    """The entity that owns a container."""
    return container & ~(CONTAINERS_PER_ENTITY - 1)


def is_sub_queue(container: int) -> bool:
    """Whether a container is a dead-letter queue of its entity."""
    return container & (CONTAINERS_PER_ENTITY - 1) != 0


class State(IntEnum):
    """Where a message is; the values are those of `x-opt-message-state`."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


class Stored(NamedTuple):
    """A message as it is kept."""

    id: int
    enqueued_ms: int
    state: int
    deliveries: int
    expires_ms: int | None
    due_ms: int | None
    session: str | None
    origin: int | None
    source: str | None
    head: bytes
    bare: bytes

    @property
    def sequence(self) -> int:
        return self.id & SEQUENCE_MASK

    @property
    def container(self) -> int:
        return self.id >> SEQUENCE_BITS

    @property
    def is_active(self) -> bool:
        return self.state == State.ACTIVE

    @property
    def is_deferred(self) -> bool:
        return self.state == State.DEFERRED

    @property
    def is_scheduled(self) -> bool:
        return self.state == State.SCHEDULED


class Lock(NamedTuple):
    """What a holder shows to settle: the message and the nonce of its lock."""

    id: int
    nonce: int

    @property
    def sequence(self) -> int:
        return self.id & SEQUENCE_MASK

    @property
    def container(self) -> int:
        return self.id >> SEQUENCE_BITS


class EndedLock(NamedTuple):
    """A lock that ended without a settlement; `deliveries` is the new count."""

    id: int
    deliveries: int
    session: str | None

    @property
    def container(self) -> int:
        return self.id >> SEQUENCE_BITS


class EntityRow(NamedTuple):
    """An entity as the store keeps it; `body` is JSON text."""

    id: int
    kind: str
    key: str
    body: str
    created_ms: int
    updated_ms: int


class Counts(NamedTuple):
    """What a container holds. `active` includes locked messages."""

    active: int
    deferred: int
    scheduled: int
    size_bytes: int
    # The last sequence number given out.
    last_sequence: int
    # When it was last sent to or received from; 0 is never.
    accessed_ms: int


class Posted(NamedTuple):
    """What one store has for another (in its outbox)."""

    number: int
    kind: str
    body: bytes


class OutboxCounts(NamedTuple):
    """What the outbox has for one target."""

    rows: int
    # Of the bodies.
    size_bytes: int
    # The last number given out; 0: none yet.
    last_number: int


class Mirrored(NamedTuple):
    """An entity that another store holds, with the ids and times that it has there."""

    shard: int
    entity: EntityRow


class SessionGrant(NamedTuple):
    """A session that was locked for a receiver."""

    name: str
    nonce: int
    until_ms: int


class SessionEnded(NamedTuple):
    """A session's lock that ended by its time, and the messages it gave back."""

    container: int
    name: str
    nonce: int
    messages: list[EndedLock]


class Purged(NamedTuple):
    """What a purge has forgotten, and whether nothing is left to be forgotten."""

    messages: int
    done: bool


class DiskFault(NamedTuple):
    """A fault of the disk that is rehearsed: `down`, `full`, or `slow` by so much."""

    kind: str
    seconds: float = 0


class Store(NodesOfStore, Protocol):
    """One namespace's messages. See the module text for the rules."""

    # -- life ------------------------------------------------------------------

    def close(self) -> None: ...

    def on_progress(self, call: Callable[[], None] | None) -> None:
        """Call this now and then while a single statement takes long."""

    def begin(self) -> None:
        """Start the transaction; needs none to be open."""

    def seal(self) -> None:
        """Write what only the end of a transaction knows, unless `commit` shall.

        For a commit in a thread, where each statement waits for the interpreter.
        """

    def commit(self) -> None:
        """Make it durable. Raises `StoreFault`; then nothing of it happened."""

    def rollback(self) -> None: ...

    def checkpoint(self) -> None:
        """Write what is in a log into the database, between transactions."""

    def begin_part(self) -> int:
        """Start a part of the transaction; parts may be nested.

        It ends with `end_part`, or with `undo_part` and what this returned. After a
        `StoreFault` it does not end: then the transaction is lost as a whole.
        """

    def end_part(self) -> None:
        """The innermost part happened."""

    def undo_part(self, mark: int) -> None:
        """Undo the innermost part, and nothing else."""

    def recover(self) -> bool:
        """After a `StoreFault`: open the database anew and prove that it takes writes.

        True if it works again. A failed sync recovers only where tokens are kept: else
        it is unknown what the disk holds, and the process must restart.
        """

    def keep_tokens(self) -> None:
        """Let each commit that changes something write a token.

        After a failed sync `recover` looks for the last one that was acknowledged, on
        the disk itself and not in memory. A store that has it has all before it.
        """

    def is_nearly_full(self) -> bool:
        """Whether nothing should be added, only removed; as of the last commit."""

    def rehearse(self, fault: DiskFault | None) -> None:
        """Let commits fail or wait from now on, as with that fault; None: no more.

        A disk that is full makes a store with a reserve `is_nearly_full` instead.
        """

    # -- entities --------------------------------------------------------------

    def entities(self) -> list[EntityRow]: ...

    def insert_entity(self, kind: str, key: str, body: str, wall_ms: int) -> int:
        """Keep an entity and make its containers; returns its id."""

    def update_entity(self, entity: int, body: str, wall_ms: int) -> None: ...

    def delete_entity(self, entity: int) -> None:
        """Forget an entity with everything in its containers."""

    def retire_entity(self, entity: int) -> None:
        """Forget an entity, but not its containers.

        They can be emptied little by little before `delete_entity` forgets them too.
        """

    def retired(self) -> list[int]:
        """The entities whose containers are still there."""

    def setting(self, name: str) -> str | None: ...

    def put_setting(self, name: str, value: str) -> None: ...

    # -- messages --------------------------------------------------------------

    def append(self, container: int, records: Sequence[Record], now: Now) -> int:
        """Keep messages; returns the first sequence number, the rest follow on.

        A record with `due_ms` is kept as scheduled, any other is active at once.
        """

    def append_alike(
        self, container: int, groups: Sequence[AlikeRecords], now: Now
    ) -> int:
        """Keep groups of messages as `append` does, at less cost for each message."""

    def number(self, container: int, count: int) -> int:
        """Give out sequence numbers without keeping anything; returns the first."""

    def lock(
        self,
        container: int,
        limit: int,
        until_ms: int,
        now: Now,
        session: SessionGrant | None = None,
    ) -> tuple[int, ReceivedMessages]:
        """Lock up to `limit` ready messages in order; returns one nonce for all.

        With `session`, only messages of that session, with the session's nonce.
        Expired messages are passed over. No row is both ready and locked.
        """

    def take(
        self,
        container: int,
        limit: int,
        now: Now,
        session: SessionGrant | None = None,
    ) -> ReceivedMessages:
        """Remove up to `limit` ready messages in order and return them."""

    def find(self, container: int, sequences: Sequence[int]) -> list[Stored]:
        """The messages with these numbers, in that order; missing ones left out."""

    def peek(
        self, container: int, start: int, limit: int, now: Now, session: str | None
    ) -> list[Stored]:
        """Messages in any state from sequence `start` on, expired ones left out."""

    def lock_deferred(self, ids: Sequence[int], until_ms: int, now: Now) -> int:
        """Lock deferred, unlocked messages; returns the nonce.

        Raises `MessageNotFound` if one is missing, not deferred or locked.
        """

    def held(self, lock: Lock, now: Now) -> Stored | None:
        """The message, if the lock is held."""

    def holding(self, locks: Sequence[Lock], now: Now) -> list[bool]:
        """Whether each lock is held; reads no message."""

    def renew(self, lock: Lock, until_ms: int, now: Now) -> bool:
        """Move the end of a held lock; False if it is not held."""

    def complete(self, locks: Sequence[Lock], now: Now) -> list[bool]:
        """Remove messages whose locks are held; False for each that is not."""

    def release(self, locks: Sequence[Lock], now: Now, count: bool) -> list[EndedLock]:
        """Give held locks back; `count` raises the delivery count by one.

        Locks that are not held are left out of the answer. Active messages are ready
        again, deferred ones stay deferred. No method counts in a dead-letter queue.
        """

    def defer(self, lock: Lock, now: Now) -> EndedLock | None:
        """Unlock a message, to be had by its number alone, with its count raised."""

    def replace(self, id: int, head: bytes, bare: bytes) -> None:
        """Give a kept message new bytes."""

    def remove(self, ids: Iterable[int]) -> None:
        """Forget messages, whatever their state, with their locks."""

    def quarantine(self, id: int, reason: str) -> None:
        """Set a message that cannot be read aside, as it is, with its lock gone.

        It is in no container any more. Reads do so by themselves with rows that the
        database cannot decode.
        """

    def quarantined(self) -> int:
        """How many messages are in quarantine, as of the last commit; no query."""

    def purge(self, container: int) -> int:
        """Forget messages, sessions and duplicates history; returns how many."""

    def purge_some(self, container: int, until: int, limit: int) -> Purged:
        """Forget up to `limit` messages, first those with the lowest numbers.

        Not those with a number above `until`. When no such message is left, session
        states and duplicate history are forgotten, as many as the limit allows.
        """

    def end_session_locks(self, container: int, now: Now) -> None:
        """End the locks of all sessions, as `release_session` without a count does."""

    # -- time ------------------------------------------------------------------

    def end_locks(self, now: Now, limit: int) -> list[EndedLock]:
        """Give back locks of single messages that have ended, with the count raised."""

    def ended_locks(self, now: Now, limit: int) -> list[int]:
        """The messages that `end_locks` would give back; reads nothing else of them."""

    def end_lock(self, id: int) -> list[EndedLock]:
        """Give one of them back; for use where `end_locks` fails."""

    def end_sessions(self, now: Now, limit: int) -> list[SessionEnded]:
        """Session locks that have ended, with the messages that came back.

        Each is released as by `release_session` with the count raised.
        """

    def expired(self, now: Now, limit: int) -> list[Stored]:
        """Messages past their time that are not locked; the caller removes them."""

    def due(self, now: Now, limit: int) -> list[Stored]:
        """Scheduled messages whose time has come; the caller moves them."""

    def postponed(self, after_id: int, limit: int, bytes_max: int) -> list[Stored]:
        """Messages of one container with a `due_ms` of `POSTPONED`, above an id.

        Not more than `bytes_max`, but at least one. `due` does not see such messages.
        """

    def is_postponing(self, container: int) -> bool:
        """Whether a container has such messages."""

    def forget_duplicates(self, now: Now, limit: int) -> int:
        """Drop duplicate history that has ended; returns how much of it."""

    def next_wait_ms(self, now: Now) -> int | None:
        """How long until a lock, session, message or schedule ends; None if never.

        Not above 0 if one has ended already.
        """

    def cut_locks(self, until_ms: int) -> None:
        """Let no lock of a message or session end after this time."""

    # -- sessions --------------------------------------------------------------

    def accept_session(
        self, container: int, name: str | None, until_ms: int, now: Now
    ) -> SessionGrant | None:
        """Lock a session. By name also if it has no messages.

        None: it is held by another (by name), or no unlocked session has active
        messages (any). Of several, the one that has waited longest since it was served.
        """

    def renew_session(
        self, container: int, session: SessionGrant, until_ms: int, now: Now
    ) -> bool: ...

    def session_held(self, container: int, session: SessionGrant, now: Now) -> bool:
        """Whether this grant still holds (its own `until_ms` is not looked at)."""

    def release_session(
        self, container: int, session: SessionGrant, now: Now, count: bool
    ) -> list[EndedLock]:
        """End a session lock; its locked messages are ready again, in order."""

    def session_state(self, container: int, name: str) -> bytes | None: ...

    def put_session_state(
        self, container: int, name: str, state: bytes | None, now: Now
    ) -> None: ...

    def sessions(
        self, container: int, updated_after_ms: int | None, skip: int, top: int
    ) -> list[str]:
        """Names in order; None: those with messages or state, else state set since."""

    # -- duplicates and counts ---------------------------------------------------

    def remember(
        self, container: int, keys: Sequence[str], until_ms: int, now: Now
    ) -> list[bool]:
        """Note message ids; True where the id was new within its window."""

    def counts(self, container: int) -> Counts:
        """Exact, also between `begin` and `commit`; costs no query."""

    def audit(self, container: int, rows_max: int) -> str | None:
        """Compare what is counted with the rows, of which not more are looked at.

        If it differs it is set right, and the answer says how it was. Below that number
        of rows the comparison is exact, above it only too small a count is found.
        """

    def size_bytes(self, entity: int) -> int:
        """What all containers of an entity hold; as `counts`, at less cost."""

    def stored_bytes(self) -> int:
        """What all containers hold together; as `counts`, at the cost of one."""

    def touch(self, container: int, now: Now) -> None:
        """Note that the container was used."""

    # -- other stores ----------------------------------------------------------

    def post(self, target: int, kind: str, body: bytes) -> int:
        """Put something for another store into the outbox; returns its number."""

    def posted(self, target: int, limit: int, bytes_max: int) -> list[Posted]:
        """The first rows for a target, in order.

        At most `limit`, and not more than `bytes_max` of bodies, but at least one.
        """

    def posted_bytes(self, target: int) -> dict[str, int]:
        """The bytes of all bodies for a target, by kind; it reads all of them."""

    def forget_posted(self, target: int, until: int) -> None:
        """The target has applied all up to there; `Bug` if it was not given out."""

    def skip_numbers(self, target: int, until: int) -> None:
        """Go on above a number, in an older copy; `Bug` if it was given out."""

    def outbox(self) -> dict[int, OutboxCounts]:
        """What waits for each target, also where nothing waits any more.

        Exact, also between `begin` and `commit`; no query.
        """

    def applied(self, source: int) -> int:
        """The last number of another store that was applied; 0: none. As `outbox`."""

    def put_applied(self, source: int, number: int) -> None:
        """Note that all up to that number were applied; `Bug` if they were before."""

    def mirrored(self) -> list[Mirrored]:
        """What was mirrored here, in order of shard and key."""

    def mirror(self, shard: int, entity: EntityRow) -> None:
        """Keep an entity of another store, in place of one with the same key."""

    def unmirror(self, shard: int, key: str) -> None:
        """Forget it; nothing happens if it is not there."""
