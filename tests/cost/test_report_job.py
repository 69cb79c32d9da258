"""A report of a ledger: what cannot be read is named, and days are replaced whole."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.cost.ledgers import DAY, event, row, write
from tests.cost.months import check_report
from twinbus.errors import ConfigError
from twinbus.ledger.schema import METADATA_KEY, OPERATION_COLUMNS, arrow_schema
from twinbus.spark.reports.files import Days, find_files
from twinbus.spark.reports.job import ReportData, ReportPlan, report
from twinbus.spark.reports.kept import Kept

Sums = dict[str, int]
DAMAGED_ROWS = "damaged-000000-00000001"


def sums(found: ReportData) -> Sums:
    """Operations by stage."""
    total: Sums = {}
    for each in found.days:
        total[each["stage"]] = total.get(each["stage"], 0) + each["operations"]
    return total


def without_work(found: ReportData) -> dict[str, Any]:
    """All of a report but how many days had to be computed for it."""
    return {**asdict(found), "computed_days": None}


def plan(folder: Path, kept: Path | None = None) -> ReportPlan:
    return ReportPlan([str(folder)], kept=None if kept is None else str(kept))


def break_files(folder: Path) -> None:
    """Files of every kind that cannot be used, beside the good ones."""
    host = "contoso.servicebus.windows.net"
    good = write(folder, [row("10:00", host, "send", 5)])
    day, content = good.parent, good.read_bytes()
    (day / "a-truncated.parquet").write_bytes(content[:-20])
    (day / "b-empty.parquet").write_bytes(b"")
    pq.write_table(pa.table({"x": [1]}), day / "c-foreign.parquet")
    schema = arrow_schema(OPERATION_COLUMNS)
    newer = schema.with_metadata({METADATA_KEY: "2"})
    pq.write_table(newer.empty_table(), day / "d-newer.parquet")
    short = schema.remove(3)
    pq.write_table(short.empty_table(), day / "e-short.parquet")
    (day / "f-notes.csv").write_text("x")
    # Being written: readers see no hidden names.
    (day / ".tmp-app.parquet").write_bytes(b"")
    (day / "_other").write_bytes(b"")


def test_files_that_cannot_be_used_are_named_with_their_kind(tmp_path: Path) -> None:
    break_files(tmp_path)

    found = find_files(str(tmp_path), Days())

    kinds = {Path(bad.path).name: bad.kind for bad in found.bad}
    assert kinds == {
        "a-truncated.parquet": "damaged",
        "b-empty.parquet": "damaged",
        "c-foreign.parquet": "foreign",
        "d-newer.parquet": "newer",
        "e-short.parquet": "foreign",
        "f-notes.csv": "foreign",
    }
    assert all(bad.reason for bad in found.bad)


# -- one report of all that can be wrong -----------------------------------------------


@pytest.fixture(scope="module")
def mixed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ReportData:
    """Good files beside broken ones, and rows of a server beside those of clients."""
    folder = tmp_path_factory.mktemp("mixed")
    break_files(folder)
    rows = [
        row("10:00", "contoso", "send", 5, source="server", writer="node"),
        row("10:00", "fabrikam", "receive", 3),
        row("10:00", "fabrikam", "send busy", 2),
        row("10:00", "fabrikam", "settle", 3),
        row("10:00", "fabrikam", "manage", 0, entity=""),
    ]
    write(folder, rows, "node-000000-00000000")
    many = [row(f"11:{n:02d}", f"host-{n}", "send", n) for n in range(60)]
    damaged = write(folder, many, DAMAGED_ROWS)
    content = bytearray(damaged.read_bytes())
    content[4:1500] = bytes(1496)
    damaged.write_bytes(content)
    assert damaged.name not in str(find_files(str(folder), Days()).bad)
    return report(spark, plan(folder))


def test_files_and_rows_that_cannot_be_used_are_left_out(mixed: ReportData) -> None:
    names = {Path(bad.path).name for bad in mixed.bad_files}

    assert len(mixed.bad_files) == 7
    # Its footer is good.
    assert f"{DAMAGED_ROWS}.parquet" in names


def test_what_server_and_clients_have_both_counted_is_billed_once(
    mixed: ReportData,
) -> None:
    assert sums(mixed) == {
        "send to primary": 5 + 2,
        "receive from primary": 3,
        "settlements": 3,
        "other": 1,
    }
    assert mixed.namespaces == ["contoso", "fabrikam"]


# -- days that are kept ----------------------------------------------------------------


def test_kept_days_are_computed_once_and_replaced_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    ledger, kept = tmp_path / "ledger", tmp_path / "kept"
    write(ledger, [row("10:00", "contoso", "send", 5)])
    write(ledger, [event("10:00", "contoso", "failed over")])
    first = report(spark, plan(ledger, kept))
    again = report(spark, plan(ledger, kept))
    write(ledger, [row("10:01", "contoso", "send", 7)], "app-000100-00000000")

    grown = report(spark, plan(ledger, kept))

    assert [each.computed_days for each in (first, again, grown)] == [1, 0, 1]
    assert without_work(again) == without_work(first)
    assert sums(grown) == {"send to primary": 12}
    assert without_work(grown) == without_work(report(spark, plan(ledger)))


def test_a_day_that_was_written_but_not_listed_is_started_over(tmp_path: Path) -> None:
    """As a report leaves it that is killed before its end."""
    (tmp_path / "by_entity" / f"day={DAY.date()}").mkdir(parents=True)

    kept = Kept.open(str(tmp_path))

    assert kept.stale({DAY.date(): "of its files"}) == [DAY.date()]


def test_the_report_of_a_simulated_month_is_its_forecast(
    spark: SparkSession, tmp_path: Path
) -> None:
    check_report(spark, tmp_path, "one outage, few messages")


def test_days_outside_the_range_are_not_looked_at(tmp_path: Path) -> None:
    break_files(tmp_path)
    day = DAY.date()

    found = find_files(str(tmp_path), Days(last=day.replace(day=14)))

    assert (found.operations, found.bad) == ({}, [])


def test_a_ledger_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no folder"):
        find_files(str(tmp_path / "missing"), Days())
