"""Sockets that are forgotten: Python says so in the test in which it collects them.

Owns two answers to that. The synchronous transport of the official client drops a
connected socket when the server ends a connection or refuses a token: such a socket is
closed without a word. A transport of asyncio, ours or of a test, still warns, and says
in which test it was made: that is where the mistake is.
"""

from __future__ import annotations

import os
import socket
import ssl
from asyncio import selector_events
from typing import Any

from azure.servicebus._pyamqp import _transport


class _Plain(socket.socket):
    """Closed when it is collected."""

    __slots__ = ()

    def __del__(self) -> None:
        self.close()


class _Secured(ssl.SSLSocket):
    """Closed when it is collected."""

    def __del__(self) -> None:
        self.close()


_KINDS: dict[type, type] = {socket.socket: _Plain, ssl.SSLSocket: _Secured}


def _forgive(kind: type) -> None:
    connect = kind.connect  # type: ignore[attr-defined]

    def connect_forgivingly(transport: Any) -> None:
        connect(transport)
        # A WebSocket has the socket inside.
        bare = getattr(transport.sock, "sock", transport.sock)
        bare.__class__ = _KINDS.get(type(bare), type(bare))

    kind.connect = connect_forgivingly  # type: ignore[attr-defined]


def forgive_forgotten_sockets() -> None:
    """Close what the official client forgets, as long as this process runs."""
    _forgive(_transport._AbstractTransport)
    _forgive(_transport.WebSocketTransport)


def name_the_tests_of_transports() -> None:
    """Let a transport say which test made it."""
    kind: Any = selector_events._SelectorTransport  # type: ignore[attr-defined]
    make, tell = kind.__init__, kind.__repr__

    def make_in_test(transport: Any, *args: Any, **options: Any) -> None:
        transport.made_in = os.environ.get("PYTEST_CURRENT_TEST", "no test")
        make(transport, *args, **options)

    kind.__init__ = make_in_test
    kind.__repr__ = lambda transport: f"{tell(transport)} of {transport.made_in}"
