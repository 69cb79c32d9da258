"""Small ledgers that tests write by hand: one row, one event, one file."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from twinbus.ledger.files import LedgerDisk, file_name
from twinbus.ledger.parquet import parquet_bytes
from twinbus.ledger.schema import (
    DAY_PREFIX,
    EVENT_COLUMNS,
    EVENTS_FOLDER,
    METADATA_KEY,
    OPERATION_COLUMNS,
    VERSION,
    arrow_schema,
)

DAY = datetime(2026, 11, 15, tzinfo=UTC)

Row = dict[str, Any]


def at(clock: str) -> datetime:
    """A time of the day: `10:05` or `10:05:30`."""
    hours, minutes, seconds = [*map(int, clock.split(":")), 0][:3]
    return DAY + timedelta(hours=hours, minutes=minutes, seconds=seconds)


def row(clock: str, namespace: str, what: str, messages: int, **others: Any) -> Row:
    """One row of operations; `what` is the operation and, if not accepted, why."""
    operation, _, outcome = what.partition(" ")
    has_message = operation in ("send", "receive")
    values = {
        "minute": at(clock),
        "namespace": namespace,
        "writer": "app",
        "source": "client",
        "entity": "orders",
        "operation": operation,
        "outcome": outcome or "accepted",
        "key": "sender",
        "connection": "amqp",
        "size_class": int(has_message),
        "operations": max(messages, 1),
        "messages": messages if has_message else 0,
        "bytes_in": messages * 100 if operation == "send" else 0,
        "bytes_out": messages * 100 if operation == "receive" else 0,
        "gap_minutes": 0,
    }
    return {**values, **others}


def event(clock: str, primary: str, what: str, **others: Any) -> Row:
    """One event of a pair."""
    values = {
        "at": at(clock),
        "writer": "app",
        "primary": primary,
        "secondary": f"{primary}-backup",
        "entity": "orders",
        "event": what,
        "messages": 0,
        "bytes": 0,
        "detail": "",
    }
    return {**values, **others}


def write(folder: Path, rows: Iterable[Row], name: str = "app-000000-00000000") -> Path:
    """Write one file of the day, of operations or of events; returns its path."""
    listed = list(rows)
    events = "event" in listed[0]
    schema = arrow_schema(EVENT_COLUMNS if events else OPERATION_COLUMNS)
    place = folder / (EVENTS_FOLDER if events else "") / f"day={DAY.date()}"
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"{name}.parquet"
    pq.write_table(pa.Table.from_pylist(listed, schema=schema), path)
    return path


def write_days(folder: Path, rows: Iterable[Row]) -> None:
    """Write operations as closed days have them: a file for each writer and day."""
    parts: dict[tuple[date, str], list[Row]] = {}
    for each in rows:
        parts.setdefault((each["minute"].date(), each["writer"]), []).append(each)
    disk, names = LedgerDisk(), [name for name, _ in OPERATION_COLUMNS[1:]]
    for (day, writer), own in parts.items():
        midnight_ms = int(datetime.combine(day, time(), UTC).timestamp() * 1000)
        path = folder / f"{DAY_PREFIX}{day}" / file_name(writer, midnight_ms)
        values = [
            (int(each["minute"].timestamp()) * 1_000_000, *map(each.get, names))
            for each in own
        ]
        content = parquet_bytes(OPERATION_COLUMNS, values, {METADATA_KEY: VERSION})
        disk.write(path, partial(_fill, content))


def _fill(content: bytes, file: BinaryIO) -> None:
    file.write(content)
