"""The engine opens and closes, and refuses what its state does not accept."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.pair import Pair
from twinbus import limits
from twinbus.errors import FrameError, PeerError
from twinbus.wire.connection import ConnectionState, Engine
from twinbus.wire.events import (
    Attached,
    Begun,
    Closed,
    Opened,
)
from twinbus.wire.frames import AMQP_HEADER, SASL_HEADER, encode_frame
from twinbus.wire.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    SaslInit,
    Source,
    Target,
    Transfer,
)


def kinds(events: list[Any]) -> list[type]:
    return [type(event) for event in events]


# -- the handshake -------------------------------------------------------------------


def test_both_sides_open() -> None:
    pair = Pair()

    pair.run()

    assert pair.client.state is pair.server.state is ConnectionState.OPEN
    assert kinds(pair.server_events) == [Opened]
    assert pair.client.peer_open.container_id == "server"


def test_a_client_without_sasl_is_let_in_with_no_right() -> None:
    server = Engine(server=True, container_id="s")

    server.feed(AMQP_HEADER + encode_frame(0, Open(container_id="c")))

    assert isinstance(server.next_event(), Opened)
    assert server.take() == AMQP_HEADER


def test_pipelined_frames_are_answered_in_order() -> None:
    server = Engine(server=True, container_id="s")
    attach = Attach(name="l", handle=0, role=False, target=Target(address="q"))
    server.feed(
        SASL_HEADER
        + encode_frame(0, SaslInit(mechanism="ANONYMOUS"), kind=1)
        + AMQP_HEADER
        + encode_frame(0, Open(container_id="c"))
        + encode_frame(
            1, Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9)
        )
        + encode_frame(1, attach)
    )

    seen = []
    while (event := server.next_event()) is not None:
        seen.append(event)

    assert kinds(seen) == [Opened, Begun, Attached]


_SESSION_FRAMES = [
    Attach(name="l", handle=0, role=False),
    Flow(incoming_window=1, next_outgoing_id=0, outgoing_window=1),
    Transfer(handle=0),
    Disposition(role=True, first=0),
    Detach(handle=0),
    End(),
]
_ALL_FRAMES = [
    Open(container_id="c"),
    Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1),
    Close(),
    *_SESSION_FRAMES,
]


@pytest.mark.parametrize("performative", _ALL_FRAMES, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("header", [b"", SASL_HEADER], ids=["start", "sasl"])
def test_nothing_but_its_header_is_accepted_before_the_handshake(
    header: bytes, performative: Any
) -> None:
    server = Engine(server=True, container_id="s")
    server.feed(header + encode_frame(0, performative))

    with pytest.raises(PeerError):
        server.next_event()

    assert not server.sessions


@pytest.mark.parametrize(
    "performative",
    [p for p in _ALL_FRAMES if not isinstance(p, Open)],
    ids=lambda p: type(p).__name__,
)
def test_the_first_frame_must_be_an_open(performative: Any) -> None:
    server = Engine(server=True, container_id="s")
    server.feed(AMQP_HEADER + encode_frame(0, performative))

    with pytest.raises(FrameError):
        server.next_event()


def test_a_second_open_is_refused() -> None:
    pair = Pair()
    pair.run()
    pair.server.feed(encode_frame(0, Open(container_id="again")))

    with pytest.raises(FrameError):
        pair.server.next_event()


@pytest.mark.parametrize(
    "performative", _SESSION_FRAMES, ids=lambda p: type(p).__name__
)
def test_frames_on_an_ended_channel_are_ignored(performative: Any) -> None:
    pair = Pair()
    pair.run()
    pair.server.feed(encode_frame(7, performative))

    assert pair.server.next_event() is None
    assert pair.server.take() == b""


def test_sasl_after_the_handshake_is_refused() -> None:
    pair = Pair()
    pair.run()
    pair.server.feed(encode_frame(0, SaslInit(mechanism="ANONYMOUS"), kind=1))

    with pytest.raises(PeerError):
        pair.server.next_event()


def test_large_frames_are_refused_before_the_handshake() -> None:
    server = Engine(server=True, container_id="s")
    server.feed(AMQP_HEADER)
    size = limits.HANDSHAKE_FRAME_BYTES_MAX + 1
    server.feed(size.to_bytes(4, "big") + b"\x02\x00\x00\x00")

    with pytest.raises(PeerError):
        server.next_event()


# -- closing -------------------------------------------------------------------------


def test_close_is_answered_with_close() -> None:
    pair = Pair()
    pair.run()

    pair.client.close()
    pair.run()

    assert isinstance(pair.server_events[-1], Closed)
    assert pair.client.state is pair.server.state is ConnectionState.CLOSED


def test_a_close_with_a_reason_opens_first() -> None:
    server = Engine(server=True, container_id="s")
    server.feed(AMQP_HEADER)
    server.next_event()

    server.close(Error(condition="amqp:decode-error"))

    data = server.take()
    assert data.index(b"\x00\x53\x10") < data.index(b"\x00\x53\x18")


# -- chunking ------------------------------------------------------------------------


def _stream() -> bytes:
    pair = Pair()
    ours, theirs = pair.link("l", client_sends=True)
    theirs.grant(10)
    pair.run()
    for number in range(3):
        ours.send(b"m%d" % number, b"t")
    ours.session.attach("r", False, Attach(source=Source(address="q")))
    pair.run()
    pair.client.close()
    pair.run()
    return pair.sent


_STREAM = _stream()


def _listen(chunks: list[bytes]) -> list[str]:
    server = Engine(server=True, container_id="server")
    seen: list[str] = []
    for chunk in chunks:
        server.feed(chunk)
        while (event := server.next_event()) is not None:
            seen.append(type(event).__name__)
            if isinstance(event, Opened):
                server.open(Open())
                server.trust()
            elif isinstance(event, Attached):
                event.link.accept(Attach())
    return seen


@given(st.lists(st.integers(0, len(_STREAM)), max_size=30))
def test_chunking_changes_nothing(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(_STREAM)]
    chunks = [_STREAM[a:b] for a, b in pairwise(edges)]

    assert _listen(chunks) == _listen([_STREAM])


def test_byte_by_byte_changes_nothing() -> None:
    assert _listen([_STREAM[i : i + 1] for i in range(len(_STREAM))]) == _listen(
        [_STREAM]
    )
    assert _listen([_STREAM])[-1] == "Closed"
    assert _listen([_STREAM]).count("Delivered") == 3
