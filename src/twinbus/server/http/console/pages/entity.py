"""One entity: its figures, its messages, and the pages about it.

Owns the list of messages: a peek with a cursor, which locks nothing and shows messages
of all states. The path of a dead-letter queue is a path like any other.
"""

from __future__ import annotations

import urllib.parse
from functools import partial
from typing import Any

from starlette.responses import Response

from twinbus import limits
from twinbus.core.names import EntityPath, SubQueue
from twinbus.core.rights import Operation
from twinbus.errors import ArgumentError, Unauthorized
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.directory.placement import get_entity
from twinbus.server.http.console.live import Parts
from twinbus.server.http.console.looking import LookPlace, places_at
from twinbus.server.http.console.page import url
from twinbus.server.http.console.pages import overview
from twinbus.server.http.console.scanning import FILTERS, MessageFilter, Scan
from twinbus.server.http.console.showing import summary
from twinbus.server.http.console.visit import Visit
from twinbus.store.base import id_of, sequence_of
from twinbus.store.reading import StoreReader


async def show(visit: Visit) -> Response:
    """The messages of an entity, or what else the visitor may do with it."""
    path, entity = found(visit)
    if not visit.may(Operation.PEEK, path):
        if visit.may(Operation.SEND_LINK, path):
            data = await about(visit, path, entity)
            return visit.page("entity.html", {**data, "messages": None})
        raise Unauthorized(f"Your key gives no right on '{path.text}'.")
    part = visit.query("part")
    if part == "groups":
        return visit.page("groups.html", await _grouped(visit, path))
    listed = await _listed(visit, path, entity)
    if part == "messages":
        return visit.page("messages_more.html", listed)
    data = {**await about(visit, path, entity), **listed}
    if data["is_dead"]:
        data.update(await _grouped(visit, path))
    return visit.page("entity.html", data)


async def _listed(visit: Visit, path: EntityPath, entity: Entity) -> dict[str, Any]:
    """The messages that are looked for, as far as one scan comes.

    A page asks again by itself until it is full, and says what it has so far.
    """
    listed = MessageFilter.of(visit.request.query_params)
    places = places_at(visit.host, path)
    before, looked = _number(visit, "found"), _number(visit, "looked")
    room = max(limits.CONSOLE_PAGE_MESSAGES - before, 1)
    scan = Scan(listed, summary, room)
    scanned = await scan.run(visit.console.looker, places, _number(visit, "start"))
    await _add_locks(visit, places, scanned.found)
    shown = before + len(scanned.found)
    counts = visit.host.namespace.shards.counts(entity, path.sub_queue)
    return {
        "path": path.text,
        "is_dead": path.sub_queue is not SubQueue.NONE,
        "requires_session": entity.requires_session,
        "may_change": visit.may(Operation.BATCH_DELETE, path),
        "may_send": visit.may(Operation.SEND_LINK, _home(path)),
        "messages": scanned.found,
        "shown": shown,
        "looked": looked + scanned.looked,
        "total": counts.active + counts.deferred + counts.scheduled,
        "next": scanned.next,
        "start": visit.query("start"),
        "filter": listed.fields,
        "query": listed.query,
        "back": _back(visit),
        "is_searching": bool(listed.query)
        and scanned.next is not None
        and shown < limits.CONSOLE_PAGE_MESSAGES,
    }


async def live(visit: Visit) -> Parts:
    """The figures, which follow; the messages stay as they are under the reader."""
    path, entity = found(visit)
    visit.demand(Operation.READ_ENTITY, path)
    return {"figures": "entity_figures.html"}, await about(visit, path, entity)


def found(visit: Visit) -> tuple[EntityPath, Entity]:
    """The entity that the query names; with any right on it, or none is told."""
    path = visit.path
    if not visit.query("path"):
        raise ArgumentError("Say which entity: its path is missing in the address.")
    visit.demand(Operation.OPEN_CONSOLE, path)
    return path, get_entity(visit.host, path)


async def about(visit: Visit, path: EntityPath, entity: Entity) -> dict[str, Any]:
    """What every page about an entity has: its names, tabs and figures."""
    data: dict[str, Any] = {
        "path": path.text,
        "entity": entity.name,
        "kind": entity.kind,
        "topic": None if entity.topic is None else entity.topic.name,
        "is_dead": path.sub_queue is not SubQueue.NONE,
        "requires_session": entity.requires_session,
        "tabs": _tabs(visit, path, entity),
        "figures": None,
        "subscriptions": [],
        "may_change": visit.may(Operation.BATCH_DELETE, path),
    }
    plain = EntityPath(path.entity, path.subscription)
    if visit.may(Operation.READ_ENTITY, plain):
        history = visit.console.history
        history.visit()
        rows = [
            overview.figures(visit.host, each, history)
            for each in (entity, *entity.subscriptions.values())
        ]
        await overview.add_ages(visit.console.looker, visit.host, rows)
        overview.add_history(history, rows)
        data["figures"] = rows[0]
        data["subscriptions"] = rows[1:]
    return data


