"""Why a message of a paired sender may be there twice, and what the syphon may do.

Owns the reasons for a second copy. Each is an outcome that a process never learnt, or
work that it could not finish. With a tap on the wire a reason is a transfer; from what
the pairs tell alone, it is a time in which the entity was not healthy.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from twinbus.testing.copies import NEVER
from twinbus.testing.events import Event
from twinbus.testing.history_evidence import PairHealth, Trail, Wire
from twinbus.testing.verdict import HistoryVerdict

# How reports name them.
SENT_AGAIN = "the application sent it again"
NEVER_LEARNT = "the application never learnt the outcome"
PRIMARY_SILENT = "the primary's answer never came"
BACKLOG_SILENT = "a backlog queue's answer never came"
HOME_SILENT = "the primary's answer to the syphon never came"
NOT_COMPLETED = "the syphon could not complete it in the backlog"
ENTITY_FAILED = "the entity failed while it was sent"
SYPHON_DISTURBED = "the syphon was disturbed"


class Disturbances:
    """When syphons were killed or cut off, and namespaces sick. Asked in O(log n)."""

    def __init__(self, spans: Iterable[tuple[float, float]]) -> None:
        ordered = sorted(spans)
        self._starts = [start_at for start_at, _ in ordered]
        # The latest end of these and all before them.
        self._ends = list(accumulate((end_at for _, end_at in ordered), max))

    def between(self, start_at: float, end_at: float) -> bool:
        """Whether one of them touches a time."""
        place = bisect_right(self._starts, end_at)
        return place > 0 and self._ends[place - 1] >= start_at


@dataclass(frozen=True, slots=True)
class Occasions:
    """When something may have gone wrong, for those who have no tap."""

    health: PairHealth
    disturbances: Disturbances
    # When the last copy arrived, if that is known.
    until_at: float


def reasons(sends: Sequence[Event], wire: Wire, occasions: Occasions) -> list[str]:
    """One entry for each further copy that may exist."""
    possible = [send for send in sends if send.result != "fail"]
    found = [SENT_AGAIN] * (len(possible) - 1)
    for send in possible:
        trail = wire.trail(send.queue, send.key)
        if trail and trail.sends:
            found += _of_sender(trail, wire, told_at(send)) + _of_syphon(trail, wire)
            break
        found += _of_times(send, occasions)
    return found


def _of_times(send: Event, occasions: Occasions) -> list[str]:
    """Without a tap: any number of copies, if there was an occasion."""
    many = 1000
    if send.result == "unknown":
        return [NEVER_LEARNT] * many
    spans = occasions.health.between(
        send.process, send.queue, send.invoke_at, send.end_at
    )
    for span in spans:
        if span.failed_over_at >= send.invoke_at or span.end_at <= send.end_at:
            return [ENTITY_FAILED] * many
        # It went to the backlog and nowhere else.
        if occasions.disturbances.between(send.invoke_at, occasions.until_at):
            return [SYPHON_DISTURBED] * many
    return []


def told_at(send: Event) -> float:
    """When the application was told that it is accepted, so that all knew."""
    return send.end_at if send.result == "ok" else NEVER


def _of_sender(trail: Trail, wire: Wire, known_at: float) -> list[str]:
    """A transfer without an answer that another one followed."""
    sends = [send for send in trail.sends if send.result != "fail"]
    return [
        BACKLOG_SILENT if earlier.op == "divert" else PRIMARY_SILENT
        for earlier, later in pairwise(sends)
        if min(wire.known_at(earlier), known_at) > later.invoke_at
    ]


def _of_syphon(trail: Trail, wire: Wire) -> list[str]:
    """What was brought home more often than it was fetched and completed."""
    homes = [home for home in trail.homes if home.result != "fail"]
    found = []
    for earlier, later in pairwise(homes):
        if wire.known_at(earlier) > later.invoke_at:
            found.append(HOME_SILENT)
        elif not _completed_between(trail, wire, earlier, later):
            found.append(NOT_COMPLETED)
    return found


def _completed_between(trail: Trail, wire: Wire, earlier: Event, later: Event) -> bool:
    """Whether the syphon knew that it had taken it out before it brought it again."""
    if _fetch_of(trail, earlier) is _fetch_of(trail, later):
        # One delivery, brought home twice, without a doubt about the first time.
        return True
    return any(
        settle.op == "complete"
        and settle.process == earlier.process
        and wire.known_at(settle) <= later.invoke_at
        for settle in trail.settles
    )


def _fetch_of(trail: Trail, home: Event) -> Event | None:
    """The delivery that an attempt home belongs to: the latest before it."""
    fetched = None
    for fetch in trail.fetches:
        if fetch.process == home.process and fetch.end_at <= home.invoke_at:
            fetched = fetch
    return fetched


# -- the wire --------------------------------------------------------------------


def check_trails(
    wire: Wire, told: Mapping[tuple[str, str], float], verdict: HistoryVerdict
) -> None:
    """Who knows that a message was accepted does not send it again.

    `told` says when the application was told, by path and key.
    """
    for (path, key), trail in wire.trails().items():
        sends = trail.sends
        known_at = told.get((path, key), NEVER)
        for earlier, later in pairwise(sends):
            if min(wire.known_at(earlier), known_at) <= later.invoke_at:
                text = f"{later.op} by {later.process} after it had been accepted"
                verdict.convict("duplicate", path, key, text)
        for settle in trail.settles:
            if settle.op == "complete" and settle.result != "fail":
                _check_completion(trail, settle, (path, key), verdict)


def _check_completion(
    trail: Trail, settle: Event, name: tuple[str, str], verdict: HistoryVerdict
) -> None:
    """The syphon completes in the backlog what the primary has accepted."""
    home = any(
        each.result == "ok" and each.end_at <= settle.invoke_at for each in trail.homes
    )
    if not home:
        text = f"{settle.process} completed it in {settle.queue}"
        verdict.convict("syphon", *name, text)


def check_way_home(
    wire: Wire, disturbances: Disturbances, verdict: HistoryVerdict
) -> None:
    """One undisturbed syphon brings home in order what one queue holds for a path."""
    groups: dict[tuple[str, str, str], list[tuple[Trail, str]]] = defaultdict(list)
    for (path, key), trail in wire.trails().items():
        syphons = {fetch.process for fetch in trail.fetches}
        if trail.homes and len(trail.diverts) == 1 and len(syphons) == 1:
            divert = trail.diverts[0]
            groups[divert.queue, path, syphons.pop()].append((trail, key))
    for (_, path, _), group in groups.items():
        group.sort(key=lambda entry: entry[0].homes[0].invoke_at)
        latest: tuple[Trail, str] | None = None
        for trail, key in group:
            divert, home = trail.diverts[0], trail.homes[0]
            if latest is None:
                latest = (trail, key)
                continue
            above = latest[0]
            if divert.end_at < above.diverts[0].invoke_at:
                fetches = (*trail.fetches, *above.fetches)
                since_at = min(fetch.invoke_at for fetch in fetches)
                if not disturbances.between(since_at, home.invoke_at):
                    text = f"brought home after {latest[1]}, which was diverted later"
                    verdict.convict("order", path, key, text)
            if divert.invoke_at > above.diverts[0].invoke_at:
                latest = (trail, key)
