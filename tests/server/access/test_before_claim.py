"""Before a claim: everything is refused that is not the way to one, in every state.

The table says what each state makes of each performative. Whatever it is, no command
reaches the namespace, and what a stranger costs is bounded in bytes, seconds, sessions
and links.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.server.raw import RawClient, RawServer, serving
from tests.server.strangers import (
    BEGIN,
    WAYS,
    Stranger,
    answers,
    meet,
    sends_to,
    until,
)
from twinbus import limits
from twinbus.core.entity import QueueDescription
from twinbus.server.access.port import NamespacePort
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.wire.connection import ConnectionState
from twinbus.wire.frames import HEARTBEAT, encode_frame
from twinbus.wire.message import sections
from twinbus.wire.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Source,
    Target,
    Transfer,
)
from twinbus.wire.types import Symbol, UInt

CONFIG = NamespaceConfig("contoso", queues=(QueueDescription("q"),))
UNAUTHORIZED = "amqp:unauthorized-access"
SILENT_PEERS = 200


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RawServer]:
    async with serving(tmp_path, CONFIG) as started:
        yield started


@pytest.fixture
def port(server: RawServer) -> NamespacePort:
    return server.ports["contoso"]


# -- every performative in every state -------------------------------------------------

_WINDOWS: dict[str, Any] = {
    "incoming_window": 100,
    "next_outgoing_id": 0,
    "outgoing_window": 100,
}
PERFORMATIVES: dict[str, bytes] = {
    "open": encode_frame(0, Open(container_id="c", hostname="localhost")),
    "begin": BEGIN,
    "attach": sends_to("q"),
    "flow": encode_frame(0, Flow(handle=0, link_credit=9, **_WINDOWS)),
    "transfer": encode_frame(
        0,
        Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0),
        sections.encode_message(b"x"),
    ),
    "disposition": encode_frame(
        0, Disposition(role=True, first=0, last=9, settled=True, state=Accepted())
    ),
    "detach": encode_frame(0, Detach(handle=0, closed=True)),
    "end": encode_frame(0, End()),
    "close": encode_frame(0, Close()),
}
SASL_FRAMES: dict[str, bytes] = {
    type(frame).__name__: encode_frame(0, frame, kind=1)
    for frame in (
        SaslMechanisms(mechanisms=["ANONYMOUS"]),
        SaslInit(mechanism="ANONYMOUS"),
        SaslChallenge(challenge=b"c"),
        SaslResponse(response=b"r"),
        SaslOutcome(code=0),
    )
}

# What is said to a performative: `dropped` is no word and the end, `closed` a close
# with an error and the end, `ignored` nothing at all. All others name the answer.
_DROPPED = dict.fromkeys(PERFORMATIVES, "dropped")
TABLE: dict[str, dict[str, str]] = {
    "start": _DROPPED,
    "sasl": _DROPPED,
    "header": _DROPPED,
    "opening": dict.fromkeys(PERFORMATIVES, "closed") | {"open": "Open"},
    "open": dict.fromkeys(PERFORMATIVES, "ignored")
    | {"open": "closed", "begin": "Begin", "close": "Close"},
    "begun": {
        "open": "closed",
        "begin": "closed",
        # An attach to nowhere, and a detach that says why.
        "attach": "unauthorized",
        "flow": "End",
        "transfer": "End",
        "disposition": "ignored",
        "detach": "End",
        "end": "End",
        "close": "Close",
    },
}


def verdict(said: list[Any], ended: bool) -> str:
    """What became of a frame, in the words of the table."""
    kinds = [type(each).__name__ for each in said]
    if not said:
        return "dropped" if ended else "ignored"
    if kinds[-1] == "Close" and said[-1].error is not None:
        assert ended
        return "closed"
    if kinds == ["Attach", "Detach"]:
        assert said[0].source is None
        assert said[0].target is None
        assert said[1].error.condition == UNAUTHORIZED
        return "unauthorized"
    assert len(kinds) == 1
    assert ended == (kinds == ["Close"])
    return kinds[0]


def never(*_: object) -> None:
    raise AssertionError("a command reached the namespace")


@pytest.mark.parametrize("name", PERFORMATIVES)
@pytest.mark.parametrize("state", TABLE)
async def test_every_performative_in_every_state(
    server: RawServer,
    port: NamespacePort,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    name: str,
) -> None:
    monkeypatch.setattr(server.host, "submit", never)
    connection, transport = meet(port)
    connection.data_received(WAYS[state])
    before = len(transport.written)
    said_before = len(answers(bytes(transport.written)))

    connection.data_received(PERFORMATIVES[name])

    said = answers(bytes(transport.written))[said_before:]
    assert verdict(said, transport.closing) == TABLE[state][name]
    assert len(transport.written) - before < 1024
    assert connection in port.unclaimed or transport.closing
    assert not server.host.links


@pytest.mark.parametrize("name", SASL_FRAMES)
@pytest.mark.parametrize("state", TABLE)
async def test_a_sasl_frame_outside_its_state_closes_the_connection(
    port: NamespacePort, state: str, name: str
) -> None:
    connection, transport = meet(port)
    connection.data_received(WAYS[state])

    connection.data_received(SASL_FRAMES[name])

    expected = not (state == "sasl" and name == "SaslInit")
    assert transport.closing == expected
    assert connection in port.unclaimed


@pytest.mark.parametrize("name", PERFORMATIVES)
async def test_input_of_a_closing_connection_is_ignored(
    server: RawServer, port: NamespacePort, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(server.host, "submit", never)
    connection, transport = meet(port, lingers=True)
    connection.data_received(WAYS["begun"])
    connection.close()
    before = bytes(transport.written)

    connection.data_received(PERFORMATIVES[name])

    assert bytes(transport.written) == before
    is_last = name == "close"
    state = ConnectionState.CLOSED if is_last else ConnectionState.CLOSING
    assert connection.engine.state is state
    connection.drop("the test is over")


async def test_only_the_node_for_tokens_can_be_attached(
    server: RawServer, port: NamespacePort
) -> None:
    connection, transport = meet(port)
    connection.data_received(WAYS["begun"])
    before = len(answers(bytes(transport.written)))

    for handle, address in enumerate(("$cbs", "q/$management", "nowhere", "")):
        connection.data_received(sends_to(address, handle))

    said = answers(bytes(transport.written))[before:]
    refused = [each.handle for each in said if isinstance(each, Detach)]
    assert refused == [1, 2, 3]
    assert not server.host.links


# -- bytes -----------------------------------------------------------------------------


@pytest.mark.parametrize("extra", [-1, 0, 1])
async def test_all_bytes_before_a_claim_are_counted(
    port: NamespacePort, extra: int
) -> None:
    connection, transport = meet(port)
    size = limits.HANDSHAKE_BYTES_MAX + extra
    data = (WAYS["begun"] + HEARTBEAT * size)[:size]

    for at in range(0, size, 1000):
        connection.data_received(data[at : at + 1000])

    assert transport.closing == (extra > 0)


@pytest.mark.parametrize("extra", [-1, 0, 1])
async def test_frames_before_a_claim_are_small(port: NamespacePort, extra: int) -> None:
    connection, transport = meet(port)
    connection.data_received(WAYS["begun"])
    empty = sends_to("$cbs", properties={Symbol("p"): b""})
    # A short binary has one byte for its length, a long one four; lists grow, too.
    size = limits.HANDSHAKE_FRAME_BYTES_MAX + extra
    filled = (
        sends_to("$cbs", properties={Symbol("p"): bytes(room)})
        for room in range(size - len(empty), 0, -1)
    )
    frame = next(found for found in filled if len(found) <= size)
    assert len(frame) == size

    connection.data_received(frame)

    assert transport.closing == (extra > 0)


@pytest.mark.parametrize("extra", [-1, 0, 1])
async def test_sessions_before_a_claim_are_few(port: NamespacePort, extra: int) -> None:
    connection, transport = meet(port)
    connection.data_received(WAYS["open"])
    begin = Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)

    for channel in range(limits.HANDSHAKE_SESSIONS_MAX + extra):
        connection.data_received(encode_frame(channel, begin))

    assert transport.closing == (extra > 0)


@pytest.mark.parametrize("extra", [-1, 0, 1])
async def test_links_before_a_claim_are_few(port: NamespacePort, extra: int) -> None:
    connection, transport = meet(port)
    connection.data_received(WAYS["begun"])

    for handle in range(limits.HANDSHAKE_LINKS_MAX + extra):
        connection.data_received(sends_to("$cbs", handle))

    said = answers(bytes(transport.written))
    assert any(isinstance(each, End) for each in said) == (extra > 0)


def _many_begins() -> bytes:
    begin = Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)
    return b"".join(encode_frame(channel, begin) for channel in range(1, 4000))


def _many_attaches() -> bytes:
    return b"".join(sends_to("$cbs", handle) for handle in range(1000))


def _rich_attaches() -> bytes:
    many = {Symbol(f"k{n}"): UInt(n) for n in range(400)}
    return b"".join(sends_to("$cbs", n, properties=many) for n in range(100))


def _endless_transfer() -> bytes:
    transfer = Transfer(handle=0, delivery_id=0, delivery_tag=b"t", more=True)
    return sends_to("$cbs") + encode_frame(0, transfer, bytes(4000)) * 100


def _tiny_transfers() -> bytes:
    transfer = Transfer(handle=0, delivery_id=0, delivery_tag=b"t", more=True)
    return sends_to("$cbs") + encode_frame(0, transfer, b"x") * 4000


def _half_a_frame() -> bytes:
    return (8000).to_bytes(4, "big") + bytes(100_000)


def _refused_tokens() -> bytes:
    request = sections.encode_request("r", {"operation": "put-token", "name": "q"}, "x")
    transfer = Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0)
    answers_to = Attach(
        name="answers",
        handle=1,
        role=True,
        source=Source(address="$cbs"),
        target=Target(address="r"),
    )
    start = sends_to("$cbs") + encode_frame(0, answers_to)
    return start + encode_frame(0, transfer, request) * 1000


@pytest.mark.parametrize(
    "stream",
    [
        _many_begins,
        _many_attaches,
        _rich_attaches,
        _endless_transfer,
        _tiny_transfers,
        _half_a_frame,
        _refused_tokens,
    ],
)
async def test_memory_of_a_connection_before_a_claim_is_bounded(
    port: NamespacePort, stream: Callable[[], bytes]
) -> None:
    """Some of them send all that they may, and stay."""
    data = WAYS["begun"] + stream()
    pieces = [data[at : at + 4096] for at in range(0, len(data), 4096)]
    kept = []
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(4):
            connection, transport = meet(port, lingers=True)
            for piece in pieces:
                if not transport.closing:
                    connection.data_received(piece)
                # It reads what it gets, so that only our own memory is seen.
                transport.written.clear()
            kept.append(connection)
        gc.collect()
        used_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    for connection in kept:
        connection.drop("the test is over")

    # One MiB for each, where 64 bytes for each byte would be four.
    assert used_bytes < 4 * 1024 * 1024


# -- seconds ---------------------------------------------------------------------------


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A login has to be quick; the time runs in the loop, so it is real."""
    monkeypatch.setattr(limits, "HANDSHAKE_SECONDS_MAX", 0.2)


