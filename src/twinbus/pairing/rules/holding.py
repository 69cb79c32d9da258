"""Sends that wait for a suspect entity: in order, and not too many.

Owns one line for each entity and one budget for the factory. One send of a line tries
at a time: it has the *turn*. After a failure that may be the message's own, the turn
passes to the next one, so that one bad message does not speak for the entity. When the
entity is well again, or has failed over, all go, from the head and in order. A place is
kept by number, so a send that left the line and has to come back stands where it stood.
Knows nothing about states, nor about what is sent.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from twinbus import limits
from twinbus.pairing.errors import TooManyHeldSends
from twinbus.pairing.rules.decisions import Wakeable


class HoldBudget:
    """How much may be held by all lines of a factory together."""

    __slots__ = ("_bytes_max", "_sends_max", "held", "held_bytes")

    def __init__(
        self,
        sends_max: int = limits.HELD_SENDS_MAX,
        bytes_max: int = limits.HELD_BYTES_MAX,
    ) -> None:
        self._sends_max = sends_max
        self._bytes_max = bytes_max
        self.held = 0
        self.held_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Make room for one more, or refuse."""
        too_many = self.held >= self._sends_max
        if too_many or self.held_bytes + size_bytes > self._bytes_max:
            raise TooManyHeldSends(self.held, self.held_bytes)
        self.held += 1
        self.held_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        self.held -= 1
        self.held_bytes -= size_bytes


class LinePlace:
    """A place in a line. `call` is whom to wake when its turn comes."""

    __slots__ = ("call", "number", "size_bytes", "standing")

    def __init__(self, call: Wakeable, number: int, size_bytes: int) -> None:
        self.call = call
        self.number = number
        self.size_bytes = size_bytes
        self.standing = False

    def __lt__(self, other: LinePlace) -> bool:
        return self.number < other.number


class Line:
    """The sends that wait for one entity. Every operation is O(log n) comparisons."""

    __slots__ = ("_budget", "_last", "_places", "turn")

    def __init__(self, budget: HoldBudget) -> None:
        self._budget = budget
        # Sorted by number.
        self._places: list[LinePlace] = []
        self._last = 0
        # The place that may try; None only if the line is empty.
        self.turn: LinePlace | None = None

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[LinePlace]:
        return iter(self._places)

    def join(
        self, call: Wakeable, size_bytes: int, place: LinePlace | None = None
    ) -> LinePlace:
        """Stand in line: at the end, or where one stood before.

        Raises `TooManyHeldSends`.
        """
        self._budget.take(size_bytes)
        if place is None:
            self._last += 1
            place = LinePlace(call, self._last, size_bytes)
        place.standing = True
        insort(self._places, place)
        if self.turn is None:
            self.turn = place
        return place

    def leave(self, place: LinePlace) -> LinePlace | None:
        """Step out; returns the place that has the turn now, if it has passed on."""
        assert place.standing
        passed_to = self.pass_on(place)
        place.standing = False
        self._budget.give_back(place.size_bytes)
        del self._places[bisect_left(self._places, place)]
        if not self._places:
            self.turn = None
        return passed_to

    def pass_on(self, place: LinePlace) -> LinePlace | None:
        """Give the turn to the next one, if one has it and is not alone."""
        if self.turn is not place or len(self._places) == 1:
            return None
        index = bisect_left(self._places, place) + 1
        self.turn = self._places[index % len(self._places)]
        return self.turn

    def from_the_head(self) -> LinePlace | None:
        """Give the turn to the head, so that all can go in order."""
        self.turn = self._places[0] if self._places else None
        return self.turn
