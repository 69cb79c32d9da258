"""Files that are written without Arrow are read by Arrow and DuckDB.

That Spark reads them is shown by the reports of simulated months.
"""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.ledger.parquet import parquet_bytes
from twinbus.ledger.schema import (
    EVENT_COLUMNS,
    METADATA_KEY,
    OPERATION_COLUMNS,
    VERSION,
    arrow_schema,
)

Columns = tuple[tuple[str, str], ...]
NOON_US = 1_794_744_000_000_000
LARGEST = 2**63 - 1


def written(columns: Columns, rows: list[tuple[Any, ...]]) -> bytes:
    return parquet_bytes(columns, rows, {METADATA_KEY: VERSION})


def values_of(kind: str) -> st.SearchStrategy[Any]:
    if kind == "string":
        return st.text(st.characters(codec="utf-8"), max_size=20)
    top = {"int32": 2**31 - 1, "int64": LARGEST, "time": NOON_US * 4}[kind]
    return st.integers(0, top)


def rows_of(columns: Columns) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    return st.lists(st.tuples(*(values_of(kind) for _, kind in columns)), min_size=1)


@pytest.mark.parametrize("columns", [OPERATION_COLUMNS, EVENT_COLUMNS])
def test_the_schema_is_that_of_a_ledger(columns: Columns) -> None:
    row = tuple("x" if kind == "string" else 1 for _, kind in columns)

    file = pq.ParquetFile(io.BytesIO(written(columns, [row])))

    assert file.schema_arrow.equals(arrow_schema(columns), check_metadata=True)


@given(rows_of(EVENT_COLUMNS))
def test_arrow_reads_what_was_written(rows: list[tuple[Any, ...]]) -> None:
    table = pq.ParquetFile(io.BytesIO(written(EVENT_COLUMNS, rows))).read()

    table.validate(full=True)
    plain = table.set_column(0, "at", table["at"].cast(pa.int64()))
    assert [tuple(row.values()) for row in plain.to_pylist()] == rows


def test_duckdb_reads_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    numbers = (1, LARGEST, 2, 3, 4, 2**31 - 1)
    texts = ("contoso", "node", "server", "aufträge", "send", "accepted", "", "amqp")
    path.write_bytes(written(OPERATION_COLUMNS, [(NOON_US, *texts, *numbers)] * 20_000))

    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        query = f"select count(*), * from '{path}' group by all"  # noqa: S608
        found = database.execute(query).fetchall()

    noon = datetime(2026, 11, 15, 12, tzinfo=UTC)
    assert found == [(20_000, noon, *texts, *numbers)]


def test_equal_texts_take_little_room() -> None:
    rows = [(NOON_US, "app", "one", "two", "orders", "diverted", 1, 2, "busy")]

    assert len(written(EVENT_COLUMNS, rows * 1_000)) < 2_500
