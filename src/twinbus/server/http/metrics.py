"""`/metrics`: what a namespace counts, as Prometheus reads it.

Owns the names of the metrics and the text that they are written in. Counters are plain
integers on the objects that count (`Entity`, `Host`). Those of entities are read in a
turn, all at once; the text is written in a thread and serves all scrapes of a second,
so that it costs clients of a namespace with many entities no wait.

Names of entities are not public, so a remote scraper needs the right to read the
namespace (Manage); one on the same machine does not. A request that a proxy has
forwarded comes from elsewhere, also if the proxy runs on this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from twinbus import limits
from twinbus.core.names import EntityPath, SubQueue
from twinbus.core.rights import Operation
from twinbus.errors import StoreFault, Unauthorized
from twinbus.server.access.port import NamespacePort, is_loopback
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.directory.placement import hosts_of
from twinbus.server.broker.host import Host
from twinbus.server.broker.load.counters import Histogram
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.server.http.auth import Asked, admitted
from twinbus.server.http.cached import Cached
from twinbus.server.http.strangers import TooManyRequests, refusal
from twinbus.store.base import Store

_NAMESPACE = EntityPath("")
_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Counters of an entity: the metric, what it says, where it is read.
_COUNTED: tuple[tuple[str, str, Callable[[Entity], int]], ...] = (
    ("messages_in", "Messages accepted.", lambda e: e.received),
    ("messages_out", "Messages delivered.", lambda e: e.delivered),
    ("messages_completed", "Messages completed.", lambda e: e.completed),
    ("messages_dead_lettered", "Messages dead-lettered.", lambda e: e.dead_lettered),
    ("messages_expired", "Messages that expired.", lambda e: e.expired),
    ("messages_throttled", "Messages refused as too many.", lambda e: e.throttled),
    ("messages_unfiltered", "Messages on which a rule failed.", lambda e: e.unfiltered),
    ("pings", "Pings answered; they are never stored.", lambda e: e.pings),
)

# Labels and a value. No name has a character that would have to be escaped.
Sample = tuple[str, float]


class EntityFigures(NamedTuple):
    """What is counted of one entity."""

    # Which entity: `entity="orders",kind="queue"`.
    labels: str
    # Messages by state, and the bytes of all of them.
    held: dict[str, int]
    size_bytes: int
    # In the order of `_COUNTED`.
    counted: list[int]
    # Denied because of load, by facet.
    denied: dict[str, int]


def count_entities(namespace: Namespace, turn: Turn) -> list[EntityFigures]:
    """Read the figures of all entities (`turn.Command`)."""
    del turn
    store = namespace.store
    return [_figures(store, entity) for entity in namespace.entities]


def _figures(store: Store, entity: Entity) -> EntityFigures:
    main = store.counts(entity.id)
    dead = store.counts(entity.container(SubQueue.DEAD_LETTER))
    transfer = store.counts(entity.container(SubQueue.TRANSFER_DEAD_LETTER))
    held = {
        "active": main.active,
        "scheduled": main.scheduled,
        "deferred": main.deferred,
        "dead_letter": dead.active + dead.deferred,
        "transfer_dead_letter": transfer.active + transfer.deferred,
    }
    return EntityFigures(
        f'entity="{entity.name}",kind="{entity.kind}"',
        held,
        main.size_bytes + dead.size_bytes + transfer.size_bytes,
        [read(entity) for _name, _text, read in _COUNTED],
        # The rate is a facet of the entity itself.
        {"rate": entity.throttled, **entity.denied},
    )


def merged(entities: Iterable[EntityFigures]) -> list[EntityFigures]:
    """One of each entity: the fragments of a partitioned one are added up."""
    found: dict[str, EntityFigures] = {}
    for each in entities:
        known = found.get(each.labels)
        found[each.labels] = each if known is None else _sum(known, each)
    return list(found.values())


def _sum(one: EntityFigures, other: EntityFigures) -> EntityFigures:
    return EntityFigures(
        one.labels,
        {state: count + other.held[state] for state, count in one.held.items()},
        one.size_bytes + other.size_bytes,
        [sum(each) for each in zip(one.counted, other.counted, strict=True)],
        dict(Counter(one.denied) + Counter(other.denied)),
    )


class HistogramFigures(NamedTuple):
    """The figures of one histogram."""

    buckets: list[tuple[float, int]]
    total: float

    @classmethod
    def of(cls, values: Histogram) -> HistogramFigures:
        return cls(list(values.cumulative()), values.total)


@dataclass(frozen=True, slots=True)
class ShardFigures:
    """What is counted of a shard as a whole."""

    entities: int
    pending_bytes: int
    quarantined: int
    store_up: bool
    outbox_rows: int
    spool_rows: int
    spool_age_seconds: float
    turns: int
    turn_commands: HistogramFigures
    turn_seconds: HistogramFigures
    commit_seconds: HistogramFigures
    # As `Load.figures`.
    load: dict[str, Any]

    @classmethod
    def of(cls, host: Host) -> ShardFigures:
        """The figures of now."""
        store, spool = host.namespace.store, host.spool
        return cls(
            len(host.namespace.entities),
            host.pending.size_bytes,
            store.quarantined(),
            host.fault is None,
            sum(each.rows for each in store.outbox().values()),
            0 if spool is None else spool.rows,
            0.0 if spool is None else spool.age_seconds,
            host.turns,
            HistogramFigures.of(host.turn_commands),
            HistogramFigures.of(host.turn_seconds),
            HistogramFigures.of(host.commit_seconds),
            host.load.figures(),
        )


@dataclass(frozen=True, slots=True)
class NamespaceFigures:
    """What is counted of a namespace as a whole."""

    name: str
    connections: int
    shards: list[ShardFigures]
    # Rows of the ledger that were written and dropped; None without a ledger.
    ledger: tuple[int, int] | None

    @classmethod
    def of(cls, port: NamespacePort) -> NamespaceFigures:
        """The figures of now."""
        hosts = hosts_of(port.host)
        shards = [ShardFigures.of(each) for each in hosts]
        kept = port.ledger
        ledger = None if kept is None else (kept.rows_written, kept.rows_dropped)
        return cls(port.host.namespace.name, len(port.connections), shards, ledger)

    def labelled(self) -> list[tuple[str, ShardFigures]]:
        """Each shard with its labels; the only one needs no number."""
        label = f'namespace="{self.name}"'
        if len(self.shards) == 1:
            return [(label, self.shards[0])]
        return [(f'{label},shard="{k}"', each) for k, each in enumerate(self.shards)]


# What is told of each shard.
_OF_SHARDS = (
    ("entities", "gauge", "Queues, topics and subscriptions."),
    ("pending_bytes", "gauge", "Bytes that wait for a turn."),
    ("messages_quarantined", "gauge", "Messages that cannot be read, set aside."),
    ("store_up", "gauge", "0 while the store accepts nothing."),
    ("outbox_rows", "gauge", "What waits for other shards."),
    ("spool_rows", "gauge", "Messages that another shard keeps for this one."),
    ("spool_age_seconds", "gauge", "How long another shard has kept them."),
    ("turns_total", "counter", "Turns: transactions begun."),
)
_OF_LEDGER = (
    ("ledger_rows_written_total", "Rows of the ledger that are in its files."),
    ("ledger_rows_dropped_total", "Rows of the ledger that could not be kept."),
)
_LOAD_OF_SHARDS = (
    ("value", "What throttling goes by: seconds or bytes."),
    ("level", "1 while entities above their share are denied, 2 while all are."),
)
_TIMES_OF_SHARDS = (
    ("turn_commands", "Commands that shared a turn."),
    ("turn_seconds", "From a turn's start to its replies."),
    ("commit_seconds", "How long commits took."),
)

# -- the text ------------------------------------------------------------------------


def _family(
    name: str, kind: str, text: str, samples: Iterable[Sample]
) -> Iterator[str]:
    yield f"# HELP twinbus_{name} {text}\n# TYPE twinbus_{name} {kind}"
    for labels, value in samples:
        yield f"twinbus_{name}{{{labels}}} {float(value)}"


def _histogram(
    name: str, text: str, labelled: Iterable[tuple[str, HistogramFigures]]
) -> Iterator[str]:
    yield from _family(name, "histogram", text, ())
    for label, values in labelled:
        for bound, count in values.buckets:
            le = "+Inf" if bound == math.inf else repr(float(bound))
            yield f'twinbus_{name}_bucket{{le="{le}",{label}}} {float(count)}'
        yield f"twinbus_{name}_count{{{label}}} {float(values.buckets[-1][1])}"
        yield f"twinbus_{name}_sum{{{label}}} {float(values.total)}"


def _entity_lines(entities: Iterable[EntityFigures], label: str) -> Iterator[str]:
    labelled = [(f"{each.labels},{label}", each) for each in entities]
    held = (
        (f'{labels},state="{state}"', count)
        for labels, each in labelled
        for state, count in each.held.items()
    )
    yield from _family("messages", "gauge", "Messages held, by state.", held)
    sizes = ((labels, each.size_bytes) for labels, each in labelled)
    yield from _family("size_bytes", "gauge", "Bytes held.", sizes)
    for place, (name, text, _read) in enumerate(_COUNTED):
        counts = [(labels, each.counted[place]) for labels, each in labelled]
        yield from _family(f"{name}_total", "counter", text, counts)
    denied = (
        (f'facet="{facet}",{labels}', count)
        for labels, each in labelled
        for facet, count in each.denied.items()
    )
    text = "Messages denied, by facet; a batch that was not read counts as one."
    yield from _family("messages_denied_total", "counter", text, denied)


def _namespace_lines(figures: NamespaceFigures) -> Iterator[str]:
    connections = [(f'namespace="{figures.name}"', figures.connections)]
    yield from _family("connections", "gauge", "AMQP connections.", connections)
    for place, (name, text) in enumerate(_OF_LEDGER if figures.ledger else ()):
        assert figures.ledger is not None
        rows = [(f'namespace="{figures.name}"', figures.ledger[place])]
        yield from _family(name, "counter", text, rows)
    shards = figures.labelled()
    for name, kind, text in _OF_SHARDS:
        field = name.removesuffix("_total").removeprefix("messages_")
        samples = [(label, getattr(each, field)) for label, each in shards]
        yield from _family(name, kind, text, samples)
    for figure, text in _LOAD_OF_SHARDS:
        measured = [
            (f'facet="{facet}",{label}', each[figure])
            for label, shard in shards
            for facet, each in shard.load["facets"].items()
        ]
        yield from _family(f"throttle_{figure}", "gauge", text, measured)
    for name, text in _TIMES_OF_SHARDS:
        values = [(label, getattr(each, name)) for label, each in shards]
        yield from _histogram(name, text, values)


def write_text(figures: NamespaceFigures, entities: Iterable[EntityFigures]) -> str:
    """All figures in the text format of Prometheus."""
    label = f'namespace="{figures.name}"'
    lines = [*_entity_lines(merged(entities), label), *_namespace_lines(figures)]
    return "\n".join(lines) + "\n"


# -- the route -----------------------------------------------------------------------


class Scrapes:
    """The metrics of one namespace."""

    def __init__(
        self,
        port: NamespacePort,
        cached_seconds: float = limits.METRICS_CACHED_SECONDS,
    ) -> None:
        self._port = port
        # The last figures of each shard's entities.
        self._entities: dict[int, list[EntityFigures]] = {}
        self._text = Cached(self._write, cached_seconds)

    async def text(self) -> str:
        """The text of a scrape; while the store does not answer, with old counts."""
        return await asyncio.shield(self._text.task())

    async def _write(self) -> str:
        # First, so that the turn of the scrape itself is not among the turns.
        figures = NamespaceFigures.of(self._port)
        hosts = hosts_of(self._port.host)
        await asyncio.gather(*(self._count(k, host) for k, host in enumerate(hosts)))
        entities = [each for k in sorted(self._entities) for each in self._entities[k]]
        return await asyncio.to_thread(write_text, figures, entities)

    async def _count(self, shard: int, host: Host) -> None:
        with contextlib.suppress(StoreFault, TimeoutError):
            async with asyncio.timeout(limits.METRICS_SECONDS_MAX):
                self._entities[shard] = await host.run(count_entities)


def metrics_route(port: NamespacePort) -> Route:
    """`GET /metrics`."""
    scrapes = Scrapes(port)

    async def answer(request: Request) -> Response:
        try:
            _admit(port, request)
        except TooManyRequests as error:
            return refusal(error)
        except Unauthorized as error:
            return PlainTextResponse(f"{error.text}\n", 401)
        return Response(await scrapes.text(), headers={"Content-Type": _TYPE})

    return Route("/metrics", answer, methods=["GET"])


def _admit(port: NamespacePort, request: Request) -> None:
    client = request.client
    is_forwarded = any(
        name == "forwarded" or name.startswith("x-forwarded-")
        for name in request.headers
    )
    if client is not None and is_loopback(client.host) and not is_forwarded:
        return
    authority = request.headers.get("host", "")
    asked = Asked(Operation.READ_NAMESPACE, _NAMESPACE, "metrics", authority)
    admitted(request, asked, port, port.host)
