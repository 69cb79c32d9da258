"""A TCP proxy that breaks connections on purpose.

    with FaultyProxy("127.0.0.1", 5672) as proxy:
        client = ServiceBusClient.from_connection_string(... proxy.port ...)
        proxy.inject(Fault("reset", after_frame="transfer", inside=True))
        ...
        proxy.heal()

Owns the listening port, the connections and what happens to them. It runs in a thread
of its own, and its methods may be called from anywhere; each returns when it has taken
effect. Nothing is left to chance: a fault strikes at a byte that `proxy_stream.py`
finds. As a process it is `twinbus proxy`, which obeys `proxy_commands.py`.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from twinbus import limits
from twinbus.client.transport.loop_thread import LoopThread
from twinbus.clock import SystemClock
from twinbus.testing.proxy_stream import Direction, Fault

__all__ = ["Fault", "FaultyProxy"]

# A connection that ends like this sends RST instead of FIN.
_RESET = struct.pack("ii", 1, 0)


# Told what passes: connection, side that it is for, bytes, and when they came, in
# milliseconds. Neither side nor bytes: the connection has ended.
Tap = Callable[[int, str, bytes, int], None]


_Pieces = asyncio.Queue[tuple[bytes, int]]


@dataclass(slots=True)
class Speed:
    """How slow connections are, until `changed`."""

    # What passes arrives so much later, and up to the jitter later than that.
    delay_seconds: float = 0
    jitter_seconds: float = 0
    # Bytes trickle: so many in a second, a few at a time. 0: no limit.
    bytes_per_second: float = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def late(self, came_ms: int, now_ms: int, jitter: float) -> None:
        """Wait for the moment at which bytes that came then may go on."""
        seconds = self.delay_seconds + jitter * self.jitter_seconds
        await self._wait(seconds - (now_ms - came_ms) / 1000 if seconds else 0)

    async def next_part(self, data: bytes) -> bytes:
        """Wait for the first bytes that may go on now."""
        if not self.bytes_per_second or self.changed.is_set():
            return data
        count = max(1, round(self.bytes_per_second * limits.PROXY_TRICKLE_SECONDS))
        part = data[:count]
        await self._wait(len(part) / self.bytes_per_second)
        return part

    async def _wait(self, seconds: float) -> None:
        if seconds > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), seconds)


class _ProxiedConnection:
    """One client, and the server that it wants."""

    def __init__(self, proxy: FaultyProxy, client: socket.socket, number: int) -> None:
        self.proxy = proxy
        self.number = number
        self.client = client
        # Connected when there is something to pass on: a fault may keep all of it.
        self.server: socket.socket | None = None
        self.directions = {"server": Direction("server"), "client": Direction("client")}
        # Bytes were swallowed, so the rest of the stream makes no sense.
        self.torn = False
        # The client will say no more.
        self.half_closed = False
        self.ended = False
        self.healed = asyncio.Event()
        self.tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._spawn(self._carry("server", self.client))

    def arm(self, fault: Fault | None) -> None:
        for direction in self.directions.values():
            direction.arm(fault)
        if fault is None:
            self.healed.set()
            self.healed = asyncio.Event()

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _read(self, source: socket.socket, pieces: _Pieces) -> None:
        """Read whatever comes, also while a fault keeps it from going on."""
        loop = asyncio.get_running_loop()
        reset = 0
        try:
            while data := await loop.sock_recv(source, limits.PROXY_READ_BYTES):
                await pieces.put((data, self.proxy.clock.now_ms()))
        except OSError:
            reset = 1
        # Its end waits for its turn like everything else.
        await pieces.put((b"", reset))

    async def _carry(self, side: str, source: socket.socket) -> None:
        """Take bytes to one side until they end, or a fault ends it."""
        pieces: _Pieces = asyncio.Queue(limits.PROXY_PIECES_MAX)
        self._spawn(self._read(source, pieces))
        direction = self.directions[side]
        swallowing = False
        try:
            while (piece := await pieces.get())[0]:
                # Read and dropped, so that the writer notices nothing.
                if not swallowing:
                    swallowing = not await self._pass_slowly(direction, *piece)
                if self.ended:
                    return
            if side == "client" and swallowing and not self.half_closed:
                # The client is not told that the server has left.
                return
            self._end_of(side, reset=piece[1] > 0)
        except OSError:
            self.end(reset=True)

    async def _pass_slowly(
        self, direction: Direction, data: bytes, came_ms: int
    ) -> bool:
        """Whether the way goes on after these bytes, which pass at the speed of now."""
        now_ms = self.proxy.clock.now_ms()
        await self.proxy.speed.late(came_ms, now_ms, self.proxy.chance.random())
        while data:
            part = await self.proxy.speed.next_part(data)
            if not await self._pass_on(direction, part, came_ms) or self.ended:
                return False
            data = data[len(part) :]
        return True

    async def _pass_on(self, direction: Direction, data: bytes, came_ms: int) -> bool:
        """Whether the way goes on after these bytes."""
        count, struck = direction.pass_on(data)
        if count:
            await self._write(direction.side, data[:count], came_ms)
        if not struck:
            return True
        fault = direction.fault
        assert fault is not None
        self.proxy._struck()
        if fault.then == "hold":
            await self.healed.wait()
            # Its marks have seen these bytes already.
            await self._write(direction.side, data[count:], came_ms)
            return True
        if fault.then == "silence":
            self.torn = True
        else:
            self.end(reset=fault.then == "reset")
        return False

    async def _write(self, side: str, data: bytes, came_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self.proxy._tapped(self.number, side, data, came_ms)
        if side == "client":
            await loop.sock_sendall(self.client, data)
            return
        if self.server is None:
            host, port = self.proxy.target
            kind = socket.SOCK_STREAM
            family, *_, address = (await loop.getaddrinfo(host, port, type=kind))[0]
            server = socket.socket(family)
            server.setblocking(False)
            self.server = server
            await loop.sock_connect(server, address)
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._spawn(self._carry("client", server))
        await loop.sock_sendall(self.server, data)

    def _end_of(self, side: str, reset: bool) -> None:
        """The source has ended its half, or all of it."""
        if reset or side == "client" or self.server is None or self.torn:
            self.end(reset)
        else:
            self.half_closed = True
            with suppress(OSError):
                self.server.shutdown(socket.SHUT_WR)

    def end(self, reset: bool = False) -> None:
        """Let go of both sides."""
        if self.ended:
            return
        self.ended = True
        for side in (self.client, self.server):
            if side is not None and side.fileno() >= 0:
                with suppress(OSError):
                    if reset:
                        side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                self.proxy._forget(side)
        current = asyncio.current_task()
        for task in self.tasks - {current}:
            task.cancel()
        self.proxy._gone(self)


class FaultyProxy:
    """Listens on a free port of loopback, or on `listen`, and passes on to one server.

    The server is found by its name or address whenever a client has something to say.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        listen: tuple[str, int] = ("127.0.0.1", 0),
        tap: Tap | None = None,
        thread: LoopThread | None = None,
    ) -> None:
        self.target = (host, port)
        self.clock = SystemClock()
        self.speed = Speed()
        # Where jitter comes from: the same in every run.
        self.chance = random.Random(0)  # noqa: S311 - no secret
        self._tap = tap
        self._fault: Fault | None = None
        self._left: int | None = None
        self._connections: dict[int, _ProxiedConnection] = {}
        self._accepted = 0
        self._strikes = 0
        self._news = threading.Condition()
        self._listener: socket.socket | None = None
        self._acceptor: asyncio.Task[None] | None = None
        # Bound but not listening, so that the port stays ours while it refuses.
        self._place = _bound(listen)
        self.address: tuple[str, int] = self._place.getsockname()[:2]
        self.port = self.address[1]
        # Many proxies may share one; then its maker ends it.
        self._shares_thread = thread is not None
        self._thread = thread or LoopThread("proxy")
        self._run(self._listen)

    # -- faults --------------------------------------------------------------------

    def inject(self, fault: Fault) -> None:
        """Let a fault strike, on existing connections and on new ones."""
        self._run(lambda: self._arm(fault))

    def black_hole(self) -> None:
        """Accept connections, and swallow everything on them and on the old ones."""
        self.inject(Fault("silence"))

    def refuse(self) -> None:
        """Refuse new connections; old ones go on until they are `cut`."""
        self._run(self._stop_listening)

    def heal(self) -> None:
        """Pass everything on again, without delay; torn connections are reset."""
        self._run(self._heal)

    def cut(self) -> None:
        """Reset all connections that there are."""
        self._run(self._cut)

    def slow_down(
        self,
        delay_seconds: float = 0,
        bytes_per_second: float = 0,
        jitter_seconds: float = 0,
    ) -> None:
        """Delay what passes, and let only so many bytes through, in each direction."""
        speed = Speed(delay_seconds, jitter_seconds, bytes_per_second)
        self._run(lambda: self._change_speed(speed))

    def close(self) -> None:
        """End all connections and the thread."""
        if self._place.fileno() >= 0:
            self._run(self._stop)
            if not self._shares_thread:
                self._thread.stop()
            self._place.close()

    # -- what has happened ---------------------------------------------------------

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    @property
    def accepted(self) -> int:
        """How many clients have come so far."""
        return self._accepted

    @property
    def strikes(self) -> int:
        """How often a fault has struck a direction of a connection so far."""
        return self._strikes

    def wait_until(
        self,
        ready: Callable[[Self], bool],
        timeout_seconds: float = limits.PROXY_WAIT_SECONDS_MAX,
    ) -> None:
        """Wait until `ready(proxy)`, asked whenever something has happened."""
        with self._news:
            if not self._news.wait_for(lambda: ready(self), timeout_seconds):
                raise TimeoutError(f"It did not happen in {timeout_seconds:g} seconds.")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- inside the thread ---------------------------------------------------------

    def _run(self, work: Callable[[], None]) -> None:
        async def call() -> None:
            work()

        self._thread.run(call)

    def _listen(self) -> None:
        listener = _bound(self.address)
        listener.listen(128)
        listener.setblocking(False)
        self._listener = listener
        self._acceptor = asyncio.ensure_future(self._accept(listener))

    def _stop_listening(self) -> None:
        if self._acceptor is not None and self._listener is not None:
            self._acceptor.cancel()
            self._forget(self._listener)
            self._acceptor = self._listener = None

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            client, _ = await loop.sock_accept(listener)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._news:
                self._accepted += 1
                connection = _ProxiedConnection(self, client, self._accepted)
                self._connections[connection.number] = connection
                self._news.notify_all()
            self._arm_one(connection)
            connection.start()

    def _arm(self, fault: Fault) -> None:
        self._fault, self._left = fault, fault.connections
        for connection in list(self._connections.values()):
            self._arm_one(connection)

    def _arm_one(self, connection: _ProxiedConnection) -> None:
        if self._fault is None or self._left == 0:
            return
        if self._left is not None:
            self._left -= 1
        connection.arm(self._fault)

    def _heal(self) -> None:
        self._fault = None
        self._change_speed(Speed())
        for connection in list(self._connections.values()):
            if connection.torn:
                connection.end(reset=True)
            else:
                connection.arm(None)
        if self._listener is None:
            self._listen()

    def _change_speed(self, speed: Speed) -> None:
        self.speed.changed.set()
        self.speed = speed

    def _cut(self) -> None:
        for connection in list(self._connections.values()):
            connection.end(reset=True)

    def _stop(self) -> None:
        self._stop_listening()
        self._cut()

    def _forget(self, side: socket.socket) -> None:
        """Close a socket that the loop may be waiting for."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(side)
        loop.remove_writer(side)
        side.close()

    def _struck(self) -> None:
        with self._news:
            self._strikes += 1
            self._news.notify_all()

    def _gone(self, connection: _ProxiedConnection) -> None:
        self._tapped(connection.number, "", b"", 0)
        with self._news:
            self._connections.pop(connection.number, None)
            self._news.notify_all()

    def _tapped(self, number: int, side: str, data: bytes, came_ms: int) -> None:
        if self._tap is not None:
            self._tap(number, side, data, came_ms)


def _bound(address: tuple[str, int]) -> socket.socket:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    bound = socket.socket(family)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    return bound
