"""The look at what lies where: how much waits, and at the end what is left.

Owns the peeks. A peek shows what is ready, locked, scheduled or deferred alike, so an
empty answer means empty. What the final look finds is written into the history; what it
does not find must have been received.
"""

from __future__ import annotations

from collections.abc import Iterable

from twinbus import limits
from twinbus.client.connection import Connection
from twinbus.client.message import Message
from twinbus.drill.plan import PLACES, PRIMARY_NAME, Plan
from twinbus.drill.site.access import NamespaceAccess
from twinbus.pairing.errors import AliasInvalid
from twinbus.pairing.rules.envelope import Backlogged
from twinbus.pairing.rules.naming import backlog_path
from twinbus.testing.history import Event, Recorder
from twinbus.testing.traces import seen

_DEAD = "/$deadletterqueue"
_PROCESS = "look"


async def empty(access: NamespaceAccess, places: Iterable[str]) -> bool:
    """Whether nothing at all is in these places of a namespace."""
    async with _connection(access) as connection:
        for place in places:
            if await connection.management(place).peek(1):
                return False
    return True


class FinalLook:
    """Writes down everything that is left."""

    def __init__(self, plan: Plan, recorder: Recorder) -> None:
        self._plan = plan
        self._recorder = recorder
        self.left = 0

    async def look(self, primary: NamespaceAccess, secondary: NamespaceAccess) -> int:
        """Look everywhere; returns how much is left."""
        async with _connection(primary) as connection:
            for place in PLACES:
                await self._look_at(connection, self._plan.real(place), place)
        async with _connection(secondary) as connection:
            for index, path in enumerate(self._plan.backlog):
                place = backlog_path(PRIMARY_NAME, index)
                await self._look_at(connection, path, place)
        return self.left

    async def _look_at(self, connection: Connection, path: str, place: str) -> None:
        for suffix in ("", _DEAD):
            start = 1
            management = connection.management(path + suffix)
            while page := await management.peek(limits.DRILL_PEEK_MESSAGES_MAX, start):
                for message in page:
                    self._recorder.finish(self._found(place + suffix, message))
                self.left += len(page)
                start = page[-1].sequence_number + 1
        self._recorder.finish(self._recorder.start(_PROCESS, "drained", queue=place))

    def _found(self, place: str, message: Message) -> Event:
        state = "dead" if place.endswith(_DEAD) else message.state
        event = self._recorder.start(
            _PROCESS, "drain", queue=place, state=state, **seen(message)
        )
        if place.startswith(f"{PRIMARY_NAME}/"):
            try:
                aliases = Backlogged(message.payload).aliases()
            except AliasInvalid:
                return event
            event.path = self._plan.short(aliases.path)
            event.diverted_at = aliases.diverted_at_ms or 0
        return event


def _connection(access: NamespaceAccess) -> Connection:
    return access.connection(limits.DRILL_LOOK_SECONDS_MAX)
