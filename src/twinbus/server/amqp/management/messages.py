"""Messages through `$management`: look at, lock, settle and remove them.

Rule: everything that a request names is checked before the first message changes, so
that a refusal leaves all as it was. Messages are read a few at a time, because their
number says nothing about their size. A token or number counts only for the container
that the request is about. Scheduling is in `schedule.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from twinbus import limits
from twinbus.errors import (
    ArgumentError,
    ArgumentOutOfRange,
    CallerError,
    InvalidField,
    LockLost,
    MessageNotFound,
    MessageTooLarge,
    PeerError,
)
from twinbus.server.amqp.management.call import (
    INT_MAX,
    LONG_MAX,
    LONG_MIN,
    Call,
    ManagementReply,
    done,
    nothing,
)
from twinbus.server.broker.lock_tokens import token_bytes, uuid_of
from twinbus.server.broker.rendering import render_stored
from twinbus.store.base import (
    SEQUENCE_MAX,
    Lock,
    SessionGrant,
    State,
    Stored,
    container_of,
    id_of,
)
from twinbus.wire.message import parts, sections
from twinbus.wire.message.names import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON
from twinbus.wire.types import ARRAY_TIMESTAMP, Array, Int, Timestamp

_RECEIVE_AND_DELETE = 0
_PEEK_LOCK = 1


# -- looking -------------------------------------------------------------------------


def peek(call: Call) -> ManagementReply:
    """Messages in any state from a number on; no lock changes."""
    arguments = call.arguments
    start = arguments.integer("from-sequence-number", LONG_MIN, LONG_MAX)
    count = arguments.integer("message-count", 1, INT_MAX)
    session = arguments.optional_text("session-id")
    without_body = arguments.flag("omit-message-body")
    found: list[dict[str, Any]] = []
    size_bytes = 0
    for stored in _browse(call, start, session):
        shown = _without_body(stored) if without_body else stored
        message = render_stored(shown, None, None, call.entity.number_base)
        size_bytes += len(message)
        if found and size_bytes > limits.PEEK_BYTES_MAX:
            break
        found.append({"message": message})
        if len(found) == min(count, limits.PEEK_MESSAGES_MAX):
            break
    return done({"messages": found}) if found else nothing()


def _browse(call: Call, start: int, session: str | None) -> Iterator[Stored]:
    """All messages from a number on, read in portions that fit into a reply."""
    portion = _Portion(limits.PEEK_BYTES_MAX)
    while start <= SEQUENCE_MAX:
        messages = call.namespace.store.peek(
            call.container, start, portion.count, call.now, session
        )
        yield from messages
        if len(messages) < portion.count:
            return
        start = messages[-1].sequence + 1
        portion.learn(messages)


class _Portion:
    """How many messages to read at once, judged by those read before."""

    __slots__ = ("_bytes_max", "_largest", "count")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._largest = 1
        self.count = 1

    def learn(self, messages: Iterable[Stored]) -> None:
        """Read more next time, unless that would be too much of this size."""
        for stored in messages:
            self._largest = max(self._largest, len(stored.bare) + len(stored.head))
        fitting = self._bytes_max // self._largest
        self.count = max(1, min(self.count * 4, fitting, limits.PEEK_MESSAGES_MAX))


def _without_body(stored: Stored) -> Stored:
    kept = [
        stored.bare[begin:end]
        for code, begin, _start, end in sections.find_sections(stored.bare)
        if not sections.DATA <= code <= sections.VALUE
    ]
    return stored._replace(bare=b"".join(kept))


# -- deferred messages ---------------------------------------------------------------


def receive_deferred(call: Call) -> ManagementReply:
    """Lock deferred messages by their numbers, or remove them; all or none."""
    arguments = call.arguments
    sequences = arguments.sequences()
    mode = arguments.integer("receiver-settle-mode", _RECEIVE_AND_DELETE, _PEEK_LOCK)
    session_id = arguments.optional_text("session-id")
    grant: SessionGrant | None = None
    if call.has_sessions:
        if session_id is None:
            raise ArgumentError("'session-id' is missing: the messages have sessions.")
        grant = call.grant(session_id)
    _check_deferred(call, sequences, grant)
    store = call.namespace.store
    until_ms = call.now.steady_ms + call.entity.lock_ms
    ids = [id_of(call.container, sequence) for sequence in sequences]
    # Removal locks too: another receiver may hold what is to be removed.
    nonce = store.lock_deferred(ids, until_ms, call.now)
    messages = store.find(call.container, sequences)
    call.entity.count("delivered", len(messages), call.namespace.undo_log)
    if mode == _RECEIVE_AND_DELETE:
        store.complete([Lock(key, nonce) for key in ids], call.now)
        base = call.entity.number_base
        shown = [render_stored(stored, b"", None, base) for stored in messages]
        return done({"messages": [{"message": message} for message in shown]})
    if grant is not None:
        until_ms = grant.until_ms
    shown_ms = call.now.shown(until_ms)
    locked = [_locked(call, stored, nonce, shown_ms) for stored in messages]
    return done({"messages": locked})


def _check_deferred(
    call: Call, sequences: list[int], grant: SessionGrant | None
) -> None:
    size_bytes = 0
    for sequence in sequences:
        stored = _find(call, sequence)
        if (
            stored is None
            or stored.state != State.DEFERRED
            or (stored.expires_ms is not None and stored.expires_ms <= call.now.wall_ms)
            or (grant is not None and stored.session != grant.name)
        ):
            raise MessageNotFound(
                "There is no deferred message with the sequence number "
                f"{call.shown(sequence)}."
            )
        size_bytes += len(stored.bare)
        if size_bytes > limits.DEFERRED_BYTES_MAX:
            raise ArgumentOutOfRange(
                "The messages of 'sequence-numbers' are too large for one reply. "
                "Ask for fewer."
            )


def _find(call: Call, sequence: int) -> Stored | None:
    # A larger number would reach into another container.
    if not 0 < sequence <= SEQUENCE_MAX:
        return None
    found = call.namespace.store.find(call.container, [sequence])
    return found[0] if found else None


def _locked(call: Call, stored: Stored, nonce: int, until_ms: int) -> dict[str, Any]:
    lock = Lock(stored.id, nonce)
    base = call.entity.number_base
    message = render_stored(stored, token_bytes(*lock), until_ms, base)
    return {"lock-token": uuid_of(lock), "message": message}


# -- locks ---------------------------------------------------------------------------


def renew_locks(call: Call) -> ManagementReply:
    """Move the ends of locks, all or none."""
    locks = call.arguments.locks()
    for lock in locks:
        if _held(call, lock).session is not None:
            raise CallerError(
                "A message of a session is locked with its session. "
                "Renew the lock of the session."
            )
    until_ms = call.now.steady_ms + call.entity.lock_ms
    for lock in locks:
        call.namespace.store.renew(lock, until_ms, call.now)
    shown = Timestamp(call.now.shown(until_ms))
    expirations = Array(ARRAY_TIMESTAMP, [shown] * len(locks))
    return done({"expirations": expirations})


def _held(call: Call, lock: Lock) -> Stored:
    """The message that a lock of this container holds."""
    stored = None
    if container_of(lock.id) == call.container:
        stored = call.namespace.store.held(lock, call.now)
    if stored is None:
        raise LockLost
    return stored


# -- settling ------------------------------------------------------------------------


def settle(call: Call) -> ManagementReply:
    """Complete, abandon, defer or dead-letter by lock token; all or none."""
    arguments = call.arguments
    status = arguments.text("disposition-status")
    locks = list(dict.fromkeys(arguments.locks()))
    changes = arguments.properties("properties-to-modify")
    marks = _marks(call)
    session_id = arguments.optional_text("session-id")
    if status != "completed" and status not in _SETTLERS:
        raise ArgumentError(
            f"'disposition-status' is '{status[:32]}'. Use completed, abandoned, "
            "defered or suspended."
        )
    if session_id is not None and call.has_sessions:
        nonce = call.grant(session_id).nonce
        if any(lock.nonce != nonce for lock in locks):
            raise LockLost
    if status == "suspended":
        changes |= marks
    for lock in locks:
        stored = _held(call, lock)
        if status == "suspended":
            call.namespace.check_dead_letter(stored)
        if status != "completed":
            _check_change(call, stored, changes)
    if status == "completed":
        call.namespace.complete(locks, call.turn)
        return done()
    for lock in locks:
        _SETTLERS[status](call, lock, changes)
    return done()


def _marks(call: Call) -> dict[str, Any]:
    marks = {
        DEAD_LETTER_REASON: call.arguments.optional_text("deadletter-reason"),
        DEAD_LETTER_DESCRIPTION: call.arguments.optional_text("deadletter-description"),
    }
    return {name: value for name, value in marks.items() if value is not None}


def _check_change(call: Call, stored: Stored, changes: dict[str, Any]) -> None:
    """Refuse now what would fail, or outgrow the entity, half-way through."""
    try:
        sections.read_properties(stored.bare)
        bare = parts.with_application_properties(stored.bare, changes)
    except PeerError as error:
        raise InvalidField(
            f"The properties of message {call.shown(stored.sequence)} cannot be read: "
            f"{error.text}"
        ) from None
    call.namespace.changed(stored, changes)
    if len(bare) > max(call.message_bytes_max, len(stored.bare)) and changes:
        raise MessageTooLarge(
            f"With the properties to modify, the message has {len(bare)} bytes; "
            f"'{call.entity.name}' takes at most {call.message_bytes_max}."
        )


def _abandon(call: Call, lock: Lock, changes: dict[str, Any]) -> None:
    call.namespace.abandon(lock, changes, call.turn)


def _defer(call: Call, lock: Lock, changes: dict[str, Any]) -> None:
    call.namespace.defer(lock, changes, call.turn)


def _dead_letter(call: Call, lock: Lock, changes: dict[str, Any]) -> None:
    call.namespace.dead_letter(lock, changes, call.turn)


# The third is spelled as it is on the wire.
_SETTLERS: dict[str, Callable[[Call, Lock, dict[str, Any]], None]] = {
    "abandoned": _abandon,
    "defered": _defer,
    "suspended": _dead_letter,
}


# -- removing ------------------------------------------------------------------------


def delete_batch(call: Call) -> ManagementReply:
    """Remove ready messages that came before a time, oldest first."""
    arguments = call.arguments
    count = arguments.integer("message-count", 1, INT_MAX)
    before_ms = arguments.time_ms("enqueued-time-utc")
    session_id = arguments.optional_text("session-id")
    grant: SessionGrant | None = None
    if session_id is not None and call.has_sessions:
        grant = call.grant(session_id)
    store = call.namespace.store
    until_ms = call.now.steady_ms + call.entity.lock_ms
    left = min(count, limits.BATCH_MESSAGES_MAX)
    deleted = 0
    portion = _Portion(limits.SWEEP_BYTES_MAX)
    while left:
        wanted = min(left, portion.count)
        # What is locked by others or not ready yet is passed over.
        nonce, messages = store.lock(call.container, wanted, until_ms, call.now, grant)
        older = [m for m in messages if m.enqueued_ms < before_ms]
        newer = [Lock(m.id, nonce) for m in messages if m.enqueued_ms >= before_ms]
        store.complete([Lock(m.id, nonce) for m in older], call.now)
        store.release(newer, call.now, count=False)
        deleted += len(older)
        left -= len(older)
        if newer or len(messages) < wanted:
            break
        portion.learn(messages)
    # Also with 0: a client that purges reads the count until there is none.
    return done({"message-count": Int(deleted)})
