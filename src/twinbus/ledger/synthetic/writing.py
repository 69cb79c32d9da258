"""A made-up ledger: active minutes of many entities, with outages of known truth.

Owns the writing of it: day by day, so that memory is bounded whatever the size, and in
full by a seed, so that the same options give the same rows. `traffic.py` has the usual
rows of a day, `outages.py` those of an outage. The truth about the outages is in
`truth.json` beside the days.
"""

from __future__ import annotations

import json
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from twinbus import limits
from twinbus.errors import ArgumentError
from twinbus.ledger.schema import (
    DAY_PREFIX,
    EVENT_COLUMNS,
    EVENTS_FOLDER,
    FILE_SUFFIX,
    METADATA_KEY,
    OPERATION_COLUMNS,
    VERSION,
    arrow_schema,
)
from twinbus.ledger.synthetic.outages import Row, SyntheticOutage, draw_outages, rows_of
from twinbus.ledger.synthetic.traffic import (
    ROWS_PER_ACTIVE,
    SyntheticPlan,
    traffic_of,
)

TRUTH_FILE = "truth.json"


def write_synthetic(plan: SyntheticPlan, folder: Path) -> list[SyntheticOutage]:
    """Write the ledger into a folder that is empty or missing; returns the truth."""
    _check(plan, folder)
    outages = draw_outages(plan)
    operations, events = _outage_tables(plan, outages)
    fixed = [0 if table is None else table.num_rows for table in operations]
    if sum(fixed) > plan.rows:
        raise ArgumentError(
            f"--rows {plan.rows} is too small: the outages alone have {sum(fixed)}. "
            "Give that many or more, or fewer --outages."
        )
    counts = _shares(plan, plan.rows - sum(fixed))

    def write_day(number: int) -> None:
        usual = traffic_of(plan, number, int(counts[number]), outages)
        parts = [usual, operations[number]]
        table = pa.concat_tables([part for part in parts if part is not None])
        _write(plan, folder, number, table.unify_dictionaries())
        if events[number] is not None:
            _write(plan, folder / EVENTS_FOLDER, number, events[number])

    with ThreadPoolExecutor(limits.SYNTHETIC_THREADS) as pool:
        list(pool.map(write_day, range(plan.days)))
    truth = [asdict(outage.truth) for outage in outages]
    text = json.dumps(
        {"rows": plan.rows, "seed": plan.seed, "outages": truth}, indent=1
    )
    (folder / TRUTH_FILE).write_text(text + "\n")
    return outages


def _check(plan: SyntheticPlan, folder: Path) -> None:
    most = plan.days * plan.entities * 1440 * ROWS_PER_ACTIVE // 2
    if plan.rows > most:
        raise ArgumentError(
            f"--rows {plan.rows} is too large: {plan.entities} entities have at most "
            f"{most} in {plan.days} days. Raise --days or --entities."
        )
    if folder.exists() and any(folder.iterdir()):
        raise ArgumentError(f"--out {folder} is not empty. Name a new folder.")


def _shares(plan: SyntheticPlan, rows: int) -> np.ndarray:
    """How many usual rows each day has: fewer at weekends, and exactly all of them."""
    weekdays = np.array([plan.day(number).weekday() for number in range(plan.days)])
    weights = np.where(weekdays < 5, 1.0, 0.6)
    bounds = np.round(np.cumsum(weights) / weights.sum() * rows).astype(np.int64)
    return np.diff(bounds, prepend=0)


def _outage_tables(
    plan: SyntheticPlan, outages: list[SyntheticOutage]
) -> tuple[list[pa.Table | None], list[pa.Table | None]]:
    """The rows and the events of all outages, for each day."""
    operations: list[list[Row]] = [[] for _ in range(plan.days)]
    events: list[list[Row]] = [[] for _ in range(plan.days)]
    for outage in outages:
        for rows, days in zip(rows_of(plan, outage), (operations, events), strict=True):
            for row in rows:
                days[plan.day_number(row[0])].append(row)
    return (
        [_table(rows, arrow_schema(OPERATION_COLUMNS)) for rows in operations],
        [_table(rows, arrow_schema(EVENT_COLUMNS)) for rows in events],
    )


def _table(rows: list[Row], schema: pa.Schema) -> pa.Table | None:
    if not rows:
        return None
    columns = zip(*sorted(rows), strict=True)
    arrays = [
        pa.array(column, field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    # As the usual rows are: dictionaries are written faster.
    arrays = [
        array.dictionary_encode() if pa.types.is_string(array.type) else array
        for array in arrays
    ]
    return pa.table(arrays, names=schema.names)


def _write(plan: SyntheticPlan, folder: Path, number: int, table: pa.Table) -> None:
    day = (plan.start + timedelta(days=number)).isoformat()
    place = folder / f"{DAY_PREFIX}{day}"
    place.mkdir(parents=True, exist_ok=True)
    name = zlib.crc32(f"{plan.seed} {day}".encode())
    path = place / f"synthetic-000000-{name:08x}{FILE_SUFFIX}"
    # Readers see plain strings, although the table has dictionaries.
    with pq.ParquetWriter(
        path, table.schema, compression="zstd", store_schema=False
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({METADATA_KEY: VERSION})
