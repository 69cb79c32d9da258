"""Prometheus metrics of all pairs in the process, in the default registry.

Events are counted when they are told. Everything else is read from the pairs when
somebody asks, so that a send pays nothing for it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from twinbus.pairing.shell.pair import Pair

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
            "1 while sends to an entity go to the backlog.",
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
        for pair in list(_pairs):
            status = pair.status()
            for entity in status.entities:
                labels = (pair.label, entity.path)
                state.add_metric(labels, entity.state == "failed over")
                held.add_metric(labels, entity.held)
                diverted.add_metric(labels, entity.diverted)
            for queue in status.backlog_queues:
                usable.add_metric((pair.label, queue.path), queue.usable)
        return (state, held, diverted, usable)


REGISTRY.register(_Pairs())
