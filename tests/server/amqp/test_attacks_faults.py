"""Faults and races at the worst moment: what is believed afterwards must be true."""

from __future__ import annotations

import math

import pytest

from tests.server.raw import RawClient
from twinbus import limits
from twinbus.clock import ManualClock, Now
from twinbus.core.entity import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.core.names import EntityPath
from twinbus.errors import ArgumentError, InvalidField, QuotaExceeded, StoreFault
from twinbus.server.broker.directory.entities import Entities
from twinbus.server.broker.host import Host
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.server.http.rest.messages import Shown, read_batch
from twinbus.server.http.rest.receiving import PendingReceive, ReceivePlace
from twinbus.store.base import (
    TRANSFER_DEAD_LETTER,
    EntityRow,
)
from twinbus.store.records import Record
from twinbus.store.sqlite.store import SqliteStore
from twinbus.wire.codec import encode
from twinbus.wire.events import Disposed, Unsettled
from twinbus.wire.link import Link
from twinbus.wire.message import sections
from twinbus.wire.performatives import Accepted, Disposition
from twinbus.wire.session import Session
from twinbus.wire.types import Described, Symbol, Timestamp, ULong

NOW_MS = 1_700_000_000_000


class FaultyStore(SqliteStore):
    """A store whose entities cannot be read while `broken`."""

    broken = False

    def entities(self) -> list[EntityRow]:
        if self.broken:
            raise StoreFault("broken")
        return super().entities()


def provisioned(store: SqliteStore, *queues: QueueDescription) -> Namespace:
    namespace = Namespace("contoso", store)
    store.begin()
    for queue in queues:
        namespace.entities.create(queue, NOW_MS)
    store.commit()
    return namespace


def test_a_reload_that_fails_changes_nothing() -> None:
    """Links hold entities: other objects in their place would cut them all off."""
    store = FaultyStore.memory()
    entities: Entities = provisioned(store, QueueDescription("orders")).entities
    before = entities.get(EntityPath("orders"))
    store.broken = True
    with pytest.raises(StoreFault):
        entities.reload()
    assert entities.get(EntityPath("orders")) is before
    store.broken = False
    entities.reload()
    assert entities.get(EntityPath("orders")) is before


async def test_a_recovery_that_fails_is_tried_again() -> None:
    store = FaultyStore.memory()
    namespace = provisioned(store, QueueDescription("orders"))
    host = Host(namespace, ManualClock(NOW_MS))
    fault = host.fault = StoreFault("broken")
    store.broken = True
    await host.recovery.attempt()
    assert host.fault is fault
    store.broken = False
    await host.recovery.attempt()
    assert host.fault is not fault
    await host.close()


def scheduled(message_id: str, due_ms: int) -> sections.Incoming:
    annotations = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(due_ms)}
    parts = (
        (sections.MESSAGE_ANNOTATIONS, annotations),
        (sections.PROPERTIES, [message_id]),
        (sections.DATA, b"x"),
    )
    return sections.parse(
        b"".join(encode(Described(ULong(code), value)) for code, value in parts)
    )


def test_a_duplicate_gets_no_number_of_another() -> None:
    """With it a client would cancel a message that is not its own."""
    store = SqliteStore.memory()
    description = QueueDescription("orders", requires_duplicate_detection=True)
    namespace = provisioned(store, description)
    entity = namespace.entities.get(EntityPath("orders"))
    store.begin()
    due_ms = NOW_MS + 60_000
    namespace.send(entity, [scheduled("a", due_ms)], Turn(Now.at(NOW_MS)))
    (innocent,) = namespace.send(entity, [scheduled("b", due_ms)], Turn(Now.at(NOW_MS)))
    (duplicate,) = namespace.send(
        entity, [scheduled("a", due_ms)], Turn(Now.at(NOW_MS))
    )
    assert duplicate != innocent
    assert not namespace.cancel(entity, [duplicate])
    assert store.counts(entity.id).scheduled == 2
    store.commit()


def test_transfers_that_failed_count_for_the_quota() -> None:
    """Else a queue whose target is gone would take messages without end."""
    store = SqliteStore.memory()
    namespace = provisioned(
        store,
        QueueDescription("away"),
        QueueDescription("orders", forward_to="away", max_size_in_megabytes=1),
    )
    entity = namespace.entities.get(EntityPath("orders"))
    store.begin()
    namespace.delete(EntityPath("away"), Turn(Now.at(NOW_MS)))
    payload = sections.encode_message(bytes(200_000))
    for _ in range(5):
        namespace.send(entity, [sections.parse(payload)], Turn(Now.at(NOW_MS)))
    with pytest.raises(QuotaExceeded):
        namespace.send(entity, [sections.parse(payload)], Turn(Now.at(NOW_MS)))
    assert store.counts(entity.id + TRANSFER_DEAD_LETTER).active == 5
    store.commit()


