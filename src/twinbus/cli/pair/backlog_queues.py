"""What `twinbus backlog` does with the backlog queues, over AMQP.

Owns looking into them with the aliases read, putting dead-lettered messages back, and
removing messages. Rule: a message is put back before its dead letter is removed, so
what ends in between leaves it twice, with one message id, and never nowhere. Knows
nothing about how results are shown.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from twinbus import limits
from twinbus.cli.output import time_text
from twinbus.client.connection import Connection
from twinbus.client.message import Message
from twinbus.client.receiver import ReceiveOptions
from twinbus.core.durations import format_duration
from twinbus.pairing.errors import AliasInvalid
from twinbus.pairing.rules.envelope import Aliases, Backlogged, for_replay
from twinbus.spark.syphon_job.backlog import Backlog, is_active
from twinbus.wire.codec import decode
from twinbus.wire.message import sections
from twinbus.wire.message.names import (
    DEAD_LETTER_DESCRIPTION,
    DEAD_LETTER_REASON,
)

DEAD = "$deadletterqueue"
NO_DESTINATION = "(none)"

Advance = Callable[[int], None]


def dead_path(path: str) -> str:
    """The dead-letter queue of a backlog queue."""
    return f"{path}/{DEAD}"


async def browse(
    connection: Connection, path: str, start: int = 1
) -> AsyncIterator[Message]:
    """All messages of a queue from a number on, in any state."""
    management = connection.management(path)
    while page := await management.peek(limits.PEEK_MESSAGES_MAX, start):
        for message in page:
            yield message
        start = page[-1].sequence_number + 1


# -- list ----------------------------------------------------------------------------


@dataclass(slots=True)
class Content:
    """What is in one queue, as far as it was looked at."""

    messages: int = 0
    bytes: int = 0
    # By entity of the primary, or by reason.
    kinds: dict[str, int] = field(default_factory=dict)
    oldest_ms: int | None = None
    # Whether all of it was looked at; if not, `messages` is the most there can be.
    complete: bool = True

    def add(self, message: Message, kind: str) -> None:
        """Count one more."""
        self.messages += 1
        self.bytes += len(message.payload)
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if self.oldest_ms is None:
            self.oldest_ms = message.enqueued_ms


def destination_of(message: Message) -> str:
    """Where a message of a backlog queue wants to go."""
    try:
        return Backlogged(message.payload).aliases().path
    except AliasInvalid:
        return NO_DESTINATION


def reason_of(message: Message) -> str:
    """Why a message was dead-lettered."""
    return str(message.application_properties.get(DEAD_LETTER_REASON) or "(none)")


async def content(
    connection: Connection,
    path: str,
    kind_of: Callable[[Message], str],
    looked_at_max: int,
) -> Content:
    """Look into a queue."""
    found = Content()
    async for message in browse(connection, path):
        if found.messages == looked_at_max:
            found.complete = False
            break
        found.add(message, kind_of(message))
    return found


async def described(
    connection: Connection, backlog: Backlog, index: int, looked_at_max: int
) -> dict[str, Any]:
    """One backlog queue for `list`."""
    path = backlog.path(index)
    active = await content(connection, path, destination_of, looked_at_max)
    if not active.complete:
        active.messages = (await backlog.depths([index]))[index]
    dead = await content(connection, dead_path(path), reason_of, looked_at_max)
    return {
        "index": index,
        "queue": path,
        "messages": active.messages,
        "dead_lettered": dead.messages,
        "oldest": time_text(active.oldest_ms or 0),
        "destinations": active.kinds,
        "dead_letter_reasons": dead.kinds,
        # What the counts by destination and reason are about.
        "looked_at_all": active.complete and dead.complete,
    }


# -- peek ----------------------------------------------------------------------------


def shown(message: Message, index: int) -> dict[str, Any]:
    """One message for `peek`, its aliases read."""
    properties = message.application_properties
    try:
        aliases: Aliases | None = Backlogged(message.payload).aliases()
        problem = None
    except AliasInvalid as error:
        aliases, problem = None, error.text
    ttl_ms = aliases.ttl_ms if aliases else None
    return {
        "index": index,
        "sequence_number": message.sequence_number,
        "message_id": _plain(message.message_id),
        "destination": aliases.path if aliases else None,
        "session_id": aliases.session_id if aliases else None,
        "time_to_live": None if ttl_ms is None else format_duration(ttl_ms),
        "scheduled_at": time_text(aliases.scheduled_ms or 0) if aliases else None,
        "diverted_at": time_text(aliases.diverted_at_ms or 0) if aliases else None,
        "enqueued_at": time_text(message.enqueued_ms or 0),
        "delivery_count": message.delivery_count,
        "state": "active" if is_active(message) else "set aside",
        "dead_letter_reason": properties.get(DEAD_LETTER_REASON),
        "dead_letter_description": properties.get(DEAD_LETTER_DESCRIPTION),
        "problem": problem,
        "bytes": len(message.payload),
        "body": body_text(message.payload),
    }


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | None) else str(value)


def body_text(payload: bytes) -> str:
    """The body as text; bytes that are not UTF-8 are escaped."""
    pieces: list[str] = []
    for code, _begin, start, _end in sections.find_sections(payload):
        if sections.DATA <= code <= sections.VALUE:
            value, _ = decode(payload, start, budget=limits.SECTION_NODES_MAX)
            if isinstance(value, bytes):
                pieces.append(value.decode("utf-8", "backslashreplace"))
            else:
                pieces.append(str(value))
    return "".join(pieces)


# -- replay --------------------------------------------------------------------------


async def replay(
    connection: Connection,
    path: str,
    reason: str | None,
    count_max: int,
    advance: Advance,
) -> dict[str, int]:
    """Put dead-lettered messages of a backlog queue back; returns how many, by reason.

    With a reason, only those. The others are held until the end, or they would come
    again, and are then given back as if they had not been touched.
    """
    done: dict[str, int] = {}
    sender = connection.sender(path)
    async with connection.receiver(dead_path(path)) as receiver:
        others: list[Message] = []
        left = count_max
        while (
            left > 0
            and len(others) + limits.CLI_CHUNK_MESSAGES <= limits.UNSETTLED_PER_LINK_MAX
        ):
            part = await receiver.receive(
                min(limits.CLI_CHUNK_MESSAGES, left), limits.CLI_EMPTY_SECONDS
            )
            if not part:
                break
            wanted: list[Message] = []
            for each in part:
                is_wanted = reason in (None, reason_of(each))
                (wanted if is_wanted else others).append(each)
            if wanted:
                await sender.send([for_replay(each.payload) for each in wanted])
                await receiver.complete(wanted)
            for each in wanted:
                done[reason_of(each)] = done.get(reason_of(each), 0) + 1
            left -= len(wanted)
            advance(len(wanted))
        await receiver.release(others)
    await sender.close()
    return done


# -- purge ---------------------------------------------------------------------------


async def purge(connection: Connection, path: str, advance: Advance) -> int:
    """Remove all that can be received; what others have locked stays."""
    purged = 0
    options = ReceiveOptions(deletes=True)
    async with connection.receiver(path, options) as receiver:
        while part := await receiver.receive(
            limits.CLI_CHUNK_MESSAGES, limits.CLI_EMPTY_SECONDS
        ):
            purged += len(part)
            advance(len(part))
    return purged
