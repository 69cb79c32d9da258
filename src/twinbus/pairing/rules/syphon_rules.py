"""What the syphon does with a message: the rules that all its runners share.

Owns three decisions. For a message that comes up in a backlog queue: send it to its
entity of the primary, dead-letter it, or drop it. For one that its destination did not
take: dead-letter it, or let the destination rest. And for a destination that rests:
when its messages may go again, so that they arrive in the order in which they were
diverted.

A message of a resting destination is *parked*: left locked and not renewed, so that
those behind it come up. When the lock ends it returns by itself. A message of that
destination goes only if none of a lower number is still away, so order is kept without
waiting for all of them. Several syphons on one queue give that up.

Knows nothing about links, batches or Spark.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heappop, heappush
from typing import Generic, Protocol, TypeVar

from twinbus import limits
from twinbus.pairing.errors import AliasInvalid
from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.pairing.rules.classification import Failure, kind_of
from twinbus.pairing.rules.decisions import Decision, Tell
from twinbus.pairing.rules.envelope import Aliases, Backlogged
from twinbus.pairing.rules.envelope_fast import fast_restore
from twinbus.pairing.rules.policy import entity_key
from twinbus.pairing.rules.retry import DESTINATION_BACKOFF, Backoff

# Whether the time in the backlog counts; the original library restarts it.
TTL_REMAINING = "remaining"
TTL_RESTART = "restart"
TTL_RULES = (TTL_REMAINING, TTL_RESTART)

REASON_EXPIRED = "TTLExpiredException"
REASON_MISSING = "DestinationNotFound"
REASON_DISABLED = "DestinationDisabled"
REASON_TOO_LARGE = "MessageTooLarge"
REASON_REFUSED = "MessageRefused"


# -- one message -------------------------------------------------------------------


_key_of = lru_cache(limits.ENTITY_KEYS_KEPT_MAX)(entity_key)


# Not frozen: that would take three times as long to make, and each message has one.
@dataclass(slots=True)
class SendToPrimary:
    """Send these bytes to this entity of the primary; once accepted, complete."""

    path: str
    payload: bytes

    @property
    def key(self) -> str:
        """What two spellings of the path have in common."""
        return _key_of(self.path)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Dead-letter the message in its backlog queue. Its neighbours go on."""

    reason: str
    description: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Complete it, and send nothing: it was a ping."""


Outcome = SendToPrimary | DeadLetter | Drop


def decide(payload: bytes, now_ms: int, ttl_rule: str = TTL_REMAINING) -> Outcome:
    """What becomes of a message that was received from a backlog queue."""
    usual = fast_restore(payload, now_ms, ttl_rule == TTL_RESTART)
    if usual is not None:
        return SendToPrimary(*usual)
    try:
        message = Backlogged(payload)
        if message.is_ping:
            return Drop()
        aliases = message.aliases()
        ttl_ms = remaining_ttl_ms(aliases, message.enqueued_ms, now_ms, ttl_rule)
        if ttl_ms is not None and ttl_ms <= 0:
            return DeadLetter(
                REASON_EXPIRED,
                f"The time to live for '{aliases.path}' ended {-ttl_ms} ms ago.",
            )
        return SendToPrimary(aliases.path, message.restored(aliases, ttl_ms))
    except AliasInvalid as error:
        return DeadLetter(error.reason, error.text)


def remaining_ttl_ms(
    aliases: Aliases, enqueued_ms: int | None, now_ms: int, ttl_rule: str
) -> int | None:
    """What is left of the time to live; None if it has none."""
    ttl_ms = aliases.ttl_ms
    if ttl_ms is None or ttl_rule == TTL_RESTART:
        return ttl_ms
    since_ms = aliases.diverted_at_ms
    if since_ms is None:
        since_ms = enqueued_ms if enqueued_ms is not None else now_ms
    if aliases.scheduled_ms is not None:
        # It starts when the message would have been there to receive.
        since_ms = max(since_ms, aliases.scheduled_ms)
    # A clock that was set back must not make a message live longer.
    return ttl_ms - max(now_ms - since_ms, 0)


# -- what a destination says -------------------------------------------------------


class Rest(enum.Enum):
    """Why a destination takes nothing for a while."""

    AWAY = "away"
    BUSY = "busy"
    FULL = "full"
    # The backlog is not dead-lettered only because a key was rotated.
    NO_ACCESS = "no access"


_RESTS = {
    Failure.CONNECTION: Rest.AWAY,
    Failure.TIMEOUT: Rest.AWAY,
    Failure.SERVICE: Rest.AWAY,
    Failure.BUSY: Rest.BUSY,
    Failure.FULL: Rest.FULL,
    Failure.ACCESS: Rest.NO_ACCESS,
}
_REASONS = {
    Failure.MISSING: REASON_MISSING,
    Failure.DISABLED: REASON_DISABLED,
    Failure.TOO_LARGE: REASON_TOO_LARGE,
}


def after_failure(path: str, error: BaseException) -> Rest | DeadLetter:
    """What to do with a message that its destination did not take."""
    kind = kind_of(error)
    rest = _RESTS.get(kind)
    if rest is not None:
        return rest
    text = f"'{path}' did not take the message: {error}"
    reason = _REASONS.get(kind, REASON_REFUSED)
    return DeadLetter(reason, text[: limits.SYPHON_DESCRIPTION_CHARS_MAX])


# -- destinations that rest --------------------------------------------------------


class Locked(Protocol):
    """A lock of this syphon or of another receiver. Times are by the syphon's clock."""

    @property
    def sequence(self) -> int: ...

    @property
    def locked_until_ms(self) -> int:
        """When it came in, plus the lock time of the queue: never before the end."""

    @property
    def locked_ms(self) -> int | None:
        """When the broker locked it, which may be long ago. None: now."""