def test_forwarding_between_topics_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One message must not become as many as subscriptions to the power of hops."""
    monkeypatch.setattr(limits, "FORWARD_COPIES_MAX", 50)
    store = SqliteStore.memory()
    namespace = provisioned(store)
    entities = namespace.entities
    store.begin()
    for topic in ("a", "b"):
        entities.create(TopicDescription(topic), NOW_MS)
    for topic, target in (("a", "b"), ("b", "a")):
        for number in range(4):
            name = f"s{number}"
            entities.create(
                SubscriptionDescription(topic, name, forward_to=target), NOW_MS
            )
    payload = sections.encode_message(b"x")
    for _ in range(2):
        entity = entities.get(EntityPath("a"))
        namespace.send(entity, [sections.parse(payload)], Turn(Now.at(NOW_MS)))
    kept = sum(
        store.counts(entity.id + TRANSFER_DEAD_LETTER).active for entity in entities
    )
    # Those that were too many, and the neighbours of those on their way.
    assert 50 < kept < 2 * (50 + 4 * 5)
    store.commit()


@pytest.mark.parametrize("message_id", [bytes(129), ["id"], {"a": "b"}, 1.5])
def test_invalid_message_ids_are_refused(message_id: object) -> None:
    """They are remembered for days where duplicates are looked for."""
    store = SqliteStore.memory()
    namespace = provisioned(store, QueueDescription("orders"))
    entity = namespace.entities.get(EntityPath("orders"))
    properties = encode(Described(ULong(sections.PROPERTIES), [message_id]))
    body = encode(Described(ULong(sections.DATA), b"x"))
    with pytest.raises(InvalidField):
        namespace.check_send(
            entity, [sections.parse(properties + body)], Turn(Now.at(NOW_MS))
        )


def test_message_ids_are_forgotten_after_a_wrong_clock() -> None:
    """Set forward by a year and back: ids are forgotten in time all the same."""
    store = SqliteStore.memory()
    description = QueueDescription("orders", requires_duplicate_detection=True)
    namespace = provisioned(store, description)
    entity = namespace.entities.get(EntityPath("orders"))
    store.begin()
    namespace.ticker.tick(Turn(Now(NOW_MS, NOW_MS + 365 * 86_400_000)))
    namespace.send(entity, [scheduled("a", 0)], Turn(Now.at(NOW_MS)))
    namespace.ticker.tick(Turn(Now.at(NOW_MS + 700_000)))
    store.commit()
    rows = store._connection.execute("SELECT count(*) FROM duplicate").fetchone()
    assert rows == (0,)


async def test_a_message_taken_at_the_deadline_is_received() -> None:
    """It is deleted already: nothing would be the wrong answer."""
    store = SqliteStore.memory()
    namespace = provisioned(store, QueueDescription("orders"))
    host = Host(namespace, ManualClock(NOW_MS))
    entity = namespace.entities.get(EntityPath("orders"))
    catch = PendingReceive([ReceivePlace(host, entity, entity.id)], lock=False)
    catch.open(60.0)
    timer = catch._timer
    assert timer is not None

    def send(space: Namespace, turn: Turn) -> None:
        space.store.append(entity.id, [Record(b"", b"")], turn.now)
        turn.ready.add(entity.id)
        # The time is over while the turn that takes the message is committed.
        host._loop.call_soon(timer._run)

    # A first look finds nothing.
    await host.run(lambda _space, _turn: None)
    await host.run(send)
    caught = await catch.done
    assert caught is not None
    catch.close()
    await host.close()


# -- HTTP ----------------------------------------------------------------------------


def test_odd_annotations_are_shown_all_the_same() -> None:
    """A message that cannot be shown is lost to the client that has just deleted it."""
    store = SqliteStore.memory()
    namespace = provisioned(store, QueueDescription("orders"))
    entity = namespace.entities.get(EntityPath("orders"))
    odd = {Symbol("x-opt-via-partition-key"): b"\xff", Symbol("x"): [math.nan]}
    many: dict[str, str | None] = {
        f"{number:x}": None for number in range(limits.SECTION_NODES_MAX // 2)
    }
    many["one"] = "more"
    bare = b"".join(
        encode(Described(ULong(code), value))
        for code, value in (
            (sections.APPLICATION_PROPERTIES, many),
            (sections.DATA, b"body"),
        )
    )
    annotated = encode(Described(ULong(sections.MESSAGE_ANNOTATIONS), odd))
    head = sections.parse(annotated).head()
    store.begin()
    store.append(entity.id, [Record(head, bare)], Now.at(NOW_MS))
    (stored,) = store.take(entity.id, 1, Now.at(NOW_MS))
    store.commit()
    shown = Shown(stored, None, 0)
    assert shown.body == b"body"
    assert dict(shown.headers)["BrokerProperties"].count("ff") == 1


def test_a_year_of_thirty_digits_is_refused() -> None:
    year = "9" * 30
    text = (
        '[{"Body": "x", "BrokerProperties": {"ScheduledEnqueueTimeUtc": '
        f'"Sun, 06 Nov {year} 08:49:37 GMT"}}}}]'
    )
    with pytest.raises(ArgumentError):
        read_batch(text.encode())


# -- the engine ----------------------------------------------------------------------


def dispose(session: Session, first: int, last: int) -> list[int]:
    event = session.take_disposition(
        Disposition(role=True, first=first, last=last, settled=True, state=Accepted())
    )
    assert isinstance(event, Disposed)
    return [each.delivery_id for each in event.deliveries]


def test_delivery_ids_wrap_around() -> None:
    session = Session(RawClient().engine, 0)
    link = Link(session, "link", 0, True)
    last = (1 << 32) - 1
    for number in (last - 1, last, 0, 1, 2):
        session.unsettled[number] = Unsettled(number, link, None)
    # What runs backwards is no range.
    assert dispose(session, 2, 1) == []
    assert dispose(session, last, 1) == [last, 0, 1]
    assert list(session.unsettled) == [last - 1, 2]
    assert dispose(session, 0, last) == [last - 1, 2]
