"""How stores are opened and found on disk.

Owns the choice of the database: everything outside `store/` gets its store here and
knows it by the contract in `base.py` alone. Each store has a folder of its own.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from twinbus.core.sas import Secret
from twinbus.errors import ConfigError
from twinbus.store.base import Store
from twinbus.store.sqlite.checking import check_stores
from twinbus.store.sqlite.file import FILE_NAME, glance, read_setting
from twinbus.store.sqlite.store import SqliteStore, random_nonce


def open_store(
    folder: Path | None, reserve_bytes: int | None = None, shard: int = 0
) -> Store:
    """Open the store in a folder, which is made if it is not there.

    Without a folder it is kept in memory and gone when it is closed. `ConfigError` if
    the folder cannot be used or another process has it. A server keeps a reserve of
    disk space there, at most so many bytes; None leaves it as it is. The nonces of
    locks carry the number of the shard.
    """
    new_nonce = partial(random_nonce, shard)
    if folder is None:
        return SqliteStore.memory(new_nonce)
    return SqliteStore.open(folder, reserve_bytes=reserve_bytes, new_nonce=new_nonce)


if TYPE_CHECKING:
    from twinbus.store.postgres.database import Database


class DatabaseUrl(Secret):
    """Where a database is that several nodes share; it may have a password."""


def open_shared(
    url: DatabaseUrl, namespace: str, shard: int = 0, *, make: bool = True
) -> Store:
    """Open the store of a shard in a database, where it is made if it is not there.

    `ConfigError` says why the database cannot be used; also if the store is not there
    and is not to be made.
    """
    database = _database(url, namespace, shard)
    from twinbus.store.postgres.store import PostgresStore

    return PostgresStore.open(database, partial(random_nonce, shard), make=make)


def read_shared_setting(url: DatabaseUrl, namespace: str, name: str) -> str | None:
    """A setting of a namespace in a database; `ConfigError` if it is not there."""
    return _database(url, namespace, 0).read_setting(name)


def _database(url: DatabaseUrl, namespace: str, shard: int) -> Database:
    try:
        from twinbus.store.postgres.database import Database
    except ImportError:
        raise ConfigError(
            "--database needs the driver of PostgreSQL: pip install 'twinbus[postgres]'"
        ) from None
    return Database(url.reveal(), namespace, shard)


def find_stores(data: Path) -> list[Path]:
    """The folders directly below `data` that have a store, in order."""
    return sorted(file.parent for file in data.glob(f"*/{FILE_NAME}"))


__all__ = [
    "DatabaseUrl",
    "check_stores",
    "find_stores",
    "glance",
    "open_shared",
    "open_store",
    "random_nonce",
    "read_setting",
    "read_shared_setting",
]
