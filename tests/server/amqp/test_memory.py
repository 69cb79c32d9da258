"""What a connection holds for its client: it is counted, bounded, and given back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.near import MESSAGE, NearClient
from tests.server.raw import RawServer
from tests.server.strangers import until
from twinbus import limits
from twinbus.server.access.port import NamespacePort
from twinbus.wire.events import Attached, Closed, Delivered, Detached
from twinbus.wire.frames import encode_frame
from twinbus.wire.link import Link
from twinbus.wire.message import sections
from twinbus.wire.performatives import Attach, Source, Target, Transfer
from twinbus.wire.session import Session

EXCEEDED = "amqp:resource-limit-exceeded"
PART_BYTES = 50_000


def transfer(link: Link, number: int, payload: bytes, **fields: Any) -> bytes:
    given: dict[str, Any] = {
        "handle": link.handle,
        "delivery_id": number,
        "delivery_tag": b"t",
        "message_format": 0,
    }
    return encode_frame(link.session.channel, Transfer(**(given | fields)), payload)


def begin_messages(client: NearClient, session: Session, count: int) -> list[Link]:
    """Send a part of a message on each of so many links."""
    links = [client.sender(session, "q") for _ in range(count)]
    client.talk()
    for number, link in enumerate(links):
        part = transfer(link, number, bytes(PART_BYTES), more=True)
        client.connection.data_received(part)
    client.hear()
    return links


def condition(event: Closed | Detached) -> str:
    assert event.error is not None
    return str(event.error.condition)


# -- one connection ------------------------------------------------------------------


async def test_links_leave_less_room_for_unfinished_messages(
    client: NearClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = client.session()
    links = 10 + client.connection.engine.link_count
    room = links * limits.LINK_BYTES + 2 * limits.SESSION_BYTES + 4 * PART_BYTES
    # And for what their attaches say.
    room += links * 200
    monkeypatch.setattr(limits, "MEMORY_PER_CONNECTION_BYTES_MAX", room)

    begun = begin_messages(client, session, 10)

    gone = client.heard(Detached)
    # Four have room; each of the others goes, and is told why.
    assert [each.link for each in gone] == begun[4:]
    assert {condition(each) for each in gone} == {EXCEEDED}
    error = gone[0].error
    assert error is not None
    assert "Too many messages are unfinished" in (error.description or "")


async def test_what_an_attach_says_is_counted(
    client: NearClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name may have 60 KB, and 10,000 links have names."""
    session, ended = client.session(), client.session()
    engine = client.connection.engine
    at_first = engine.attach_bytes
    monkeypatch.setattr(limits, "MEMORY_PER_CONNECTION_BYTES_MAX", 290_000)

    links = [
        where.attach(
            f"{number}" + "n" * 60_000,
            True,
            Attach(source=Source(), target=Target(address="q")),
        )
        for number, where in enumerate((session, session, ended, ended, ended))
    ]
    client.talk()

    (gone,) = client.heard(Detached)
    assert gone.link is links[4]
    assert condition(gone) == EXCEEDED
    assert engine.attach_bytes > 4 * 60_000
    links[0].detach()
    ended.end()
    client.talk()
    assert 60_000 < engine.attach_bytes - at_first < 61_000


