"""Where a message goes: duplicates, schedules, topics, forwarding, dead-letter queues.

Owns the way of a letter from the entity it was sent to into the containers that keep
it, in one transaction. A scheduled letter is kept by its entity and starts its way when
its time has come (`activate`). One for an entity of another shard goes through the
outbox (`post`, `arrive`). A message that would make more copies than fit into a
turn is kept whole by its topic, and copied in the turns that follow (`fan_out`); those
that are sent to the topic meanwhile come after it. What is forwarded goes all its way
at once; the copies of one message are bounded. A hop that cannot be made (too many,
target missing, disabled or full) ends in the transfer dead-letter queue of the entity
that forwards. A message that the clock moves and that cannot be moved is set aside, so
that the others can be.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from twinbus import limits
from twinbus.core.filters import Budget
from twinbus.errors import FilterError, PeerError, StoreFault
from twinbus.server.broker.crossing.parcels import (
    LETTER,
    Route,
    pack_letter,
    spooled_kind,
)
from twinbus.server.broker.directory.entities import Entities
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.sending.fan_out import Copied, Cursor, cursor_of, keep_cursor
from twinbus.server.broker.sending.letter import (
    Letter,
    LetterView,
    error_text,
    with_marks,
)
from twinbus.server.broker.sending.naming import duplicate_key
from twinbus.server.broker.turn import Turn
from twinbus.server.broker.undo import UndoLog
from twinbus.store.base import (
    DEAD_LETTER,
    POSTPONED,
    TRANSFER_DEAD_LETTER,
    Store,
    Stored,
    id_of,
    is_sub_queue,
)
from twinbus.store.records import Record
from twinbus.wire.message import sections
from twinbus.wire.message.names import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON
from twinbus.wire.message.sections import Incoming

log = logging.getLogger("twinbus.routing")

T = TypeVar("T")


def expiry(base_ms: int, ttl_ms: int | None, entity_ttl_ms: int | None) -> int | None:
    """When a message ends: the smaller of its times to live counts."""
    if ttl_ms is None:
        return None if entity_ttl_ms is None else base_ms + entity_ttl_ms
    if entity_ttl_ms is None or ttl_ms < entity_ttl_ms:
        return base_ms + ttl_ms
    return base_ms + entity_ttl_ms


def _is_over(topic: Entity, turn: Turn) -> bool:
    """Whether the copies of a message should wait for another turn."""
    if turn.left > 0:
        return False
    most = limits.COPIES_AT_ONCE
    below = topic.subscriptions.values()
    is_small = len(below) <= most and sum(len(each.rules) for each in below) <= most
    return not is_small or turn.left <= -limits.SMALL_TOPIC_WORK_MAX


def _in_order(topic: Entity) -> list[Entity]:
    return sorted(topic.subscriptions.values(), key=lambda each: each.id)


class Router:
    """Moves letters into containers."""

    def __init__(self, store: Store, entities: Entities, undo_log: UndoLog) -> None:
        self._store = store
        self._entities = entities
        # Copies of the message that is on its way now.
        self._copied = 0
        # Copies for subscriptions that are kept together (`_in_runs`).
        self._gathered: dict[int, list[Record]] | None = None
        # The end of the topic that `fan_out` has worked on last.
        self._fanned_out = 0
        self._undo_log = undo_log

    def use_store(self, store: Store) -> None:
        """Go on with that store."""
        self._store = store

    def deliver(self, entity: Entity, letter: Letter, turn: Turn, hops: int = 0) -> int:
        """Bring a letter to a queue or topic; returns its number there.

        A duplicate within the window gets a number and is dropped.
        """
        if hops == 0:
            self._copied = 0
        window_ms = entity.duplicate_window_ms
        if window_ms is not None:
            key = duplicate_key(letter.message_id)
            until_ms = turn.now.steady_ms + window_ms
            if not self._store.remember(entity.id, [key], until_ms, turn.now)[0]:
                # A fresh number; with the original's this sender could cancel the
                # other message.
                return self._store.number(entity.id, 1)
        return self._keep(entity, letter, turn, hops)

    def resend(self, entity: Entity, letter: Letter, turn: Turn) -> int:
        """Bring a letter back that was taken out; returns its number.

        Its id may be remembered, since it was here before: it is no duplicate.
        """
        self._copied = 0
        return self._keep(entity, letter, turn, 0)

    def _keep(self, entity: Entity, letter: Letter, turn: Turn, hops: int) -> int:
        if letter.scheduled_ms is not None and letter.scheduled_ms > turn.now.wall_ms:
            return self._schedule(entity, letter, turn)
        letter.scheduled_ms = None
        if entity.kind == "topic":
            return self._publish(entity, letter, turn, hops)
        return self.put(entity, letter, turn, hops)

    def publish(
        self, topic: Entity, messages: Sequence[Incoming], turn: Turn
    ) -> list[int]:
        """Bring messages to a topic; those that must wait are kept in one go."""
        return self._in_runs(lambda: self._publish_all(topic, messages, turn), turn)

    def _publish_all(
        self, topic: Entity, messages: Sequence[Incoming], turn: Turn
    ) -> list[int]:
        is_plain = topic.duplicate_window_ms is None and all(
            message.scheduled_ms is None for message in messages
        )
        numbers: list[int] = []
        for place, message in enumerate(messages):
            if is_plain and self._must_wait(topic, turn):
                rest = messages[place:]
                first = self._keep_whole(topic, rest, turn)
                return [*numbers, *range(first, first + len(rest))]
            numbers.append(self.deliver(topic, Letter.incoming(message), turn))
        return numbers

    def _in_runs(self, work: Callable[[], T], turn: Turn) -> T:
        """Do something; then keep the copies that it made, a subscription at a time."""
        gathered: dict[int, list[Record]] = {}
        self._gathered = gathered
        try:
            done = work()
        finally:
            self._gathered = None
        for container, records in gathered.items():
            self._store.append(container, records, turn.now)
        return done

    def _keep_whole(
        self, topic: Entity, messages: Sequence[Incoming], turn: Turn
    ) -> int:
        """Keep messages as they came, for `fan_out`; returns the first number."""
        wall_ms = turn.now.wall_ms
        records = [
            Record(
                message.head(),
                message.bare,
                None,
                expiry(wall_ms, message.ttl_ms, topic.ttl_ms),
                POSTPONED,
            )
            for message in messages
        ]
        turn.left -= len(records)
        return self._store.append(topic.id, records, turn.now)

    def _schedule(self, entity: Entity, letter: Letter, turn: Turn) -> int:
        assert letter.scheduled_ms is not None
        expires_ms = expiry(letter.scheduled_ms, letter.ttl_ms, entity.ttl_ms)
        session = letter.session_id if entity.requires_session else None
        record = letter.record(session, expires_ms)
        return self._store.append(entity.id, [record], turn.now)

    def activate(self, stored: Stored, turn: Turn) -> None:
        """A scheduled message whose time has come starts its way."""
        self._copied = 0
        entity = self._entities.of_container(stored.container)
        self._store.remove([stored.id])
        if entity is None:
            return
        letter = Letter.stored(stored, turn.now.wall_ms)
        letter.origin = None
        if entity.kind == "topic":
            self._publish(entity, letter, turn, 0)
        else:
            self.put(entity, letter, turn, 0)

    # -- containers ----------------------------------------------------------------

    def put(self, entity: Entity, letter: Letter, turn: Turn, hops: int) -> int:
        """Keep a letter in a queue or subscription, or forward a copy of it."""
        self._copied += 1
        if entity.forward_key is not None:
            letter = letter.copy()
            sequence = self._store.number(entity.id, 1)
            if letter.origin is None:
                letter.origin = entity.number_base | sequence
            self._forward(entity, entity.forward_key, letter, turn, hops)
            return sequence
        session = letter.session_id if entity.requires_session else None
        if entity.requires_session and session is None:
            letter = self._marked(letter.copy(), "Session ID is null.", "")
            return self.bury(entity, letter, turn, DEAD_LETTER)
        expires_ms = expiry(turn.now.wall_ms, letter.ttl_ms, entity.ttl_ms)
        record = letter.record(session, expires_ms)
        is_first = entity.id not in turn.ready
        is_gathered = entity.topic is not None and self._gathered is not None
        rows = limits.ROWS_OF_COPY if is_gathered else limits.ROWS_OF_PUT
        turn.left -= limits.ROWS_OF_FIRST_PUT if is_first else rows
        turn.ready.add(entity.id)
        if entity.topic is not None:
            if entity.topic.id in turn.topic_bytes:
                turn.topic_bytes[entity.topic.id] += len(record.head) + len(record.bare)
            if self._gathered is not None:
                # The number that it will have is not asked for.
                self._gathered.setdefault(entity.id, []).append(record)
                return 0
        return self._store.append(entity.id, [record], turn.now)

    def bury(self, entity: Entity, letter: Letter, turn: Turn, which: int) -> int:
        """Keep a letter in one of the entity's dead-letter queues."""
        letter.scheduled_ms = None
        if which == DEAD_LETTER:
            entity.count("dead_lettered", 1, self._undo_log)
        turn.ready.add(entity.id + which)
        record = letter.record(None, None)
        return self._store.append(entity.id + which, [record], turn.now)

    def dead_letter(
        self, stored: Stored, marks: dict[str, Any], turn: Turn, hops: int = 0
    ) -> None:
        """Move a kept message to the dead-letter queue, or forward it from there."""
        entity = self._entities.of_container(stored.container)
        assert entity is not None
        bare = with_marks(stored.bare, marks)
        self._store.remove([stored.id])
        stored = stored._replace(bare=bare, expires_ms=None)
        letter = Letter.stored(stored, turn.now.wall_ms)
        letter.deliveries = stored.deliveries
        letter.origin = stored.origin or entity.number_base | stored.sequence
        target = entity.forward_dead_letter_key
        if target is None or is_sub_queue(stored.container):
            self.bury(entity, letter, turn, DEAD_LETTER)
            return
        self._copied = 0
        entity.count("dead_lettered", 1, self._undo_log)
        letter.source = entity.name
        letter.deliveries = 0
        self._forward(entity, target, letter, turn, hops)

    # -- messages that cannot be moved ---------------------------------------------

    def set_aside(
        self, stored: Stored, action: str, error: Exception, turn: Turn
    ) -> None:
        """Keep a message that could not be moved, with the reason."""
        self._store.remove([stored.id])
        entity = self._entities.of_container(stored.container)
        if entity is not None:
            text = f"The message could not be {action}. {error_text(error)}"
            self._set_aside(entity, stored, text, turn)

    def _set_aside(self, entity: Entity, stored: Stored, text: str, turn: Turn) -> None:
        """Keep a message in the entity's own dead-letter queue, and forward it nowhere.

        A topic has none: there it is the transfer dead-letter queue.
        """
        letter = Letter(stored.head, stored.bare)
        letter.origin = stored.origin or entity.number_base | stored.sequence
        letter.source = stored.source
        letter.deliveries = stored.deliveries
        is_topic = entity.kind == "topic"
        which = TRANSFER_DEAD_LETTER if is_topic else DEAD_LETTER
        letter = self._marked(letter, "InternalError", text)
        self.bury(entity, letter, turn, which)

    @staticmethod
    def _marked(letter: Letter, reason: str, description: str) -> Letter:
        marks = {DEAD_LETTER_REASON: reason, DEAD_LETTER_DESCRIPTION: description}
        letter.bare = with_marks(letter.bare, marks)
        return letter

    # -- forwarding ----------------------------------------------------------------

    def _forward(
        self, source: Entity, target_key: str, letter: Letter, turn: Turn, hops: int
    ) -> None:
        known = self._entities.find_anywhere(target_key)
        if known is not None:
            shard: int | None = self._shard_for(known, letter)
        else:
            # Another node may have made it just now: then its shard knows it.
            shard = self._entities.home_of(target_key)
        is_here = shard in (None, self._entities.shard)
        target = self._entities.find(target_key) if is_here else None
        problem = self._limit(hops)
        if problem is None and is_here:
            problem = self._obstacle(target, letter, turn)
        if problem is not None:
            self.give_up(source, letter, problem, turn)
        elif is_here:
            assert target is not None
            self.deliver(target, letter, turn, hops + 1)
        else:
            assert shard is not None
            self._post(LETTER, (shard, target_key), letter, (source.key, hops), turn)

    def _shard_for(self, target: Entity, letter: Letter) -> int:
        """The shard where a letter goes: of a fragment, its own if it has no key."""
        if not target.fragments:
            return target.shard
        key = letter.session_id or sections.partition_key_of(letter.head)
        if key is None and target.duplicate_window_ms is not None:
            key = duplicate_key(letter.message_id)
        if key is not None:
            return target.fragment_of(key)
        if target.shard == self._entities.shard:
            return target.shard
        return self._entities.fragment_for(target, None).shard

    def give_up(
        self, source: Entity, letter: Letter, problem: tuple[str, str], turn: Turn
    ) -> None:
        """A letter cannot be forwarded: keep it where it came from, with the reason."""
        letter = self._marked(letter, *problem)
        self.bury(source, letter, turn, TRANSFER_DEAD_LETTER)

    def post(
        self, source_key: str, target: Entity, letter: Letter, turn: Turn, hops: int
    ) -> None:
        """Send a letter on to an entity of another shard.

        It arrives there after this turn (`arrive`). With -1 hops it was not forwarded:
        a client has sent it, in a transaction that is carried out in this shard.
        """
        at = (target.shard, target.key)
        self._post(LETTER, at, letter, (source_key, hops), turn)

    def spool(self, target: Entity, letter: Letter, turn: Turn) -> int:
        """Keep a letter for an entity of a sick shard; returns its bytes."""
        at = (target.shard, target.key)
        return self._post(spooled_kind(target.key), at, letter, ("", -1), turn)

    def _post(
        self,
        kind: str,
        target: tuple[int, str],
        letter: Letter,
        behind: tuple[str, int],
        turn: Turn,
    ) -> int:
        """Post a letter for a shard and the key of its entity; returns its bytes."""
        shard, key = target
        source_key, hops = behind
        way = Route(key, source_key, hops, self._copied, turn.now.wall_ms)
        turn.left -= 1
        body = pack_letter(letter, way)
        self._store.post(shard, kind, body)
        return len(body)

    def arrive(self, letter: Letter, way: Route, turn: Turn) -> tuple[str, str] | None:
        """A letter came from another shard; returns why it cannot be delivered."""
        target = self._entities.find(way.target)
        self._copied = way.copied
        problem = self._limit(max(way.hops, 0)) or self._obstacle(target, letter, turn)
        if problem is not None:
            return problem
        assert target is not None
        shard = self._shard_for(target, letter)
        if shard != self._entities.shard:
            # Its source did not know yet that the entity has fragments.
            behind = (way.source, way.hops)
            self._post(LETTER, (shard, target.key), letter, behind, turn)
            return None
        if way.hops < 0:
            target.count("received", 1, self._undo_log)
            self._store.touch(target.id, turn.now)
        self.deliver(target, letter, turn, way.hops + 1)
        return None

    def _limit(self, hops: int) -> tuple[str, str] | None:
        """Why a message is not forwarded once more, as reason and description."""
        if hops >= limits.FORWARD_HOPS_MAX:
            return (
                "MaxTransferHopCountExceeded",
                f"A message is forwarded at most {limits.FORWARD_HOPS_MAX} times.",
            )
        if self._copied > limits.FORWARD_COPIES_MAX:
            return (
                "MaxTransferCopiesExceeded",
                f"At most {limits.FORWARD_COPIES_MAX} copies of a message are made.",
            )
        return None

    def _obstacle(
        self, target: Entity | None, letter: Letter, turn: Turn
    ) -> tuple[str, str] | None:
        """Why an entity of this shard does not take a letter."""
        if target is None:
            return "EntityNotFound", "The entity to forward to does not exist."
        if not target.description.status.can_send:
            return "EntityDisabled", f"'{target.name}' does not accept messages."
        if target.requires_session and letter.session_id is None:
            return "Session ID is null.", f"'{target.name}' requires sessions."
        if self.is_full(target, len(letter.bare), turn):
            return "QuotaExceeded", f"'{target.name}' is full."
        return None

    def is_full(self, entity: Entity, more_bytes: int, turn: Turn) -> bool:
        """Whether an entity has no room for so many more bytes."""
        used = self._used_bytes(entity, turn)
        return used + more_bytes > entity.size_bytes_max

    def _used_bytes(self, entity: Entity, turn: Turn) -> int:
        """What an entity holds; a topic with its subscriptions, which may be many.

        Those are looked at once in a turn; then copies are added, and what is taken
        counts from the next turn on.
        """
        if entity.kind != "topic":
            return self._store.size_bytes(entity.id)
        if entity.id not in turn.topic_bytes:
            below = entity.subscriptions.values()
            turn.topic_bytes[entity.id] = sum(
                self._store.size_bytes(each.id) for each in (entity, *below)
            )
        return turn.topic_bytes[entity.id]

    # -- topics ----------------------------------------------------------------------

    def _publish(self, topic: Entity, letter: Letter, turn: Turn, hops: int) -> int:
        if topic.ttl_ms is not None:
            ttl = topic.ttl_ms if letter.ttl_ms is None else letter.ttl_ms
            letter.ttl_ms = min(ttl, topic.ttl_ms)
        if hops == 0 and self._must_wait(topic, turn):
            return self._postpone(topic, letter, turn)
        sequence = self._store.number(topic.id, 1)
        if letter.origin is None:
            letter.origin = topic.number_base | sequence
        last = self._copy(topic, letter, turn, hops)
        if last is not None:
            kept = self._postpone(topic, letter, turn)
            keep_cursor(self._store, topic, Cursor(kept, last, kept))
        return sequence

    def _copy(self, topic: Entity, letter: Letter, turn: Turn, hops: int) -> int | None:
        """Copy a letter to the subscriptions.

        Returns the last one that has its copy, if there are others and the turn is
        full.
        """
        assert letter.origin is not None
        view = LetterView(letter, letter.origin, turn.now.wall_ms)
        waiting = _in_order(topic)
        for place, subscription in enumerate(waiting, start=1):
            for copy in self._copies(subscription, letter, view, turn):
                self.put(subscription, copy, turn, hops)
            if hops == 0 and place < len(waiting) and _is_over(topic, turn):
                return subscription.id
        return None

    def _must_wait(self, topic: Entity, turn: Turn) -> bool:
        """Whether a message is kept whole, also because others before it are."""
        return _is_over(topic, turn) or self._store.is_postponing(topic.id)

    def _postpone(self, topic: Entity, letter: Letter, turn: Turn) -> int:
        """Keep a letter whole, for `fan_out`; returns its number."""
        expires_ms = expiry(turn.now.wall_ms, letter.ttl_ms, None)
        twin = letter.copy()
        twin.scheduled_ms = POSTPONED
        # It was never delivered; this is what it keeps of its way.
        twin.deliveries = self._copied
        turn.left -= limits.ROWS_OF_PUT
        return self._store.append(topic.id, [twin.record(None, expires_ms)], turn.now)

    def next_postponed(self) -> list[Stored]:
        """Messages of one topic that wait for `fan_out`; topics take turns."""
        most = limits.FAN_OUT_MESSAGES_MAX, limits.FAN_OUT_BYTES_MAX
        found = self._store.postponed(self._fanned_out, *most)
        return found or self._store.postponed(0, *most)

    def fan_out(self, waiting: Sequence[Stored], turn: Turn) -> None:
        """Copy messages that a topic has kept whole, as far as this turn goes."""
        topic = self._entities.of_container(waiting[0].container)
        if topic is None:
            self._store.remove([stored.id for stored in waiting])
            return
        reached = self._in_runs(lambda: self._fan_out(topic, waiting, turn), turn)
        # The next one of this topic, or of another one if the turn is full.
        self._fanned_out = id_of(topic.id + 1, 0) - 1 if turn.is_full else reached

    def _fan_out(self, topic: Entity, waiting: Sequence[Stored], turn: Turn) -> int:
        """Returns the id of the last message that has all or some of its copies."""
        cursor = cursor_of(self._store, topic)
        # Those that have some of their copies come before the others.
        begun = [each for each in waiting if each.sequence <= cursor.last]
        group = begun or waiting
        last = group[-1]
        if not begun:
            cursor = Cursor(last.sequence)
        # One of them alone, after an error: its cursor would be wrong for the others.
        is_whole = last.sequence == cursor.last
        copied = [self._on_its_way(topic, stored, turn) for stored in group]
        for subscription in _in_order(topic):
            for each in cursor.left_of(copied, subscription.id):
                if is_whole and _is_over(topic, turn):
                    keep_cursor(self._store, topic, cursor)
                    return last.id
                self._copied = each.count
                letter = each.letter
                for copy in self._copies(subscription, letter, each.view, turn):
                    self.put(subscription, copy, turn, 0)
                each.count = self._copied
                if is_whole:
                    cursor.reach(subscription.id, each.number)
        self._store.remove([stored.id for stored in group])
        return last.id

    @staticmethod
    def _on_its_way(topic: Entity, stored: Stored, turn: Turn) -> Copied:
        turn.left -= limits.ROWS_OF_POSTPONED
        letter = Letter.stored(stored, turn.now.wall_ms)
        letter.origin = stored.origin or topic.number_base | stored.sequence
        return Copied(stored.sequence, letter, turn.now.wall_ms, stored.deliveries)

    def _copies(
        self, subscription: Entity, letter: Letter, view: LetterView, turn: Turn
    ) -> list[Letter]:
        """One copy for all matching rules without action, one for each with."""
        copies: list[Letter] = []
        plain = False
        budget = Budget()
        turn.left -= 1
        for rule in subscription.rules.values():
            try:
                budget.spend(limits.FILTER_STEPS_OF_RULE)
                if not rule.filter.matches(view, budget):
                    continue
                if rule.action is None:
                    plain = True
                else:
                    changes = rule.action.apply(view, budget)
                    # As documented, such a copy says which rule made it.
                    changes.properties["RuleName"] = rule.description.name
                    copies.append(letter.changed(changes))
            except StoreFault:
                raise
            except Exception as error:
                # Any error is the rule's: it must not fail the turn of all clients.
                if not isinstance(error, FilterError | PeerError):
                    name = rule.description.name
                    log.exception("rule %s of %s failed", name, subscription.name)
                self._bury_unmatched(subscription, letter, error, turn)
                copies = []
                plain = False
                break
        turn.left -= budget.steps // limits.FILTER_STEPS_PER_ROW
        if plain:
            copies.append(letter)
        return copies

    def _bury_unmatched(
        self, subscription: Entity, letter: Letter, error: Exception, turn: Turn
    ) -> None:
        """A rule failed on a letter: dead-letter it, if the subscription says so."""
        subscription.count("unfiltered", 1, self._undo_log)
        if subscription.dead_letters_filter_errors:
            bad = self._marked(letter.copy(), "FilterEvaluation", error_text(error))
            self.bury(subscription, bad, turn, DEAD_LETTER)
