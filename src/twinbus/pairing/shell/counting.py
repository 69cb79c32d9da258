"""The ledger of a factory: what it does to its namespaces, and what its pair tells.

Owns how events of a pair become rows: an event has its own, what was diverted has one
per minute and entity. A cause is named by its class and condition; its text may hold
anything, and is left out. Files are written in a thread (`ledger/keeper.py`), which
starts with the first link, since a factory may be made without an event loop.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

from twinbus.client.connection import Connection
from twinbus.client.metering import ClientLedger, namespace_of
from twinbus.client.transport.endpoint import Endpoint
from twinbus.clock import Clock, SystemClock
from twinbus.errors import TwinbusError
from twinbus.ledger.counts import LedgerAccount, LedgerEvent
from twinbus.ledger.files import writer_name
from twinbus.ledger.keeper import LedgerKeeper
from twinbus.ledger.schema import CLIENT
from twinbus.ledger.writer import LedgerOptions, LedgerWriter
from twinbus.pairing.events import EventKind, PairingEvent

# The pair has found or made its queues, or a send was diverted: no `EventKind` says so.
PAIRED, DIVERTED = "paired", "diverted"


class FactoryLedger:
    """The ledger of one factory, and of the secondary that it is paired with."""

    def __init__(
        self, folder: str | os.PathLike[str], endpoint: Endpoint, clock: Clock
    ) -> None:
        self._clock = clock
        namespace = namespace_of(endpoint)
        program = Path(sys.argv[0] or "python").stem
        name = writer_name(socket.gethostname(), program, namespace)
        options = LedgerOptions(Path(folder), name, namespace, CLIENT)
        self.keeper = LedgerKeeper(LedgerWriter(options), clock)
        self.keeper.before_take.append(self._tell_diverted)
        self._primary, self._secondary = namespace, ""
        # By entity: when the last was, how many messages, and their bytes.
        self._diverted: dict[str, tuple[int, int, int]] = {}
        # What each backlog queue's syphon had moved when it was last told.
        self._moved: dict[str, tuple[int, int]] = {}

    @classmethod
    def at(
        cls, folder: str | os.PathLike[str] | None, endpoint: Endpoint
    ) -> FactoryLedger | None:
        """The ledger in a folder; None without one."""
        return None if folder is None else cls(folder, endpoint, SystemClock())

    def count(self, connection: Connection, credential: Any) -> None:
        """Count what is done on a connection from now on."""
        connection.count_in(_StartingLedger(self.keeper, connection, credential))

    async def close(self) -> None:
        """Write what there is."""
        await self.keeper.close()

    # -- events ------------------------------------------------------------------------

    def paired(self, secondary: Endpoint) -> None:
        """The factory is paired."""
        self._secondary = namespace_of(secondary)
        self._tell(PAIRED, "", 0, 0)

    def diverted(self, path: str, sizes: list[int]) -> None:
        """A backlog queue has taken messages for an entity."""
        _at_ms, count, size_bytes = self._diverted.get(path, (0, 0, 0))
        now_ms = self._clock.now().wall_ms
        total = size_bytes + sum(sizes)
        self._diverted[path] = now_ms, count + len(sizes), total

    def _tell_diverted(self) -> None:
        """The minute is over: one row for each entity."""
        diverted, self._diverted = self._diverted, {}
        for path, (at_ms, count, size_bytes) in diverted.items():
            self.keeper.counts.tell(
                self._event(DIVERTED, path, count, size_bytes)._replace(at_ms=at_ms)
            )

    def tell(self, event: PairingEvent) -> None:
        """Something has happened to the pair, an entity or a backlog queue."""
        count = size_bytes = 0
        if event.kind is EventKind.SYPHON_PROGRESS:
            now = int(event.details["moved"]), int(event.details["moved_bytes"])
            before = self._moved.get(event.path, (0, 0))
            self._moved[event.path] = now
            count, size_bytes = now[0] - before[0], now[1] - before[1]
        detail = _named(event.cause)
        self._tell(event.kind.value, event.path, count, size_bytes, detail)

    def _tell(
        self, event: str, path: str, count: int, size_bytes: int, detail: str = ""
    ) -> None:
        self.keeper.start()
        told = self._event(event, path, count, size_bytes)
        self.keeper.counts.tell(told._replace(detail=detail))

    def _event(self, event: str, path: str, count: int, size_bytes: int) -> LedgerEvent:
        at_ms = self._clock.now().wall_ms
        pair, entity = (self._primary, self._secondary), path.lower()
        return LedgerEvent(at_ms, *pair, entity, event, count, size_bytes)


class _StartingLedger(ClientLedger):
    """Counts, and lets the files be written from the first link on."""

    def __init__(
        self, keeper: LedgerKeeper, connection: Connection, credential: Any
    ) -> None:
        super().__init__(keeper.counts, connection.endpoint, credential)
        self._keeper = keeper

    def account(self, path: str, source: str = CLIENT) -> LedgerAccount:
        self._keeper.start()
        return super().account(path, source)


def _named(cause: BaseException | None) -> str:
    if cause is None:
        return ""
    condition = f" {cause.condition}" if isinstance(cause, TwinbusError) else ""
    return f"{type(cause).__name__}{condition}"


__all__ = ["DIVERTED", "PAIRED", "FactoryLedger"]
