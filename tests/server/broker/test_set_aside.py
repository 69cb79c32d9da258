"""Messages that the clock cannot move are set aside, and all others are served."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.server.desk import BODY, desk_at
from twinbus.clock import ManualClock, Now
from twinbus.core.entity import (
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.core.names import EntityPath
from twinbus.core.rule import default_rule
from twinbus.errors import StoreFault
from twinbus.server.broker.directory.config import (
    NamespaceConfig,
    SubscriptionConfig,
    TopicConfig,
)
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.host import Host
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.store.base import (
    DEAD_LETTER,
    TRANSFER_DEAD_LETTER,
    Stored,
)
from twinbus.store.records import Record
from twinbus.store.sqlite.store import SqliteStore
from twinbus.wire.events import Detached
from twinbus.wire.message import sections
from twinbus.wire.message.names import DEAD_LETTER_DESCRIPTION as DESCRIPTION
from twinbus.wire.message.names import DEAD_LETTER_REASON as REASON

NOW_MS = 1_700_000_000_000
LATER_MS = NOW_MS + 60_000
IDLE_MS = 600_000


class DefectiveStore(SqliteStore):
    """A store that breaks after it has written, in the containers of `defects`."""

    defects: dict[int, Exception]

    def append(self, container: int, records: Sequence[Record], now: Now) -> int:
        first = super().append(container, records, now)
        self._break(container)
        return first

    def delete_entity(self, entity: int) -> None:
        super().delete_entity(entity)
        self._break(entity)

    def _break(self, container: int) -> None:
        if container in self.defects:
            raise self.defects[container]


class Bench:
    """A namespace on a defective store, inside a transaction."""

    def __init__(self) -> None:
        self.store = DefectiveStore.memory()
        self.store.defects = {}
        self.store.begin()
        self.namespace = Namespace("contoso", self.store)

    def make(self, description: Description) -> Entity:
        return self.namespace.entities.create(description, NOW_MS)

    def queue(self, name: str) -> Entity:
        return self.make(QueueDescription(name))

    def breaks(self, entity: Entity, error: Exception | None = None) -> None:
        """From now on the entity cannot be written to."""
        self.store.defects[entity.id] = error or ZeroDivisionError("by zero")

    def send(self, entity: Entity, name: str, due_ms: int | None = None) -> None:
        fields = {sections.MESSAGE_ID: name}
        message = sections.parse(sections.encode_message(b"x", fields))
        message.scheduled_ms = due_ms
        self.namespace.send(entity, [message], Turn(Now.at(NOW_MS)))

    def kept(self, entity: Entity, which: int = 0) -> list[Stored]:
        return self.store.peek(entity.id + which, 1, 10, Now.at(LATER_MS), None)

    def set_aside(self, entity: Entity, which: int = DEAD_LETTER) -> str:
        """The description of the only message that was set aside."""
        (stored,) = self.kept(entity, which)
        assert self.store.counts(entity.id + which).active == 1
        marks = sections.read_application_properties(stored.bare)
        assert marks[REASON] == "InternalError"
        return str(marks[DESCRIPTION])


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_message_of_a_topic_goes_to_its_transfer_dead_letter_queue(
    bench: Bench,
) -> None:
    topic = bench.make(TopicDescription("t"))
    first = bench.make(SubscriptionDescription("t", "first"))
    second = bench.make(SubscriptionDescription("t", "second"))
    queue = bench.queue("q")
    bench.send(topic, "bad", LATER_MS)
    bench.send(queue, "good", LATER_MS)
    bench.breaks(second)
    turn = Turn(Now.at(LATER_MS))

    bench.namespace.ticker.tick(turn)

    text = bench.set_aside(topic, TRANSFER_DEAD_LETTER)
    assert text == (
        "The message could not be enqueued at its time. ZeroDivisionError: by zero"
    )
    assert bench.store.counts(topic.id).scheduled == 0
    # The copy that the first had got is gone again.
    assert bench.kept(first) + bench.kept(second) == []
    assert [bench.store.counts(one.id).active for one in (first, second)] == [0, 0]
    assert len(bench.kept(queue)) == 1
    waiting = {queue.id, topic.id + TRANSFER_DEAD_LETTER}
    assert turn.ready >= waiting
    assert bench.namespace.store.next_wait_ms(turn.now) is None


def test_a_message_of_a_queue_goes_to_its_dead_letter_queue(bench: Bench) -> None:
    queue = bench.queue("q")
    bench.send(queue, "bad", LATER_MS)
    bench.breaks(queue)

    bench.namespace.ticker.tick(Turn(Now.at(LATER_MS)))

    assert "ZeroDivisionError" in bench.set_aside(queue)
    assert queue.dead_lettered == 1
    assert bench.kept(queue) == []


def expire(bench: Bench, entity: Entity) -> None:
    """The message expires."""
    bench.send(entity, "bad")


def wear_out(bench: Bench, entity: Entity) -> None:
    """The lock of the message ends, once too often."""
    bench.send(entity, "bad")
    bench.store.lock(entity.id, 1, NOW_MS + 5_000, Now.at(NOW_MS))


@pytest.mark.parametrize("end", [expire, wear_out])
def test_a_dead_letter_that_cannot_be_forwarded_stays(
    bench: Bench, end: Callable[[Bench, Entity], None]
) -> None:
    """What its subscriptions had counted before is not counted."""
    topic = bench.make(TopicDescription("t"))
    with_sessions = SubscriptionDescription("t", "s1", requires_session=True)
    counted = bench.make(with_sessions)
    bench.breaks(bench.make(SubscriptionDescription("t", "s2")))
    description = QueueDescription(
        "q",
        forward_dead_lettered_messages_to="t",
        max_delivery_count=1,
        dead_lettering_on_message_expiration=True,
        default_message_time_to_live_ms=10_000,
    )
    queue = bench.make(description)
    end(bench, queue)

    bench.namespace.ticker.tick(Turn(Now.at(LATER_MS)))

    assert "could not be dead-lettered. Zero" in bench.set_aside(queue)
    assert queue.dead_lettered == 1
    assert bench.kept(counted, DEAD_LETTER) == []
    assert counted.dead_lettered == 0
    assert bench.kept(topic, TRANSFER_DEAD_LETTER) == []


def test_a_fault_of_the_store_fails_the_turn(bench: Bench) -> None:
    queue = bench.queue("q")
    bench.send(queue, "good", LATER_MS)
    bench.breaks(queue, StoreFault("the disk is gone"))

    with pytest.raises(StoreFault):
        bench.namespace.ticker.tick(Turn(Now.at(LATER_MS)))


def test_an_idle_entity_that_cannot_be_deleted_stays_as_it_is(bench: Bench) -> None:
    topic = bench.make(TopicDescription("t", auto_delete_on_idle_ms=IDLE_MS))
    below = bench.make(SubscriptionDescription("t", "s"))
    other = bench.make(QueueDescription("q", auto_delete_on_idle_ms=IDLE_MS))
    bench.breaks(topic)
    turn = Turn(Now.at(NOW_MS + IDLE_MS))

    bench.namespace.ticker.tick(turn)

    entities = bench.namespace.entities
    assert entities.find("q") is None
    assert turn.deleted == [other.id]
    assert entities.find("t") is topic
    assert topic.subscriptions == {"s": below}
    assert bench.store.counts(below.id).active == 0


async def test_other_clients_are_served_in_the_same_turn(bench: Bench) -> None:
    bad, good = bench.queue("bad"), bench.queue("good")
    bench.send(bad, "bad", LATER_MS)
    bench.send(good, "planned", LATER_MS)
    bench.send(good, "locked")
    bench.store.lock(good.id, 1, NOW_MS + 5_000, Now.at(NOW_MS))
    bench.store.commit()
    bench.breaks(bad)
    host = Host(bench.namespace, ManualClock(LATER_MS))

    def work(namespace: Namespace, turn: Turn) -> None:
        entity = namespace.entities.get(EntityPath("good"))
        message = sections.parse(sections.encode_message(b"x"))
        namespace.send(entity, [message], turn)

    await host.run(work)

    bench.store.begin()
    assert bench.store.counts(good.id).active == 3
    assert len(bench.store.lock(good.id, 9, LATER_MS + 1, Now.at(LATER_MS))[1]) == 3
    assert bench.set_aside(bad)
    bench.store.rollback()
    await host.close()


async def test_messages_that_a_topic_set_aside_can_be_received(tmp_path: Path) -> None:
    subscription = SubscriptionDescription("events", "all")
    config = NamespaceConfig(
        "contoso",
        topics=(
            TopicConfig(
                TopicDescription("events"),
                (SubscriptionConfig(subscription, (default_rule(),)),),
            ),
        ),
    )
    async with desk_at(tmp_path, config) as desk:

        def fill(namespace: Namespace, turn: Turn) -> None:
            topic = namespace.entities.get(EntityPath("events"))
            container = topic.id + TRANSFER_DEAD_LETTER
            namespace.store.append(container, [Record(b"", BODY)], turn.now)

        await desk.server.host.run(fill)
        delivery = await desk.receive("events/$Transfer/$DeadLetterQueue")
        assert delivery.payload.endswith(BODY)
        await desk.client.receiver(desk.session, "events", credit=1)
        refused = await desk.client.wait(Detached)
        assert "is a topic" in str(refused.error)
