"""Which backlog queues exist, asked over AMQP with the right to listen and no other.

Owns asking, for both syphons: a queue exists if a receiver's link opens. Which indexes
are asked for, and when the search ends, is `naming.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from twinbus.client.connection import Connection
from twinbus.errors import RemoteError
from twinbus.pairing.rules.classification import Failure, kind_of
from twinbus.pairing.rules.naming import IndexSearch, backlog_path


async def find_indexes(
    connection: Connection, primary: str, known: Iterable[int] = ()
) -> list[int]:
    """The indexes that exist, in order. Opens links and asks for nothing."""
    search = IndexSearch(known)
    while group := search.group():
        paths = [backlog_path(primary, index) for index in group]
        exist = await asyncio.gather(*(_exists(connection, path) for path in paths))
        search.found += [i for i, there in zip(group, exist, strict=True) if there]
    return search.found


async def _exists(connection: Connection, path: str) -> bool:
    receiver = connection.receiver(path)
    try:
        await receiver.open()
    except RemoteError as error:
        if kind_of(error) is Failure.MISSING:
            return False
        raise
    await receiver.close()
    return True
