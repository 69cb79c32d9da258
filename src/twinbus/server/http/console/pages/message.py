"""One message: everything that it has, and what can be done with it.

Owns the actions on one message. Each acts on the message with that number alone, and on
none before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from starlette.responses import Response

from twinbus.core.names import EntityPath
from twinbus.core.rights import Operation
from twinbus.errors import ArgumentError, MessageNotFound
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.turn import Command
from twinbus.server.http.console.actions import (
    Cancel,
    Delete,
    MessageLocked,
    ReceiveDeferred,
    Replace,
)
from twinbus.server.http.console.audit import AuditEntry
from twinbus.server.http.console.looking import LookPlace, place_of
from twinbus.server.http.console.pages.entity import about, found, list_url
from twinbus.server.http.console.pages.sending import edited, form_of, target_of
from twinbus.server.http.console.showing import body_of, detail, summary
from twinbus.server.http.console.visit import Visit
from twinbus.store.base import Stored, sequence_of

T = TypeVar("T")


async def show(visit: Visit) -> Response:
    """Everything that a message has."""
    path, entity, place, stored = await _message(visit, Operation.PEEK)
    data = await about(visit, path, entity)
    return visit.page("message.html", {**data, **_shown(visit, path, place, stored)})


def _shown(
    visit: Visit, path: EntityPath, place: LookPlace, stored: Stored
) -> dict[str, Any]:
    home = _home(path)
    return {
        "message": detail(place, stored),
        **_way_back(visit, path),
        "is_received": False,
        "may_delete": visit.may(Operation.BATCH_DELETE, path),
        "may_send": visit.may(Operation.SEND_LINK, home),
        "may_cancel": visit.may(Operation.CANCEL_SCHEDULED, home),
        "may_receive": visit.may(Operation.RECEIVE_BY_SEQUENCE, path),
    }


def _way_back(visit: Visit, path: EntityPath) -> dict[str, Any]:
    return {"back": visit.query("back") or None, "list_url": list_url(visit, path)}


def _home(path: EntityPath) -> EntityPath:
    """The entity itself, of a dead-letter queue too."""
    return EntityPath(path.entity, path.subscription)


async def body(visit: Visit) -> Response:
    """The body as a file."""
    _, entity, place, stored = await _message(visit, Operation.PEEK)
    number = place.number(stored)
    name = "".join(c if c.isalnum() else "-" for c in entity.name)
    headers = {
        "Content-Disposition": f'attachment; filename="{name}-{number}.bin"',
        "Cache-Control": "no-store",
    }
    return Response(body_of(stored), 200, headers, "application/octet-stream")


async def delete(visit: Visit) -> Response:
    """Delete it."""
    path, _entity, place, number = _named(visit, Operation.BATCH_DELETE)
    audit = AuditEntry(visit.who, "delete", path.text)
    command = Delete(place.container, [_sequence(place, number)], audit)
    outcome = await place.host.run(command)
    if outcome.locked:
        raise MessageLocked
    if outcome.gone:
        raise MessageNotFound("The message is not there any more.")
    return _back(visit, path, f"Message {number} is deleted.", {"deleted": 1})


async def cancel(visit: Visit) -> Response:
    """Forget a scheduled message."""
    path, _entity, place, number = _named(visit, Operation.CANCEL_SCHEDULED)
    await _run(visit, (path, place, number), Cancel, "cancel")
    return _back(visit, path, f"Message {number} is cancelled.", {"cancelled": 1})


async def receive(visit: Visit) -> Response:
    """Take a deferred message, and show it for the last time."""
    path, entity, place, number = _named(visit, Operation.RECEIVE_BY_SEQUENCE)
    stored = await _run(visit, (path, place, number), ReceiveDeferred, "receive")
    data = await about(visit, path, entity)
    shown = {**_shown(visit, path, place, stored), "is_received": True}
    return visit.page("message.html", {**data, **shown})


async def _run(
    visit: Visit,
    at: tuple[EntityPath, LookPlace, int],
    make: Callable[[int, int, AuditEntry], Command[T]],
    action: str,
) -> T:
    path, place, number = at
    audit = AuditEntry(visit.who, action, path.text)
    command = make(place.container, _sequence(place, number), audit)
    return await place.host.run(command)


async def edit(visit: Visit) -> Response:
    """The form with the fields of a message."""
    path, entity, place, stored = await _message(visit, Operation.PEEK)
    visit.demand(Operation.SEND_LINK, _home(path))
    data = await about(visit, path, entity)
    number = place.number(stored)
    data |= {"number": number, "form": form_of(stored), **_way_back(visit, path)}
    data["message"] = summary(place, stored)
    return visit.page("edit.html", data)


async def resubmit(visit: Visit) -> Response:
    """Send it with the changes of the form, and take the original out."""
    path, _entity, place, number = _named(visit, Operation.PEEK)
    form = await visit.form()
    target = target_of(visit, form.line("target"), _home(path))
    removes = not form.flag("keep")
    if removes:
        visit.demand(Operation.BATCH_DELETE, path)
    stored = await visit.console.looker.find(place, number)
    audit = AuditEntry(visit.who, "edit and resubmit", path.text)
    original = place.container, stored.sequence
    message = edited(stored, form)
    command = Replace(original, target.key, message, audit, removes=removes)
    await place.host.run(command, len(message.bare))
    notice = f"Message {number} was sent to {target.name}."
    return _back(visit, path, notice, {"sent": 1, "removed": int(removes)})


# -- finding ---------------------------------------------------------------------------


def _named(
    visit: Visit, operation: Operation
) -> tuple[EntityPath, Entity, LookPlace, int]:
    """The message that the query names, without a look at it."""
    path, entity = found(visit)
    visit.demand(operation, path)
    text = visit.query("sequence")
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ArgumentError("A sequence number is a whole number.")
    return path, entity, place_of(visit.host, path, int(text)), int(text)


async def _message(
    visit: Visit, operation: Operation
) -> tuple[EntityPath, Entity, LookPlace, Stored]:
    path, entity, place, number = _named(visit, operation)
    return path, entity, place, await visit.console.looker.find(place, number)


def _sequence(place: LookPlace, number: int) -> int:
    return sequence_of(number - place.base)


def _back(
    visit: Visit, path: EntityPath, notice: str, data: dict[str, Any]
) -> Response:
    return visit.done(notice, list_url(visit, path), data)
