"""What the console does with kept messages, each as a command of one turn.

Owns taking messages out and bringing them back. A message leaves one container and
arrives in another in one transaction, so that it is never in both and never in none; to
an entity of another shard it goes through the outbox, which is the same promise. A
message that a receiver holds is left alone.
Commands are plain data and decide nothing about rights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from twinbus.errors import (
    CallerError,
    EntityNotFound,
    MessageNotFound,
    StorageFull,
    StoreFault,
    TwinbusError,
)
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.rendering import render_stored
from twinbus.server.broker.sending.letter import Letter
from twinbus.server.broker.sending.naming import fragment_key
from twinbus.server.broker.turn import Turn
from twinbus.server.http.console.audit import AuditEntry
from twinbus.server.http.console.looking import readable
from twinbus.store.base import Lock, Stored, id_of
from twinbus.wire.message import parts, sections
from twinbus.wire.message.names import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON
from twinbus.wire.message.sections import Incoming

_MARKS = frozenset((DEAD_LETTER_REASON, DEAD_LETTER_DESCRIPTION))


class MessageLocked(CallerError):
    """A receiver holds the message now. Wait for its lock to end."""


@dataclass(slots=True)
class ActionOutcome:
    """What became of the messages of a chunk."""

    done: int = 0
    # A receiver holds them.
    locked: int = 0
    # They were not there any more.
    gone: int = 0
    # How many were refused, by the reason.
    refused: dict[str, int] = field(default_factory=dict)

    def add(self, other: ActionOutcome) -> None:
        """Count another chunk."""
        self.done += other.done
        self.locked += other.locked
        self.gone += other.gone
        for text, count in other.refused.items():
            self.refused[text] = self.refused.get(text, 0) + count

    def refuse(self, error: TwinbusError) -> None:
        self.refused[error.text] = self.refused.get(error.text, 0) + 1


def restored(stored: Stored, bare: bytes | None = None) -> Incoming:
    """A kept message as it was sent: what the server has added is gone."""
    content = stored.bare if bare is None else bare
    # Without them first: with them it may be larger than what is read.
    content = parts.without_application_properties(content, _MARKS)
    stored = stored._replace(bare=content, due_ms=None, source=None)
    return without_marks(sections.parse(render_stored(stored, None, None)))


def without_marks(message: Incoming) -> Incoming:
    """A message without what dead-lettering and scheduling have added."""
    message.bare = parts.without_application_properties(message.bare, _MARKS)
    message.scheduled_ms = None
    return message


def deliver(
    namespace: Namespace, source: Entity, target_key: str, message: Incoming, turn: Turn
) -> None:
    """Bring a message to an entity; `source` is where it comes from.

    What an entity of another shard does not take goes to the transfer dead-letter queue
    of the source.
    """
    entities = namespace.entities
    target = entities.find_anywhere(target_key)
    if target is None:
        raise EntityNotFound(target_key)
    if len(target.fragments) > 1:
        target = entities.fragment_for(target, fragment_key(target, message))
    if target.shard != namespace.shard:
        namespace.shards[target.shard].check_messages(target, [message], turn)
        namespace.post(source.key, target, [message], turn)
        return
    if namespace.store.is_nearly_full():
        raise StorageFull
    namespace.check_messages(target, [message], turn)
    target.count("received", 1, namespace.undo_log)
    namespace.router.resend(target, Letter.incoming(message), turn)


class TakenOut:
    """Some messages of a container, taken out one by one (base of commands)."""

    # Each message can fail alone.
    divides = True

    def __init__(
        self, container: int, sequences: Sequence[int], audit: AuditEntry | None
    ) -> None:
        self._container = container
        self._sequences = sequences
        self._audit = audit

    def __call__(self, namespace: Namespace, turn: Turn) -> ActionOutcome:
        outcome = ActionOutcome()
        store = namespace.store
        source = namespace.entities.of_container(self._container)
        if source is None:
            raise EntityNotFound("the entity")
        ids = [id_of(self._container, each) for each in self._sequences]
        locked = readable(namespace).reader_in().locked(ids)
        found = store.find(self._container, self._sequences)
        outcome.gone = len(self._sequences) - len(found)
        for stored in found:
            if stored.id in locked:
                outcome.locked += 1
                continue
            if stored.is_scheduled:
                outcome.refuse(CallerError("It is scheduled. Cancel it by itself."))
                continue
            try:
                with namespace.part():
                    self._handle(namespace, source, stored, turn)
                    store.remove([stored.id])
                outcome.done += 1
            except StoreFault:
                raise
            except TwinbusError as error:
                outcome.refuse(error)
        turn.left -= len(ids)
        if self._audit is not None:
            self._audit.note(namespace, turn, outcome.done)
        return outcome

    def _handle(
        self, namespace: Namespace, source: Entity, stored: Stored, turn: Turn
    ) -> None:
        """What is done with a message before it is removed."""


class Delete(TakenOut):
    """Remove messages for good."""


class Resubmit(TakenOut):
    """Move messages: to one entity, or each to where it was dead-lettered from."""

    def __init__(
        self,
        container: int,
        sequences: Sequence[int],
        audit: AuditEntry | None,
        target_key: str | None = None,
        allowed: frozenset[str] | None = None,
    ) -> None:
        super().__init__(container, sequences, audit)
        self._target_key = target_key
        # Keys of the entities that the visitor may send to; None: any.
        self._allowed = allowed

    def _handle(
        self, namespace: Namespace, source: Entity, stored: Stored, turn: Turn
    ) -> None:
        target = self._target_key or (stored.source or source.name).lower()
        if self._allowed is not None and target not in self._allowed:
            raise CallerError(f"Your key gives no Send on '{target}'.")
        deliver(namespace, source, target, restored(stored), turn)


class Replace:
    """Send an edited message, and remove the original if that is asked for."""

    def __init__(
        self,
        original: tuple[int, int],
        target_key: str,
        message: Incoming,
        audit: AuditEntry,
        *,
        removes: bool,
    ) -> None:
        self._original = original
        self._target_key = target_key
        self._message = message
        self._audit = audit
        self._removes = removes

    def __call__(self, namespace: Namespace, turn: Turn) -> None:
        container, sequence = self._original
        source = namespace.entities.of_container(container)
        if source is None:
            raise EntityNotFound("the entity")
        if self._removes:
            stored = free_message(namespace, container, sequence)
            namespace.store.remove([stored.id])
        deliver(namespace, source, self._target_key, self._message, turn)
        self._audit.note(namespace, turn, 1)


class ReceiveDeferred:
    """Take a deferred message by its number; it is gone then."""

    def __init__(self, container: int, sequence: int, audit: AuditEntry) -> None:
        self._container = container
        self._sequence = sequence
        self._audit = audit

    def __call__(self, namespace: Namespace, turn: Turn) -> Stored:
        stored = free_message(namespace, self._container, self._sequence)
        if not stored.is_deferred:
            raise CallerError("The message is not deferred.")
        store, now = namespace.store, turn.now
        nonce = store.lock_deferred([stored.id], now.steady_ms + 1, now)
        namespace.complete([Lock(stored.id, nonce)], turn)
        self._audit.note(namespace, turn, 1)
        return stored


class Cancel:
    """Forget a scheduled message."""

    def __init__(self, container: int, sequence: int, audit: AuditEntry) -> None:
        self._container = container
        self._sequence = sequence
        self._audit = audit

    def __call__(self, namespace: Namespace, turn: Turn) -> None:
        entity = namespace.entities.of_container(self._container)
        if entity is None or not namespace.cancel(entity, [self._sequence]):
            raise MessageNotFound("The message is not scheduled any more.")
        self._audit.note(namespace, turn, 1)


def free_message(namespace: Namespace, container: int, sequence: int) -> Stored:
    """A message that no receiver holds; refuses any other."""
    found = namespace.store.find(container, [sequence])
    if not found:
        raise MessageNotFound("The message is not there any more.")
    if readable(namespace).reader_in().locked([found[0].id]):
        raise MessageLocked
    return found[0]
