"""The senders of the primary that all pumps of a process share.

Owns one sender for each destination, and how many of their links stay open. One that is
in use is never closed. Knows nothing about messages.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from twinbus import limits
from twinbus.client.connection import Connection
from twinbus.client.sender import Sender
from twinbus.core.names import strip_uri
from twinbus.errors import TwinbusError


class _Entry:
    __slots__ = ("sender", "users")

    def __init__(self, sender: Sender) -> None:
        self.sender = sender
        self.users = 0


class Senders:
    """The senders of one connection, by the path of their entity."""

    def __init__(
        self, connection: Connection, open_max: int = limits.SYPHON_SENDERS_MAX
    ) -> None:
        self._connection = connection
        self._open_max = open_max
        # The one that was used last is at the end.
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    @contextmanager
    def use(self, path: str) -> Iterator[Sender]:
        """The sender to an entity; it stays open inside the block."""
        address = strip_uri(path)
        key = address.lower()
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(self._connection.sender(address))
        self._entries.move_to_end(key)
        entry.users += 1
        try:
            yield entry.sender
        finally:
            entry.users -= 1
            if len(self._entries) > self._open_max:
                self._close_oldest()

    async def close(self) -> None:
        """Close all links; a later use makes new ones."""
        entries, self._entries = self._entries, OrderedDict()
        closing = [_close(entry.sender) for entry in entries.values()]
        await asyncio.gather(*closing, *self._closing)

    def _close_oldest(self) -> None:
        idle = (key for key, entry in self._entries.items() if not entry.users)
        key = next(idle, None)
        if key is not None:
            sender = self._entries.pop(key).sender
            task = asyncio.get_running_loop().create_task(_close(sender))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


async def _close(sender: Sender) -> None:
    try:
        await sender.close()
    except TwinbusError:
        # The connection is gone, and the link with it.
        return
