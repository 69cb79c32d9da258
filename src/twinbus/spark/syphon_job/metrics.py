"""A syphon's progress as Prometheus metrics.

    spark.streams.addListener(SyphonMetrics(registry))

Spark tells a listener after every micro-batch; what it tells of other queries is passed
over. Names begin with `twinbus_syphon_`. Labels are backlog queues and entities, never
anything out of a message.
"""

from __future__ import annotations

import json
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

_OUTCOMES = ("moved", "skipped", "dead_lettered", "pings")


class SyphonMetrics(StreamingQueryListener):
    """Counts what syphons do, in a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._messages = Counter(
            "twinbus_syphon_messages",
            "Messages that left a backlog queue, by what became of them.",
            ("queue", "outcome"),
            registry=registry,
        )
        self._redelivered = Counter(
            "twinbus_syphon_redelivered",
            "Messages that came from a backlog queue more than once.",
            ("queue",),
            registry=registry,
        )
        self._bytes = Counter(
            "twinbus_syphon_bytes",
            "Bytes of messages that the primary has taken.",
            ("destination",),
            registry=registry,
        )
        self._resting = Gauge(
            "twinbus_syphon_destination_resting",
            "1 while an entity of the primary takes nothing.",
            ("destination",),
            registry=registry,
        )
        self._depth = Gauge(
            "twinbus_syphon_depth",
            "Messages that are left in a backlog queue, at most.",
            ("index",),
            registry=registry,
        )

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to count yet."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing has changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """What was counted stays."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Add a micro-batch."""
        observed = event.progress.observedMetrics.get("syphon")
        if observed is None:
            return
        for task in observed["tasks"] or ():
            self._add(task)
        for source in event.progress.sources:
            told = json.loads(source.latestOffset or "{}") or {}
            for index, depth in told.get("depth", {}).items():
                self._depth.labels(index).set(depth)

    def _add(self, task: Any) -> None:
        for outcome in _OUTCOMES:
            self._messages.labels(task["queue"], outcome).inc(task[outcome])
        self._redelivered.labels(task["queue"]).inc(task["redelivered"])
        for path, each in (task["destinations"] or {}).items():
            self._bytes.labels(path).inc(each["moved_bytes"])
            self._resting.labels(path).set(each["state"] != "ok")
