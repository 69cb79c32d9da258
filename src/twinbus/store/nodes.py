"""What a store says that several nodes may share, beside its rows.

Owns that part of the contract (`base.py` has the rest), the news that nodes leave for
each other, and the answers of a store that has one node. Knows no database.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from twinbus.clock import Now


class News(NamedTuple):
    """What a turn of one node means for the clients of others."""

    # Containers in which something may have become receivable.
    ready: tuple[int, ...] = ()
    # Session locks that ended by their time, each a container and a nonce.
    ended: tuple[tuple[int, int], ...] = ()
    # Containers that were purged, with the locks of their sessions.
    emptied: tuple[int, ...] = ()
    # Whether entities or settings have changed.
    directory: bool = False


class NodesOfStore(Protocol):
    """The part of `base.Store` that is about other nodes."""

    # Whether a database elsewhere is asked, so that turns run in a thread.
    is_remote: bool

    def now(self) -> Now | None:
        """The time of the transaction, if the database tells it to all nodes.

        None: the caller's own clocks count.
        """

    def changed_elsewhere(self) -> bool:
        """Whether another node has changed entities or settings; asked in `begin`.

        True once: then the caller reads anew what it keeps of them.
        """

    def known_wait_ms(self, now: Now) -> int | None:
        """As `next_wait_ms`, for a turn that has not looked at time: no query.

        It may be too short, and it leaves out what other nodes have added since the
        last look.
        """

    def announce(self, news: News) -> None:
        """Leave news for other nodes, in this transaction."""

    def watch(self, call: Callable[[News], None]) -> None:
        """Call with the news of other nodes, from another thread, until `close`."""

    def about(self) -> dict[str, Any]:
        """What an operator is told of the database and its nodes; no query."""


class OneNode:
    """The answers of a store that no other node has."""

    is_remote = False

    def now(self) -> Now | None:
        return None

    def changed_elsewhere(self) -> bool:
        return False

    def announce(self, news: News) -> None:
        """There is no other node."""

    def watch(self, call: Callable[[News], None]) -> None:
        """There is no other node."""

    def about(self) -> dict[str, Any]:
        return {}
