"""The last look: what lies where when all clients have stopped.

Owns the browse of the primary and of the backlog, dead letters included, as events of
the history. Nothing is locked or taken.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.soak import plan
from tests.soak.receiving import facts
from tests.soak.site import PRIMARY, SECONDARY, Site
from twinbus.client.message import Message
from twinbus.client.sync.connection import Connection
from twinbus.pairing.rules.envelope import Backlogged
from twinbus.testing.events import Recorder
from twinbus.testing.traces import seen

_CHUNK = 250


def browse(connection: Connection, path: str) -> Iterator[Message]:
    """Every message of an entity, in any state."""
    management = connection.management(path)
    number = 1
    while found := management.peek(_CHUNK, number):
        yield from found
        number = found[-1].sequence_number + 1


def waiting(site: Site) -> int:
    """How many messages are in the backlog."""
    text = site.servers[SECONDARY].connection_string
    with Connection.from_connection_string(text) as connection:
        return sum(1 for path in plan.BACKLOG for _ in browse(connection, path))


def look(site: Site) -> None:
    """Write down all that is left."""
    for side, paths in ((PRIMARY, plan.SOURCES), (SECONDARY, tuple(plan.BACKLOG))):
        text = site.servers[side].connection_string
        with Connection.from_connection_string(text) as connection:
            for path in paths:
                _look_at(connection, path, site.recorder)


def _look_at(connection: Connection, path: str, recorder: Recorder) -> None:
    for suffix in ("", plan.DEAD):
        for message in browse(connection, path + suffix):
            event = recorder.start("look", "drain", queue=path)
            event.state = "dead" if suffix else message.state
            known = facts(seen(message), message)
            if path in plan.BACKLOG:
                aliases = Backlogged(message.payload).aliases()
                known["path"] = aliases.path
                known["diverted_at"] = aliases.diverted_at_ms or 0
            recorder.finish(event, **known)
    recorder.finish(recorder.start("look", "drained", queue=path))