@pytest.mark.parametrize("state", WAYS)
async def test_a_connection_without_a_token_in_time_is_closed_in_any_state(
    hasty: None, server: RawServer, port: NamespacePort, state: str
) -> None:
    stranger = await Stranger.connect(server.port)
    stranger.transport.write(WAYS[state])

    await stranger.wait_lost()

    if state in ("opening", "open", "begun"):
        close = answers(bytes(stranger.received))[-1]
        assert close.error.condition == UNAUTHORIZED
    assert not port.connections
    assert not port.unclaimed


async def test_single_bytes_do_not_extend_the_handshake_deadline(
    hasty: None, server: RawServer
) -> None:
    stranger = await Stranger.connect(server.port)

    sent = 0
    for byte in WAYS["begun"] + HEARTBEAT * 100:
        stranger.transport.write(bytes([byte]))
        sent += 1
        try:
            await asyncio.wait_for(stranger.lost.wait(), 0.02)
            break
        except TimeoutError:
            continue

    assert stranger.lost.is_set()
    assert sent < 100


async def test_refused_tokens_do_not_extend_the_handshake_deadline(
    hasty: None, server: RawServer
) -> None:
    client = await RawClient.connect(server.port)
    assert await client.authorize(await client.session(), expires_s=1) == 401

    await client.wait_lost()


