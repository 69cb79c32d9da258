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

Sums = dict[str, int]


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
    good = write(folder, [row("10:00", "contoso", "send", 5)])
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


def test_the_rest_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    break_files(tmp_path)

    found = report(spark, plan(tmp_path))

    assert sums(found) == {"send to primary": 5}
    assert len(found.bad_files) == 6


def test_rows_that_are_damaged_behind_a_good_footer_are_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path, [row("10:00", "contoso", "send", 5)])
    many = [row(f"11:{n:02d}", f"host-{n}", "send", n) for n in range(60)]
    damaged = write(tmp_path, many, "damaged-000000-00000001")
    content = bytearray(damaged.read_bytes())
    content[4:1500] = bytes(1496)
    damaged.write_bytes(content)
    assert find_files(str(tmp_path), Days()).bad == []

    found = report(spark, plan(tmp_path))

    assert [Path(bad.path).name for bad in found.bad_files] == [damaged.name]
    assert sums(found) == {"send to primary": 5}


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


def test_a_day_that_was_written_but_not_listed_is_started_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As a report leaves it that is killed before its end."""
    ledger, kept = tmp_path / "ledger", tmp_path / "kept"
    write(ledger, [row("10:00", "contoso", "send", 5)])
    report(spark, plan(ledger, kept))
    (kept / "_days.json").unlink()

    found = report(spark, plan(ledger, kept))

    assert found.computed_days == 1
    assert sums(found) == {"send to primary": 5}


def test_what_server_and_clients_have_both_counted_is_billed_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [
        row("10:00", "contoso.servicebus.windows.net", "send", 5),
        row("10:00", "contoso", "send", 5, source="server", writer="node"),
        row("10:00", "fabrikam", "receive", 3),
        row("10:00", "fabrikam", "send busy", 2),
        row("10:00", "fabrikam", "settle", 3),
        row("10:00", "fabrikam", "manage", 0, entity=""),
    ]
    write(tmp_path, rows)

    found = report(spark, plan(tmp_path))

    assert sums(found) == {
        "send to primary": 5 + 2,
        "receive from primary": 3,
        "settlements": 3,
        "other": 1,
    }
    assert found.namespaces == ["contoso", "fabrikam"]


def test_the_report_of_a_simulated_month_is_its_forecast(
    spark: SparkSession, tmp_path: Path
) -> None:
    check_report(spark, tmp_path, "one outage, failover after a minute")


def test_days_outside_the_range_are_not_looked_at(tmp_path: Path) -> None:
    break_files(tmp_path)
    day = DAY.date()

    found = find_files(str(tmp_path), Days(last=day.replace(day=14)))

    assert (found.operations, found.bad) == ({}, [])


def test_a_ledger_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no folder"):
        find_files(str(tmp_path / "missing"), Days())
