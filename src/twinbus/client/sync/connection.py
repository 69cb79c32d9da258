# Made by tools/async_to_sync.py from client/connection.py. DO NOT CHANGE.
"""The sync twin of `client/connection.py`, for any number of threads.

The same methods with the same meaning, run in the client's own thread. Each returns
when its async original would, and raises what that would raise.
"""

from __future__ import annotations

from typing import Any, Self

from twinbus import limits
from twinbus.client import connection as aio
from twinbus.client.receiver import ReceiveOptions
from twinbus.client.sync.management import Management
from twinbus.client.sync.receiver import Receiver
from twinbus.client.sync.sender import Sender
from twinbus.client.transport.endpoint import Endpoint
from twinbus.client.transport.loop_thread import LoopThread
from twinbus.clock import Clock


class Connection:
    """A namespace, as a client sees it."""

    def __init__(
        self,
        endpoint: Endpoint,
        credential: Any,
        *,
        name: str = "twinbus",
        timeout_seconds: float = limits.CLIENT_TIMEOUT_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        self._inner = aio.Connection(
            endpoint,
            credential,
            name=name,
            timeout_seconds=timeout_seconds,
            clock=clock,
        )
        self._thread = LoopThread()

    @property
    def endpoint(self) -> Endpoint:
        return self._inner.endpoint

    @property
    def timeout_seconds(self) -> float:
        return self._inner.timeout_seconds

    @classmethod
    def from_connection_string(
        cls,
        text: str,
        way: Endpoint | None = None,
        *,
        timeout_seconds: float = limits.CLIENT_TIMEOUT_SECONDS,
    ) -> Self:
        """The namespace that a connection string names.

        `way` brings what the string cannot say: WebSocket, proxy, address, TLS.
        """
        made = cls.__new__(cls)
        made._inner = aio.Connection.from_connection_string(
            text, way, timeout_seconds=timeout_seconds
        )
        made._thread = LoopThread()
        return made

    def sender(self, path: str) -> Sender:
        """A sender for a queue or topic; it links when it is first used."""
        return Sender(self._inner.sender(path), self._thread)

    def receiver(self, path: str, options: ReceiveOptions | None = None) -> Receiver:
        """A receiver for a queue, subscription or dead-letter queue."""
        return Receiver(self._inner.receiver(path, options), self._thread)

    def management(self, path: str) -> Management:
        """Management operations on an entity; one object for each."""
        return Management(self._inner.management(path), self._thread)

    @property
    def capabilities(self) -> list[str]:
        """What the server said that it can do, as far as it has been asked."""
        return self._inner.capabilities

    @property
    def container_id(self) -> str:
        """What the server calls itself, as far as it has been asked."""
        return self._inner.container_id

    @property
    def properties(self) -> dict[str, Any]:
        """What the server said of itself in `open`, as far as it has been asked."""
        return self._inner.properties

    def open(self, timeout_seconds: float | None = None) -> None:
        """Connect now; any call would."""
        self._thread.run(lambda: self._inner.open(timeout_seconds))

    def close(self, timeout_seconds: float | None = None) -> None:
        """Say goodbye and let go; what is still under way fails."""
        if not self._thread.usable:
            return
        try:
            self._thread.run(lambda: self._inner.close(timeout_seconds))
        finally:
            self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
