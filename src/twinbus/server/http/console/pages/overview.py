"""The overview: the namespace and its entities at a glance.

Owns which figures of entities are shown, and their order. All of it but the age of the
oldest message is read from memory, without a turn; so it costs the same at any depth,
and a shard that hangs does not hold it up.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from starlette.responses import Response

from twinbus import limits
from twinbus.core.names import SubQueue
from twinbus.core.rights import Operation
from twinbus.errors import StoreFault
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.directory.overview import running_overview
from twinbus.server.broker.faults import faults_on
from twinbus.server.broker.host import Host
from twinbus.server.http.console.live import Parts
from twinbus.server.http.console.looking import Looker
from twinbus.server.http.console.rates import RateHistory
from twinbus.server.http.console.visit import Visit
from twinbus.store.reading import StoreReader

_SORTS = {
    "name": lambda row: row["path"].lower(),
    "active": lambda row: (-row["active"], row["path"].lower()),
    "dead": lambda row: (-row["dead"], row["path"].lower()),
    "in": lambda row: (-row["in_per_second"], row["path"].lower()),
    "size": lambda row: (-row["size_bytes"], row["path"].lower()),
}


async def show(visit: Visit) -> Response:
    """The page; without the right to list entities, a way to open one by its name."""
    if not visit.may(Operation.LIST_ENTITIES):
        claim = visit.claim
        own = claim.audience_path.display if claim is not None else ""
        return visit.page("start.html", {"own": own})
    visit.console.history.visit()
    return visit.page("overview.html", await _data(visit))


async def live(visit: Visit) -> Parts:
    """The parts that follow."""
    visit.demand(Operation.LIST_ENTITIES)
    parts = {"summary": "overview_summary.html", "table": "overview_table.html"}
    return parts, await _data(visit)


async def _data(visit: Visit) -> dict[str, Any]:
    host, history = visit.host, visit.console.history
    wanted, sort = visit.query("q").lower(), visit.query("sort") or "name"
    rows = [
        figures(host, entity, history)
        for entity in host.namespace.shards.entities()
        if wanted in entity.key
    ]
    rows.sort(key=_SORTS.get(sort, _SORTS["name"]))
    page = visit.query("page")
    first = limits.CONSOLE_PAGE_ENTITIES * (int(page) - 1 if page.isdecimal() else 0)
    shown = rows[max(first, 0) :][: limits.CONSOLE_PAGE_ENTITIES]
    await add_ages(visit.console.looker, host, shown)
    add_history(history, shown)
    found = running_overview(host)
    return {
        "entities": shown,
        "entities_total": len(rows),
        "first": max(first, 0),
        "filter": visit.query("q"),
        "sort": sort,
        "query": visit.request.url.query,
        "totals": {
            name: sum(row[name] for row in rows)
            for name in ("active", "dead", "scheduled", "size_bytes", "receivers")
        },
        "rates": {
            name: round(sum(row[name] for row in rows), 1)
            for name in ("in_per_second", "out_per_second")
        },
        "tier": found["tier"],
        "shards": found["shards"],
        "health": _health(found["shards"]),
        "connections": len(visit.console.port.connections),
        "turn_ms": _turn_ms(host.hosts),
        "faults": faults_on(host.faults),
    }


def _health(shards: list[dict[str, Any]]) -> dict[str, str]:
    sick = [str(each["problem"]) for each in shards if each["problem"]]
    busy = [text for each in shards for text in each["throttled_by"]]
    if sick:
        status = "unhealthy" if len(sick) == len(shards) else "degraded"
        return {"status": status, "message": sick[0]}
    if busy:
        return {"status": "throttled", "message": f"Sends are denied: {busy[0]}."}
    return {"status": "healthy", "message": "All shards take messages."}


def _turn_ms(hosts: Iterable[Host]) -> float | None:
    """Nine of ten turns took no longer, since the start."""
    counted: dict[float, int] = {}
    for host in hosts:
        for bound, count in host.turn_seconds.cumulative():
            counted[bound] = counted.get(bound, 0) + count
    total = max(counted.values(), default=0)
    for bound, count in sorted(counted.items()):
        if total and count >= 0.9 * total and bound != float("inf"):
            return round(bound * 1000, 1)
    return None


def figures(host: Host, entity: Entity, history: RateHistory) -> dict[str, Any]:
    """What is known of one entity without a look into its messages."""
    shards = host.namespace.shards
    main = shards.counts(entity)
    dead = shards.counts(entity, SubQueue.DEAD_LETTER)
    transfer = shards.counts(entity, SubQueue.TRANSFER_DEAD_LETTER)
    received, delivered = history.recent(entity.key)
    fragments = shards.fragments(entity)
    return {
        "path": entity.name,
        "kind": entity.kind,
        "status": entity.description.status.value,
        "active": main.active,
        "deferred": main.deferred,
        "scheduled": main.scheduled,
        "dead": dead.active + dead.deferred,
        "transfer_dead": transfer.active + transfer.deferred,
        "size_bytes": main.size_bytes + dead.size_bytes + transfer.size_bytes,
        "receivers": sum(
            shards[each.shard].in_use.get(each.id, 0) for each in fragments
        ),
        "in_per_second": round(received, 1),
        "out_per_second": round(delivered, 1),
        "oldest_seconds": None,
    }


def add_history(history: RateHistory, rows: list[dict[str, Any]]) -> None:
    """Add the rates of the last minutes, where there were any."""
    for row in rows:
        row["history"] = history.history(row["path"].lower())


async def add_ages(looker: Looker, host: Host, rows: list[dict[str, Any]]) -> None:
    """Add how old the oldest message of each is; a sick shard leaves it open."""
    shards = host.namespace.shards
    for shard, own in zip(shards, host.hosts, strict=True):
        wanted: dict[int, dict[str, Any]] = {}
        for row in rows:
            entity = shard.entities.find(row["path"].lower())
            if entity is not None and row["active"] + row["deferred"]:
                wanted[entity.id] = row
        if not wanted or own.fault is not None:
            continue
        try:
            found = await looker.look(own, partial(_oldest, list(wanted)))
        except StoreFault:
            continue
        wall_ms = own.clock.now().wall_ms
        for container, enqueued_ms in found.items():
            seconds = max(wall_ms - enqueued_ms, 0) // 1000
            row = wanted[container]
            row["oldest_seconds"] = max(seconds, row["oldest_seconds"] or 0)


def _oldest(containers: list[int], reader: StoreReader) -> dict[int, int]:
    return reader.oldest_ms(containers)
