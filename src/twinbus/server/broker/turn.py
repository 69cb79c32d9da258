"""A turn: one transaction of a namespace, as a function.

    run(namespace, work) -> outcome

Commands and wants go in; answers, deliveries and effects come out. All of it is plain
data: nothing that can be reached from a `Work` or a `TurnOutcome` is a link, a
connection or an event loop, so a turn runs on the loop or in a thread. `run` leaves the
transaction open: the host commits it, and hands the outcome out only then.
"""

from __future__ import annotations

import logging
import traceback
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from twinbus import limits
from twinbus.clock import Now
from twinbus.errors import Bug, StoreFault, TwinbusError
from twinbus.store.base import SessionEnded

if TYPE_CHECKING:
    from twinbus.server.broker.namespace import Namespace

log = logging.getLogger("twinbus.turn")

T = TypeVar("T")


class Turn:
    """The turn in hand: its time, and the effects that commands and wants add to it.

    Effects are what clients are told after the commit beside answers and deliveries.
    """

    __slots__ = (
        "again",
        "deleted",
        "emptied",
        "ended_sessions",
        "left",
        "now",
        "proves_write",
        "ready",
        "rules_changed",
        "taken_bytes",
        "topic_bytes",
    )

    def __init__(self, now: Now) -> None:
        self.now = now
        # Containers in which a message or a session may have become receivable; also
        # if that was undone, since a look that finds nothing does no harm.
        self.ready: set[int] = set()
        # Containers whose consumers could not be served in full, in this order.
        self.again: dict[int, None] = {}
        # Session locks that ended by their time.
        self.ended_sessions: list[SessionEnded] = []
        # Containers that were purged, with the locks of their sessions.
        self.emptied: list[int] = []
        # The ids of entities that are gone.
        self.deleted: list[int] = []
        # Whether claims may have lost the authorization rule that they came from, or
        # have ended because the clock was set; to look in vain does no harm.
        self.rules_changed = False
        # Whether a ping has made sure that the commit writes a row.
        self.proves_write = False
        # Bytes of messages taken for each connection.
        self.taken_bytes: dict[Room, int] = {}
        # What topics hold with their subscriptions, by the id of the topic.
        self.topic_bytes: dict[int, int] = {}
        # Work that may still be done now; see `limits.TURN_WORK_MAX`.
        self.left = limits.TURN_WORK_MAX

    @property
    def is_full(self) -> bool:
        """Whether what can wait should wait for another turn."""
        return self.left <= 0


# What a client wants done. It is called inside the transaction, in a part of its own:
# if it raises, it fails alone, and nothing that it changed remains. One with an
# attribute `divides` makes its own parts.
Command = Callable[["Namespace", Turn], T]


class Room:
    """Whether a connection can take messages; shared by all of its wants."""

    __slots__ = ("closed", "passed_over")

    def __init__(self) -> None:
        # Set while the client does not read.
        self.closed = False
        # Shards and containers whose messages were not taken because it was closed.
        self.passed_over: dict[tuple[int, int], None] = {}


class Taken(Protocol):
    """What a want was given; its consumer gets it after the commit."""

    def returned(self) -> Command[None] | None:
        """What gives it back, if the consumer is gone; None if nothing can."""


class Want(Protocol):
    """What a consumer of a container can take now. It is never changed."""

    # The number of the consumer.
    key: int
    container: int

    def take(self, namespace: Namespace, turn: Turn, share: int) -> Taken | None:
        """Take up to `share` messages, or a session; None leaves the want waiting."""

    def refused(self, error: TwinbusError) -> Taken:
        """What the consumer is given if taking failed."""


@dataclass(slots=True)
class Work:
    """What a turn has to do."""

    now: Now
    commands: Sequence[Command[Any]] = ()
    # Whether time is looked at: locks, schedules, expiry.
    tick: bool = False
    # Containers with wants that no turn has looked at yet.
    to_serve: Collection[int] = ()
    # All wants, by container and consumer.
    wants: Mapping[int, Mapping[int, Want]] = field(default_factory=dict)


