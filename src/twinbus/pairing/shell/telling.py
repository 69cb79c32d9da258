"""How a pair reports what it does: callback, iterators, log and metrics.

Owns who is told: an event reaches all of them in the order in which things happened. A
callback that raises is the application's defect: it is logged, and the pair goes on. An
iterator that is not read keeps the latest events and drops the oldest. The metrics of
all pairs of the process are in Prometheus's default registry: events are counted when
they happen, everything else is read from the pairs when it is scraped, so that a send
costs nothing.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from twinbus import limits
from twinbus.pairing.events import PairingEvent

if TYPE_CHECKING:
    from twinbus.pairing.shell.counting import FactoryLedger
    from twinbus.pairing.shell.pair import Pair
    from twinbus.pairing.shell.reporting import EventReporter

EVENTS = Counter(
    "twinbus_pairing_events",
    "What happened to the entities and backlog queues of a pair.",
    ("primary", "path", "event"),
)
_pairs: weakref.WeakSet[Pair] = weakref.WeakSet()


def remember(pair: Pair) -> None:
    """A pair is at work: show it."""
    _pairs.add(pair)


def forget(pair: Pair) -> None:
    """A pair has ended."""
    _pairs.discard(pair)


class _Pairs(Collector):
    """What the pairs of the process are doing now."""

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        state = GaugeMetricFamily(
            "twinbus_pairing_failed_over",
            "1 from the failover of an entity until a send to it is accepted.",
            labels=("primary", "path"),
        )
        probation = GaugeMetricFamily(
            "twinbus_pairing_probation",
            "1 while an entity has failed back and no send was accepted yet.",
            labels=("primary", "path"),
        )
        held = GaugeMetricFamily(
            "twinbus_pairing_held_sends",
            "Sends that wait for an entity that does not answer.",
            labels=("primary", "path"),
        )
        diverted = CounterMetricFamily(
            "twinbus_pairing_diverted_messages",
            "Messages for an entity that a backlog queue has taken.",
            labels=("primary", "path"),
        )
        usable = GaugeMetricFamily(
            "twinbus_pairing_backlog_queue_usable",
            "1 while a backlog queue is sent to.",
            labels=("primary", "path"),
        )
        kept = GaugeMetricFamily(
            "twinbus_pairing_outbox_messages",
            "Messages in the local outbox of a pair.",
            labels=("primary",),
        )
        oldest = GaugeMetricFamily(
            "twinbus_pairing_outbox_oldest_seconds",
            "For how long the oldest message has been in the local outbox.",
            labels=("primary",),
        )
        for pair in list(_pairs):
            status = pair.status()
            for entity in status.entities:
                labels = (pair.label, entity.path)
                state.add_metric(labels, entity.is_failed_over)
                probation.add_metric(labels, entity.state == "probation")
                held.add_metric(labels, entity.held)
                diverted.add_metric(labels, entity.diverted)
            for queue in status.backlog_queues:
                usable.add_metric((pair.label, queue.path), queue.usable)
            if status.outbox is not None:
                kept.add_metric((pair.label,), status.outbox.messages)
                oldest.add_metric((pair.label,), status.outbox.oldest_seconds)
        return (state, probation, held, diverted, usable, kept, oldest)


REGISTRY.register(_Pairs())


_LOGGER = logging.getLogger("twinbus.pairing")


class Listener:
    """One iterator over events. Reads what comes after it was made."""

    def __init__(self, forget: Callable[[Listener], None]) -> None:
        self._forget = forget
        self._waiting: deque[PairingEvent] = deque(maxlen=limits.EVENTS_KEPT_MAX)
        self._news = asyncio.Event()
        self._ended = False

    def put(self, event: PairingEvent) -> None:
        self._waiting.append(event)
        self._news.set()

    def end(self) -> None:
        """There will be no more."""
        self._ended = True
        self._news.set()

    def __aiter__(self) -> AsyncIterator[PairingEvent]:
        return self

    async def __anext__(self) -> PairingEvent:
        while not self._waiting:
            if self._ended:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._waiting.popleft()

    async def aclose(self) -> None:
        """The reader has ended."""
        self.end()
        self._forget(self)


class Telling:
    """Tells what happens in one pair."""

    def __init__(
        self, primary: str, callback: Callable[[PairingEvent], object] | None
    ) -> None:
        self._primary = primary
        self._callback = callback
        self._listeners: list[Listener] = []
        self._ended = False
        # Where events are kept; None without a ledger.
        self.ledger: FactoryLedger | None = None
        # Sends events to the secondary; None if they are not reported.
        self.reporter: EventReporter | None = None

    def tell(self, event: PairingEvent) -> None:
        """An event has happened."""
        EVENTS.labels(self._primary, event.path, event.kind.value).inc()
        _LOGGER.log(logging.getLevelNamesMapping()[event.level], "%s", event.text)
        if self.ledger is not None:
            self.ledger.tell(event)
        if self.reporter is not None:
            self.reporter.tell(event)
        for listener in self._listeners:
            listener.put(event)
        if self._callback is not None:
            try:
                self._callback(event)
            except Exception:
                _LOGGER.exception("on_event raised.")

    def events(self) -> Listener:
        """Events from now on."""
        listener = Listener(self._listeners.remove)
        if self._ended:
            listener.end()
        self._listeners.append(listener)
        return listener

    def end(self) -> None:
        """The pair is closed."""
        self._ended = True
        for listener in self._listeners:
            listener.end()
