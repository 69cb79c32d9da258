"""Reports about ledgers: what was used, what it cost, and which outages there were.

Read `files.py` (which files of a ledger can be read), `tables.py` (them as DataFrames,
and the words of a report), `daily.py` (the aggregates of a day), `kept.py` (aggregates
that are kept, a day replaced whole), `outages.py` (outages found in events and rates),
`measures.py` (what each did) and `job.py` (a report as plain values).

For notebooks:

    from twinbus.spark.reports import aggregates, find_outages, read_ledger

    ledger = read_ledger(spark, ["/data/ledger"])
    found = aggregates(ledger.operations)
    found.by_entity.groupBy("day", "stage").sum("operations").show()
    find_outages(found, ledger.events).show()

Spark SQL without Python functions. Must not know prices, pages or terminals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twinbus.spark.reports.daily import aggregates
    from twinbus.spark.reports.measures import find_outages
    from twinbus.spark.reports.tables import read_ledger

__all__ = ["aggregates", "find_outages", "read_ledger"]

_PLACES = {
    "aggregates": "daily",
    "find_outages": "measures",
    "read_ledger": "tables",
}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
