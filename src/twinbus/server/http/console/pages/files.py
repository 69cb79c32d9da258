"""Messages as files: JSON Lines out and in.

Owns the format: an object in each line, with fields for people and programs, and in
`amqp` the message as it is encoded, so that what is exported is imported to the byte,
without what the server has added. A line without `amqp` is read by its fields.
An import notes in each transaction which line comes next; the same file, sent again
after a crash, goes on there.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.responses import Response, StreamingResponse

from twinbus import limits
from twinbus.core.rights import Operation
from twinbus.errors import ArgumentError, CallerError, PeerError, TwinbusError
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.rendering import render_stored
from twinbus.server.broker.turn import Turn
from twinbus.server.http.console.actions import deliver, without_marks
from twinbus.server.http.console.audit import AuditEntry
from twinbus.server.http.console.forms import read_upload
from twinbus.server.http.console.jobs import CANCELLED, DONE, Job
from twinbus.server.http.console.looking import LookPlace, places_at
from twinbus.server.http.console.page import url
from twinbus.server.http.console.pages.entity import found
from twinbus.server.http.console.scanning import MessageFilter, Scan
from twinbus.server.http.console.showing import body_of, summary
from twinbus.server.http.console.visit import Visit
from twinbus.server.http.rest.messages import plain, read_batch
from twinbus.store.base import Stored
from twinbus.wire.message import sections
from twinbus.wire.message.sections import Incoming

# The setting with the next line of each import that has not ended.
_MARKER = "console imports"
_FIELDS = {
    "message_id": "MessageId",
    "session": "SessionId",
    "subject": "Label",
    "content_type": "ContentType",
    "correlation_id": "CorrelationId",
    "to": "To",
    "reply_to": "ReplyTo",
}
# What a line has for people.
_SHOWN = (
    *("sequence", "state", "enqueued_at", "deliveries", "message_id", "session"),
    *("subject", "content_type", "reason", "description", "source"),
)


# -- out -------------------------------------------------------------------------------


async def export(visit: Visit) -> Response:
    """All messages that match, as a file."""
    path, entity = found(visit)
    visit.demand(Operation.PEEK, path)
    listed = MessageFilter.of(visit.request.query_params)
    name = "".join(c if c.isalnum() else "-" for c in path.text)
    headers = {
        "Content-Disposition": f'attachment; filename="{name}.jsonl"',
        "Cache-Control": "no-store",
    }
    del entity
    lines = _lines(visit, places_at(visit.host, path), Scan(listed, _line))
    return StreamingResponse(lines, 200, headers, "application/x-ndjson")


async def _lines(
    visit: Visit, places: list[LookPlace], scan: Scan
) -> AsyncIterator[bytes]:
    start: int | None = 0
    while start is not None:
        visit.admit()
        scanned = await scan.run(visit.console.looker, places, start)
        start = scanned.next
        yield b"".join(scanned.found)


def _line(place: LookPlace, stored: Stored) -> bytes:
    shown = summary(place, stored)
    try:
        own = plain(sections.read_application_properties(stored.bare))
    except PeerError:
        own = {}
    line = {name: shown[name] for name in _SHOWN if shown[name] is not None}
    try:
        line["body"] = body_of(stored).decode()
    except UnicodeDecodeError:
        line["body_base64"] = base64.b64encode(body_of(stored)).decode("ascii")
    line["properties"] = own
    message = render_stored(stored, None, None, place.base)
    line["amqp"] = base64.b64encode(message).decode("ascii")
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


# -- in --------------------------------------------------------------------------------


async def import_file(visit: Visit) -> Response:
    """Send the messages of a file to a queue or topic, as a job."""
    path, entity = found(visit)
    visit.demand(Operation.SEND_LINK, path)
    if entity.kind == "subscription" or path.text != entity.name:
        raise CallerError("Messages are imported into a queue or a topic.")
    content = await read_upload(visit.request)
    messages = [
        _read(text, number)
        for number, text in enumerate(content.splitlines(), 1)
        if text.strip()
    ]
    if not messages:
        raise ArgumentError("The file has no messages.")
    title = f"Import {len(messages):,} messages into {entity.name}"
    job = Job(secrets.token_hex(8), title, path, visit, total=len(messages))
    digest = hashlib.sha256(content + entity.key.encode()).hexdigest()
    host = visit.host.hosts[entity.shard]

    async def work(job: Job) -> None:
        at = await host.run(lambda own, _turn: next_line(own, digest))
        job.outcome.gone = at
        while at < len(messages) and not job.is_cancelled:
            visit.admit()
            part = messages[at : at + limits.CONSOLE_CHUNK_MESSAGES]
            audit = AuditEntry(visit.who, "import", path.text, job.id)
            chunk = ImportChunk(entity, part, (digest, at, len(messages)), audit)
            await host.run(chunk, sum(len(each.bare) for each in part))
            at += len(part)
            job.outcome.done += len(part)
        job.state = CANCELLED if job.is_cancelled else DONE

    visit.console.jobs.begin(job, work)
    if visit.wants_json:
        return visit.page("", job.describe())
    return visit.redirect(url("job", id=job.id))


def _read(text: bytes, number: int) -> Incoming:
    """The message of one line."""
    try:
        line = json.loads(text)
        if not isinstance(line, dict):
            raise ArgumentError("it is no JSON object.")
        if "amqp" in line:
            message = base64.b64decode(str(line["amqp"]), validate=True)
            return without_marks(sections.parse(message))
        return _from_fields(line)
    except (ValueError, RecursionError):
        raise ArgumentError(f"Line {number} of the file cannot be read.") from None
    except TwinbusError as error:
        text_of = error.text
        raise ArgumentError(f"Line {number} of the file: {text_of}") from None


def _from_fields(line: dict[str, Any]) -> Incoming:
    broker = {name: line.get(field) for field, name in _FIELDS.items()}
    body = line.get("body", "")
    if not isinstance(body, str):
        body = json.dumps(body)
    item = {
        "Body": body,
        "BrokerProperties": broker,
        "UserProperties": line.get("properties", {}),
    }
    return read_batch(json.dumps([item]).encode())[0]


def _markers(namespace: Namespace) -> dict[str, int]:
    found: dict[str, int] = json.loads(namespace.store.setting(_MARKER) or "{}")
    return found


def next_line(namespace: Namespace, digest: str) -> int:
    """How many messages of a file are there already."""
    return _markers(namespace).get(digest, 0)


class ImportChunk:
    """Some messages of a file, and the note of how far it is (`turn.Command`)."""

    def __init__(
        self,
        entity: Entity,
        messages: Sequence[Incoming],
        at: tuple[str, int, int],
        audit: AuditEntry,
    ) -> None:
        self._entity = entity
        self._messages = messages
        self._at = at
        self._audit = audit

    def __call__(self, namespace: Namespace, turn: Turn) -> None:
        digest, start, end = self._at
        markers = _markers(namespace)
        if markers.get(digest, 0) != start:
            raise CallerError("The same file is being imported already.")
        for message in self._messages:
            deliver(namespace, self._entity, self._entity.key, message, turn)
        following = start + len(self._messages)
        markers.pop(digest, None)
        if following < end:
            markers[digest] = following
        while len(markers) > limits.CONSOLE_IMPORTS_KEPT:
            del markers[next(iter(markers))]
        namespace.store.put_setting(_MARKER, json.dumps(markers))
        self._audit.note(namespace, turn, len(self._messages))
