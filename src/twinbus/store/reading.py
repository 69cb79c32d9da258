"""The contract of a reader: looks at kept messages that change nothing.

A reader with a connection of its own reads beside the store, in any one thread at a
time, and sees what is committed. A look may take long without holding up a turn; it
should not be left open, since the log of the database grows meanwhile. The reader of a
transaction (`HasReaders.reader_in`) sees what the transaction sees.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from twinbus.store.base import Stored


class SessionRow(NamedTuple):
    """A session that has messages, a lock or a state."""

    name: str
    active: int
    messages: int
    # When its lock ends, by the steady clock, and its nonce; None if it is not locked.
    until_ms: int | None
    nonce: int | None
    # None without a state.
    state_bytes: int | None


@runtime_checkable
class HasReaders(Protocol):
    """A store that can be looked at."""

    def open_reader(self) -> StoreReader | None:
        """A reader beside it; None if it is in memory."""

    def reader_in(self) -> StoreReader:
        """A reader of the transaction that is open; it ends with it."""


class StoreReader(Protocol):
    """Looks at one store. Errors of the database are `StoreFault`."""

    def messages(
        self, container: int, start: int, wall_ms: int, session: str | None
    ) -> Iterator[Stored]:
        """Messages in any state from a number on, one by one, expired ones left out.

        Text that cannot be decoded is replaced. No more is read than is asked for.
        """

    def oldest_ms(self, containers: Iterable[int]) -> dict[int, int]:
        """When the first message of each container was enqueued, where there is one."""

    def locked(self, ids: Sequence[int]) -> set[int]:
        """Those of the messages that have a lock, also one whose end has just come."""

    def sessions(self, container: int, after: str, limit: int) -> list[SessionRow]:
        """Sessions by name, those after a name."""

    def close(self) -> None: ...
