"""Invariants that a running server checks: what containers hold, one at a time.

Owns the order in which they are looked at. A look counts a bounded number of rows in a
turn, so it costs a millisecond at any depth.
"""

from __future__ import annotations

from twinbus import limits
from twinbus.core.names import SubQueue
from twinbus.server.broker.host import Host
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn

_SUB_QUEUES = tuple(SubQueue)


class Audit:
    """Looks at the containers of one namespace, again and again."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._looks = 0

    async def look(self) -> str | None:
        """What is wrong with the next container; None if nothing is."""
        return await self._host.run(self._look)

    def _look(self, namespace: Namespace, turn: Turn) -> str | None:
        """Compare one container's counters with its rows (`turn.Command`)."""
        del turn
        entities = list(namespace.entities)
        if not entities:
            return None
        index, part = divmod(self._looks, len(_SUB_QUEUES))
        self._looks += 1
        entity = entities[index % len(entities)]
        container = entity.container(_SUB_QUEUES[part])
        wrong = namespace.store.audit(container, limits.AUDIT_ROWS_MAX)
        if wrong is None:
            return None
        part_text = f" ({_SUB_QUEUES[part].name.lower()})" if part else ""
        return f"{entity.name}{part_text} of {namespace.name}: {wrong}"


__all__ = ["Audit"]
