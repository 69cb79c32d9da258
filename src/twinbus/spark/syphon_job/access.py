"""Credentials of the syphon for the two namespaces, and its connections.

The driver holds the connection strings. A task gets a `Ticket`: where the namespace is,
and a token that was signed on the driver for the part of it that a task needs and for a
few hours. So keys reach no executor, and what reaches one never prints: tokens are
`Secret`. A connection string that carries a ready token instead of a key is passed on
as it is; a narrower one cannot be made from it.

Also owns the connections of a process: one event loop in a thread, and one connection
for each namespace, kept for the tasks that follow. Knows nothing about Spark.
"""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from twinbus import limits
from twinbus.client.connection import Connection
from twinbus.client.credentials import SasSignature, credential_of
from twinbus.client.metering import ClientLedger
from twinbus.client.transport.endpoint import Endpoint, endpoint_of
from twinbus.client.transport.loop_thread import LoopThread
from twinbus.clock import SystemClock
from twinbus.core.sas import ConnectionString, Secret, make_token
from twinbus.ledger.counts import LedgerCounts
from twinbus.pairing.pump.destinations import Senders

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Way:
    """Where a namespace is; nothing in it is secret."""

    host: str
    port: int | None
    dev: bool
    # Certificates to trust instead of the machine's, as text.
    ca_pem: str | None = None

    def endpoint(self) -> Endpoint:
        """As connections take it."""
        tls = None if self.dev else ssl.create_default_context(cadata=self.ca_pem)
        return Endpoint(self.host, self.port, tls)

    @property
    def authority(self) -> str:
        """Host and port, for people and for names of folders."""
        return Endpoint(self.host, self.port).authority


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a task is given: the way, and a token for a part of the namespace."""

    way: Way
    token: Secret


class KeyedNamespace:
    """One of the two namespaces as the driver knows it, with its key."""

    def __init__(self, given: ConnectionString, ca_pem: str | None = None) -> None:
        self._given = given
        self.way = Way(given.host, given.port, given.dev, ca_pem)

    @property
    def name(self) -> str:
        """For people: host and port."""
        return self.way.authority

    @property
    def target(self) -> tuple[str, int]:
        """Host and port that a connection goes to."""
        return endpoint_of(self._given, Endpoint("")).target

    @property
    def has_key(self) -> bool:
        """Whether it signs for the whole namespace, and not with a token given."""
        return self._given.token is None

    def connection(self) -> Connection:
        """A connection with the key itself; for the driver."""
        return Connection(self.way.endpoint(), credential_of(self._given))

    def ticket(self, path: str = "") -> Ticket:
        """A token for an entity and what is below it, or for the whole namespace."""
        given = self._given
        if given.token is not None:
            return Ticket(self.way, given.token)
        assert given.key_name is not None
        assert given.key is not None
        resource = self.way.endpoint().audience(path)
        now_s = SystemClock().now_ms() // 1000
        expires_s = now_s + limits.SYPHON_TOKEN_SECONDS
        text = make_token(resource, given.key_name, given.key, expires_s)
        return Ticket(self.way, Secret(text))


class Worker:
    """The connections of this process."""

    def __init__(self) -> None:
        self.thread = LoopThread("twinbus-syphon")
        self._kept: dict[Way, tuple[Connection, SasSignature, Senders]] = {}
        # What was received and sent here; None while no task has a ledger.
        self._counts: LedgerCounts | None = None

    def counted(self) -> LedgerCounts:
        """Count from now on. Links outlive tasks, so all tasks share the counts."""
        if self._counts is None:
            self._counts = LedgerCounts()
            for connection, credential, _ in self._kept.values():
                self._count(connection, credential)
        return self._counts

    def _count(self, connection: Connection, credential: SasSignature) -> None:
        if self._counts is not None:
            connection.count_in(
                ClientLedger(self._counts, connection.endpoint, credential)
            )

    def run(self, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run a call in the event loop and wait for it."""
        return self.thread.run(call)

    def connection(self, ticket: Ticket) -> Connection:
        """The connection to a namespace; a newer token is used from the next need."""
        return self._entry(ticket)[0]

    def senders(self, ticket: Ticket) -> Senders:
        """The senders on that connection."""
        return self._entry(ticket)[2]

    def close(self) -> None:
        """Close all connections; a worker that Spark ends does not need to."""
        kept, self._kept = self._kept, {}
        for connection, _, _ in kept.values():
            self.run(partial(connection.close, limits.SYPHON_STOP_SECONDS))
        self.thread.stop()

    def _entry(self, ticket: Ticket) -> tuple[Connection, SasSignature, Senders]:
        found = self._kept.get(ticket.way)
        if found is None:
            credential = SasSignature(ticket.token)
            connection = Connection(ticket.way.endpoint(), credential)
            self._count(connection, credential)
            found = connection, credential, Senders(connection)
            self._kept[ticket.way] = found
        found[1].update(ticket.token)
        return found


_lock = threading.Lock()
_workers: dict[int, Worker] = {}


def worker() -> Worker:
    """The one of this process; a forked child gets its own."""
    with _lock:
        pid = os.getpid()
        if pid not in _workers:
            # A parent's connections are of no use here.
            _workers.clear()
            _workers[pid] = Worker()
        return _workers[pid]


def close_worker() -> None:
    """Close what this process has; the next task opens it anew."""
    with _lock:
        found = _workers.pop(os.getpid(), None)
    if found is not None:
        found.close()
