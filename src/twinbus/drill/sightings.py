"""What an application without a pair sees of the primary, attempt by attempt.

Owns the four ways to use a namespace, how an attempt may end, and when each way was
closed. Times are seconds. Pure: attempts in, stretches of time out. `roles/witness.py`
makes the attempts, `report/lessons.py` puts them into words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# In the order of the picture.
CONTACT, SEND, RECEIVE, MANAGE = WAYS = ("contact", "send", "receive", "manage")

OK = "ok"
SLOW = "slow"
BUSY = "busy"
NO = "no"
# The worst last, so that it is drawn on top.
BAD = (SLOW, BUSY, NO)


@dataclass(frozen=True, slots=True)
class Sighting:
    """One attempt: which way, when, how it ended and why."""

    way: str
    at: float
    seconds: float
    answer: str = OK
    why: str = ""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time in which something was in a state."""

    start: float
    end: float
    state: str

    @property
    def seconds(self) -> float:
        return self.end - self.start


def stretches_of(sightings: Sequence[Sighting], way: str) -> list[Stretch]:
    """When this way was slow, busy or closed.

    An attempt speaks for the time until the next one. Without contact no other way is
    tried, and all are closed.
    """
    found = []
    for wanted in dict.fromkeys((CONTACT, way)):
        own = [each for each in sightings if each.way == wanted]
        own.sort(key=lambda each: each.at)
        for place, each in enumerate(own):
            end = own[place + 1].at if place + 1 < len(own) else each.at + each.seconds
            # Of the contact it matters here only that there was none.
            if each.answer in (BAD if wanted == way else (NO,)):
                found.append(Stretch(each.at, end, each.answer))
    return merged(found, BAD)


def merged(stretches: Iterable[Stretch], states: Sequence[str]) -> list[Stretch]:
    """The same times without overlaps in a state; the states in their order."""
    all_of_them = list(stretches)
    return [
        Stretch(start, end, state)
        for state in states
        for start, end in union(
            (each.start, each.end) for each in all_of_them if each.state == state
        )
    ]


def union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same times, without overlaps, in their order."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found
