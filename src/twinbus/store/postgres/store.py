"""The store on PostgreSQL, which several nodes share.

Puts the parts together: the rules of the rows, which are those of every database (in
`store/tables/`), and the transaction of this one. What a statement for many rows does
better than one for each is here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from twinbus.clock import Now
from twinbus.store.postgres.database import Database
from twinbus.store.postgres.reader import PostgresReader
from twinbus.store.postgres.swept_locks import SweptLocks
from twinbus.store.postgres.transaction import PostgresTransaction
from twinbus.store.reading import StoreReader
from twinbus.store.tables.auditing import Auditing
from twinbus.store.tables.entities import EntityRows
from twinbus.store.tables.outbox import OutboxRows
from twinbus.store.tables.rows import guarded
from twinbus.store.tables.sessions import Sessions
from twinbus.store.tables.times import Times


class PostgresStore(
    SweptLocks, EntityRows, Sessions, Times, Auditing, OutboxRows, PostgresTransaction
):
    """A shard's messages in PostgreSQL; implements `base.Store`."""

    @classmethod
    def open(
        cls, database: Database, new_nonce: Callable[[], int], *, make: bool = True
    ) -> Self:
        """Open the store, whose schema is made if it is not there and may be.

        Costs the same at any depth. `ConfigError` says why it cannot be used.
        """
        connection = database.open(make=make)
        try:
            return cls(database, connection, new_nonce)
        except BaseException:
            connection.close()
            raise

    def open_reader(self) -> StoreReader | None:
        return PostgresReader.open(self._database)

    def reader_in(self) -> StoreReader:
        return PostgresReader(self._run)

    @guarded
    def remember(
        self, container: int, keys: Sequence[str], until_ms: int, now: Now
    ) -> list[bool]:
        self._containers.change(container)
        wanted = list(dict.fromkeys(keys))
        at = (container, until_ms, wanted, now.steady_ms)
        new = {row[0] for row in self._run(self._sql["remember"], at).fetchall()}
        answers = []
        for key in keys:
            answers.append(key in new)
            new.discard(key)
        return answers
