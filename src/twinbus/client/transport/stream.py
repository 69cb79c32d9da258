"""From a host name to a stream of bytes: TCP, proxy, TLS.

`connect` goes step by step and says before each what it is about to wait for. Whatever
ends it early, an error or a cancellation, leaves no socket behind. It has no deadline:
its caller cancels it. WebSockets come on top, in `websocket.py`.
"""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import Callable
from typing import Any, Protocol, cast

from twinbus import limits
from twinbus.client.transport.daemon import in_daemon
from twinbus.client.transport.endpoint import Endpoint, Proxy
from twinbus.errors import Unreachable

Say = Callable[[str], None]


class Reader(Protocol):
    """Who takes what comes."""

    def on_bytes(self, data: bytes) -> None:
        """Bytes came."""

    def on_lost(self, error: Exception | None) -> None:
        """There will be no more."""

    def on_room(self) -> None:
        """The peer reads again: more can be written."""


class Channel(asyncio.Protocol):
    """Bytes to and from the peer."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._transport: asyncio.Transport | None = None
        # The peer does not read; what is written piles up here.
        self.full = False

    async def ready(self) -> None:
        """Until bytes can be exchanged."""

    def write(self, data: bytes) -> None:
        """Write bytes, or forget them if the connection is gone."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def abort(self) -> None:
        """Let go of the socket at once. TLS is not said goodbye to: AMQP has been."""
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected, and TLS stands."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=limits.WRITE_BUFFER_BYTES_MAX)

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self._reader.on_bytes(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Gone."""
        self._reader.on_lost(exc)

    def pause_writing(self) -> None:
        """The peer reads too slowly."""
        self.full = True

    def resume_writing(self) -> None:
        """The peer reads again."""
        self.full = False
        self._reader.on_room()


async def connect(endpoint: Endpoint, channel: Channel, say: Say) -> None:
    """Connect a channel to an endpoint; `Unreachable` says what was in the way."""
    loop = asyncio.get_running_loop()
    host, port = endpoint.first_hop
    try:
        say("connect")
        bare = await _dial(loop, host, port)
        if endpoint.proxy is not None:
            say("proxy")
            await _tunnel(loop, bare, endpoint)
        secure: dict[str, Any] = {}
        if endpoint.tls is not None:
            say("TLS")
            name = endpoint.target[0]
            secure = {"ssl": endpoint.tls, "server_hostname": name}
        # From here on asyncio owns the socket, and closes it if this is cancelled.
        await loop.create_connection(lambda: channel, sock=bare, **secure)
    except OSError as error:
        raise Unreachable(f"{host}:{port} cannot be reached ({error}).") from error
    try:
        await channel.ready()
    except BaseException:
        channel.abort()
        raise


async def _dial(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    """A connected socket; the addresses of a name are tried one after the other."""
    found = await in_daemon(
        lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    )
    failure: OSError | None = None
    for number, (family, kind, protocol, _, address) in enumerate(found, 1):
        seconds = None if number == len(found) else limits.CLIENT_ADDRESS_SECONDS_MAX
        bare = socket.socket(family, kind, protocol)
        try:
            bare.setblocking(False)
            bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(seconds):
                await loop.sock_connect(bare, address)
            return bare
        except OSError as error:
            # Also a TimeoutError: the next address may be better.
            bare.close()
            failure = error
        except BaseException:
            bare.close()
            raise
    raise failure or OSError(f"'{host}' has no address")


async def _tunnel(
    loop: asyncio.AbstractEventLoop, bare: socket.socket, endpoint: Endpoint
) -> None:
    """Ask the proxy for a tunnel to the target."""
    assert endpoint.proxy is not None
    request = _connect_request(endpoint.target, endpoint.proxy)
    try:
        await loop.sock_sendall(bare, request)
        _check_tunnel(await _reply(loop, bare))
    except BaseException:
        bare.close()
        raise


async def _reply(loop: asyncio.AbstractEventLoop, bare: socket.socket) -> bytes:
    reply = b""
    while b"\r\n\r\n" not in reply:
        chunk = await loop.sock_recv(bare, 4096)
        reply += chunk
        if not chunk or len(reply) > limits.PROXY_REPLY_BYTES_MAX:
            raise OSError("the proxy gave no answer that can be read")
    return reply


def _check_tunnel(reply: bytes) -> None:
    status = reply.split(b"\r\n", 1)[0].decode("latin-1")
    words = status.split(None, 2)
    if len(words) < 2 or words[1] != "200":
        raise OSError(f"the proxy refused: {status}")


def _connect_request(target: tuple[str, int], proxy: Proxy) -> bytes:
    host, port = target
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
    if proxy.user is not None:
        password = "" if proxy.password is None else proxy.password.reveal()
        pair = base64.b64encode(f"{proxy.user}:{password}".encode()).decode("ascii")
        lines.append(f"Proxy-Authorization: Basic {pair}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
