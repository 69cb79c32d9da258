"""Deadlines of HTTP clients: for heads, for bodies, and for reading answers.

The limits are short and the sockets are real, so time is real, too. No test sleeps: it
waits for the server to close the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from tests.server.http.rest_site import AUTHORITY, RestSite, serving, signed
from twinbus.server.http.server import HttpTimeouts

WAIT_SECONDS = 10
# A trickle's pause, far below every limit.
PAUSE_SECONDS = 0.02
HASTY = HttpTimeouts(head=0.3, body=0.3, body_bytes_per_second=1000, stall=0.3)


@pytest.fixture
async def site() -> AsyncIterator[RestSite]:
    async with serving(HASTY) as started:
        yield started


class Peer:
    """A client that writes its own bytes."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.reader, self.writer = reader, writer

    def say(self, method: str, target: str, *headers: str) -> None:
        """Write the head of a request."""
        lines = [f"{method} {target} HTTP/1.1", f"Host: {AUTHORITY}", *headers]
        token = f"Authorization: {signed()}"
        self.writer.write("\r\n".join([*lines, token, "", ""]).encode())

    async def hears(self, text: bytes) -> None:
        """Wait for a part of an answer."""
        await asyncio.wait_for(self.reader.readuntil(text), WAIT_SECONDS)

    async def ends(self) -> bytes:
        """Wait until the server hangs up; returns what it said before."""
        heard = b""
        with contextlib.suppress(ConnectionError):
            while data := await asyncio.wait_for(self.reader.read(65536), WAIT_SECONDS):
                heard += data
        return heard

    async def trickles(self, data: bytes) -> int:
        """Write byte by byte until the server hangs up; returns how many it took."""
        ending = asyncio.ensure_future(self.ends())
        for number, byte in enumerate(data):
            self.writer.write(bytes([byte]))
            done, _ = await asyncio.wait([ending], timeout=PAUSE_SECONDS)
            if done:
                return number
        raise AssertionError("the server took it all")


@pytest.fixture
async def peer(site: RestSite) -> AsyncIterator[Peer]:
    connected = Peer(*await asyncio.open_connection("127.0.0.1", site.number))
    yield connected
    connected.writer.close()
    with contextlib.suppress(ConnectionError):
        await connected.writer.wait_closed()


# -- heads -----------------------------------------------------------------------------


async def test_a_silent_client_is_closed(peer: Peer) -> None:

    assert await peer.ends() == b""


@pytest.mark.parametrize("earlier", [0, 1, 2])
async def test_an_incomplete_head_is_closed(peer: Peer, earlier: int) -> None:
    for _ in range(earlier):
        peer.say("GET", "/health")
        await peer.hears(b"Service is healthy.")
    peer.writer.write(b"GET /health HT")

    assert b"200" not in await peer.ends()


@pytest.mark.parametrize("earlier", [0, 1])
async def test_bytes_of_a_head_do_not_extend_its_deadline(
    peer: Peer, earlier: int
) -> None:
    for _ in range(earlier):
        peer.say("GET", "/health")
        await peer.hears(b"Service is healthy.")

    taken = await peer.trickles(b"GET /health HTTP/1.1\r\nX: " + b"x" * 1000)

    assert 1 < taken < 200


async def test_an_incomplete_pipelined_request_is_closed(peer: Peer) -> None:
    peer.say("GET", "/health")
    peer.writer.write(b"GET /health HT")

    assert (await peer.ends()).count(b"HTTP/1.1 200") == 1


async def test_a_client_that_asks_again_in_time_stays_connected(peer: Peer) -> None:
    start = asyncio.get_running_loop().time()

    while asyncio.get_running_loop().time() < start + 2 * HASTY.head:
        peer.say("GET", "/health")
        await peer.hears(b"Service is healthy.")


# -- bodies ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "/q/messages"),
        ("PUT", "/new"),
        ("PUT", "/$authorizationRules/x"),
        ("POST", "/q/messages/head?timeout=0"),
    ],
)
@pytest.mark.parametrize("length", ["Content-Length: 10", "Transfer-Encoding: chunked"])
async def test_a_missing_body_is_not_waited_for(
    peer: Peer, method: str, target: str, length: str
) -> None:
    peer.say(method, target, length)

    assert b"HTTP/1.1 2" not in await peer.ends()


async def test_bytes_of_a_body_extend_its_deadline_by_the_minimum_rate(
    peer: Peer,
) -> None:
    peer.say("POST", "/q/messages", "Content-Length: 100000")

    assert 1 < await peer.trickles(b"x" * 1000) < 200


async def test_a_slow_body_above_the_minimum_rate_is_accepted(
    site: RestSite, peer: Peer
) -> None:
    loop = asyncio.get_running_loop()
    start, size = loop.time(), 0
    # Chunks, since the number of bytes depends on the speed of this machine.
    peer.say("POST", "/q/messages", "Transfer-Encoding: chunked")
    while loop.time() < start + 2 * HASTY.body:
        peer.writer.write(b"1f4\r\n" + b"x" * 500 + b"\r\n")
        size += 500
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(peer.reader.read(1), PAUSE_SECONDS)
    peer.writer.write(b"0\r\n\r\n")

    await peer.hears(b" 201 ")

    assert len((await site.take()).body) == size


async def test_the_bytes_of_an_unread_body_do_not_extend_its_deadline(
    peer: Peer,
) -> None:
    peer.say("GET", "/health", "Content-Length: 1000000")
    await peer.hears(b"Service is healthy.")

    # Fast enough for a body that is read.
    ending = asyncio.ensure_future(peer.ends())
    written = 0
    while not ending.done():
        peer.writer.write(b"x" * 1000)
        written += 1000
        await asyncio.wait([ending], timeout=PAUSE_SECONDS)

    assert written < 500_000


async def test_another_request_may_follow_an_unread_body(
    peer: Peer,
) -> None:
    peer.say("GET", "/health", "Content-Length: 5")
    await peer.hears(b"Service is healthy.")
    peer.writer.write(b"12345")
    peer.say("GET", "/health")

    await peer.hears(b"Service is healthy.")


async def test_a_receive_has_no_large_body(site: RestSite) -> None:
    answer = await site.ask(
        "POST", "/q/messages/head?timeout=0", body=b"x" * (64 * 1024 + 1)
    )

    assert answer.status == 400


# -- answers ---------------------------------------------------------------------------


async def test_a_client_that_does_not_read_is_closed(site: RestSite) -> None:
    """More than the buffers of both sockets hold waits for a client that reads none."""
    count = 40
    for _ in range(count):
        await site.send(b"x" * 200_000)
    unread = socket.socket()
    unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    unread.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(unread, ("127.0.0.1", site.number))
    line = f"DELETE /q/messages/head?timeout=0 HTTP/1.1\r\nHost: {AUTHORITY}\r\n"
    head = f"{line}Content-Length: 0\r\nAuthorization: {signed()}\r\n\r\n"

    await loop.sock_sendall(unread, head.encode() * count)
    with contextlib.suppress(ConnectionError):
        # The one thing that it waits for is the end, which comes without being read.
        for _ in range(int(WAIT_SECONDS / PAUSE_SECONDS)):
            await loop.sock_sendall(unread, b"x")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), PAUSE_SECONDS)
        raise AssertionError("the server did not hang up")

    unread.close()
    assert site.counts("q").active > 0
