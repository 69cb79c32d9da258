"""Spark: queues, topics and subscriptions as DataFrames; the syphon and reports.

Owns everything that runs inside Spark. `source/` and `sink/` are the two halves of
`format("servicebus")`; `syphon_job/` is the job that moves a backlog to the primary,
started by the function `syphon`; `reports/` has what ledgers show; `options.py` and
`connections.py` are what all jobs share. PySpark is an extra: nothing outside this
folder imports it, and this file only when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twinbus.spark.syphon_job.job import syphon

__all__ = ["syphon"]


def __getattr__(name: str) -> Any:
    if name == "syphon":
        from twinbus.spark.syphon_job.job import syphon

        return syphon
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
