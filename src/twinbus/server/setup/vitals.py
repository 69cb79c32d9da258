"""What a server measures, as the JSON that its black box keeps.

Owns which figures these are: of the process, of each namespace, and the counts of its
entities, which are read in a turn like everything else. While a store does not answer,
the last counts stand beside the figures of now. Names of entities are in it; messages,
keys, sessions and clients are not.
"""

from __future__ import annotations

import asyncio
import json
import resource
from contextlib import suppress
from functools import partial
from itertools import islice
from time import time
from typing import Any

from twinbus import limits
from twinbus.core.names import SubQueue
from twinbus.errors import TwinbusError
from twinbus.server.access.port import NamespacePort
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.directory.placement import hosts_of
from twinbus.server.broker.host import Host
from twinbus.server.broker.load.counters import Histogram
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.server.setup.black_box import time_text
from twinbus.server.setup.server import Server
from twinbus.store.base import Store

_COUNTERS = (
    "received",
    "delivered",
    "completed",
    "dead_lettered",
    "expired",
    "throttled",
    "unfiltered",
    "pings",
)

Counts = dict[str, dict[str, int | str]]


class Vitals:
    """The figures of a server; asked for every second."""

    def __init__(self, server: Server) -> None:
        self._server = server
        # The last counts of each shard, and who reads the next ones of each namespace.
        self._counts: dict[tuple[str, int], Counts] = {}
        self._readers: dict[str, asyncio.Task[None]] = {}

    def text(self) -> bytes:
        """The figures of now, with the last counts."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        ports = self._server.ports
        entities = sum(map(_count_entities, ports.values()))
        found = {
            "time": time_text(time()),
            "process": {
                "resident_kib_max": used.ru_maxrss,
                "user_seconds": used.ru_utime,
                "system_seconds": used.ru_stime,
            },
            "namespaces": {name: self._namespace(name) for name in ports},
            "entities_left_out": max(0, entities - limits.VITALS_ENTITIES_MAX),
        }
        self._read_next()
        return json.dumps(found).encode()

    def _namespace(self, name: str) -> dict[str, Any]:
        port = self._server.ports[name]
        counts: Counts = {}
        for number in range(len(hosts_of(port.host))):
            for entity, each in self._counts.get((name, number), {}).items():
                known = counts.get(entity)
                counts[entity] = each if known is None else _sum(known, each)
        return {**_figures(port), "counts": counts}

    def _read_next(self) -> None:
        room = limits.VITALS_ENTITIES_MAX
        for name, port in self._server.ports.items():
            if name not in self._readers or self._readers[name].done():
                reading = self._read(name, port, room)
                self._readers[name] = asyncio.ensure_future(reading)
            room = max(0, room - _count_entities(port))

    async def _read(self, name: str, port: NamespacePort, most: int) -> None:
        for number, host in enumerate(hosts_of(port.host)):
            # A store that has stopped keeps its last counts.
            with suppress(TwinbusError):
                counts = await host.run(partial(_read_counts, most=max(most, 0)))
                self._counts[name, number] = counts
            most -= len(host.namespace.entities)


def _sum(
    one: dict[str, int | str], other: dict[str, int | str]
) -> dict[str, int | str]:
    """What two fragments of a partitioned entity count together."""
    found = dict(one)
    for name, value in other.items():
        count = found[name]
        if isinstance(count, int) and isinstance(value, int):
            found[name] = count + value
    return found


def _count_entities(port: NamespacePort) -> int:
    return sum(len(host.namespace.entities) for host in hosts_of(port.host))


def _figures(port: NamespacePort) -> dict[str, Any]:
    hosts = hosts_of(port.host)
    figures = {
        "entities": _count_entities(port),
        "connections": len(port.connections),
        "connections_unclaimed": len(port.unclaimed),
        **_shard(port.host),
    }
    if len(hosts) > 1:
        figures["shards"] = [_shard(host) for host in hosts]
    return figures


def _shard(host: Host) -> dict[str, Any]:
    return {
        "pending_bytes": host.pending.size_bytes,
        "fault": host.fault.text if host.fault else None,
        "defects": dict(host.namespace.defects),
        "turns": host.turns,
        "load": host.load.figures(),
        "turn_commands": _histogram(host.turn_commands),
        "turn_seconds": _histogram(host.turn_seconds),
        "commit_seconds": _histogram(host.commit_seconds),
    }


def _histogram(values: Histogram) -> dict[str, Any]:
    at_most = {str(bound): count for bound, count in values.cumulative()}
    return {"total": values.total, "at_most": at_most}


def _read_counts(namespace: Namespace, turn: Turn, most: int) -> Counts:
    """What entities hold and have counted (`turn.Command`)."""
    del turn
    some = islice(namespace.entities, most)
    return {entity.name: _entity(namespace.store, entity) for entity in some}


def _entity(store: Store, entity: Entity) -> dict[str, int | str]:
    main = store.counts(entity.id)
    dead = store.counts(entity.container(SubQueue.DEAD_LETTER))
    transfer = store.counts(entity.container(SubQueue.TRANSFER_DEAD_LETTER))
    return {
        "kind": entity.kind,
        "active": main.active,
        "deferred": main.deferred,
        "scheduled": main.scheduled,
        "dead_letter": dead.active + dead.deferred,
        "transfer_dead_letter": transfer.active + transfer.deferred,
        "size_bytes": main.size_bytes + dead.size_bytes + transfer.size_bytes,
        **{name: getattr(entity, name) for name in _COUNTERS},
    }


__all__ = ["Vitals"]