@dataclass(slots=True)
class Held:
    """A lock that is known by its number and its end alone."""

    sequence: int
    locked_until_ms: int
    locked_ms: int | None = None


LockedT = TypeVar("LockedT", bound=Locked)


class _DestinationState:
    """What is known of one destination: whether it rests, and what is parked for it."""

    __slots__ = ("_ends", "_numbers", "failures", "parked", "rest", "until_ms")

    def __init__(self) -> None:
        self.rest: Rest | None = None
        self.until_ms = 0
        # Since it last took a message.
        self.failures = 0
        # Messages left locked: number and end of the lock. The two heaps are ways to
        # find the first; what is no longer in `parked` is passed over.
        self.parked: dict[int, int] = {}
        self._numbers: list[int] = []
        self._ends: list[tuple[int, int]] = []

    def park(self, held: Locked) -> None:
        self.parked[held.sequence] = held.locked_until_ms
        heappush(self._numbers, held.sequence)
        heappush(self._ends, (held.locked_until_ms, held.sequence))

    def forget_returned(self, locked_ms: int) -> None:
        """What returned before this came up before it, or is gone."""
        while self._ends and self._ends[0][0] + limits.LOCK_MARGIN_MS <= locked_ms:
            until_ms, number = heappop(self._ends)
            if self.parked.get(number) == until_ms:
                del self.parked[number]

    def is_next(self, sequence: int) -> bool:
        """Whether no message of a lower number is away."""
        while self._numbers and self._numbers[0] not in self.parked:
            heappop(self._numbers)
        return not self._numbers or sequence <= self._numbers[0]

    def resume_ms(self) -> int:
        """When the first of its messages may go."""
        return max(self.until_ms, min(self.parked.values(), default=0))


