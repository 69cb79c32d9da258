"""Messages that are made to break the server must cost their sender alone.

Each of these once made a whole turn fail, for all clients in it, or every turn from
then on, because the clock met the message again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.desk import BODY, Desk, desk_at, section
from twinbus import limits
from twinbus.core.entity import (
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.core.filters import SqlFilter, SqlRuleAction
from twinbus.core.names import EntityPath
from twinbus.errors import DecodeError, TwinbusError
from twinbus.server.broker.commands import TakenMessages
from twinbus.server.broker.directory.config import (
    NamespaceConfig,
    SubscriptionConfig,
    TopicConfig,
)
from twinbus.server.broker.host import Host
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.store.received import ReceivedMessages
from twinbus.wire.codec import decode, encode
from twinbus.wire.events import Answered, Delivered, Disposed
from twinbus.wire.message import sections
from twinbus.wire.performatives import (
    Accepted,
    Attach,
    Coordinator,
    Declare,
    Discharge,
    Modified,
    Rejected,
    Source,
    TransactionalState,
)
from twinbus.wire.performatives_codec import encode_composite
from twinbus.wire.types import Described, Symbol, Timestamp, ULong

pytestmark = pytest.mark.turns

RULES = (
    RuleDescription("late", SqlFilter("at > 5"), SqlRuleAction("SET seen = 'yes'"), 0),
)
CONFIG = NamespaceConfig(
    "contoso",
    queues=(
        QueueDescription("once", lock_duration_ms=5_000, max_delivery_count=1),
        QueueDescription("other"),
    ),
    topics=(
        TopicConfig(
            TopicDescription("events"),
            (SubscriptionConfig(SubscriptionDescription("events", "late"), RULES),),
        ),
    ),
)
NOT_A_NUMBER = b"\x82\x7f\xf8" + bytes(6)


async def lose_lock(desk: Desk) -> None:
    """Receive from `once` and let the lock end, which is once too often."""
    await desk.receive("once")
    await desk.advance(6)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with desk_at(tmp_path, CONFIG) as made:
        yield made


async def test_too_many_annotations_are_refused_alone(desk: Desk) -> None:
    pairs = b"\xa3\x00\x40" * 70_000
    size = (len(pairs) + 4).to_bytes(4, "big") + (140_000).to_bytes(4, "big")
    bad = b"\x00\x53\x72\xd1" + size + pairs + BODY
    sender = await desk.client.sender(desk.session, "once")
    other = await desk.client.sender(desk.session, "other")
    # The end of one and the other arrive together, so they share a turn.
    bad_id = sender.send(bad, b"1")
    good_id = other.send(sections.encode_message(b"innocent"), b"2")
    desk.client.flush()
    outcomes = {}
    for _ in range(2):
        event: Disposed = await desk.client.wait(Disposed)
        outcomes[event.deliveries[0].delivery_id] = type(event.state)
    assert outcomes == {good_id: Accepted, bad_id: Rejected}


def test_annotations_end_where_their_size_says() -> None:
    pair = b"\xa3\x01a\xa1\x01b"
    inside = b"\x00\x53\x72\xc1" + bytes((len(pair) + 1, 2)) + pair
    assert sections.parse(inside + BODY).pairs_count == 1
    # The body would be read as the value of the only annotation.
    outside = b"\x00\x53\x72\xc1" + bytes((4, 2)) + pair[:3]
    with pytest.raises(DecodeError):
        sections.parse(outside + BODY)


async def test_the_number_of_values_in_properties_is_bounded(desk: Desk) -> None:
    many = [None] * 900
    bad = section(sections.PROPERTIES, ["id", None, many, many]) + BODY
    assert isinstance(await desk.send("once", bad), Rejected)
    assert isinstance(await desk.send("other", BODY), Accepted)


def test_decoded_values_can_be_encoded_again() -> None:
    # An array whose elements are described by something that equals nothing.
    elements = b"\x00" + NOT_A_NUMBER + b"\x40"
    array = b"\xe0" + bytes((len(elements) + 1, 1)) + elements
    assert encode(decode(array)[0]) == array


async def test_odd_descriptors_are_dead_lettered_like_others(desk: Desk) -> None:
    elements = b"\x00" + NOT_A_NUMBER + b"\x40"
    array = b"\xe0" + bytes((len(elements) + 1, 1)) + elements
    pair = b"\xa1\x01k" + array
    odd = b"\x00\x53\x74\xc1" + bytes((len(pair) + 1, 2)) + pair + BODY
    assert isinstance(await desk.send("once", odd), Accepted)
    await lose_lock(desk)
    assert desk.counts("once", 1).active == 1


async def test_properties_that_could_not_be_read_again_are_not_added(
    desk: Desk,
) -> None:
    most = limits.SECTION_NODES_MAX // 2
    full = {f"{number:x}": None for number in range(most)}
    payload = section(sections.APPLICATION_PROPERTIES, full) + BODY
    assert isinstance(await desk.send("once", payload), Accepted)
    # The marks of the dead-letter queue find no room: it goes there without.
    await lose_lock(desk)
    assert desk.counts("once", 1).active == 1
    # Nor does what a client wants to add.
    await desk.send("other", payload)
    await desk.client.receiver(desk.session, "other", credit=1)
    delivery = await desk.client.wait(Delivered)
    desk.settle(delivery, Modified(message_annotations={Symbol("one"): "more"}))
    answer = await desk.client.wait(Answered)
    assert isinstance(answer.state, Rejected)


async def test_a_message_does_not_grow_without_end(desk: Desk) -> None:
    assert isinstance(await desk.send("other", BODY), Accepted)
    await desk.client.receiver(desk.session, "other", credit=100)
    refused = 0
    for number in range(9):
        delivery = await desk.client.wait(Delivered)
        text = "x" * 60_000
        desk.settle(delivery, Modified(message_annotations={Symbol(f"{number}"): text}))
        answer = await desk.client.wait(Answered)
        if isinstance(answer.state, Rejected):
            refused += 1
            break
    assert refused == 1
    most = limits.MESSAGE_BYTES_MAX + limits.PROPERTIES_BYTES_MAX
    assert desk.counts("other").size_bytes <= most + 1_000


@pytest.mark.parametrize(
    "value",
    [
        Timestamp((1 << 63) - 1),
        Timestamp(-(1 << 63)),
        Described(Symbol("com.microsoft:timespan"), (1 << 63) - 1),
        Described(Symbol("com.microsoft:timespan"), "soon"),
        Described(Symbol("com.microsoft:timespan"), None),
    ],
    ids=["late", "early", "long", "text", "null"],
)
async def test_timestamps_outside_the_calendar_are_accepted(
    desk: Desk, value: object
) -> None:
    payload = section(sections.APPLICATION_PROPERTIES, {"at": value}) + BODY
    assert isinstance(await desk.send("events", payload), Accepted)
    assert isinstance(await desk.send("other", BODY), Accepted)
    # Kept for later, it would meet the clock instead of its sender.
    assert isinstance(await desk.schedule("events", payload, 1), Accepted)
    desk.server.advance(2_000)
    assert isinstance(await desk.send("other", BODY), Accepted)
    assert desk.counts("events").scheduled == 0


class Mute:
    """A command that cannot be answered (`host.Command`)."""

    def done(self, result: None) -> None:
        raise ZeroDivisionError

    def failed(self, error: TwinbusError) -> None:
        raise ZeroDivisionError


async def test_an_error_in_one_reply_does_not_stop_others(desk: Desk) -> None:
    host = desk.server.host
    host.submit(lambda _namespace, _turn: None, Mute())
    async with asyncio.timeout(5):
        assert await host.run(lambda _namespace, _now_ms: "done") == "done"


async def test_a_transaction_that_cannot_be_changed_sends_nothing(desk: Desk) -> None:
    """Its last part is looked at before its first is done."""
    client, session = desk.client, desk.session
    full = {f"{number:x}": None for number in range(limits.SECTION_NODES_MAX // 2)}
    payload = section(sections.APPLICATION_PROPERTIES, full) + BODY
    assert isinstance(await desk.send("once", payload), Accepted)
    await client.receiver(session, "once", credit=1)
    delivery = await client.wait(Delivered)
    attach = Attach(source=Source(), target=Coordinator())
    coordinator = await client.attach(session, True, attach)
    front = b"\x00" + encode(ULong(sections.VALUE))
    declared = await client.send(coordinator, front + encode_composite(Declare()))
    key = declared.txn_id
    sender = await client.sender(session, "other")
    await client.send(sender, BODY, TransactionalState(txn_id=key, outcome=None))
    changes = Modified(message_annotations={Symbol("one"): "more"})
    desk.settle(delivery, TransactionalState(txn_id=key, outcome=changes))
    await client.wait(Answered)
    discharge = Discharge(txn_id=key, fail=False)
    outcome = await client.send(coordinator, front + encode_composite(discharge))
    assert isinstance(outcome, Rejected)
    assert desk.counts("other").active == 0


class Defect:
    """A consumer whose want fails when a turn looks at it first."""

    def __init__(self, host: Host, container: int) -> None:
        self.host = host
        self.container = container
        self.key = 0
        self.asked = 0

    def take(self, _namespace: Namespace, _turn: Turn, _share: int) -> None:
        self.asked += 1
        if self.asked == 1:
            raise ZeroDivisionError

    def refused(self, error: TwinbusError) -> TakenMessages:
        return TakenMessages(ReceivedMessages(), error=error)

    def deliver(self, want: object, taken: object) -> None:
        """It wants once more."""
        self.host.want(self)

    def store_failed(self, error: TwinbusError) -> None:
        """Nothing was taken."""


async def test_a_defect_of_one_want_does_not_stop_others(desk: Desk) -> None:
    """A receiver that fails is told, and the others of its container are served."""
    host = desk.server.host
    await desk.send("other", BODY)
    room: asyncio.Event = asyncio.Event()
    host.on_room.append(room.set)
    entity = host.namespace.entities.get(EntityPath("other"))
    defect = Defect(host, entity.id)
    defect.key = host.add_consumer(entity.id, defect)
    host.want(defect)
    # More credit than there are messages, or it would ask for another turn anyway.
    await desk.client.receiver(desk.session, "other", credit=2)
    await desk.client.wait(Delivered)
    assert defect.asked > 1
    await asyncio.wait_for(room.wait(), 5)


# -- damaged rows ----------------------------------------------------------------------


async def test_a_message_whose_bytes_are_damaged_keeps_no_other_from_its_receiver(
    desk: Desk,
) -> None:
    for number in range(3):
        fields = {sections.MESSAGE_ID: str(number)}
        await desk.send("other", sections.encode_message(b"x", fields))

    def damage(namespace: Namespace, _turn: Turn) -> None:
        [_, second, _] = desk.kept("other")
        namespace.store.replace(second.id, b"\x01", second.bare)

    await desk.server.host.run(damage)
    await desk.client.receiver(desk.session, "other", credit=3)
    found = [await desk.client.wait(Delivered) for _ in range(2)]
    await desk.server.host.run(lambda _namespace, _turn: None)

    ids = [sections.parse(each.payload).message_id for each in found]
    assert ids == ["0", "2"]
    assert desk.server.host.namespace.store.quarantined() == 1
    assert desk.counts("other").active == 2
