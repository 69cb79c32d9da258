"""Sending: a form becomes messages, as new ones or in the place of a kept one.

Owns the fields of the form. New messages are built and parsed by the code that the HTTP
API has, so the same limits hold. An edited one keeps every byte that was not changed:
properties that read the same stay what they are, with their types.
"""

from __future__ import annotations

import itertools
import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response

from twinbus import limits
from twinbus.core.names import EntityPath, parse_address
from twinbus.core.rights import Operation
from twinbus.errors import ArgumentError, BusyError, CallerError, PeerError
from twinbus.server.broker.commands import Send
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.directory.placement import get_entity
from twinbus.server.broker.host import Host
from twinbus.server.broker.load.admission import send_denial
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.sending.naming import fragment_key
from twinbus.server.broker.turn import Turn
from twinbus.server.http.console.actions import restored
from twinbus.server.http.console.audit import AuditEntry
from twinbus.server.http.console.forms import ConsoleForm
from twinbus.server.http.console.page import url
from twinbus.server.http.console.pages.entity import about, found
from twinbus.server.http.console.showing import body_of
from twinbus.server.http.console.visit import Visit
from twinbus.server.http.rest.messages import plain, read_batch
from twinbus.store.base import Stored
from twinbus.wire.message import parts, sections
from twinbus.wire.message.sections import Incoming
from twinbus.wire.types import Symbol

# Fields of the form: where they are in a message, and what the HTTP API calls them.
_FIELDS = {
    "message_id": (sections.MESSAGE_ID, "MessageId"),
    "session_id": (sections.GROUP_ID, "SessionId"),
    "subject": (sections.SUBJECT, "Label"),
    "correlation_id": (sections.CORRELATION_ID, "CorrelationId"),
    "to": (sections.TO, "To"),
    "reply_to": (sections.REPLY_TO, "ReplyTo"),
}
# Which fragment is next for what has no key.
_TURNS = itertools.count()


async def show(visit: Visit) -> Response:
    """The form for a new message."""
    path, entity = found(visit)
    visit.demand(Operation.SEND_LINK, path)
    data = await about(visit, path, entity)
    return visit.page("send.html", {**data, "form": {}, "copies_max": _copies_max()})


def _copies_max() -> int:
    return limits.CONSOLE_COPIES_MAX


async def send(visit: Visit) -> Response:
    """Send a new message, so many times."""
    path, entity = found(visit)
    visit.demand(Operation.SEND_LINK, path)
    form = await visit.form()
    copies = form.number("copies", 1, limits.CONSOLE_COPIES_MAX, 1)
    messages = read_batch(json.dumps([_new(form)] * copies).encode())
    await send_all(visit, entity, messages)
    notice = f"Sent {copies:,} to {entity.name}." if copies > 1 else "Sent."
    return visit.done(notice, url("send", path=path.text), {"sent": copies})


def _new(form: ConsoleForm) -> dict[str, Any]:
    """A message as the HTTP API reads it in a batch."""
    broker: dict[str, Any] = {}
    for field, (_place, name) in _FIELDS.items():
        broker[name] = form.line(field)
    broker["ContentType"] = form.line("content_type")
    broker["PartitionKey"] = form.line("partition_key")
    broker["TimeToLive"] = form.line("time_to_live")
    broker["ScheduledEnqueueTimeUtc"] = _moment(form.line("scheduled_at"))
    body = _lines(form.text("body"))
    if form.flag("check_json"):
        _check_json(body)
    return {
        "Body": body,
        "BrokerProperties": broker,
        "UserProperties": _properties(form.text("properties")),
    }


def _lines(text: str) -> str:
    """A text area as it was typed: browsers end its lines in another way."""
    return text.replace("\r\n", "\n")


def _check_json(body: str) -> None:
    try:
        json.loads(body)
    except ValueError as error:
        raise ArgumentError(f"The body is not JSON: {error}.") from None


