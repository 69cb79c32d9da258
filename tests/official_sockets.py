"""Sockets that the official client forgets.

Its synchronous transport drops a connected socket when the server ends a connection or
refuses a token. Python says so when it collects the socket, in whichever test runs
then. Owns what closes such a socket without a word; a socket of ours still warns.
"""

from __future__ import annotations

import socket
import ssl
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
