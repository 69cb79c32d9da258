"""Messages that come in one read are taken in together, and answered each."""

from __future__ import annotations

from copy import copy

import pytest

from tests.server.near import MESSAGE, NearClient
from tests.server.strangers import until
from twinbus import limits
from twinbus.clock import Now
from twinbus.server.access.port import NamespacePort
from twinbus.server.broker.load.facets import FULL
from twinbus.store.sqlite.store import SqliteStore
from twinbus.wire.events import Answered, Delivered, Disposed
from twinbus.wire.message.batch import LinkLimits, pack
from twinbus.wire.message.sections import MESSAGE_ID, encode_message, read_properties
from twinbus.wire.performatives import UINT_MAX, Accepted, Rejected

GARBAGE = b"\x00\x53\x75\xff"


async def outcomes(
    client: NearClient, payloads: list[bytes], first: int | None = None
) -> dict[int, type]:
    """What became of messages that are sent in one read, by the number of each."""
    session = client.session()
    sender = client.sender(session, "q")
    client.talk()
    if first is not None:
        session.next_delivery_out = first
    for number, payload in enumerate(payloads):
        sender.send(payload, b"%d" % number, number)
    client.say()
    found: dict[int, type] = {}

    def is_all_answered() -> bool:
        for event in client.hear():
            assert not isinstance(event, Answered)
            if isinstance(event, Disposed):
                for each in event.deliveries:
                    found[each.cookie] = type(event.state)
        return len(found) == len(payloads)

    await until(is_all_answered)
    return found


def active(port: NamespacePort) -> int:
    """How many messages the queue has."""
    queue = port.host.namespace.entities.find("q")
    assert queue is not None
    return port.host.namespace.store.counts(queue.id).active


async def test_all_messages_of_a_run_are_accepted(
    port: NamespacePort, client: NearClient
) -> None:
    found = await outcomes(client, [MESSAGE] * 100)

    assert found == dict.fromkeys(range(100), Accepted)
    assert active(port) == 100


async def test_messages_without_an_id_get_one_each(
    port: NamespacePort, client: NearClient
) -> None:
    await outcomes(client, [encode_message(b"%d" % number) for number in range(100)])

    queue = port.host.namespace.entities.find("q")
    assert queue is not None
    kept = port.host.namespace.store.peek(queue.id, 1, 200, Now.at(0), None)
    ids = [read_properties(each.bare)[MESSAGE_ID] for each in kept]
    assert len(set(ids)) == 100
    assert {len(each) for each in ids} == {32}


async def test_ids_of_deliveries_begin_anew_in_the_middle_of_a_run(
    port: NamespacePort, client: NearClient
) -> None:
    payloads = [MESSAGE] * 100
    payloads[60] = GARBAGE
    found = await outcomes(client, payloads, UINT_MAX - 49)
    assert found == {n: Rejected if n == 60 else Accepted for n in range(100)}

    ours = client.session()
    link = client.receiver(ours, "q")
    client.talk()
    client.events.clear()
    theirs = client.connection.engine.sessions_by_peer[ours.channel]
    theirs.next_delivery_out = UINT_MAX - 49
    link.grant(99)
    client.say()

    def ids() -> list[int]:
        client.hear()
        runs = client.heard(Delivered)
        return [each.delivery_id for run in runs for each in copy(run).apart()]

    await until(lambda: len(ids()) == 99)
    assert ids() == [*range(UINT_MAX - 49, UINT_MAX + 1), *range(49)]

    ours.dispose(UINT_MAX - 49, 48, False, Accepted())
    client.say()
    await until(lambda: active(port) == 0)
    assert not theirs.unsettled


DAMAGE = {
    "a size that is too large": """
        UPDATE pack SET sizes = CAST(x'ffff0000' || substr(sizes, 5) AS BLOB)
    """,
    "sizes that are missing": "UPDATE pack SET sizes = substr(sizes, 1, 7)",
    "no sizes": "UPDATE pack SET sizes = x''",
    "not one size": "UPDATE pack SET sizes = x'000001'",
    "sizes that are too many": """
        UPDATE pack SET sizes = CAST(sizes || sizes AS BLOB)
    """,
    "bytes that are missing": "UPDATE pack SET bares = substr(bares, 1, 40)",
    "an origin that is too large": "UPDATE pack SET origin = 0x7fffffffffffffff",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
async def test_damaged_messages_keep_no_other_from_its_receiver(
    port: NamespacePort, client: NearClient, damage: str
) -> None:
    host = port.host
    store = host.namespace.store
    assert isinstance(store, SqliteStore)
    await outcomes(client, [MESSAGE] * limits.PACK_MESSAGES_MIN)
    await host.run(lambda _namespace, _turn: store._run(damage))
    await outcomes(client, [encode_message(b"last")])

    link = client.receiver(client.session(), "q")
    client.talk()
    link.grant(100)
    client.say()

    def is_last_there() -> bool:
        client.hear()
        found = [each.payload for each in client.heard(Delivered)]
        return any(b"last" in payload for payload in found)

    await until(is_last_there)


async def test_of_a_long_run_the_one_that_is_too_long_is_refused_alone(
    port: NamespacePort, client: NearClient
) -> None:
    long_id = "x" * (limits.MESSAGE_ID_CHARS_MAX + 1)
    payloads = [MESSAGE] * 20
    payloads[7] = encode_message(b"", {MESSAGE_ID: long_id})

    found = await outcomes(client, payloads)

    assert found == {n: Rejected if n == 7 else Accepted for n in range(20)}
    assert active(port) == 19


async def test_a_batch_is_accepted_or_refused_as_one(
    port: NamespacePort, client: NearClient
) -> None:
    given = [encode_message(b"x", {MESSAGE_ID: f"m{n}"}) for n in range(50)]
    room = LinkLimits(1 << 20, 1 << 20)
    (parcel,) = pack(given, room)

    session = client.session()
    sender = client.sender(session, "q")
    client.talk()
    sender.send(parcel.payload, b"b", None, parcel.form)
    client.say()
    found: list[Disposed] = []

    def is_answered() -> bool:
        found.extend(e for e in client.hear() if isinstance(e, Disposed))
        return bool(found)

    await until(is_answered)

    assert [type(each.state) for each in found] == [Accepted]
    assert active(port) == 50


async def test_a_message_that_cannot_be_read_is_refused_alone(
    client: NearClient,
) -> None:
    found = await outcomes(client, [MESSAGE, MESSAGE, GARBAGE, MESSAGE])

    assert found == {0: Accepted, 1: Accepted, 2: Rejected, 3: Accepted}


async def test_the_first_of_a_run_may_be_the_one_that_cannot_be_read(
    client: NearClient,
) -> None:
    found = await outcomes(client, [GARBAGE, MESSAGE, MESSAGE])

    assert found == {0: Rejected, 1: Accepted, 2: Accepted}


async def test_while_a_shard_is_throttled_each_of_a_run_is_denied(
    port: NamespacePort, client: NearClient
) -> None:
    port.host.load.level = FULL

    found = await outcomes(client, [MESSAGE] * 3)

    assert found == dict.fromkeys(range(3), Rejected)
    assert active(port) == 0
