"""The pair, as the secondary sees it: backlogs, and what clients have reported.

Owns what a backlog queue is by its name; the rules of a pair are the clients', and the
server knows none of them. What clients say is in `reports.py`. Dead letters of a
backlog queue are replayed by a job, as those of any queue are resubmitted.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

from starlette.responses import Response

from twinbus import limits
from twinbus.core.names import EntityPath, SubQueue
from twinbus.core.rights import Operation
from twinbus.errors import PeerError
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.host import Host
from twinbus.server.http.console.live import Parts
from twinbus.server.http.console.looking import LookPlace, places_at
from twinbus.server.http.console.pages import overview
from twinbus.server.http.console.pages.costs import (
    about_prices,
    backlog_costs,
    outage_cost,
)
from twinbus.server.http.console.pages.reports import (
    EVENTS,
    draw,
    lanes_of,
    outages_of,
    read_events,
)
from twinbus.server.http.console.scanning import MessageFilter, Scan
from twinbus.server.http.console.visit import Visit
from twinbus.store.base import Stored
from twinbus.wire.message import sections

_BACKLOG = re.compile(r"(.+)/x-servicebus-transfer/(?:0|[1-9][0-9]*)", re.IGNORECASE)
# The property of a message in a backlog that says where it goes.
_PATH = "x-ms-path"


def primaries(host: Host) -> dict[str, list[str]]:
    """The backlog queues of each primary that has some here, or reports."""
    found: dict[str, list[str]] = defaultdict(list)
    for entity in host.namespace.shards.entities():
        if match := _BACKLOG.fullmatch(entity.name):
            found[match.group(1)].append(entity.name)
        elif match := EVENTS.fullmatch(entity.name):
            found[match.group(1)].extend(())
    return dict(found)


async def show(visit: Visit) -> Response:
    """Every primary whose backlog is here."""
    visit.demand(Operation.READ_NAMESPACE)
    visit.console.history.visit()
    backlogs = await _backlogs(visit)
    data = {
        "pairs": [await _pair(visit, backlog) for backlog in backlogs],
        "prices": about_prices(visit.console.port.ledger),
    }
    return visit.page("pair.html", data)


async def live(visit: Visit) -> Parts:
    """The backlogs, which follow; what needs a look at messages stays."""
    visit.demand(Operation.READ_NAMESPACE)
    prices = about_prices(visit.console.port.ledger)
    data = {"pairs": await _backlogs(visit), "prices": prices}
    return {"backlogs": "pair_backlogs.html"}, data


async def _pair(visit: Visit, backlog: dict[str, Any]) -> dict[str, Any]:
    events = await read_events(visit, backlog["primary"])
    now_ms = visit.host.clock.now().wall_ms
    lanes = lanes_of(events, now_ms)
    outages = outages_of(events, now_ms)
    return {
        **backlog,
        "destinations": await _destinations(visit, backlog["queues"], now_ms),
        "events": list(reversed(events))[: limits.CONSOLE_PAGE_MESSAGES],
        "lanes": [
            {"path": path, "state": segments[-1][2], "segments": len(segments)}
            for path, segments in lanes.items()
        ],
        "picture": draw(lanes, now_ms) if lanes else "",
        "outages": [
            {**each, "cost": outage_cost(each)}
            for each in outages[: limits.CONSOLE_PAGE_MESSAGES]
        ],
    }


# -- the backlog -----------------------------------------------------------------------


async def _backlogs(visit: Visit) -> list[dict[str, Any]]:
    """The backlog of each primary, from counters in memory."""
    found = sorted(primaries(visit.host).items())
    return [await _backlog(visit, primary, paths) for primary, paths in found]


async def _backlog(visit: Visit, primary: str, paths: list[str]) -> dict[str, Any]:
    host, history = visit.host, visit.console.history
    shards = host.namespace.shards
    queues = [
        {**overview.figures(host, entity, history), **_passed(host, entity)}
        for path in sorted(paths)
        if (entity := shards.find(path.lower())) is not None
    ]
    await overview.add_ages(visit.console.looker, host, queues)
    overview.add_history(history, queues)
    total = {name: sum(row[name] for row in queues) for name in _SUMS}
    waiting, drained = total["active"], total["out_per_second"]
    returned = total["returned"]
    diverted = returned + waiting + total["dead"]
    return {
        "primary": primary,
        "queues": queues,
        "waiting": waiting,
        "dead": total["dead"],
        "returned": returned,
        "diverted": diverted,
        "costs": backlog_costs(diverted, returned, waiting, total["waiting_bytes"]),
        "receivers": total["receivers"],
        "drained_per_second": round(drained, 1),
        "left_seconds": round(waiting / drained) if drained else None,
    }


_SUMS = (
    *("active", "dead", "returned", "receivers"),
    *("out_per_second", "waiting_bytes"),
)


def _passed(host: Host, entity: Entity) -> dict[str, int]:
    """What has left a queue other than as dead letters, and the size of the rest.

    Sequence numbers count what has come in. A dead letter that is replayed comes in
    once more, and has left once more.
    """
    shards = host.namespace.shards
    came, died = shards.counts(entity), shards.counts(entity, SubQueue.DEAD_LETTER)
    left = came.last_sequence - came.active - came.deferred - came.scheduled
    returned = max(left - died.last_sequence, 0)
    return {"returned": returned, "waiting_bytes": came.size_bytes}


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
