"""Nodes that start at the same time make one schema."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import psycopg

from tests.postgres import shared_server
from twinbus.errors import ConfigError
from twinbus.store.opening import DatabaseUrl
from twinbus.store.postgres.database import Database
from twinbus.store.shards import open_shared_shards

NODES = 6


def test_nodes_that_start_at_the_same_time_make_one_schema() -> None:
    for _ in range(5):
        url = shared_server().new_database()
        start = Barrier(NODES)

        def open_database(url: str = url, start: Barrier = start) -> None:
            database = Database(url, "contoso", 0)
            start.wait()
            database.open().close()

        with ThreadPoolExecutor(NODES) as pool:
            opened = [pool.submit(open_database) for _ in range(NODES)]
            for each in opened:
                each.result()


def test_nodes_that_start_at_the_same_time_agree_on_the_number_of_shards() -> None:
    url = shared_server().new_database()
    start = Barrier(NODES)

    def open_shards(count: int) -> int | None:
        start.wait()
        try:
            opened = open_shared_shards(DatabaseUrl(url), "contoso", count)
        except ConfigError:
            return None
        for shard in opened:
            assert shard.store is not None
            shard.store.close()
        return len(opened)

    with ThreadPoolExecutor(NODES) as pool:
        found = list(pool.map(open_shards, [1 + k % 3 for k in range(NODES)]))

    counts = {count for count in found if count is not None}
    assert len(counts) == 1
    with psycopg.connect(url) as connection:
        query = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'twinbus%'"
        made = connection.execute(query).fetchone()
    # None of the others has left one behind.
    assert made == (counts.pop(),)
