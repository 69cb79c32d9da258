"""The store on SQLite: one file per namespace, the default.

Puts the parts together: the rules of the rows, which are those of every database (in
`store/tables/`), and the transaction of this one. The contract is in `base.py`.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Self

from twinbus.store.base import NONCE_RANDOM_BITS
from twinbus.store.reading import StoreReader
from twinbus.store.sqlite.file import SqliteFile
from twinbus.store.sqlite.packs import Packs
from twinbus.store.sqlite.reader import SqliteReader
from twinbus.store.tables.known_ends import KnownEnds
from twinbus.store.tables.outbox import OutboxRows
from twinbus.store.tables.sessions import Sessions


def random_nonce(shard: int = 0) -> int:
    """A new nonce of a store; the upper bits are the number of its shard."""
    return shard << NONCE_RANDOM_BITS | secrets.randbits(NONCE_RANDOM_BITS)


class SqliteStore(KnownEnds, Packs, Sessions, OutboxRows):
    """A namespace's messages in a SQLite file; implements `base.Store`."""

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        reserve_bytes: int | None = None,
        new_nonce: Callable[[], int] = random_nonce,
    ) -> Self:
        """Open the store in a folder, which is made if it is not there.

        Costs the same at any depth. Raises `ConfigError` if the folder cannot be used,
        is in use or is of a newer version, `StoreFault` if the file is damaged. The
        reserve is that of `reserve.py`; None leaves it as it is, 0 removes it.
        """
        return cls._on(SqliteFile(folder, reserve_bytes), new_nonce)

    @classmethod
    def memory(cls, new_nonce: Callable[[], int] = random_nonce) -> Self:
        """A store that is gone when it is closed."""
        return cls._on(SqliteFile(None), new_nonce)

    def open_reader(self) -> StoreReader | None:
        folder = self._file.folder
        return None if folder is None else SqliteReader.open(folder)

    def reader_in(self) -> StoreReader:
        return SqliteReader(self._connection)

    @classmethod
    def _on(cls, file: SqliteFile, new_nonce: Callable[[], int]) -> Self:
        try:
            store = cls(file, new_nonce)
        except sqlite3.Error as error:
            file.close()
            raise file.fault(error) from error
        file.opened()
        return store
