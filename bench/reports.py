"""A report on Spark beside DuckDB, over the same files.

Owns the figures `report_*`. Made-up ledgers of three sizes; both sides compute the same
three aggregates of all rows, write them as Parquet, and their results are compared row
by row, which is not timed. Each side runs in a process of its own, `reports_worker.py`,
so that its peak memory is its own: for Spark, that of Java and of Python together.
"""

# Queries are put together from texts of this file and of folders that the bench makes.
# ruff: noqa: S608

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb

from bench.figures import Results
from bench.plan import Plan
from bench.processes import running
from twinbus.ledger.synthetic.traffic import SyntheticPlan
from twinbus.ledger.synthetic.writing import write_synthetic

TABLES = ("by_entity", "by_minute", "signals")


class ResultsDiffer(Exception):
    """Spark and DuckDB have computed different rows."""


def reports(plan: Plan, results: Results) -> None:
    """Measure the figures of this file."""
    seconds: dict[int, float] = {}
    for rows in plan.report_rows:
        folder = plan.folder / f"reports-{rows}"
        days = min(365, max(20, rows // 20_000))
        write_synthetic(SyntheticPlan(rows, days=days), folder / "ledger")
        took = {side: _measured(folder, side) for side in ("spark", "duckdb")}
        for table in TABLES:
            _compare(folder, table)
        size = f"{rows // 1_000_000}m" if rows >= 1_000_000 else str(rows)
        for side, (spent, peak_mib) in took.items():
            results.add(f"report_{side}_{size}_rows_per_second", [rows / spent])
            results.add(f"report_{side}_{size}_peak_mib", [peak_mib])
            print(f"  {side} {size}: {spent:.1f} s, {peak_mib:.0f} MiB", flush=True)
        # Of the largest size, which comes last.
        results.ratio("report_vs_duckdb", [took["duckdb"][0]], [took["spark"][0]])
        seconds[rows] = took["spark"][0]
        shutil.rmtree(folder)
    least, most = min(seconds), max(seconds)
    # 1 is linear; more is worse.
    grown = (seconds[most] / seconds[least]) / (most / least)
    results.add("report_growth_vs_linear", [grown])


def _measured(folder: Path, side: str) -> tuple[float, float]:
    log = folder / f"{side}.log"
    with running(log, "bench.reports_worker", side, str(folder)) as child:
        answer = child.ask()
    return float(answer["seconds"]), float(answer["peak_mib"])


def _compare(folder: Path, table: str) -> None:
    """Every row of one is a row of the other."""
    sides = [f"'{folder}/{side}/{table}/**/*.parquet'" for side in ("spark", "duckdb")]
    columns = _columns(sides[0])
    for one, other in (sides, sides[::-1]):
        query = " except all ".join(
            f"select {columns} from read_parquet({files}, hive_partitioning = true)"
            for files in (one, other)
        )
        with duckdb.connect() as database:
            database.execute("set memory_limit = '3GB'")
            database.execute(f"set temp_directory = '{folder}/spill'")
            found = database.execute(f"select count(*) from ({query})").fetchone()
        if found is None or found[0]:
            raise ResultsDiffer(table, found)


def _columns(files: str) -> str:
    """The columns of a table in one order and with one type each, for comparing."""
    with duckdb.connect() as database:
        query = (
            f"describe select * from read_parquet({files}, hive_partitioning = true)"
        )
        kinds = {name: kind for name, kind, *_ in database.execute(query).fetchall()}
    casts = {"minute": "epoch_us(minute)", "day": "cast(day as varchar)"}
    return ", ".join(casts.get(name, f'"{name}"') for name in sorted(kinds))
