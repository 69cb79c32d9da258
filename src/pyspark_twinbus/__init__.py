"""Where Spark looks for data sources by itself: modules named `pyspark_*`.

Owns one name, `DefaultSource`, which makes `format("servicebus")` known to every
session without a call to register it. Everything else is in `twinbus.spark`.
"""

from __future__ import annotations

from twinbus.spark.source.source import ServiceBusSource as DefaultSource

__all__ = ["DefaultSource"]
