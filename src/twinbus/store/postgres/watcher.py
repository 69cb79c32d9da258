"""News between the nodes of a shard: hints, the look at the log, and who is there.

Owns a thread with a connection of its own, outside of turns. A node that has news sends
a NOTIFY, at most one in some milliseconds, since each takes a lock of the whole
database server when it commits. The hint says only that there is something: what it is
stands in the log of turns, which is also looked at now and then, so that a lost hint
costs one such time. Each node writes in `node` that it is there. What goes wrong here
is tried again, and no turn waits for it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import sql

from twinbus import limits
from twinbus.store.nodes import News
from twinbus.store.postgres.database import Connection, Database
from twinbus.store.queries import load

log = logging.getLogger("twinbus.store")

_SQL = load("postgres", "nodes")


class Watcher:
    """Tells other nodes of news, and listens to theirs."""

    def __init__(
        self, database: Database, node: int, known: int, call: Callable[[News], None]
    ) -> None:
        self._database = database
        self._node = node
        self._call = call
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        # The other nodes that were seen in the last seconds.
        self.others: list[dict[str, Any]] = []
        # The last turn that was looked at.
        self._known = known
        self._beat_at = 0.0
        self._has_news = threading.Event()
        self._closing = False
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._thread = threading.Thread(
            target=self._run, name=f"watch-{database.namespace}", daemon=True
        )
        self._thread.start()

    def tell(self) -> None:
        """This node has news, in the log."""
        if not self._has_news.is_set():
            self._has_news.set()
            with contextlib.suppress(BlockingIOError):
                os.write(self._wake, b"w")

    def close(self) -> None:
        """End the thread."""
        self._closing = True
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake, b"w")
        self._thread.join()
        os.close(self._woken)
        os.close(self._wake)

    # -- the thread ------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing:
            try:
                with self._database.connect() as connection:
                    self._watch(connection)
            except psycopg.Error as error:
                log.debug("no news of other nodes: %s", error)
                self._wait(None, limits.PG_POLL_SECONDS)

    def _watch(self, connection: Connection) -> None:
        channel = sql.Identifier(self._database.schema)
        connection.execute("SET synchronous_commit = off")
        connection.execute(sql.SQL("LISTEN {}").format(channel))
        self._beat_at = 0.0
        self._look(connection)
        while not self._closing:
            is_hint = self._wait(connection, limits.PG_POLL_SECONDS)
            if self._has_news.is_set():
                # More of them may come, and one hint is for all.
                self._wait(None, limits.PG_HINT_SECONDS)
                self._has_news.clear()
                connection.execute(sql.SQL("NOTIFY {}").format(channel))
            elif is_hint is not False:
                self._look(connection)
            self._beat(connection)
        connection.execute(_SQL["leave"], (self._node,))

    def _wait(self, connection: Connection | None, seconds: float) -> bool | None:
        """Wait for a hint or for news; None after the time, True for a hint."""
        reads: list[int] = [self._woken]
        if connection is None:
            # To be ended at once, and for nothing else.
            if not self._has_news.is_set() or self._closing:
                select.select(reads, [], [], seconds)
            else:
                threading.Event().wait(seconds)
            return False
        link = connection.pgconn
        found, _, _ = select.select([*reads, link.socket], [], [], seconds)
        if self._woken in found:
            os.read(self._woken, 4096)
        if link.socket not in found:
            return None if not found else False
        link.consume_input()
        is_hint = False
        while (note := link.notifies()) is not None:
            is_hint = is_hint or note.be_pid != link.backend_pid
        return is_hint

    def _look(self, connection: Connection) -> None:
        """Read the turns of other nodes since the last look."""
        row = connection.execute(_SQL["last_turn"]).fetchone()
        last = 0 if row is None or row[0] is None else int(row[0])
        if last < self._known:
            # Another server, which was a standby: turns read everything anew.
            self._known = last
            self._call(News(directory=True))
        if last == self._known:
            return
        for number, node, body in connection.execute(
            _SQL["news"], (self._known, last)
        ).fetchall():
            self._known = number
            if node != self._node:
                self._tell_of(json.loads(body))
        self._known = last

    def _tell_of(self, body: dict[str, Any]) -> None:
        news = News(
            tuple(body.get("ready", ())),
            tuple((container, nonce) for container, nonce in body.get("ended", ())),
            tuple(body.get("emptied", ())),
            "directory" in body,
        )
        if any(news):
            self._call(news)

    def _beat(self, connection: Connection) -> None:
        """Say that this node is there, and look which others are."""
        now = time.monotonic()
        if now < self._beat_at:
            return
        self._beat_at = now + limits.PG_BEAT_SECONDS
        connection.execute(_SQL["beat"], (self._node, self._name))
        rows = connection.execute(
            _SQL["other_nodes"], (self._node, limits.PG_NODE_SEEN_SECONDS)
        ).fetchall()
        self.others = [
            {"name": name, "seen_seconds_ago": round(float(age), 1)}
            for name, age in rows
        ]