async def test_a_claim_in_time_keeps_the_connection(
    hasty: None, server: RawServer
) -> None:
    client = await RawClient.connect(server.port)
    session = await client.session()
    assert await client.authorize(session) == 202
    other = await Stranger.connect(server.port)

    await other.wait_lost()

    sender = await client.sender(session, "q")
    assert isinstance(
        await client.send(sender, sections.encode_message(b"x")), Accepted
    )
    client.abort()


# -- many ------------------------------------------------------------------------------


async def test_many_silent_connections_do_not_delay_a_client(
    server: RawServer, port: NamespacePort
) -> None:
    silent = [await Stranger.connect(server.port) for _ in range(SILENT_PEERS)]
    for stranger, way in zip(silent, list(WAYS.values()) * SILENT_PEERS, strict=False):
        stranger.transport.write(way)

    client = await RawClient.connect(server.port)
    session = await client.session()
    assert await client.authorize(session) == 202
    sender = await client.sender(session, "q")
    for _ in range(50):
        outcome = await client.send(sender, sections.encode_message(b"x"))
        assert isinstance(outcome, Accepted)

    assert len(port.connections) == SILENT_PEERS + 1
    assert len(port.unclaimed) == SILENT_PEERS
    for stranger in silent:
        stranger.transport.abort()
    client.abort()


async def test_the_oldest_silent_connection_is_dropped_for_a_new_one(
    server: RawServer, port: NamespacePort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CONNECTIONS_MAX", 5)
    silent = [await Stranger.connect(server.port) for _ in range(5)]
    await until(lambda: len(port.connections) == 5)

    client = await RawClient.connect(server.port)

    await silent[0].wait_lost()
    assert [each.lost.is_set() for each in silent[1:]] == [False] * 4
    assert await client.authorize(await client.session()) == 202
    for stranger in silent:
        stranger.transport.abort()
    client.abort()