class DestinationStates:
    """What is known of the destinations of one backlog queue, by one syphon.

    `pump.destinations.Destination` sends to one of them.
    """

    def __init__(self, queue_path: str, backoff: Backoff = DESTINATION_BACKOFF) -> None:
        self._queue_path = queue_path
        self._backoff = backoff
        self._by_key: dict[str, _DestinationState] = {}

    def may_send(self, key: str, held: Locked, now_ms: int) -> bool:
        """Whether a message may be sent now; if not, it is parked.

        Ask for the messages of a queue in the order of their numbers, and send those
        of one destination one after the other, or in one batch.
        """
        state = self._by_key.get(key)
        if state is None:
            return True
        state.parked.pop(held.sequence, None)
        state.forget_returned(now_ms if held.locked_ms is None else held.locked_ms)
        if now_ms >= state.until_ms and state.is_next(held.sequence):
            return True
        state.park(held)
        return False

    def accepted(self, key: str) -> None:
        """A destination took a message."""
        state = self._by_key.get(key)
        if state is None:
            return
        state.rest = None
        state.failures = 0
        if not state.parked:
            del self._by_key[key]

    def away(self, key: str, held: Locked) -> None:
        """Another receiver has locked a message: later ones wait for its return."""
        self._by_key.setdefault(key, _DestinationState()).park(held)

    def failed(
        self,
        path: str,
        rest: Rest,
        messages: Iterable[Locked],
        cause: BaseException,
        now_ms: int,
    ) -> list[Decision]:
        """A destination did not take these: they are parked, and it rests."""
        state = self._by_key.setdefault(entity_key(path), _DestinationState())
        for held in messages:
            state.park(held)
        state.failures += 1
        busy = rest is Rest.BUSY
        state.until_ms = now_ms + self._backoff.pause_ms(state.failures, busy=busy)
        if state.rest is rest:
            # Told already.
            return []
        state.rest = rest
        details = {"queue": self._queue_path, "because": rest.value}
        kind = EventKind.SYPHON_BACKS_OFF
        return [Tell(PairingEvent(kind, path, now_ms, cause, details))]

    @property
    def parked(self) -> int:
        """How many messages are left locked."""
        return sum(len(state.parked) for state in self._by_key.values())

    def pause_until_ms(self) -> int | None:
        """Until when nothing more should be received; None: go on.

        With too many parked, the next ones would only be parked, too.
        """
        if self.parked < limits.PARKED_MESSAGES_MAX:
            return None
        return min(state.resume_ms() for state in self._by_key.values() if state.parked)

    def resting(self) -> dict[str, Rest]:
        """The destinations that take nothing now, and why."""
        return {
            key: state.rest
            for key, state in self._by_key.items()
            if state.rest is not None
        }


# -- a chunk of messages -----------------------------------------------------------


@dataclass(slots=True)
class Sorted(Generic[LockedT]):
    """What to do with the messages that one receive brought."""

    # By destination, each in order: send one after the other or in one batch, then
    # complete them.
    to_send: dict[str, list[tuple[LockedT, SendToPrimary]]] = field(
        default_factory=dict
    )
    dead: list[tuple[LockedT, DeadLetter]] = field(default_factory=list)
    dropped: list[LockedT] = field(default_factory=list)
    # Leave these locked and do not renew them.
    parked: list[LockedT] = field(default_factory=list)


def sort_chunk(
    states: DestinationStates,
    chunk: Iterable[tuple[LockedT, bytes]],
    now_ms: int,
    ttl_rule: str = TTL_REMAINING,
    wall_ms: int | None = None,
) -> Sorted[LockedT]:
    """Decide over all messages that one receive brought, in the order they came.

    `wall_ms` is what times to live are counted by, where it differs from `now_ms`.
    """
    result: Sorted[LockedT] = Sorted()
    for held, payload in chunk:
        outcome = decide(payload, now_ms if wall_ms is None else wall_ms, ttl_rule)
        if isinstance(outcome, SendToPrimary):
            key = outcome.key
            if states.may_send(key, held, now_ms):
                result.to_send.setdefault(key, []).append((held, outcome))
            else:
                result.parked.append(held)
        elif isinstance(outcome, DeadLetter):
            result.dead.append((held, outcome))
        else:
            result.dropped.append(held)
    return result
