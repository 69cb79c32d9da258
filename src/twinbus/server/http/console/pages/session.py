"""Sessions of an entity: who holds them, what they have, and their state.

Owns the list and the form of a state. A state is set whether or not a receiver holds
the session, since this is how people get one out of a wrong state.
"""

from __future__ import annotations

import base64
import binascii
from functools import partial
from typing import Any

from starlette.responses import Response

from twinbus import limits
from twinbus.core.names import EntityPath
from twinbus.core.rights import Operation
from twinbus.errors import ArgumentError, CallerError
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.host import Host
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.server.http.console.audit import AuditEntry
from twinbus.server.http.console.looking import LookPlace, places_at
from twinbus.server.http.console.page import url, when
from twinbus.server.http.console.pages.entity import about, found
from twinbus.server.http.console.visit import Visit
from twinbus.store.reading import SessionRow, StoreReader


async def show(visit: Visit) -> Response:
    """The sessions of an entity, by name."""
    path, entity = _with_sessions(visit, Operation.LIST_SESSIONS)
    after = visit.query("after")
    rows: list[dict[str, Any]] = []
    limit = limits.CONSOLE_PAGE_MESSAGES
    for place in places_at(visit.host, path):
        work = partial(_listed, place.container, after, limit + 1)
        found_here = await visit.console.looker.look(place.host, work)
        rows += [_row(place, each) for each in found_here]
    rows.sort(key=lambda row: str(row["name"]))
    shown = rows[:limit]
    data = {
        **await about(visit, path, entity),
        "sessions": shown,
        "next": shown[-1]["name"] if len(rows) > limit else None,
    }
    return visit.page("sessions.html", data)


def _listed(
    container: int, after: str, limit: int, reader: StoreReader
) -> list[SessionRow]:
    return reader.sessions(container, after, limit)


def _row(place: LookPlace, row: SessionRow) -> dict[str, Any]:
    now = place.host.clock.now()
    is_held = row.until_ms is not None and row.until_ms > now.steady_ms
    holder = None
    if is_held and row.nonce is not None:
        holder = place.host.session_holders.get((place.container, row.nonce))
    return {
        "name": row.name,
        "messages": row.messages,
        "active": row.active,
        "is_held": is_held,
        "held_by": "" if holder is None else holder.peer,
        "held_until": when(now.shown(row.until_ms))
        if is_held and row.until_ms
        else None,
        "state_bytes": row.state_bytes,
    }


async def state(visit: Visit) -> Response:
    """The state of one session."""
    path, entity = _with_sessions(visit, Operation.GET_SESSION_STATE)
    name = visit.query("name")
    host, container = _place(visit, path, entity, name)
    content = await host.run(
        lambda own, _turn: own.store.session_state(container, name)
    )
    data = {
        **await about(visit, path, entity),
        "name": name,
        "is_text": True,
        "text": "",
        "base64": "",
        "has_state": content is not None,
        "may_set": visit.may(Operation.SET_SESSION_STATE, path),
    }
    if content is not None:
        data["base64"] = base64.b64encode(content).decode("ascii")
        try:
            data["text"] = content.decode()
        except UnicodeDecodeError:
            data["is_text"] = False
    return visit.page("session_state.html", data)


async def set_state(visit: Visit) -> Response:
    """Give a session another state, or none."""
    path, entity = _with_sessions(visit, Operation.SET_SESSION_STATE)
    name = visit.query("name")
    form = await visit.form()
    content: bytes | None = form.text("state").replace("\r\n", "\n").encode()
    if form.flag("is_base64"):
        try:
            content = base64.b64decode(form.text("state"), validate=True)
        except binascii.Error:
            raise ArgumentError("The state is no base64.") from None
    if form.flag("remove"):
        content = None
    if content is not None and len(content) > entity.message_bytes_max:
        raise ArgumentError("The state is larger than a message may be.")
    host, container = _place(visit, path, entity, name)
    audit = AuditEntry(visit.who, "set session state", f"{path.text} {name}")

    def work(own: Namespace, turn: Turn) -> None:
        own.store.put_session_state(container, name, content, turn.now)
        audit.note(own, turn, 1)

    await host.run(work)
    back = url("session", path=path.text, name=name)
    return visit.done("The state is set.", back, {"set": True})


def _with_sessions(visit: Visit, operation: Operation) -> tuple[EntityPath, Entity]:
    path, entity = found(visit)
    visit.demand(operation, path)
    if not entity.requires_session:
        raise CallerError(f"'{entity.name}' has no sessions.")
    return path, entity


def _place(
    visit: Visit, path: EntityPath, entity: Entity, name: str
) -> tuple[Host, int]:
    """Where a session is: its name decides about the fragment."""
    if not name or len(name) > limits.SESSION_ID_CHARS_MAX:
        raise ArgumentError("Say which session: its name is missing or too long.")
    if len(entity.fragments) > 1:
        entity = visit.host.namespace.shards.fragment_for(entity, name)
    return visit.host.hosts[entity.shard], entity.container(path.sub_queue)
