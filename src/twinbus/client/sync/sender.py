# Made by tools/async_to_sync.py from client/sender.py. DO NOT CHANGE.
"""The sync twin of `client/sender.py`, for any number of threads.

The same methods with the same meaning, run in the client's own thread. Each returns
when its async original would, and raises what that would raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from twinbus.client import sender as aio
from twinbus.client.transport.loop_thread import LoopThread


class Sender:
    """Sends to one entity; made by `Connection.sender`, links when first used."""

    def __init__(self, inner: aio.Sender, thread: LoopThread) -> None:
        self._inner = inner
        self._thread = thread

    @property
    def path(self) -> str:
        return self._inner.path

    @property
    def message_bytes_max(self) -> int:
        """The largest message that the entity takes, as far as is known."""
        return self._inner.message_bytes_max

    @property
    def batch_bytes_max(self) -> int:
        """The largest batch that the entity takes, as far as is known."""
        return self._inner.batch_bytes_max

    def open(self, timeout_seconds: float | None = None) -> None:
        """Link now; shows whether the entity can be sent to."""
        self._thread.run(lambda: self._inner.open(timeout_seconds))

    def send(
        self, messages: bytes | Sequence[bytes], timeout_seconds: float | None = None
    ) -> None:
        """Send encoded messages, and return when they are accepted.

        Several go as batches, each as full as the entity allows: the server takes all
        of a batch or none. A task that is cancelled here leaves nothing half done.
        """
        self._thread.run(lambda: self._inner.send(messages, timeout_seconds))

    def close(self, timeout_seconds: float | None = None) -> None:
        """End the link; a later send makes another."""
        if not self._thread.usable:
            return
        self._thread.run(lambda: self._inner.close(timeout_seconds))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
