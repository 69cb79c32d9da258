"""A part of a turn that fails leaves nothing behind, and its neighbours are served."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from twinbus import limits
from twinbus.clock import Now
from twinbus.core.entity import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.core.filters import TrueFilter
from twinbus.core.names import EntityPath
from twinbus.core.rights import AuthorizationRule, Right
from twinbus.core.rule import RuleDescription
from twinbus.core.sas import Secret
from twinbus.errors import Bug, StoreFault
from twinbus.server.amqp.settling import Settle
from twinbus.server.broker.commands import MessageWant, Send, TakenMessages
from twinbus.server.broker.directory import keys
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Room, Turn, TurnOutcome, Work, run
from twinbus.store.base import (
    DEAD_LETTER,
    EndedLock,
    Lock,
)
from twinbus.store.records import Record
from twinbus.store.sqlite.store import SqliteStore
from twinbus.wire.message import sections
from twinbus.wire.message.sections import Incoming
from twinbus.wire.performatives import Accepted, Rejected

NOW_MS = 1_700_000_000_000


class BreakingStore(SqliteStore):
    """A store that raises after it has done something to a marked message."""

    def append(self, container: int, records: Any, now: Now) -> int:
        number = super().append(container, records, now)
        if any(b"break" in record.bare for record in records):
            raise ZeroDivisionError("by append")
        return number

    def complete(self, locks: Any, now: Now) -> list[bool]:
        held = [self.held(lock, now) for lock in locks]
        results = super().complete(locks, now)
        if any(stored is not None and b"stuck" in stored.bare for stored in held):
            raise ZeroDivisionError("by complete")
        return results


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    store = BreakingStore.memory()
    store.begin()
    made = Namespace("contoso", store, rate=1000)
    made.entities.create(QueueDescription("q"), NOW_MS)
    made.entities.create(QueueDescription("other"), NOW_MS)
    made.entities.create(TopicDescription("t"), NOW_MS)
    made.entities.create(SubscriptionDescription("t", "s"), NOW_MS)
    made.undo_log.clear()
    yield made
    store.rollback()
    store.close()


@pytest.fixture
def queue(namespace: Namespace) -> Entity:
    return namespace.entities.get(EntityPath("q"))


def message(body: bytes) -> Incoming:
    return sections.parse(sections.encode_message(body, {sections.MESSAGE_ID: "m"}))


def send(entity: Entity, *bodies: bytes) -> Send:
    return Send(entity, *([message(body)] for body in bodies))


def turn_of(namespace: Namespace, *commands: Any, **work: Any) -> TurnOutcome:
    return run(namespace, Work(Now.at(NOW_MS), commands, **work))


def everything(namespace: Namespace) -> object:
    """All that a command can change in memory, and the counts of the rows."""
    entities = {
        entity.key: (
            entity.id,
            entity.description,
            entity.updated_ms,
            entity.received,
            entity.completed,
            entity.dead_lettered,
            entity.delivered,
            sorted(entity.rules),
            sorted(entity.subscriptions),
            [namespace.store.counts(entity.id + part) for part in range(3)],
        )
        for entity in namespace.entities
    }
    bucket = namespace._bucket
    assert bucket is not None
    return entities, namespace.rules, bucket.state()


RULE = AuthorizationRule("r", Right.SEND, Secret("k"))
Change = Callable[[Namespace, Turn], object]
CHANGES: dict[str, Change] = {
    "send": lambda n, t: n.send(n.entities.get(EntityPath("q")), [message(b"a")], t),
    "publish": lambda n, t: n.send(n.entities.get(EntityPath("t")), [message(b"a")], t),
    "create": lambda n, t: n.entities.create(QueueDescription("new"), t.now.wall_ms),
    "subscribe": lambda n, t: n.entities.create(
        SubscriptionDescription("t", "more"), t.now.wall_ms
    ),
    "update": lambda n, t: n.entities.update(
        QueueDescription("q", authorization_rules=(RULE,)), t
    ),
    "delete a queue": lambda n, t: n.delete(EntityPath("q"), t),
    "delete a topic": lambda n, t: n.delete(EntityPath("t"), t),
    "add a rule": lambda n, t: n.entities.add_rule(
        n.entities.get(EntityPath("t", "s")),
        RuleDescription("mine", TrueFilter()),
        t.now.wall_ms,
    ),
    "remove a rule": lambda n, t: n.entities.remove_rule(
        n.entities.get(EntityPath("t", "s")), "$Default", t.now.wall_ms
    ),
    "authorization rules": lambda n, t: n.change_rules(
        lambda store: keys.put_rule(store, "mine", Right.SEND, t.now.wall_ms), t
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_an_unexpected_error_undoes_the_command_and_nothing_else(
    namespace: Namespace, queue: Entity, name: str
) -> None:
    def broken(names: Namespace, turn: Turn) -> None:
        CHANGES[name](names, turn)
        raise ZeroDivisionError

    before = everything(namespace)
    outcome = turn_of(namespace, broken)
    undone = everything(namespace)

    assert undone == before
    [answer] = outcome.answers
    assert isinstance(answer, Bug)
    effects = outcome.effects
    assert (effects.deleted, effects.emptied, effects.ended_sessions) == ([], [], [])
    # The same objects: links hold them.
    assert namespace.entities.get(EntityPath("q")) is queue


@pytest.mark.parametrize("name", CHANGES)
def test_neighbours_of_a_failing_command_are_served(
    namespace: Namespace, name: str
) -> None:
    def broken(names: Namespace, turn: Turn) -> None:
        CHANGES[name](names, turn)
        raise ZeroDivisionError

    other = namespace.entities.get(EntityPath("other"))

    first, failed, second = turn_of(
        namespace, send(other, b"1"), broken, send(other, b"2")
    ).answers

    assert (first, second) == ({}, {})
    assert isinstance(failed, Bug)
    assert namespace.store.counts(other.id).active == 2


def test_one_delivery_of_a_run_fails_alone(namespace: Namespace, queue: Entity) -> None:
    [refused] = turn_of(namespace, send(queue, b"a", b"break", b"c")).answers

    assert list(refused) == [1]
    assert isinstance(refused[1], Bug)
    assert namespace.store.counts(queue.id).active == 2
    assert queue.received == 2


def test_one_settlement_of_a_run_fails_alone(
    namespace: Namespace, queue: Entity
) -> None:
    turn_of(namespace, send(queue, b"a", b"stuck", b"c"))
    nonce, held = namespace.store.lock(queue.id, 3, NOW_MS + 60_000, Now.at(NOW_MS))
    settle = Settle(queue.id, False, None)
    settle.items.append((Accepted(), [Lock(stored.id, nonce) for stored in held]))

    [states] = turn_of(namespace, settle).answers

    assert [type(state) for state in states] == [Accepted, Rejected, Accepted]
    assert states[1].error.condition == "amqp:internal-error"
    assert namespace.store.counts(queue.id).active == 1
    assert queue.completed == 2


def test_one_receiver_fails_alone(
    namespace: Namespace, queue: Entity, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = namespace.entities.get(EntityPath("other"))
    wants = {
        each.id: {number: MessageWant(number, each.id, each, Room(), 10)}
        for number, each in enumerate((queue, other))
    }
    monkeypatch.setattr(wants[queue.id][0].room, "passed_over", None)
    monkeypatch.setattr(wants[queue.id][0].room, "closed", True)

    outcome = turn_of(namespace, send(queue, b"a"), send(other, b"b"), wants=wants)

    taken = {want.key: each for want, each in outcome.deliveries}
    failed, served = taken[0], taken[1]
    assert isinstance(failed, TakenMessages)
    assert isinstance(failed.error, Bug)
    assert isinstance(served, TakenMessages)
    assert len(served.messages) == 1


def test_one_kind_of_the_tick_fails_alone(
    namespace: Namespace, queue: Entity, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> None:
        raise ZeroDivisionError

    turn_of(namespace, send(queue, b"a"))
    namespace.store.lock(queue.id, 1, NOW_MS + 1, Now.at(NOW_MS))
    monkeypatch.setattr(namespace.store, "end_sessions", breaks)

    outcome = run(namespace, Work(Now.at(NOW_MS + 2), tick=True))

    assert outcome.effects.ready == {queue.id}
    assert sum(namespace.defects.values()) == 1


class StuckLocks(SqliteStore):
    """A store that cannot end the locks of some messages."""

    stuck: frozenset[int] = frozenset()

    def _give_back(self, holds: Any, count: bool) -> list[EndedLock]:
        ended = super()._give_back(holds, count)
        if any(hold.id & 0xFFFF in self.stuck for hold in holds):
            raise ZeroDivisionError("by end_locks")
        return ended


@pytest.fixture
def stuck() -> Iterator[Namespace]:
    store = StuckLocks.memory()
    store.begin()
    made = Namespace("contoso", store)
    made.entities.create(QueueDescription("q", max_delivery_count=1), NOW_MS)
    made.undo_log.clear()
    yield made
    store.rollback()
    store.close()


def break_locks(namespace: Namespace, *sequences: int) -> None:
    """Let the locks of these messages not end."""
    assert isinstance(namespace.store, StuckLocks)
    namespace.store.stuck = frozenset(sequences)


def lock_all(namespace: Namespace, count: int) -> Entity:
    """Send so many messages and lock them until one millisecond from now."""
    queue = namespace.entities.get(EntityPath("q"))
    turn_of(namespace, send(queue, *[b"m"] * count))
    namespace.store.lock(queue.id, count, NOW_MS + 1, Now.at(NOW_MS))
    return queue


def test_locks_end_one_by_one_where_all_together_fail(stuck: Namespace) -> None:
    queue = lock_all(stuck, 5)
    break_locks(stuck, 2, 4)
    later = Now.at(NOW_MS + 1)

    outcome = run(stuck, Work(later, tick=True))

    # Delivered often enough: they are dead-lettered, as if nothing had been wrong.
    assert stuck.store.counts(queue.id).active == 0
    assert stuck.store.counts(queue.id + DEAD_LETTER).active == 3
    assert queue.id in outcome.effects.ready
    stuck.store.commit()
    assert stuck.store.quarantined() == 2
    stuck.store.begin()
    assert stuck.store.next_wait_ms(later) is None
    assert sum(stuck.defects.values()) == 1


def test_a_turn_ends_a_bounded_number_of_locks_one_by_one(stuck: Namespace) -> None:
    count = limits.END_ALONE_MAX + 10
    queue = lock_all(stuck, count)
    break_locks(stuck, 1)
    work = Work(Now.at(NOW_MS + 1), tick=True)

    run(stuck, work)
    assert stuck.store.counts(queue.id).active == 10

    run(stuck, work)
    assert stuck.store.counts(queue.id).active == 0


def test_a_message_that_cannot_even_be_set_aside_is_quarantined(
    namespace: Namespace, queue: Entity
) -> None:
    turn_of(namespace, send(queue, b"a"))
    record = Record(b"", b"break", due_ms=NOW_MS)
    store = namespace.store
    assert isinstance(store, BreakingStore)
    SqliteStore.append(store, queue.id, [record], Now.at(NOW_MS))

    run(namespace, Work(Now.at(NOW_MS), tick=True))

    counts = namespace.store.counts(queue.id)
    assert (counts.active, counts.scheduled) == (1, 0)
    namespace.store.commit()
    assert namespace.store.quarantined() == 1
    namespace.store.begin()


def test_a_store_fault_inside_a_part_fails_the_turn(namespace: Namespace) -> None:
    def fails(_namespace: Namespace, _turn: Turn) -> None:
        raise StoreFault("The disk is full.")

    with pytest.raises(StoreFault):
        turn_of(namespace, fails)


def test_a_repeated_error_is_logged_at_tenfold_counts(
    namespace: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_namespace: Namespace, _turn: Turn) -> None:
        raise ZeroDivisionError

    with caplog.at_level(logging.ERROR, "twinbus.turn"):
        answers = turn_of(namespace, *[broken] * 100).answers

    counts = [str(record.args).split(", ")[2] for record in caplog.records]
    assert counts == ["1)", "10)", "100)"]
    assert len({answer.text for answer in answers}) == 100
