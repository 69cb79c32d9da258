"""A made-up ledger has the rows that were asked for, in the format of real ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cost.truth import differences, truth_of
from twinbus.errors import ArgumentError
from twinbus.ledger.schema import (
    EVENT_COLUMNS,
    METADATA_KEY,
    OPERATION_COLUMNS,
    OPERATIONS,
    VERSION,
    arrow_schema,
)
from twinbus.ledger.synthetic.traffic import SyntheticPlan
from twinbus.ledger.synthetic.writing import write_synthetic

PLAN = SyntheticPlan(rows=40_000, days=6, entities=50, outages=3)


def written(folder: Path, events: str = "") -> pa.Table:
    files = sorted((folder / events).glob("day=*/*.parquet"))
    tables = [pq.ParquetFile(file).read() for file in files]
    return pa.concat_tables(tables)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("synthetic") / "ledger"
    write_synthetic(PLAN, folder)
    return folder


def test_it_has_exactly_the_rows_that_were_asked_for(ledger: Path) -> None:
    found = written(ledger)

    assert found.num_rows == PLAN.rows
    assert set(found["operation"].to_pylist()) <= set(OPERATIONS)


def test_its_files_have_the_format_of_a_ledger(ledger: Path) -> None:
    for events, columns in (("", OPERATION_COLUMNS), ("events", EVENT_COLUMNS)):
        wanted = arrow_schema(columns)
        for file in (ledger / events).glob("day=*/*.parquet"):
            opened = pq.ParquetFile(file)
            assert opened.schema_arrow.names == wanted.names
            assert opened.schema_arrow.types == wanted.types
            assert opened.metadata.metadata[METADATA_KEY.encode()] == VERSION.encode()


def test_rows_are_in_the_folder_of_their_day(ledger: Path) -> None:
    for file in ledger.glob("**/day=*/*.parquet"):
        times = pq.ParquetFile(file).read()[0].to_pylist()
        day = file.parent.name.removeprefix("day=")
        assert {time.date().isoformat() for time in times} == {day}


def test_one_seed_gives_one_ledger(ledger: Path, tmp_path: Path) -> None:
    write_synthetic(PLAN, tmp_path / "again")

    for events in ("", "events"):
        assert written(tmp_path / "again", events) == written(ledger, events)


def test_the_truth_is_what_the_rows_say(ledger: Path) -> None:
    truth = truth_of(ledger)

    diverted: Counter[str] = Counter()
    for row in written(ledger).to_pylist():
        primary, middle, _ = row["entity"].partition("/x-servicebus-transfer/")
        if middle and row["operation"] == "send":
            diverted[primary] += row["messages"]
    wanted: Counter[str] = Counter()
    for outage in truth:
        wanted[outage["primary"]] += outage["diverted_messages"]
    assert len(truth) == PLAN.outages
    assert diverted == wanted


def test_outages_that_differ_from_the_truth_are_told(ledger: Path) -> None:
    truth = truth_of(ledger)
    right = [{**each, "inferred": each["told_by"] != "events"} for each in truth]
    late = {**right[0], "end": "2027-01-01T00:00:00Z"}

    assert differences(right, truth) == []
    assert [text[:10] for text in differences(right[1:], truth)] == ["not found:"]
    assert differences([late, *right[1:]], truth)[0].startswith("invented:")
    assert differences([right[0] | {"senders": 99}, *right[1:]], truth)[0][:10] == (
        "senders 99"
    )


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (SyntheticPlan(rows=10, days=6), "--rows 10 is too small: .* fewer --outages"),
        (SyntheticPlan(rows=10**9, days=1), "--rows 1000000000 is too large"),
    ],
)
def test_impossible_sizes_are_refused(
    plan: SyntheticPlan, text: str, tmp_path: Path
) -> None:
    with pytest.raises(ArgumentError, match=text):
        write_synthetic(plan, tmp_path / "ledger")


def test_a_folder_with_files_is_left_alone(ledger: Path) -> None:
    with pytest.raises(ArgumentError, match="is not empty"):
        write_synthetic(PLAN, ledger)