def _back(visit: Visit) -> str | None:
    """What pages of messages keep, so that one comes back to this list."""
    given = visit.request.query_params
    kept = {name: given[name] for name in (*FILTERS, "start") if name in given}
    return urllib.parse.urlencode(kept) or None


def list_url(visit: Visit, path: EntityPath) -> str:
    """The list that a message was chosen from."""
    given = dict(urllib.parse.parse_qsl(visit.query("back"), keep_blank_values=True))
    kept = {name: given[name] for name in (*FILTERS, "start") if name in given}
    return url("entity", path=path.text, **kept)


def _home(path: EntityPath) -> EntityPath:
    """The entity itself, of a dead-letter queue too."""
    return EntityPath(path.entity, path.subscription)


async def _grouped(visit: Visit, path: EntityPath) -> dict[str, Any]:
    """Dead letters by reason and source; each request counts on where one stopped."""
    groupings = visit.console.groupings
    grouping = groupings.find(visit.query("grouping"), path)
    await grouping.count_on(visit.console.looker, places_at(visit.host, path))
    listed = MessageFilter.of(visit.request.query_params)
    counts = visit.host.namespace.shards.counts(
        get_entity(visit.host, path), path.sub_queue
    )
    return {
        **grouping.describe(),
        "path": path.text,
        "dead_total": counts.active + counts.deferred,
        "may_resubmit": visit.may(Operation.BATCH_DELETE, path)
        and visit.may(Operation.SEND_LINK, _home(path)),
        "filter": listed.fields,
        "query": listed.query,
    }


def _tabs(visit: Visit, path: EntityPath, entity: Entity) -> list[dict[str, Any]]:
    """The pages about an entity that the visitor may see."""
    plain = EntityPath(path.entity, path.subscription)
    here = visit.request.path_params["page"]
    tabs = []
    for page, sub_queue, label, operation in TABS:
        place = EntityPath(path.entity, path.subscription, sub_queue)
        kinds = _KINDS.get((page, sub_queue))
        if kinds is not None and entity.kind not in kinds:
            continue
        if page == "sessions" and not entity.requires_session:
            continue
        if visit.may(operation, place if page == "entity" else plain):
            is_here = page == here and sub_queue is path.sub_queue
            tabs.append(
                {"page": page, "path": place.text, "label": label, "current": is_here}
            )
    return tabs


TABS: list[tuple[str, SubQueue, str, Operation]] = [
    ("entity", SubQueue.NONE, "Messages", Operation.PEEK),
    ("entity", SubQueue.DEAD_LETTER, "Dead letters", Operation.PEEK),
    ("entity", SubQueue.TRANSFER_DEAD_LETTER, "Transfer", Operation.PEEK),
    ("send", SubQueue.NONE, "Send", Operation.SEND_LINK),
    ("sessions", SubQueue.NONE, "Sessions", Operation.LIST_SESSIONS),
    ("rules", SubQueue.NONE, "Rules", Operation.LIST_RULES),
    ("settings", SubQueue.NONE, "Settings", Operation.READ_ENTITY),
]
# Which kinds of entities have a page; all, if it is not named.
_KINDS = {
    ("entity", SubQueue.DEAD_LETTER): ("queue", "subscription"),
    ("send", SubQueue.NONE): ("queue", "topic"),
    ("rules", SubQueue.NONE): ("subscription",),
}


def _number(visit: Visit, name: str) -> int:
    """A number of the address: where a list starts, or what was found before."""
    text = visit.query(name)
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ArgumentError(f"'{name}' must be a whole number.")
    return int(text)


async def _add_locks(
    visit: Visit, places: list[LookPlace], rows: list[dict[str, Any]]
) -> None:
    """Say which messages a receiver holds now."""
    for place in places:
        own = [row for row in rows if place.holds(row["sequence"])]
        ids = {
            id_of(place.container, sequence_of(row["sequence"] - place.base)): row
            for row in own
        }
        if not ids:
            continue
        work = partial(_locked, list(ids))
        locked = await visit.console.looker.look(place.host, work)
        for key, row in ids.items():
            row["is_locked"] = key in locked


def _locked(ids: list[int], reader: StoreReader) -> set[int]:
    return reader.locked(ids)
