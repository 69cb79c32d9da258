"""What a namespace does with messages: the rules, on top of a store.

Owns what the store must not know: whether a message may be sent, what a settlement
does, and when a message has been delivered often enough. Pings are counted and never
kept. Also owns the namespace's authorization rules (`rules_of`, `change_rules`). What
time does is in `tick.py`. Every method runs inside the store's transaction and is given
the time. Knows nothing about links.

What a method brings about beside its result (containers that became ready, ended
sessions, deleted entities, changed rules) it adds to the `Turn` that it is given.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Any, TypeVar

from twinbus import limits
from twinbus.core.names import EntityPath
from twinbus.core.rights import AuthorizationRule
from twinbus.core.sas import Secret
from twinbus.errors import (
    BusyError,
    CallerError,
    InvalidField,
    LockLost,
    MessageTooLarge,
    PeerError,
    StorageFull,
    StoreFault,
)
from twinbus.ledger.counts import LedgerCounts
from twinbus.server.broker.crossing import parcels
from twinbus.server.broker.directory import keys
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.broker.directory.entities import Entities
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.directory.shards import Shards
from twinbus.server.broker.faults import Faults
from twinbus.server.broker.load.throttle import Bucket
from twinbus.server.broker.sending.checking import (
    check_each,
    check_open,
    quota_exceeded,
    too_large,
)
from twinbus.server.broker.sending.letter import Letter, error_text
from twinbus.server.broker.sending.naming import RandomIds, give_ids
from twinbus.server.broker.sending.routing import Router, expiry
from twinbus.server.broker.tick import Ticker
from twinbus.server.broker.turn import Turn
from twinbus.server.broker.undo import TurnPart, UndoLog
from twinbus.store.base import (
    POSTPONED,
    PROBE,
    EndedLock,
    Lock,
    SessionGrant,
    State,
    Store,
    Stored,
    container_of,
    id_of,
    is_sub_queue,
    sequence_of,
)
from twinbus.store.records import AlikeRecords, Record
from twinbus.wire.message import parts, sections
from twinbus.wire.message.bundle import Bundle
from twinbus.wire.message.names import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON
from twinbus.wire.message.sections import PING_CONTENT_TYPE, Incoming

log = logging.getLogger("twinbus.namespace")

_CREATED = "namespace_created_ms"

T = TypeVar("T")


class Namespace:
    """The rules of one shard of a namespace, which most namespaces have one of."""

    def __init__(
        self,
        name: str,
        store: Store,
        *,
        rate: int | None = None,
        shards: Shards | None = None,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        self.name = name
        self.store = store
        # The shards of the namespace, this one among them, and its number.
        self.shards = Shards() if shards is None else shards
        self.shard = len(self.shards)
        # Whether its store takes nothing now, and whether it was never opened; the host
        # says so.
        self.is_stopped = False
        self.is_away = False
        # How many consumers containers have; the host says it.
        self.in_use: Mapping[int, int] = {}
        # What it was set up from, and what a reset brings back.
        self.config = NamespaceConfig(name)
        # How to undo what a turn has changed in memory.
        self.undo_log = UndoLog()
        self.entities = Entities(store, self.undo_log, self.shard, self.shards)
        # The namespace's own authorization rules; those of entities are with them.
        self.rules = keys.load_rules(store)
        # The key of `--dev`, which works beside them.
        self.dev_key: Secret | None = None
        self.router = Router(store, self.entities, self.undo_log)
        # How often an unexpected error was met, by the place that raised it.
        self.defects: Counter[str] = Counter()
        # What is rehearsed; None on a server without `--faults`.
        self.faults: Faults | None = None
        # Where surfaces count operations; one for all shards, None without a ledger.
        self.ledger: LedgerCounts | None = None
        self.ticker = Ticker(self)
        # One for all shards.
        self._bucket = Bucket(rate) if rate is not None else None
        if self.shard:
            self._bucket = self.shards[0]._bucket
        self._new_id = new_id or RandomIds()
        self.shards.add(self)

    def part(self) -> TurnPart:
        """Undo what happens inside if an exception ends it: rows, memory and effects.

        A `StoreFault` undoes nothing here: then the turn is lost as a whole.
        """
        return TurnPart(self.store, self.undo_log)

    def use_store(self, store: Store) -> None:
        """The store could be opened at last; `reload` reads what it holds."""
        self.store = store
        self.entities.use_store(store)
        self.router.use_store(store)
        self.ticker.use_store(store)
        self.is_away = False

    def reload(self) -> None:
        """Read what is kept in memory anew from the store, after a rollback."""
        self.undo_log.rollback()
        self.entities.reload()
        self.rules = keys.load_rules(self.store)

    def catch_up(self) -> list[int]:
        """Read what another node has changed; returns the entities that are gone."""
        before = {entity.id for entity in self.entities}
        self.reload()
        return sorted(before - {entity.id for entity in self.entities})

    def created_ms(self, now_ms: int) -> int:
        """When the namespace was made: at the latest with its first entity."""
        kept = self.store.setting(_CREATED)
        if kept is not None:
            return int(kept)
        return min((entity.created_ms for entity in self.entities), default=now_ms)

    def note_created(self, now_ms: int) -> None:
        """Remember when the namespace was made, unless that is known already."""
        self.store.put_setting(_CREATED, str(self.created_ms(now_ms)))

    def change_rules(self, change: Callable[[Store], T], turn: Turn) -> T:
        """Let `change` write authorization rules of the namespace."""
        before = keys.rules_text(self.store)
        result = change(self.store)
        self.undo_log.note(partial(setattr, self, "rules", self.rules))
        self.rules = keys.load_rules(self.store)
        if keys.rules_text(self.store) != before:
            self.tell_rules(range(1, len(self.shards)))
        turn.rules_changed = True
        return result

    def tell_rules(self, shards: Iterable[int]) -> None:
        """Let other shards keep a copy of the namespace's rules."""
        for shard in shards:
            text = keys.rules_text(self.store)
            self.store.post(shard, parcels.RULES, text.encode())

    def keep_rules(self, text: str, turn: Turn) -> None:
        """Keep a copy of the namespace's rules, for a start without shard 0."""
        self.store.put_setting(keys.SETTING, text)
        self.undo_log.note(partial(setattr, self, "rules", self.rules))
        self.rules = keys.load_rules(self.store)
        turn.rules_changed = True

    def rules_of(self, scope_key: str) -> Sequence[AuthorizationRule]:
        """The rules of a scope: the namespace for the empty key, else an entity."""
        if not scope_key:
            dev_key = self.dev_key
            return keys.with_dev_key(self.rules, dev_key) if dev_key else self.rules
        entity = self.entities.find(scope_key)
        return () if entity is None else entity.authorization_rules

    # -- sending ---------------------------------------------------------------------

    def send(
        self,
        entity: Entity,
        messages: Sequence[Incoming],
        turn: Turn,
        *,
        checked: bool = False,
    ) -> Sequence[int]:
        """Accept messages, all or none; returns their numbers. Pings get 0."""
        if not checked:
            self.check_send(entity, messages, turn)
        if any(m.content_type == PING_CONTENT_TYPE for m in messages):
            return [self._send_or_ping(entity, m, turn) for m in messages]
        entity.count("received", len(messages), self.undo_log)
        self.store.touch(entity.id, turn.now)
        self.give_ids(messages)
        if self._is_plain(entity, messages):
            return self._append(entity, messages, turn)
        if entity.kind == "topic":
            return self.router.publish(entity, messages, turn)
        deliver = self.router.deliver
        return [deliver(entity, Letter.incoming(m), turn) for m in messages]

    def send_bundles(
        self, entity: Entity, bundles: Sequence[Bundle], turn: Turn
    ) -> None:
        """Accept alike messages, all or none, as `send` does at less cost for each."""
        if self.limits_rate(entity) or not entity.keeps_bundles:
            messages = [message for each in bundles for message in each.messages()]
            self.send(entity, messages, turn)
            return
        if self.store.is_nearly_full():
            raise StorageFull
        check_open(entity)
        largest_bytes = max(each.largest_bytes for each in bundles)
        if largest_bytes > entity.message_bytes_max:
            raise too_large(entity, largest_bytes)
        size_bytes = sum(len(each.bares) for each in bundles)
        if self.router.is_full(entity, size_bytes, turn):
            raise quota_exceeded(entity)
        count = sum(map(len, bundles))
        entity.count("received", count, self.undo_log)
        self.store.touch(entity.id, turn.now)
        turn.left -= count
        groups = [
            AlikeRecords(each.first.head(), each.sizes, each.bares) for each in bundles
        ]
        self.store.append_alike(entity.id, groups, turn.now)
        turn.ready.add(entity.id)

    def _send_or_ping(self, entity: Entity, message: Incoming, turn: Turn) -> int:
        if message.content_type == PING_CONTENT_TYPE:
            entity.count("pings", 1, self.undo_log)
            self.prove_write(turn)
            return 0
        return self.send(entity, [message], turn, checked=True)[0]

    def prove_write(self, turn: Turn) -> None:
        """Let the commit write a row: an empty one neither writes nor syncs.

        So a ping that is accepted proves that a message could have been kept.
        """
        if not turn.proves_write:
            sequence = self.store.append(PROBE, [Record(b"", b"")], turn.now)
            self.store.remove([id_of(PROBE, sequence)])
            turn.proves_write = True
            self.undo_log.note(partial(setattr, turn, "proves_write", False))

    def check_send(
        self, entity: Entity, messages: Sequence[Incoming], turn: Turn
    ) -> None:
        """Refuse what may not be sent; changes nothing but the rate."""
        if self.store.is_nearly_full():
            raise StorageFull
        self.check_messages(entity, messages, turn)
        for bucket in (entity.bucket, self._bucket):
            if bucket is None:
                continue
            self.undo_log.note(partial(bucket.restore, bucket.state()))
            if not bucket.take(len(messages), turn.now.steady_ms):
                # Not undone with the send: it was refused, and that is counted.
                entity.throttled += len(messages)
                raise BusyError(
                    f"More than {bucket.rate} messages a second. "
                    "Wait 10 seconds and try again."
                )

    def check_messages(
        self,
        entity: Entity,
        messages: Sequence[Incoming],
        turn: Turn,
        more_bytes: int = 0,
    ) -> None:
        """Refuse messages that the entity does not take; changes nothing.

        `more_bytes` is what is kept for it elsewhere.
        """
        if self.faults is not None:
            self.faults.check_send(entity.key, messages)
        check_open(entity)
        size = more_bytes + check_each(entity, messages)
        if self.router.is_full(entity, size, turn):
            raise quota_exceeded(entity)

    def post(
        self, source_key: str, entity: Entity, messages: Sequence[Incoming], turn: Turn
    ) -> None:
        """Send messages to an entity of another shard, after this turn.

        They were checked; what hinders them later sets them aside at the entity with
        the key `source_key`, which is one of this shard.
        """
        for letter in self._letters(messages):
            self.router.post(source_key, entity, letter, turn, hops=-1)

    def spool(self, entity: Entity, messages: Sequence[Incoming], turn: Turn) -> int:
        """Keep messages for an entity of a sick shard; returns their bytes.

        They were checked. If they cannot be delivered later, an administrator finds
        them in the quarantine of this shard.
        """
        spool = self.router.spool
        return sum(spool(entity, letter, turn) for letter in self._letters(messages))

    def _letters(self, messages: Sequence[Incoming]) -> Iterator[Letter]:
        """Messages as letters, without pings: those are answered, and never kept."""
        self.give_ids(messages)
        for message in messages:
            if message.content_type != PING_CONTENT_TYPE:
                yield Letter.incoming(message)

    def limits_rate(self, entity: Entity) -> bool:
        """Whether each delivery to the entity may be refused by chance of time."""
        given = (self.faults, entity.bucket, self._bucket)
        return any(each is not None for each in given)

    def give_ids(self, messages: Sequence[Incoming]) -> None:
        """Give an id to messages that came without; from any thread."""
        give_ids(messages, self._new_id)

    @staticmethod
    def _is_plain(entity: Entity, messages: Sequence[Incoming]) -> bool:
        return (
            entity.kind == "queue"
            and entity.forward_key is None
            and entity.duplicate_window_ms is None
            and all(m.scheduled_ms is None for m in messages)
        )

    def _append(
        self, entity: Entity, messages: Sequence[Incoming], turn: Turn
    ) -> Sequence[int]:
        """The usual way: straight into one container, in one go."""
        wall_ms, ttl_ms = turn.now.wall_ms, entity.ttl_ms
        usual_end = expiry(wall_ms, None, ttl_ms)
        nothing = repeat(None)
        # Made of columns: a call with names for each would take twice as long.
        columns = zip(
            [m.head() for m in messages],
            [m.bare for m in messages],
            [m.session_id for m in messages] if entity.requires_session else nothing,
            [
                usual_end if m.ttl_ms is None else expiry(wall_ms, m.ttl_ms, ttl_ms)
                for m in messages
            ],
            *(nothing,) * 3,
            repeat(0),
            strict=False,
        )
        records = list(map(Record._make, columns))
        turn.left -= len(records)
        first = self.store.append(entity.id, records, turn.now)
        turn.ready.add(entity.id)
        return range(first, first + len(records))

    def cancel(self, entity: Entity, sequences: Sequence[int]) -> bool:
        """Forget scheduled messages, all or none; False if one is not there."""
        found = self.store.find(entity.id, sequences)
        # A postponed message was sent to be delivered now, perhaps by another client.
        scheduled = [
            each.id
            for each in found
            if each.state == State.SCHEDULED and each.due_ms != POSTPONED
        ]
        if len(scheduled) != len(set(sequences)):
            return False
        self.store.remove(scheduled)
        return True

    # -- settling --------------------------------------------------------------------

    def complete(self, locks: Sequence[Lock], turn: Turn) -> list[bool]:
        """Remove messages of one container for good; False where the lock has ended."""
        turn.left -= len(locks)
        results = self.store.complete(locks, turn.now)
        entity = self._entity_of(locks[0].id) if locks else None
        if entity is not None:
            entity.count("completed", sum(results), self.undo_log)
        return results

    def abandon(self, lock: Lock, changes: dict[str, Any] | None, turn: Turn) -> None:
        """Give a message back; delivered often enough, it is dead-lettered."""
        self._change(lock, changes, turn)
        ended = self.store.release([lock], turn.now, count=True)
        if not ended:
            raise LockLost
        self.returned(ended, turn)

    def unlock(self, locks: Sequence[Lock], turn: Turn) -> None:
        """Give messages back as if they had never been delivered."""
        for ended in self.store.release(locks, turn.now, count=False):
            turn.ready.add(container_of(ended.id))

    def defer(self, lock: Lock, changes: dict[str, Any] | None, turn: Turn) -> None:
        """Set a message aside, to be had by its number; counts as a delivery."""
        self._change(lock, changes, turn)
        ended = self.store.defer(lock, turn.now)
        if ended is None:
            raise LockLost
        self.returned([ended], turn)

    def dead_letter(self, lock: Lock, marks: dict[str, Any], turn: Turn) -> None:
        """Move a message to the dead-letter queue; `marks` are properties to set."""
        stored = self.store.held(lock, turn.now)
        if stored is None:
            raise LockLost
        self.check_dead_letter(stored)
        self.changed(stored, marks)
        self.router.dead_letter(stored, marks, turn)

    @staticmethod
    def check_dead_letter(stored: Stored) -> None:
        """Refuse to dead-letter a message of a dead-letter queue."""
        if is_sub_queue(stored.container):
            raise CallerError(
                "A message of a dead-letter queue cannot be dead-lettered again. "
                "Complete, abandon or defer it."
            )

    def _change(self, lock: Lock, changes: dict[str, Any] | None, turn: Turn) -> None:
        if not changes:
            return
        stored = self.store.held(lock, turn.now)
        if stored is None:
            raise LockLost
        bare = self.changed(stored, changes)
        self.store.replace(stored.id, stored.head, bare)

    def changed(self, stored: Stored, changes: dict[str, Any]) -> bytes:
        """The message with properties set; refuses what could not be read again."""
        if not changes:
            return stored.bare
        try:
            bare = parts.with_application_properties(stored.bare, changes)
            sections.read_application_properties(bare)
        except PeerError as error:
            raise InvalidField(
                f"The properties of message {stored.sequence} cannot be changed: "
                f"{error.text}"
            ) from None
        entity = self.entities.of_container(stored.container)
        bytes_max = limits.MESSAGE_BYTES_MAX
        if entity is not None:
            bytes_max = entity.message_bytes_max
        # As large as a message may be, and as much again as properties may have.
        bytes_max += limits.PROPERTIES_BYTES_MAX
        if len(bare) > max(bytes_max, len(stored.bare)):
            raise MessageTooLarge(
                f"With these properties the message has {len(bare)} bytes; at most "
                f"{bytes_max} are allowed."
            )
        return bare

    def returned(self, ended: Sequence[EndedLock], turn: Turn) -> None:
        """Messages came back with their count raised."""
        turn.left -= len(ended)
        for item in ended:
            container = container_of(item.id)
            entity = self.entities.of_container(container)
            turn.ready.add(container)
            if entity is None or is_sub_queue(container):
                continue
            most = entity.max_delivery_count
            if most is not None and item.deliveries >= most:
                self._bury_worn(item.id, most, turn)

    def _bury_worn(self, id: int, most: int, turn: Turn) -> None:
        for stored in self.store.find(container_of(id), [sequence_of(id)]):
            marks = {
                DEAD_LETTER_REASON: "MaxDeliveryCountExceeded",
                DEAD_LETTER_DESCRIPTION: (
                    f"Message could not be consumed after {most} delivery attempts."
                ),
            }
            self.bury(stored, marks, turn)

    def bury(self, stored: Stored, marks: dict[str, Any], turn: Turn) -> None:
        """Dead-letter a message because of its time or its count."""
        work = partial(self.router.dead_letter, stored, marks, turn)
        self.work_off(stored, work, "dead-lettered", turn)

    def work_off(
        self, stored: Stored, work: Callable[[], None], action: str, turn: Turn
    ) -> None:
        """Do what time asks for with one kept message; if that fails, set it aside.

        No client waits for an answer here. Without this, the message would fail every
        turn from now on, because time asks for the same again in each.
        """
        try:
            with self.part():
                work()
        except StoreFault:
            raise
        except Exception as error:
            name = "no entity"
            if (entity := self._entity_of(stored.id)) is not None:
                name = entity.name
            where = f"{stored.sequence} of {name}"
            log.exception("message %s could not be %s; it is set aside", where, action)
            self._set_aside(stored, action, error, turn)

    def _set_aside(
        self, stored: Stored, action: str, error: Exception, turn: Turn
    ) -> None:
        """Keep a message that could not be moved where it can be looked at."""
        try:
            with self.part():
                self.router.set_aside(stored, action, error, turn)
        except StoreFault:
            raise
        except Exception as second:  # noqa: BLE001
            self.store.quarantine(stored.id, error_text(second))

    def unlock_session(self, container: int, grant: SessionGrant, turn: Turn) -> None:
        """A session's receiver is gone; what it held counts as delivered."""
        ended = self.store.release_session(container, grant, turn.now, count=True)
        turn.ready.add(container)
        self.returned(ended, turn)

    # -- entities --------------------------------------------------------------------

    def delete(self, path: EntityPath, turn: Turn) -> None:
        """Delete an entity; links on it are told when the turn is over."""
        below = list(self.entities.get(path).subscriptions.values())
        entity = self.entities.delete(path, turn)
        gone = (*below, entity)
        self.undo_log.extend(turn.deleted, [each.id for each in gone])

    def _entity_of(self, id: int) -> Entity | None:
        return self.entities.of_container(container_of(id))