@dataclass(slots=True)
class TurnOutcome:
    """What a turn has decided."""

    # One for each command: its result, or the error that it is refused with. Those for
    # which there was no room in the turn have none.
    answers: list[Any]
    # The work of each command that has an answer.
    costs: list[int]
    deliveries: list[tuple[Want, Taken]]
    effects: Turn
    # Whether time has more to do at once, and the steady time when it has more to do.
    tick_again: bool
    next_tick_ms: int | None
    # Whether this node carries what is posted for other shards, and not another one.
    carries: bool = True


def run(namespace: Namespace, work: Work) -> TurnOutcome:
    """Apply the commands, look at time, and serve the wants of what is ready."""
    turn = Turn(work.now)
    answers, costs = [], []
    for command in work.commands:
        left = turn.left
        if left <= 0:
            break
        turn.left -= 1
        answers.append(_apply(command, namespace, turn))
        costs.append(left - turn.left)
    turn.left = limits.TURN_WORK_MAX
    # What a deleted entity holds goes with the next look at the time.
    tick_again = bool(namespace.entities.retired)
    if work.tick:
        tick_again = namespace.ticker.tick(turn)
    turn.left = limits.TURN_WORK_MAX
    deliveries = _serve(namespace, work, turn)
    store = namespace.store
    next_wait_ms = store.next_wait_ms if work.tick else store.known_wait_ms
    wait_ms = next_wait_ms(work.now)
    next_tick_ms = None if wait_ms is None else work.now.steady_ms + wait_ms
    return TurnOutcome(answers, costs, deliveries, turn, tick_again, next_tick_ms)


def _apply(command: Command[Any], namespace: Namespace, turn: Turn) -> Any:
    try:
        if getattr(command, "divides", False):
            return command(namespace, turn)
        with namespace.part():
            return command(namespace, turn)
    except StoreFault:
        raise
    except Exception as error:  # noqa: BLE001
        return answerable(error, namespace)


def answerable(error: Exception, namespace: Namespace) -> TwinbusError:
    """The error that a client is told; an unexpected one is logged with an id.

    The log has it once, and then at every tenfold count: a client may repeat it.
    """
    if isinstance(error, TwinbusError):
        return error
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{place.filename}:{place.lineno}"
    namespace.defects[where] += 1
    count = namespace.defects[where]
    error_id = uuid.uuid4().hex[:8]
    if count == 10 ** (len(str(count)) - 1):
        text = "error %s in %s, met %d times at this place"
        log.error(text, error_id, namespace.name, count, exc_info=error)
    return Bug(f"The server failed. Its log says more; the error's id is {error_id}.")


def _serve(namespace: Namespace, work: Work, turn: Turn) -> list[tuple[Want, Taken]]:
    """Give each consumer of the containers that are ready its share."""
    served: list[tuple[Want, Taken]] = []
    for container in dict.fromkeys([*work.to_serve, *turn.ready]):
        waiting = work.wants.get(container)
        if not waiting:
            continue
        if turn.is_full:
            turn.again[container] = None
            continue
        # A copy: the host may note other wants meanwhile.
        wants = list(waiting.values())
        alone = len(wants) == 1
        share = limits.SHARE_ALONE_MESSAGES if alone else limits.SHARE_MESSAGES
        for want in wants:
            turn.left -= 1
            taken = _take(want, namespace, turn, share)
            if taken is not None:
                served.append((want, taken))
    return served


def _take(want: Want, namespace: Namespace, turn: Turn, share: int) -> Taken | None:
    try:
        with namespace.part():
            return want.take(namespace, turn, share)
    except StoreFault:
        raise
    except Exception as error:  # noqa: BLE001
        return want.refused(answerable(error, namespace))
