"""`/metrics`: what a namespace counts, as Prometheus reads it.

Owns the names of the metrics. Nothing is kept here: counters are plain integers on the
objects that count (`Entity`, `Host`), and a scrape reads them. The library is loaded by
the first scrape, since most servers never see one.

Names of entities are not public, so a remote scraper needs the right to read the
namespace; one on the same machine does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from twinbus.core.names import EntityPath, SubQueue
from twinbus.core.rights import Operation
from twinbus.errors import EntityNotFound, Unauthorized
from twinbus.server.access.port import NamespacePort, is_loopback
from twinbus.server.broker.counters import Histogram
from twinbus.server.broker.entities import Entity
from twinbus.server.http.auth import Asked, admitted
from twinbus.store.base import Store

if TYPE_CHECKING:
    from prometheus_client import Metric

_NAMESPACE = EntityPath("")
_LIBRARY = "prometheus_client"

# Counters of an entity: the metric, what it says, where it is read.
_COUNTED: tuple[tuple[str, str, Callable[[Entity], int]], ...] = (
    ("messages_in", "Messages accepted.", lambda e: e.received),
    ("messages_out", "Messages delivered.", lambda e: e.delivered),
    ("messages_completed", "Messages completed.", lambda e: e.completed),
    ("messages_dead_lettered", "Messages dead-lettered.", lambda e: e.dead_lettered),
    ("messages_expired", "Messages that expired.", lambda e: e.expired),
    ("messages_throttled", "Messages refused as too many.", lambda e: e.throttled),
    ("pings", "Pings answered; they are never stored.", lambda e: e.pings),
)


class Exposition:
    """One namespace, as a collector of the library."""

    def __init__(self, port: NamespacePort) -> None:
        self._port = port
        self._host = port.host
        self._name = port.host.namespace.name

    def collect(self) -> Iterator[Metric]:
        """All metrics; called once for each scrape."""
        entities = list(self._host.namespace.entities)
        yield from self._held(entities)
        for name, text, read in _COUNTED:
            values = [(entity, read(entity)) for entity in entities]
            yield self._counter(name, text, values)
        yield from self._namespace(len(entities))

    def _held(self, entities: Iterable[Entity]) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        labels = ["namespace", "entity", "kind"]
        messages = GaugeMetricFamily(
            "twinbus_messages", "Messages held, by state.", labels=[*labels, "state"]
        )
        size = GaugeMetricFamily("twinbus_size_bytes", "Bytes held.", labels=labels)
        for entity in entities:
            key = [self._name, entity.name, entity.kind]
            # It may have been deleted by a turn that is under way.
            with contextlib.suppress(EntityNotFound):
                held, size_bytes = _counts(self._host.namespace.store, entity)
                for state, count in held.items():
                    messages.add_metric([*key, state], count)
                size.add_metric(key, size_bytes)
        yield messages
        yield size

    def _counter(
        self, name: str, text: str, values: Iterable[tuple[Entity, int]]
    ) -> Metric:
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(
            f"twinbus_{name}", text, labels=["namespace", "entity", "kind"]
        )
        for entity, value in values:
            family.add_metric([self._name, entity.name, entity.kind], value)
        return family

    def _namespace(self, entities: int) -> Iterator[Metric]:
        host = self._host
        connections = len(self._port.connections)
        yield self._gauge("entities", "Queues, topics and subscriptions.", entities)
        yield self._gauge("connections", "AMQP connections.", connections)
        yield self._gauge(
            "pending_bytes", "Bytes that wait for a turn.", host.pending_bytes
        )
        yield self._gauge(
            "store_up", "0 while the store accepts nothing.", int(host.fault is None)
        )
        yield from self._turns()

    def _turns(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily

        host = self._host
        turns = CounterMetricFamily(
            "twinbus_turns", "Turns: transactions begun.", labels=["namespace"]
        )
        turns.add_metric([self._name], host.turns)
        yield turns
        yield self._histogram(
            "turn_commands", "Commands that shared a turn.", host.turn_commands
        )
        yield self._histogram(
            "turn_seconds", "From a turn's start to its replies.", host.turn_seconds
        )
        yield self._histogram(
            "commit_seconds", "How long commits took.", host.commit_seconds
        )

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(f"twinbus_{name}", text, labels=["namespace"])
        family.add_metric([self._name], value)
        return family

    def _histogram(self, name: str, text: str, values: Histogram) -> Metric:
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily(f"twinbus_{name}", text, labels=["namespace"])
        buckets = [
            ("+Inf" if le == math.inf else repr(float(le)), count)
            for le, count in values.cumulative()
        ]
        family.add_metric([self._name], buckets, values.total)
        return family


def _counts(store: Store, entity: Entity) -> tuple[dict[str, int], int]:
    """Messages by state, and the bytes of all of them."""
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
    return held, main.size_bytes + dead.size_bytes + transfer.size_bytes


def expose(port: NamespacePort) -> tuple[bytes, str]:
    """The text of a scrape and its content type."""
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry
    from prometheus_client import generate_latest as write

    # A registry of its own: the library's default one counts the process as well.
    registry = CollectorRegistry(auto_describe=False)
    collector: Any = Exposition(port)
    registry.register(collector)
    return write(registry), CONTENT_TYPE_LATEST


def metrics_route(port: NamespacePort) -> Route:
    """`GET /metrics`."""

    async def answer(request: Request) -> Response:
        try:
            _admit(port, request)
        except Unauthorized as error:
            return PlainTextResponse(f"{error.text}\n", 401)
        # Loading takes some time, which clients of the namespace need not wait for.
        await asyncio.to_thread(importlib.import_module, _LIBRARY)
        text, content_type = expose(port)
        return Response(text, headers={"Content-Type": content_type})

    return Route("/metrics", answer, methods=["GET"])


def _admit(port: NamespacePort, request: Request) -> None:
    client = request.client
    if client is not None and is_loopback(client.host):
        return
    authority = request.headers.get("host", "")
    asked = Asked(Operation.READ_NAMESPACE, _NAMESPACE, "metrics", authority)
    admitted(request, asked, port, port.host)
