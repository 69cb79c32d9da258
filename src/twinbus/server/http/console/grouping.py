"""Dead letters by reason and source, counted piece by piece.

Owns the counts of pages that are open. Each request counts one scan further and says
how far it is, so that a reason is found behind any number of others without a request
that lasts long. A grouping that is forgotten begins again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from twinbus import limits
from twinbus.core.names import EntityPath
from twinbus.server.http.console.looking import Looker, LookPlace
from twinbus.server.http.console.scanning import MessageFilter, Scan, reason_of
from twinbus.store.base import Stored


@dataclass(slots=True)
class Grouping:
    """The dead letters of one queue, as far as they are counted."""

    path: EntityPath
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    looked: int = 0
    # The number at which to go on; None at the end.
    next: int | None = 0
    # Those that found no room in the counts.
    others: int = 0
    _counted: Counter[tuple[str, str]] = field(default_factory=Counter)
    # A message is counted once, also if two requests come at the same time.
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def count_on(self, looker: Looker, places: list[LookPlace]) -> None:
        """Count one scan further."""
        async with self._turn:
            if self.next is not None:
                await self._scan(looker, places, self.next)

    async def _scan(self, looker: Looker, places: list[LookPlace], start: int) -> None:
        scan = Scan(MessageFilter(), _group, limits.CONSOLE_SCAN_MESSAGES_MAX)
        scanned = await scan.run(looker, places, start)
        for group, count in Counter(scanned.found).items():
            if group in self._counted or len(self._counted) < limits.CONSOLE_GROUPS_MAX:
                self._counted[group] += count
            else:
                self.others += count
        self.looked += scanned.looked
        self.next = scanned.next

    def describe(self) -> dict[str, Any]:
        """The groups, the largest first."""
        return {
            "groups": [
                {"reason": reason, "source": source, "count": count}
                for (reason, source), count in self._counted.most_common()
            ],
            "groups_others": self.others,
            "groups_looked": self.looked,
            "groups_complete": self.next is None,
            "grouping": self.id,
        }


class Groupings:
    """The last groupings that pages have begun."""

    def __init__(self) -> None:
        self._kept: dict[str, Grouping] = {}

    def find(self, id: str, path: EntityPath) -> Grouping:
        """A grouping of that path that has begun, or a new one."""
        found = self._kept.get(id)
        if found is not None and found.path == path:
            return found
        while len(self._kept) >= limits.CONSOLE_GROUPINGS_KEPT:
            del self._kept[next(iter(self._kept))]
        made = Grouping(path)
        self._kept[made.id] = made
        return made


def _group(_place: LookPlace, stored: Stored) -> tuple[str, str]:
    return reason_of(stored), stored.source or ""