async def test_an_attach_is_refused_while_a_connection_holds_too_much(
    client: NearClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = client.session()
    begin_messages(client, session, 4)
    monkeypatch.setattr(limits, "MEMORY_PER_CONNECTION_BYTES_MAX", 3 * PART_BYTES)

    client.sender(session, "q")
    client.talk()

    assert condition(client.heard(Detached)[-1]) == EXCEEDED
    monkeypatch.undo()
    before = len(client.heard(Detached))
    client.sender(session, "q")
    client.talk()
    assert client.heard(Attached)[-1].link.peer_attach.target is not None
    assert len(client.heard(Detached)) == before


async def received(server: RawServer, client: NearClient, count: int) -> Link:
    """A link on which messages came that are not settled."""
    session = client.session()
    sender = client.sender(session, "q")
    link = client.receiver(session, "q")
    client.talk()
    for number in range(count):
        frame = transfer(sender, number, MESSAGE, settled=True)
        client.connection.data_received(frame)
    link.grant(count)

    def is_there() -> bool:
        client.talk()
        return len(client.heard(Delivered)) >= count or bool(client.heard(Detached))

    await until(is_there)
    return link


async def test_deliveries_that_are_not_settled_are_counted(
    server: RawServer, client: NearClient
) -> None:
    link = await received(server, client, 50)
    connection = client.connection
    assert connection.unsettled == 50

    first = client.heard(Delivered)[1].delivery_id
    link.session.dispose(first, first + 9, True, None)
    client.talk()
    assert connection.unsettled == 40
    link.detach()
    client.talk()
    assert connection.unsettled == 0


async def test_a_link_with_too_much_that_is_not_settled_goes(
    server: RawServer, client: NearClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        limits, "UNSETTLED_BYTES", limits.MEMORY_PER_CONNECTION_BYTES_MAX
    )

    link = await received(server, client, 5)

    (gone,) = client.heard(Detached)
    assert gone.link is link
    assert condition(gone) == EXCEEDED
    # What it held is not counted any more: others go on.
    assert client.connection.unsettled == 0


async def test_replies_without_credit_are_counted(
    client: NearClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = client.session()
    asking = client.sender(session, "$cbs")
    answers = client.receiver(session, "$cbs", target=Target(address="answers"))
    client.talk()
    request = sections.encode_request("answers", {"operation": "none"}, None)
    asking.send(request, b"t")
    client.talk()
    assert client.connection.reply_bytes > 0
    monkeypatch.setattr(limits, "MEMORY_PER_CONNECTION_BYTES_MAX", 1)

    asking.send(request, b"t")
    client.talk()

    (gone,) = client.heard(Detached)
    assert gone.link is answers
    assert condition(gone) == EXCEEDED
    assert client.connection.reply_bytes == 0


# -- an address and the process ------------------------------------------------------


async def test_the_connection_that_holds_the_most_of_its_address_ends(
    port: NamespacePort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MEMORY_PER_ADDRESS_BYTES_MAX", 20 * PART_BYTES)
    large = NearClient.connect(port)
    honest = NearClient.connect(port)
    elsewhere = NearClient.connect(port, "192.0.2.9")
    begin_messages(large, large.session(), 12)
    begin_messages(elsewhere, elsewhere.session(), 12)
    assert not large.heard(Closed)

    begin_messages(honest, honest.session(), 8)

    large.hear()
    (closed,) = large.heard(Closed)
    assert condition(closed) == EXCEEDED
    assert large.transport.closing
    assert large.connection.engine.assembly_bytes == 0
    assert not honest.heard(Closed)
    assert not elsewhere.heard(Closed)
    assert port.memory.by_address["192.0.2.1"] < 10 * PART_BYTES


async def test_one_that_does_not_read_is_cut_off(
    port: NamespacePort, client: NearClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word on it would wait in a buffer that is full."""
    session = client.session()
    begin_messages(client, session, 4)
    client.connection.pause_writing()
    monkeypatch.setattr(limits, "MEMORY_BYTES_MAX", PART_BYTES)
    other = NearClient.connect(port, "192.0.2.9")

    begin_messages(other, other.session(), 1)

    assert client.transport.aborted
    assert client.connection.engine.assembly_bytes == 0


# -- a connection that is gone -------------------------------------------------------


@pytest.mark.parametrize("way", ["abort", "close", "server"])
async def test_what_was_held_is_given_back_at_once(
    server: RawServer, port: NamespacePort, client: NearClient, way: str
) -> None:
    """By reference counts; the garbage collector comes late."""
    await received(server, client, 20)
    session = client.session()
    links = begin_messages(client, session, 4)
    connection, engine = client.connection, client.connection.engine
    coordinator = session.attach(
        "waits", False, Attach(source=Source(address="q"), target=Target())
    )
    assert coordinator.handle == len(links)
    held = [link for each in engine.sessions.values() for link in each.links.values()]
    assert engine.assembly_bytes == 4 * PART_BYTES
    assert port.memory.held_bytes > 3 * PART_BYTES

    if way == "abort":
        client.transport.abort()
    elif way == "close":
        client.engine.close()
        client.say()
    else:
        connection.close()

    await until(lambda: not port.connections)
    assert engine.assembly_bytes == engine.blocked_bytes == 0
    assert engine.link_count == connection.unsettled == 0
    assert not engine.sessions
    assert not engine.on_unblocked
    assert not connection.needs
    assert not connection.reply_nodes
    assert all(link.owner is None for link in held)
    assert not any(link._assembly_parts for link in held)
    assert port.memory.held_bytes == 0
