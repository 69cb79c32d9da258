"""What clients report of a pair: its last events, the states of entities, outages.

Owns the fields of a report. States are drawn as lanes over time from the reports of all
clients: an entity is as bad as the worst of them says. An outage of an entity lasts
from the first client that has failed over to the last that has failed back. Any client
with Send may write reports, so nothing here trusts them beyond showing them.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from twinbus import charts, limits
from twinbus.server.http.console.looking import LookPlace, places_at
from twinbus.server.http.console.page import when
from twinbus.server.http.console.scanning import MessageFilter, Scan
from twinbus.server.http.console.showing import body_of
from twinbus.server.http.console.visit import Visit
from twinbus.store.base import Stored

# The queue of the reports of a primary's clients.
EVENTS = re.compile(r"(.+)/x-twinbus-events", re.IGNORECASE)
# What an event makes of the entity, worst last.
_STATES = {
    "recovered": "healthy",
    "failed back": "probation",
    "suspect": "suspect",
    "refused": "refused",
    "failed over": "failed over",
    "relapsed": "failed over",
}
_ORDER = ("healthy", "probation", "suspect", "refused", "failed over")

Segment = tuple[int, int, str]


async def read_events(visit: Visit, primary: str) -> list[dict[str, Any]]:
    """The last reports, oldest first."""
    entity = visit.host.namespace.shards.find(f"{primary}/x-twinbus-events".lower())
    if entity is None:
        return []
    places = places_at(visit.host, entity.path)
    counts = places[0].host.namespace.store.counts(places[0].container)
    start = max(counts.last_sequence - limits.CONSOLE_EVENTS_MAX, 0)
    scan = Scan(MessageFilter(), _event, limits.CONSOLE_EVENTS_MAX)
    scanned = await scan.run(visit.console.looker, places, start)
    return [each for each in scanned.found if each is not None]


def _event(_place: LookPlace, stored: Stored) -> dict[str, Any] | None:
    """A report; None if it is none. Any client with Send may have written it."""
    try:
        found = json.loads(body_of(stored))
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    shown = {name: str(found.get(name) or "") for name in ("event", "path", "client")}
    details = found.get("details")
    return {
        **shown,
        "cause": str(found.get("cause") or ""),
        "details": details if isinstance(details, dict) else {},
        "at_ms": stored.enqueued_ms,
        "at": when(stored.enqueued_ms),
    }


def lanes_of(events: list[dict[str, Any]], now_ms: int) -> dict[str, list[Segment]]:
    """The states of each entity over time: from, until, state."""
    clients: dict[str, dict[str, str]] = defaultdict(dict)
    lanes: dict[str, list[Segment]] = {}
    for event in events:
        state = _STATES.get(event["event"])
        if state is None:
            continue
        path = event["path"]
        clients[path][event["client"]] = state
        worst = max(clients[path].values(), key=_ORDER.index)
        lane = lanes.setdefault(path, [])
        if lane:
            start, _, before = lane[-1]
            if before == worst:
                continue
            lane[-1] = (start, event["at_ms"], before)
        lane.append((event["at_ms"], now_ms, worst))
    return dict(sorted(lanes.items())[: limits.CONSOLE_LANES_MAX])


# -- outages ---------------------------------------------------------------------------

_OUT = ("refused", "failed over")
# What clients have counted since they started, with each change of a state.
_COUNTED = ("diverted", "pings")


@dataclass(slots=True)
class _Outage:
    """One outage of one entity."""

    path: str
    began_ms: int
    ended_ms: int | None = None
    clients: set[str] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTED, 0))

    def describe(self, now_ms: int) -> dict[str, Any]:
        end_ms = now_ms if self.ended_ms is None else self.ended_ms
        return {
            "path": self.path,
            "began_at": when(self.began_ms),
            "ended_at": None if self.ended_ms is None else when(self.ended_ms),
            "lasted_seconds": max(end_ms - self.began_ms, 0) // 1000,
            "clients": len(self.clients),
            **self.counts,
        }


class _Watch:
    """One entity: who has failed over, and what each client has counted so far."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._out: set[str] = set()
        self._seen: dict[str, dict[str, int]] = {}
        self.outages: list[_Outage] = []

    def tell(self, event: dict[str, Any], state: str) -> None:
        """A client has reported a state."""
        client, at_ms = event["client"], event["at_ms"]
        if state in _OUT:
            if not self._out:
                self.outages.append(_Outage(self._path, at_ms))
            self._out.add(client)
            self.outages[-1].clients.add(client)
        elif client in self._out:
            self._out.remove(client)
            if not self._out:
                self.outages[-1].ended_ms = at_ms
        now = {name: _number(event["details"].get(name)) for name in _COUNTED}
        before = self._seen.get(client, now)
        self._seen[client] = now
        if self.outages:
            # What ends with a failback is told with the recovery as well.
            counts = self.outages[-1].counts
            for name in _COUNTED:
                counts[name] += max(now[name] - before[name], 0)


def outages_of(events: list[dict[str, Any]], now_ms: int) -> list[dict[str, Any]]:
    """The outages that the reports show, newest first."""
    watched: dict[str, _Watch] = {}
    for event in events:
        state = _STATES.get(event["event"])
        if state is not None:
            path = event["path"]
            watched.setdefault(path, _Watch(path)).tell(event, state)
    found = [outage for watch in watched.values() for outage in watch.outages]
    found.sort(key=lambda outage: -outage.began_ms)
    return [outage.describe(now_ms) for outage in found]


def _number(value: Any) -> int:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


# -- the picture ----------------------------------------------------------------------

_LANE_HEIGHT = 30


def draw(lanes: dict[str, list[Segment]], now_ms: int) -> str:
    """A lane for each entity; its states are words as well as colours."""
    start_ms = min(segments[0][0] for segments in lanes.values())
    span = max(now_ms - start_ms, 1)
    canvas = charts.Canvas(960, 8, 8, span)
    parts = []
    for number, (path, segments) in enumerate(lanes.items()):
        top = number * 2 * _LANE_HEIGHT
        parts.append(charts.text((canvas.left, top + 16), path, "title"))
        for begin, end, state in segments:
            x = canvas.x(begin - start_ms)
            width = max(canvas.x(end - start_ms) - x, 1)
            name = state.replace(" ", "-")
            parts.append(
                f'<rect class="lane {name}" x="{x:.1f}" y="{top + 22}" '
                f'width="{width:.1f}" height="{_LANE_HEIGHT - 8}"/>'
            )
            if width > len(state) * charts.CHAR_WIDTH + 8:
                parts.append(charts.text((x + 4, top + 37), state, "word"))
    height = len(lanes) * 2 * _LANE_HEIGHT
    marks = [(0.0, when(start_ms)[:16]), (float(span), f"{when(now_ms)[11:16]} UTC")]
    parts.append(charts.axis(canvas, height, marks))
    label = "States of the entities of the primary over time"
    return charts.svg(960, height + 26, label, "".join(parts))
