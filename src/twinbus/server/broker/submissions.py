"""Commands that wait for their turn, who hears of them, and which come first.

Owns the order: one of each client before a second one of any, so that a client with
many commands lets the others pass. Those of one client stay in their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from twinbus.errors import TwinbusError
from twinbus.server.broker.turn import Command

if TYPE_CHECKING:
    from twinbus.server.broker.host import Host

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Reply(Protocol[T_contra]):
    """Gets the answer to a command."""

    def done(self, result: T_contra) -> None:
        """It is on disk."""

    def failed(self, error: TwinbusError) -> None:
        """It did not happen."""


class Submission:
    """A command that waits for its turn."""

    __slots__ = (
        "answered",
        "command",
        "host",
        "owner",
        "reply",
        "size_bytes",
        "taken",
    )

    def __init__(
        self,
        command: Command[Any],
        reply: Reply[Any],
        size_bytes: int,
        owner: object | None,
    ) -> None:
        self.command = command
        self.reply = reply
        # How much memory it holds while it waits.
        self.size_bytes = size_bytes
        # The client that it came from; None if it is alone.
        self.owner = owner
        # In a turn: nothing may be added to the command any more.
        self.taken = False
        # Its reply has been told.
        self.answered = False
        # Where it waits.
        self.host: Host | None = None


def in_fair_order(waiting: Sequence[Submission]) -> list[Submission]:
    """The first of each owner, then the second of each, and so on."""
    places: dict[int, int] = {}
    rounds: list[list[Submission]] = []
    for submission in waiting:
        owner = submission if submission.owner is None else submission.owner
        place = places.get(id(owner), 0)
        places[id(owner)] = place + 1
        if place == len(rounds):
            rounds.append([])
        rounds[place].append(submission)
    return [submission for each in rounds for submission in each]


class Awaited(Generic[T]):
    """A reply that a task waits for."""

    def __init__(self, future: asyncio.Future[T]) -> None:
        self.future = future

    def done(self, result: T) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def failed(self, error: TwinbusError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class _Unheard:
    """A reply that no client waits for: locks that are not given back end by time."""

    def done(self, result: Any) -> None:
        """Nothing to tell."""

    def failed(self, error: TwinbusError) -> None:
        """Nothing to tell."""


UNHEARD = _Unheard()
