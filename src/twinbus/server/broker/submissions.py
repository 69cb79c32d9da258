"""Commands that wait for their turn, who hears of them, and which come first.

Owns the order: one of each client before a second one of any, so that a client with
many commands lets the others pass. A client with costly commands lets others go on for
a while after each of them. Those of one client stay in their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from twinbus import limits
from twinbus.errors import TwinbusError
from twinbus.server.broker.turn import Command, TurnOutcome, Work

if TYPE_CHECKING:
    from twinbus.server.broker.crossing.recovery import SlowTurn
    from twinbus.server.broker.host import Host

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Reply(Protocol[T_contra]):
    """Gets the answer to a command."""

    def done(self, result: T_contra) -> None:
        """It is on disk."""

    def failed(self, error: TwinbusError) -> None:
        """It did not happen."""


class CommandOwner(Protocol):
    """A client, to which all commands of its connection belong."""

    # Whether its last command took a large part of a turn.
    costly: bool


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
        owner: CommandOwner | None,
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


class InHand(NamedTuple):
    """The turn in hand: what it was given, since when, and what watches over it."""

    submissions: list[Submission]
    work: Work
    started: float
    watch: SlowTurn | None


class Waiting:
    """The commands that wait, and which of them the next turn takes.

    After a turn with a costly command, or with work that time has left over, the next
    one of these waits as long as the turn took, so that other clients go on: most of
    them send a command, wait for its answer, and send the next one. Without others it
    does not wait.
    """

    def __init__(self) -> None:
        # How much memory they hold.
        self.size_bytes = 0
        # Whether the turn in hand leaves out what is costly.
        self.is_quick = False
        self._submissions: list[Submission] = []
        self._tick_again = False
        # When what is costly may go on, by the time of the event loop, and whether
        # other clients had anything to do since it went on.
        self._costly_at = 0.0
        self._others = False

    def __iter__(self) -> Iterator[Submission]:
        return iter(self._submissions)

    def add(self, submission: Submission) -> None:
        """One more."""
        self._submissions.append(submission)
        self.size_bytes += submission.size_bytes

    def put_back(self, submissions: Sequence[Submission]) -> None:
        """These did not fit into the turn: they come first in the next one."""
        self._submissions[:0] = submissions
        self.size_bytes += sum(each.size_bytes for each in submissions)

    def take_all(self) -> list[Submission]:
        """Take all, as they came."""
        taken, self._submissions = self._submissions, []
        self.size_bytes = 0
        return taken

    def pause_seconds(self, now: float) -> float:
        """How long the next turn is to wait: only what is costly is left for it."""
        submissions = self._submissions
        if not submissions and not self._tick_again:
            return 0.0
        if not all(_is_costly(each) for each in submissions):
            return 0.0
        return max(self._costly_at - now, 0.0)

    def take(self, now: float) -> list[Submission]:
        """Take those that are in the next turn, in their order."""
        waiting = self.take_all()
        costly = [each for each in waiting if _is_costly(each)]
        is_mixed = bool(costly) or self._tick_again
        self.is_quick = is_mixed and now < self._costly_at
        if self.is_quick and costly:
            self.put_back(costly)
            waiting = [each for each in waiting if not _is_costly(each)]
        return in_fair_order(waiting)

    def note(
        self,
        submissions: Sequence[Submission],
        outcome: TurnOutcome,
        begun: float,
        now: float,
    ) -> None:
        """See what the commands of a turn have cost, which began then and is over."""
        is_costly = False
        for submission, cost in zip(submissions, outcome.costs, strict=False):
            if cost >= limits.COSTLY_WORK:
                is_costly = True
            else:
                self._others = True
            if submission.owner is not None:
                submission.owner.costly = cost >= limits.COSTLY_WORK
        if self.is_quick:
            return
        self._tick_again = outcome.tick_again
        if (is_costly or outcome.tick_again) and self._others:
            pause = min(now - begun, limits.COSTLY_PAUSE_SECONDS_MAX)
            self._costly_at = now + pause
            self._others = False


def _is_costly(submission: Submission) -> bool:
    return submission.owner is not None and submission.owner.costly


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


class WithAnswers:
    """Calls that go out with the answers of a turn, which are given inside of it.

    A client is written to once for all that a turn has for it, and at once: to wait
    until the loop comes round would add to the time that every command takes.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # None while no turn is handed out.
        self._calls: list[Callable[[], object]] | None = None

    def soon(self, call: Callable[[], object]) -> None:
        """Call with the answers of the turn, or when the loop comes round."""
        if self._calls is None:
            self._loop.call_soon(call)
        else:
            self._calls.append(call)

    def __enter__(self) -> None:
        self._calls = []

    def __exit__(self, *_: object) -> None:
        calls, self._calls = self._calls or (), None
        for call in calls:
            try:
                call()
            except Exception as error:  # noqa: BLE001
                # As the loop does, which would have called it.
                told = {"message": f"{call} failed", "exception": error}
                self._loop.call_exception_handler(told)


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
