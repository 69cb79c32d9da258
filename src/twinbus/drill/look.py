"""The look at what lies where: how much waits, and at the end what is left.

Owns the peeks. A peek shows what is ready, locked, scheduled or deferred alike, so an
empty answer means empty. What the final look finds is written into the history; what it
does not find must have been received.
"""

from __future__ import annotations

from twinbus import limits
from twinbus.client.connection import Connection
from twinbus.client.message import Message
from twinbus.drill.plan import PLACES, PRIMARY_NAME
from twinbus.pairing.errors import AliasInvalid
from twinbus.pairing.rules.envelope import Backlogged
from twinbus.pairing.rules.naming import backlog_path
from twinbus.testing.history import Event, Recorder
from twinbus.testing.traces import seen

BACKLOG = tuple(
    backlog_path(PRIMARY_NAME, index) for index in range(limits.DRILL_BACKLOG_QUEUES)
)
_DEAD = "/$deadletterqueue"
_PROCESS = "look"


async def empty(text: str, places: tuple[str, ...]) -> bool:
    """Whether nothing at all is in these places of a namespace."""
    async with _connection(text) as connection:
        for place in places:
            if await connection.management(place).peek(1):
                return False
    return True


async def look(recorder: Recorder, primary: str, secondary: str) -> int:
    """Write down everything that is left; returns how much that is."""
    left = 0
    for text, places in ((primary, PLACES), (secondary, BACKLOG)):
        async with _connection(text) as connection:
            for place in places:
                left += await _look_at(connection, place, recorder)
                left += await _look_at(connection, place + _DEAD, recorder)
                recorder.finish(recorder.start(_PROCESS, "drained", queue=place))
    return left


async def _look_at(connection: Connection, place: str, recorder: Recorder) -> int:
    count, start = 0, 1
    management = connection.management(place)
    while page := await management.peek(limits.DRILL_PEEK_MESSAGES_MAX, start):
        for message in page:
            recorder.finish(_found(recorder, place, message))
        count += len(page)
        start = page[-1].sequence_number + 1
    return count


def _found(recorder: Recorder, place: str, message: Message) -> Event:
    state = "dead" if place.endswith(_DEAD) else message.state
    event = recorder.start(_PROCESS, "drain", queue=place, state=state, **seen(message))
    if place.startswith(f"{PRIMARY_NAME}/"):
        try:
            aliases = Backlogged(message.payload).aliases()
        except AliasInvalid:
            return event
        event.path = aliases.path
        event.diverted_at = aliases.diverted_at_ms or 0
    return event


def _connection(text: str) -> Connection:
    return Connection.from_connection_string(
        text, timeout_seconds=limits.DRILL_LOOK_SECONDS_MAX
    )
