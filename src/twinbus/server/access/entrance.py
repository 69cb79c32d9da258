"""Accepting sockets: in turn, and slowly while admitted clients have work.

Owns the pace. The loop's own servers take all who knock at once, so thousands who
connect again and again would have most of its time. Here they wait as bare sockets,
which cost next to nothing, and come in one in a turn of the loop; while clients with a
claim are at work, at a pace that leaves nine tenths of the time to them.

Addresses take turns, so a storm from one of them does not delay the others. Of one
address the longest and the shortest wait take turns: who comes into a storm may be in
at once, and who waits gets in some day. If there are too many, the longest line loses
those who have waited longest; most of them have given up by then.
Knows nothing about what is spoken on a connection: it hands each to a new protocol.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
from collections import deque
from collections.abc import Callable
from functools import partial

from twinbus import limits
from twinbus.server.access.buckets import Buckets

log = logging.getLogger("twinbus.listener")

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


class WaitingSockets:
    """Sockets that wait, by the address that they come from."""

    def __init__(self) -> None:
        self._by_address: dict[str, deque[socket.socket]] = {}
        self._count = 0
        self._newest = False

    def __len__(self) -> int:
        return self._count

    def add(self, address: str, waiting: socket.socket) -> None:
        """One more."""
        self._by_address.setdefault(address, deque()).append(waiting)
        self._count += 1

    def take(self) -> socket.socket:
        """The one whose turn it is; there must be one."""
        address = next(iter(self._by_address))
        line = self._by_address.pop(address)
        self._newest = not self._newest
        taken = line.pop() if self._newest else line.popleft()
        self._count -= 1
        if line:
            # At the end: all others come first.
            self._by_address[address] = line
        return taken

    def take_alive(self) -> socket.socket | None:
        """The next one that has not given up; not more than some are looked at."""
        for _ in range(min(self._count, limits.ADMISSION_LOOKS_PER_TURN_MAX)):
            taken = self.take()
            if _is_alive(taken):
                return taken
            taken.close()
        return None

    def make_room(self) -> None:
        """Close some: of the address with most, those that have waited longest."""
        address = max(self._by_address, key=lambda one: len(self._by_address[one]))
        line = self._by_address[address]
        for _ in range(min(len(line), limits.ACCEPTS_PER_TURN_MAX)):
            line.popleft().close()
            self._count -= 1
        if not line:
            del self._by_address[address]

    def close(self) -> None:
        """Send all away."""
        while self._count:
            self.take().close()


def _is_alive(waiting: socket.socket) -> bool:
    """Whether the peer is still there, as far as the system knows."""
    try:
        return waiting.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


class Entrance:
    """A port with clients in front of it."""

    def __init__(
        self,
        bound: socket.socket,
        factory: ProtocolFactory,
        tls: ssl.SSLContext | None,
        is_busy: Callable[[], bool],
    ) -> None:
        self._bound = bound
        self._factory = factory
        self._tls = tls
        self._is_busy = is_busy
        ms = limits.NEWCOMER_MS if tls is None else limits.NEWCOMER_TLS_MS
        self._pace_seconds = ms / 1000
        self._loop = asyncio.get_running_loop()
        self._room = WaitingSockets()
        # The store and admitted connections need file descriptors, too.
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._room_max = max(1, min(limits.NEWCOMERS_WAITING_MAX, files // 4))
        # Failed handshakes that are logged, as seldom as refused tokens.
        often = limits.TOKEN_FAILURES_MAX, limits.TOKEN_FAILURES_PER_SECOND
        self._failed = Buckets(*often)
        self._entering: set[asyncio.Task[None]] = set()
        self._next: asyncio.Handle | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._open()

    def close(self) -> None:
        """Stop admitting sockets; connections that are in stay."""
        for handle in (self._next, self._pause):
            if handle is not None:
                handle.cancel()
        self._loop.remove_reader(self._bound)
        for task in list(self._entering):
            task.cancel()
        self._room.close()
        self._bound.close()

    def _open(self) -> None:
        self._pause = None
        self._loop.add_reader(self._bound, self._accept)

    def _accept(self) -> None:
        """A socket can be accepted."""
        for _ in range(limits.ACCEPTS_PER_TURN_MAX):
            try:
                accepted, address = self._bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError as error:
                # No more files, or no memory: it stays so until a connection ends.
                log.warning("no client can come in: %s", error.strerror)
                self._wait(limits.ACCEPT_PAUSE_SECONDS)
                break
            if len(self._room) >= self._room_max:
                # Otherwise all addresses would wait behind the one that fills it.
                self._room.make_room()
            self._room.add(str(address[0]), accepted)
        if self._next is None and self._room:
            self._admit()

    def _wait(self, seconds: float) -> None:
        self._loop.remove_reader(self._bound)
        self._pause = self._loop.call_later(seconds, self._open)

    def _admit(self) -> None:
        """Let one in, and see when the next one may come."""
        self._next = None
        newcomer = self._room.take_alive()
        if newcomer is not None:
            task = self._loop.create_task(self._enter(newcomer))
            self._entering.add(task)
            task.add_done_callback(partial(self._entered, newcomer))
        if newcomer is not None and self._is_busy():
            self._next = self._loop.call_later(self._pace_seconds, self._admit)
        elif self._room:
            self._next = self._loop.call_soon(self._admit)

    def _entered(self, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        self._entering.discard(task)
        if task.cancelled():
            # It may not even have begun, so no other code would close the socket.
            accepted.close()

    async def _enter(self, accepted: socket.socket) -> None:
        seconds = limits.HANDSHAKE_SECONDS_MAX if self._tls else None
        address = ""
        try:
            address = str(accepted.getpeername()[0])
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(
                self._factory, accepted, ssl=self._tls, ssl_handshake_timeout=seconds
            )
        except OSError as error:
            # Of TLS, mostly: a scanner, or a client that does not trust us.
            self._tell_failed(address, error)
            accepted.close()

    def _tell_failed(self, address: str, error: OSError) -> None:
        if self._tls is None or not address:
            # It was gone before it had come in.
            log.info("a client did not come in: %s", error)
        elif self._failed.take(address, round(self._loop.time() * 1000)):
            why = error.strerror or str(error) or type(error).__name__
            log.warning("the TLS handshake with %s failed: %s", address, why)