def _moment(text: str | None) -> str | None:
    """A time of the form, which is UTC, for the HTTP API."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentError("The time must look like 2030-12-31T23:59.") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.isoformat()


def _properties(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"The properties are not JSON: {error}.") from None
    if not isinstance(found, dict):
        raise ArgumentError('Properties are a JSON object, such as {"colour": "red"}.')
    return found


async def send_all(visit: Visit, entity: Entity, messages: list[Incoming]) -> None:
    """Send messages, all or none where they go to one shard."""
    visit.sent = [len(each.bare) for each in messages]
    by_place: dict[int, tuple[Entity, list[Incoming]]] = {}
    shards = visit.host.namespace.shards
    for message in messages:
        place = entity
        if len(entity.fragments) > 1:
            key = fragment_key(entity, message)
            place = shards.fragment_for(entity, key, next(_TURNS))
        by_place.setdefault(place.shard, (place, []))[1].append(message)
    for shard, (place, own) in by_place.items():
        host = visit.host.hosts[shard]
        _check_load(host, place)
        size_bytes = sum(len(each.bare) for each in own)
        audit = AuditEntry(visit.who, "send", entity.name)
        await host.run(SendAudited(place, own, audit), size_bytes)


def _check_load(host: Host, entity: Entity) -> None:
    denial = send_denial(host, entity, 0)
    if denial is not None:
        raise denial
    if host.crowded:
        raise BusyError("The server is busy. Try again in a moment.")


class SendAudited:
    """A send as a command, with its line in the log."""

    def __init__(
        self, entity: Entity, messages: list[Incoming], audit: AuditEntry
    ) -> None:
        self._entity = entity
        self._messages = messages
        self._audit = audit

    def __call__(self, namespace: Namespace, turn: Turn) -> None:
        command = Send(self._entity, self._messages)
        for error in command(namespace, turn).values():
            raise error
        self._audit.note(namespace, turn, len(self._messages))


# -- editing ---------------------------------------------------------------------------


def form_of(stored: Stored) -> dict[str, Any]:
    """A kept message as fields of the form."""
    message = restored(stored)
    values = sections.read_properties(message.bare)
    filled: dict[str, Any] = {
        name: _shown(values[place]) for name, (place, _) in _FIELDS.items()
    }
    filled["content_type"] = _shown(values[sections.CONTENT_TYPE])
    own = plain(sections.read_application_properties(message.bare))
    filled["properties"] = json.dumps(own, indent=2, ensure_ascii=False) if own else ""
    filled["body"] = _editable(stored)
    return filled


def _editable(stored: Stored) -> str | None:
    """The body as text; None if it is none, or too long for a form."""
    body = body_of(stored)
    if len(body) > limits.CONSOLE_BODY_BYTES_MAX:
        return None
    with suppress(UnicodeDecodeError):
        text = body.decode()
        return None if "\x00" in text else text
    return None


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return value.hex() if isinstance(value, bytes) else str(value)


def edited(stored: Stored, form: ConsoleForm) -> Incoming:
    """A kept message with what the form changes."""
    before = form_of(stored)
    bare = restored(stored).bare
    fields: dict[int, Any] = {}
    for name, (place, _) in _FIELDS.items():
        if form.text(name).strip() != before[name]:
            fields[place] = form.line(name)
    content_type = form.line("content_type")
    if (content_type or "") != before["content_type"]:
        fields[sections.CONTENT_TYPE] = content_type and Symbol(content_type)
    try:
        bare = parts.with_properties(bare, fields) if fields else bare
        bare = _with_properties(bare, form)
        text = _lines(form.text("body"))
        if before["body"] is not None and text != _lines(before["body"]):
            bare = parts.with_body(bare, text.encode())
        return restored(stored, bare)
    except (PeerError, UnicodeEncodeError) as error:
        raise ArgumentError(f"The message cannot be written: {error}.") from None


def _with_properties(bare: bytes, form: ConsoleForm) -> bytes:
    """Change the properties that read otherwise than before."""
    own = sections.read_application_properties(bare)
    wanted = _properties(form.text("properties"))
    changes = {
        name: value
        for name, value in wanted.items()
        if name not in own or plain(own[name]) != value
    }
    removed = frozenset(own.keys() - wanted.keys())
    for name, value in changes.items():
        if not isinstance(value, str | int | float | bool | None):
            raise ArgumentError(
                f"The property '{name}' must be a string, a number, a boolean or null."
            )
    if changes:
        bare = parts.with_application_properties(bare, changes)
    return parts.without_application_properties(bare, removed)


def target_of(visit: Visit, text: str | None, default: EntityPath) -> Entity:
    """The entity that messages go to, if the visitor may send to it."""
    path = parse_address(text) if text else default
    visit.demand(Operation.SEND_LINK, path)
    entity = get_entity(visit.host, path)
    if text and entity.kind == "subscription":
        raise CallerError("Messages go to a queue or a topic.")
    return entity
