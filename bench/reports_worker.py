"""Computes the aggregates of a ledger once, with Spark or with DuckDB.

Run as `python -m bench.reports_worker SIDE FOLDER`. Reads a line, computes, and answers
with the seconds that it took, without the start of Spark, and the peak of its memory.
The SQL is what a user of DuckDB would write instead of our report.
"""

# Queries are put together from texts of this file and of folders that the bench makes.
# ruff: noqa: S608

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import duckdb

from twinbus.cli.spark_session import spark_session
from twinbus.spark.reports.daily import aggregates
from twinbus.spark.reports.job import SPARK_SETTINGS
from twinbus.spark.reports.tables import read_ledger

_PEAK = re.compile(r"VmHWM:\s+(\d+) kB")
_MARK = "'/x-servicebus-transfer/'"
_BACKLOG = f"contains(entity, {_MARK})"
_LABEL = "split_part(lower(namespace), '.', 1)"
_PRIMARY = (
    f"case when {_BACKLOG} then lower(split_part(entity, {_MARK}, 1)) else {_LABEL} end"
)
_ADDED = ", ".join(
    f"sum({name})::bigint as {name}"
    for name in ("operations", "messages", "bytes_in", "bytes_out")
)


def _counted(name: str, test: str) -> str:
    of = "operations" if name == "pings" else "messages"
    return f"sum(case when {test} then {of} else 0 end)::bigint as {name}"


_RATES = ", ".join(
    _counted(name, test)
    for name, test in {
        "sent": f"operation = 'send' and not {_BACKLOG} and outcome = 'accepted' "
        "and source <> 'syphon'",
        "received": f"operation = 'receive' and not {_BACKLOG} "
        "and outcome = 'accepted'",
        "home": f"operation = 'send' and not {_BACKLOG} and outcome = 'accepted' "
        "and source = 'syphon'",
        "failed": f"operation = 'send' and not {_BACKLOG} and outcome = 'failed'",
        "busy": "operation = 'send' and outcome = 'busy'",
        "diverted": f"operation = 'send' and {_BACKLOG} and outcome = 'accepted'",
        "drained": f"operation = 'receive' and {_BACKLOG} and outcome = 'accepted'",
        "pings": "operation = 'ping'",
    }.items()
)
_STAGE = f"""
    case when operation = 'send' then
             case when {_BACKLOG} then 'send to backlog' else 'send to primary' end
         when operation = 'receive' then
             case when {_BACKLOG} then 'receive from backlog'
                  else 'receive from primary' end
         when operation = 'ping' then 'pings'
         when operation = 'poll' then 'empty polls'
         when operation = 'settle' then 'settlements'
         else 'other' end
"""
_QUERIES = {
    "by_entity": f"""
        select *, {_STAGE} as stage, {_LABEL} as label from (
            select day, namespace, source, entity, operation, outcome, {_ADDED},
                   sum(gap_minutes)::bigint as gap_minutes
            from ledger group by all)
    """,
    "by_minute": f"""
        select day, minute, {_PRIMARY} as "primary", source, {_RATES}
        from ledger group by all
    """,
    "signals": f"""
        select day, minute, {_PRIMARY} as "primary", source,
               case when source = 'server' then key else writer end as sender,
               entity, operation, outcome, {_ADDED}
        from ledger
        where (operation in ('send', 'receive') and ({_BACKLOG} or source = 'syphon'))
           or operation = 'ping' or (operation = 'send' and outcome = 'failed')
        group by all
    """,
}


def _spark(folder: Path) -> Callable[[], None]:
    given = {"spark.ui.enabled": "false", "spark.local.dir": str(folder / "local")}
    spark = spark_session("twinbus bench", "local[2]", SPARK_SETTINGS, given)

    def compute() -> None:
        ledger = read_ledger(spark, [str(folder / "ledger")])
        for name, table in aggregates(ledger.operations).tables().items():
            rows = table.repartition("day").write.partitionBy("day")
            rows.parquet(str(folder / "spark" / name))

    return compute


def _duckdb(folder: Path) -> Callable[[], None]:
    def compute() -> None:
        (folder / "duckdb").mkdir()
        with duckdb.connect() as database:
            database.execute("set threads = 2")
            database.execute(f"set temp_directory = '{folder}/spill'")
            database.execute(
                "create view ledger as select * from read_parquet("
                f"'{folder}/ledger/day=*/*.parquet', hive_partitioning = true)"
            )
            for name, query in _QUERIES.items():
                database.execute(
                    f"copy ({query}) to '{folder}/duckdb/{name}' "
                    "(format parquet, partition_by (day))"
                )

    return compute


def _peak_mib() -> float:
    """Of this process and of Java, which is its child."""
    own = Path("/proc/self")
    children = (own / "task" / own.resolve().name / "children").read_text().split()
    found = 0.0
    for place in (own, *(Path("/proc") / pid for pid in children)):
        peak = _PEAK.search((place / "status").read_text())
        found += int(peak[1]) / 1024 if peak else 0
    return found


def main() -> None:
    side, folder = sys.argv[1], Path(sys.argv[2])
    compute = {"spark": _spark, "duckdb": _duckdb}[side](folder)
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        begun = time.monotonic()
        compute()
        seconds = time.monotonic() - begun
        print(json.dumps({"seconds": seconds, "peak_mib": _peak_mib()}), flush=True)


if __name__ == "__main__":
    main()
