"""What a worker needs to know of a server: where it is, and how to log in.

Owns the form in which a target travels to the worker's process. Knows no server.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

QUEUE = "orders"


@dataclass(frozen=True, slots=True)
class Target:
    """A server that the client under measurement connects to."""

    host: str
    port: int
    # How an address is made from the name of a queue.
    address: str = "{}"
    # A login by name ...
    user: str | None = None
    password: str = ""
    # ... or a connection string whose key signs a token.
    connection_string: str | None = None
    # Messages on their way at one time; None: all that the server gives credit for.
    window: int | None = None
    # The server's process, for its memory.
    pid: int = 0
    # For administration over HTTPS, and whom to trust for that.
    admin_connection_string: str | None = None
    ca_file: str = ""
    # Where the server has HTTP.
    http_port: int = 0

    def text(self) -> str:
        """As a worker is given it."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Missing:
    """A peer that could not be had, and why."""

    name: str
    reason: str
