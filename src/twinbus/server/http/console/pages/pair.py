"""The pair, as the secondary sees it: backlogs, and what clients have reported.

Owns what a backlog queue and a report are by their names and fields; the rules of a
pair are the clients', and the server knows none of them. The states of entities are
drawn as lanes over time from the reports of all clients: an entity is as bad as the
worst of them says. The dead letters of a backlog queue are replayed on its own page.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import Any

from starlette.responses import Response

from twinbus import charts, limits
from twinbus.core.names import EntityPath
from twinbus.core.rights import Operation
from twinbus.errors import PeerError
from twinbus.server.broker.host import Host
from twinbus.server.http.console.looking import LookPlace, places_at
from twinbus.server.http.console.page import when
from twinbus.server.http.console.pages import overview
from twinbus.server.http.console.scanning import MessageFilter, Scan
from twinbus.server.http.console.showing import body_of
from twinbus.server.http.console.visit import Visit
from twinbus.store.base import Stored
from twinbus.wire.message import sections

_BACKLOG = re.compile(r"(.+)/x-servicebus-transfer/(?:0|[1-9][0-9]*)", re.IGNORECASE)
_EVENTS = re.compile(r"(.+)/x-twinbus-events", re.IGNORECASE)
# The property of a message in a backlog that says where it goes.
_PATH = "x-ms-path"
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


def primaries(host: Host) -> dict[str, list[str]]:
    """The backlog queues of each primary that has some here, or reports."""
    found: dict[str, list[str]] = defaultdict(list)
    for entity in host.namespace.shards.entities():
        if match := _BACKLOG.fullmatch(entity.name):
            found[match.group(1)].append(entity.name)
        elif match := _EVENTS.fullmatch(entity.name):
            found[match.group(1)].extend(())
    return dict(found)


async def show(visit: Visit) -> Response:
    """Every primary whose backlog is here."""
    visit.demand(Operation.READ_NAMESPACE)
    visit.console.history.visit()
    found = sorted(primaries(visit.host).items())
    data = {"pairs": [await _pair(visit, name, paths) for name, paths in found]}
    return visit.page("pair.html", data)


async def _pair(visit: Visit, primary: str, paths: list[str]) -> dict[str, Any]:
    host, history = visit.host, visit.console.history
    shards = host.namespace.shards
    queues = [
        overview.figures(host, entity, history)
        for path in sorted(paths)
        if (entity := shards.find(path.lower())) is not None
    ]
    await overview.add_ages(visit.console.looker, host, queues)
    waiting = sum(row["active"] for row in queues)
    drained = sum(row["out_per_second"] for row in queues)
    events = await _events(visit, primary)
    now_ms = host.clock.now().wall_ms
    lanes = _lanes(events, now_ms)
    return {
        "primary": primary,
        "queues": queues,
        "waiting": waiting,
        "dead": sum(row["dead"] for row in queues),
        "drained_per_second": round(drained, 1),
        "left_seconds": round(waiting / drained) if drained else None,
        "destinations": await _destinations(visit, queues, now_ms),
        "events": list(reversed(events))[: limits.CONSOLE_PAGE_MESSAGES],
        "lanes": [
            {"path": path, "state": segments[-1][2], "segments": len(segments)}
            for path, segments in lanes.items()
        ],
        "picture": _picture(lanes, now_ms) if lanes else "",
    }


# -- the backlog -----------------------------------------------------------------------


async def _destinations(
    visit: Visit, queues: list[dict[str, Any]], now_ms: int
) -> list[dict[str, Any]]:
    """What waits for each entity of the primary, of the first messages."""
    counted: dict[str, list[int]] = {}
    for row in queues:
        if not row["active"]:
            continue
        scan = Scan(MessageFilter(), _destination, limits.CONSOLE_SCAN_MESSAGES_MAX)
        places = places_at(visit.host, EntityPath(row["path"]))
        scanned = await scan.run(visit.console.looker, places)
        for path, enqueued_ms in scanned.found:
            counted.setdefault(path, []).append(enqueued_ms)
    return [
        {
            "path": path,
            "messages": len(times),
            "oldest_seconds": max(now_ms - min(times), 0) // 1000,
        }
        for path, times in sorted(counted.items())
    ]


def _destination(_place: LookPlace, stored: Stored) -> tuple[str, int]:
    try:
        found = sections.read_application_properties(stored.bare).get(_PATH)
    except PeerError:
        found = None
    return str(found or "not known"), stored.enqueued_ms


# -- what clients report ---------------------------------------------------------------


async def _events(visit: Visit, primary: str) -> list[dict[str, Any]]:
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


def _lanes(events: list[dict[str, Any]], now_ms: int) -> dict[str, list[Segment]]:
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


_LANE_HEIGHT = 30


def _picture(lanes: dict[str, list[Segment]], now_ms: int) -> str:
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
