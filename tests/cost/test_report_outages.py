"""Outages are found in the data: all of them, with their bounds, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.cost.guide_pictures import FOLDER, PLAN, drawn
from tests.cost.ledgers import at, event, row, write
from tests.cost.truth import differences, truth_of
from tests.spark.conftest import compiling
from twinbus.ledger.synthetic.writing import write_synthetic
from twinbus.spark.reports import aggregates, find_outages, read_ledger
from twinbus.spark.reports.job import ReportData, ReportPlan, report

Outage = dict[str, Any]


def rows_of(outages: DataFrame) -> list[Outage]:
    """The rows, with times in UTC whatever the time zone here is."""
    plain = outages.withColumns(
        {name: F.unix_micros(F.col(name)) for name in ("start", "end")}
    )
    found = [each.asDict() for each in plain.collect()]
    for each in found:
        for name in ("start", "end"):
            each[name] = datetime.fromtimestamp(each[name] / 1e6, UTC)
    return found


def found_in(spark: SparkSession, folder: Path) -> list[Outage]:
    ledger = read_ledger(spark, [str(folder)])
    found = aggregates(ledger.operations)
    for table in found.tables().values():
        table.persist()
    try:
        return rows_of(find_outages(found, ledger.events))
    finally:
        for table in found.tables().values():
            table.unpersist()


Year = tuple[ReportData, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def year(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Year:
    """The report of the made-up ledger of the guide, and the truth about it."""
    folder = tmp_path_factory.mktemp("outages") / "ledger"
    write_synthetic(PLAN, folder)
    with compiling(spark):
        return report(spark, ReportPlan([str(folder)])), truth_of(folder)


def test_every_outage_is_found_as_it_was_and_nothing_else(year: Year) -> None:
    found, truth = year

    assert len(truth) == 20
    assert differences(found.outages, truth) == []


def test_the_pictures_of_the_guide_are_those_of_this_report(year: Year) -> None:
    for name, text in drawn(year[0]).items():
        kept = (FOLDER / f"{name}.svg").read_text()
        assert kept == text, f"{name}: run python -m tests.cost.guide_pictures"


# -- cases -----------------------------------------------------------------------------


def steady(namespace: str, *, without: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    clocks = [f"10:{minute:02d}" for minute in range(60)]
    return [
        row(clock, namespace, "send", 5) for clock in clocks if clock not in without
    ]


def backlog(clock: str, primary: str, what: str, **others: Any) -> dict[str, Any]:
    entity = f"{primary}/x-servicebus-transfer/3"
    return row(clock, f"{primary}-backup", what, 7, entity=entity, **others)


@pytest.fixture(scope="module")
def cases(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Outage]]:
    """The outages of several primaries, each of which is a case."""
    folder = tmp_path_factory.mktemp("cases")
    silent = tuple(f"10:{minute:02d}" for minute in range(20, 26))
    rows = [
        *steady("noise"),
        # A send that failed once, one that was denied, a gap and an empty poll.
        row("10:20", "noise", "send failed", 1),
        row("10:21", "noise", "send busy", 1),
        row("10:22", "noise", "gap", 0, entity="", gap_minutes=4),
        row("10:23", "noise", "send refused", 1),
        backlog("10:24", "noise", "poll"),
        *steady("unpaired", without=silent),
        *(row(clock, "unpaired", "send failed", 2) for clock in silent),
        *steady("relapse"),
        *steady("crashed"),
        *steady("twice"),
        backlog("10:10", "twice", "send"),
        backlog("10:40", "twice", "send"),
        *(
            row("10:30", host, "ping failed", 0)
            for host in ("sb.contoso.example", "127.0.0.1:5672")
        ),
        backlog("10:31", "sb", "send"),
        backlog("10:31", "127-0-0-1-5672", "send"),
        *steady("both"),
        backlog("10:15", "both", "send"),
        backlog("10:15", "both", "send", source="server", writer="node"),
    ]
    events = [
        event("10:10:30", "relapse", "failed over"),
        event("10:14:10", "relapse", "failed back"),
        event("10:14:40", "relapse", "relapsed"),
        event("10:19:20", "relapse", "failed back"),
        event("10:10:30", "crashed", "failed over"),
        event("10:12:59", "crashed", "diverted", messages=7),
        event("10:20:00", "noise", "suspect"),
        event("10:20:01", "noise", "recovered"),
    ]
    write(folder, rows)
    write(folder, events)
    found: dict[str, list[Outage]] = {}
    for each in found_in(spark, folder):
        found.setdefault(each["primary"], []).append(each)
    return found


def test_single_failures_and_polls_are_no_outage(
    cases: dict[str, list[Outage]],
) -> None:
    assert "noise" not in cases


def test_minutes_in_which_all_sends_fail_are_one(
    cases: dict[str, list[Outage]],
) -> None:
    (found,) = cases["unpaired"]

    assert (found["start"], found["end"]) == (at("10:20"), at("10:26"))
    assert found["inferred"]
    assert found["entities"] == ["orders"]
    assert found["longest_gap_minutes"] == 6


def test_a_relapse_belongs_to_its_outage(cases: dict[str, list[Outage]]) -> None:
    (found,) = cases["relapse"]

    assert (found["start"], found["end"]) == (at("10:10:30"), at("10:19:20"))
    assert not found["open"]


def test_a_sender_that_ended_meanwhile_leaves_it_open(
    cases: dict[str, list[Outage]],
) -> None:
    (found,) = cases["crashed"]

    assert found["open"]
    assert found["end"] == at("10:12:59")


def test_outages_that_are_far_apart_are_two(cases: dict[str, list[Outage]]) -> None:
    assert [each["start"] for each in cases["twice"]] == [at("10:10"), at("10:40")]


@pytest.mark.parametrize("label", ["sb", "127-0-0-1-5672"])
def test_hosts_are_known_by_the_names_of_their_backlog_queues(
    cases: dict[str, list[Outage]], label: str
) -> None:
    (found,) = cases[label]

    assert found["start"] == at("10:30")
    assert found["diverted_messages"] == 7


def test_what_server_and_client_have_both_counted_counts_once(
    cases: dict[str, list[Outage]],
) -> None:
    (found,) = cases["both"]

    assert found["diverted_messages"] == 7
