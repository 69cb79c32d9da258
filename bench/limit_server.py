"""Our server with the store switched off: the limit that no store can pass.

The same engine, connection, host and namespace as `twinbus serve --dev`, on a store
whose hot path does nothing: `append` hands out numbers, `lock` hands out messages that
were prepared before, `complete` says yes, `commit` returns. What it "keeps" is a count.
Prints the ready line of `twinbus serve`. Run as `python -m bench.limit_server`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
from collections.abc import Sequence

import uvloop

from bench.messages import BODY_BYTES, messages
from bench.target import QUEUE
from twinbus import limits
from twinbus.clock import Now, SystemClock
from twinbus.core.entity import QueueDescription
from twinbus.core.sas import format_connection_string
from twinbus.server.access.port import NamespacePort
from twinbus.server.amqp.connection import ServerConnection
from twinbus.server.broker.directory import keys
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.broker.host import Host
from twinbus.server.broker.namespace import Namespace
from twinbus.server.setup.namespaces import set_up
from twinbus.store.base import (
    Lock,
    SessionGrant,
    id_of,
)
from twinbus.store.received import AlikeStored, ReceivedMessages
from twinbus.store.records import AlikeRecords, Record
from twinbus.store.sqlite.store import SqliteStore
from twinbus.wire.message.sections import parse

HOST = "127.0.0.1"
NAME = "limit"
# More than a receiver may have on its way, so that no two of its locks are the same.
_ROWS = 10_000
# Messages that a store keeps together.
_TOGETHER = limits.PACK_MESSAGES_MAX


class NullStore(SqliteStore):
    """A store in memory until `switch_off`; then nothing is kept any more."""

    off = False

    def switch_off(self, container: int) -> None:
        """Keep nothing from now on; receivers of the container get prepared rows."""
        self.off = True
        message = parse(next(iter(messages(1, BODY_BYTES))))
        bares = message.bare * _TOGETHER
        sizes = [len(message.bare)] * _TOGETHER
        self._parts = [
            AlikeStored(key, 0, None, message.head(), sizes, bares)
            for key in range(id_of(container, 1), id_of(container, _ROWS), _TOGETHER)
        ]
        self._next_part = 0
        self._in = 0
        self._out = 0

    def begin(self) -> None:
        if not self.off:
            super().begin()

    def seal(self) -> None:
        if not self.off:
            super().seal()

    def commit(self) -> None:
        if not self.off:
            super().commit()

    def checkpoint(self) -> None:
        """Nothing was kept."""

    def begin_part(self) -> int:
        return 0 if self.off else super().begin_part()

    def end_part(self) -> None:
        if not self.off:
            super().end_part()

    def append(self, container: int, records: Sequence[Record], now: Now) -> int:
        del container, now
        first = self._in + 1
        self._in += len(records)
        return first

    def append_alike(
        self, container: int, groups: Sequence[AlikeRecords], now: Now
    ) -> int:
        del container, now
        first = self._in + 1
        self._in += sum(len(each.sizes) for each in groups)
        return first

    def lock(
        self,
        container: int,
        limit: int,
        until_ms: int,
        now: Now,
        session: SessionGrant | None = None,
    ) -> tuple[int, ReceivedMessages]:
        del container, until_ms, now, session
        received = ReceivedMessages()
        left = min(limit, self._in - self._out)
        while left:
            part = self._parts[self._next_part]
            self._next_part = (self._next_part + 1) % len(self._parts)
            count = min(left, _TOGETHER)
            sizes = part.sizes[:count]
            bares = part.bares[: sum(sizes)]
            received.add_alike(part._replace(sizes=sizes, bares=bares))
            left -= count
        self._out += len(received)
        return 1, received

    def complete(self, locks: Sequence[Lock], now: Now) -> list[bool]:
        del now
        return [True] * len(locks)

    def touch(self, container: int, now: Now) -> None:
        del container, now

    def forget_duplicates(self, now: Now, limit: int) -> int:
        del now, limit
        return 0

    def next_wait_ms(self, now: Now) -> int | None:
        del now
        return None


async def _serve() -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    store = NullStore.memory()
    namespace = Namespace(NAME, store)
    clock = SystemClock()
    config = NamespaceConfig(NAME, queues=(QueueDescription(QUEUE),))
    set_up(namespace.shards, config, clock.now())
    rules = keys.with_dev_key(keys.load_rules(store), keys.DOCUMENTED_KEY)
    entity = namespace.entities.find(QUEUE)
    assert entity is not None
    store.switch_off(entity.id)
    host = Host(namespace, clock)
    namespace.dev_key = keys.DOCUMENTED_KEY
    port = NamespacePort(host)
    server = await loop.create_server(lambda: ServerConnection(port), HOST, 0)
    root = keys.find_rule(rules, keys.ROOT_RULE_NAME)
    number = server.sockets[0].getsockname()[1]
    text = format_connection_string(HOST, number, root.name, root.primary_key, dev=True)
    gc.collect()
    gc.freeze()
    gc.set_threshold(limits.SERVER_GC_OBJECTS)
    described = {"connection_string": text, "amqp_port": number}
    print(json.dumps({"ready": True, "namespaces": {NAME: described}}), flush=True)
    await stopped.wait()
    server.close()
    # Nothing was kept, so there is nothing to finish.
    os._exit(0)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve())
