"""Aggregates that are kept between reports, a day replaced whole.

    DIR/by_entity/day=2026-11-15/...parquet     and by_minute, signals, events
    DIR/_days.json                              which days are there, and of which files

Owns the folder. A day is computed again when a file of it has come, gone or changed. It
is taken off the list first, then removed, written, and listed again: whatever is killed
in between, the next report finds it missing from the list and starts it over. Days
that a ledger no longer has stay.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from twinbus.errors import ConfigError
from twinbus.spark.reports.daily import Aggregates
from twinbus.spark.reports.files import open_place, without_secrets

_LIST = "_days.json"
# Changes when the tables do, so that older ones are computed again.
_FORMAT = 1


@dataclass(slots=True)
class Kept:
    """A folder with aggregates."""

    system: fs.FileSystem
    base: str

    @classmethod
    def open(cls, root: str) -> Kept:
        opened = open_place(root)
        if opened is None:
            raise ConfigError(
                f"--parquet {without_secrets(root)} cannot be used: name a folder, or "
                "a URL that Arrow opens, such as s3:// or gs://."
            )
        system, base = opened
        system.create_dir(base)
        return cls(system, base)

    def days(self) -> dict[date, str]:
        """The days that are there, each with the fingerprint of its files."""
        path = f"{self.base}/{_LIST}"
        if self.system.get_file_info(path).type is not fs.FileType.File:
            return {}
        with self.system.open_input_file(path) as file:
            listed = json.loads(file.read())
        if listed["format"] != _FORMAT:
            return {}
        return {date.fromisoformat(day): text for day, text in listed["days"].items()}

    def stale(self, prints: Mapping[date, str]) -> list[date]:
        """Which of these days are missing, or were made of other files."""
        known = self.days()
        return sorted(day for day, text in prints.items() if known.get(day) != text)

    def replace(
        self, tables: Mapping[str, DataFrame], prints: Mapping[date, str]
    ) -> None:
        """Write these days; `tables` hold their rows and no others."""
        known = {day: text for day, text in self.days().items() if day not in prints}
        self._list(known)
        for name in tables:
            for day in prints:
                folder = f"{self.base}/{name}/day={day.isoformat()}"
                if self.system.get_file_info(folder).type is fs.FileType.Directory:
                    self.system.delete_dir(folder)
        for name, table in tables.items():
            # One file for each day.
            rows = table.repartition(F.col("day"))
            rows.write.mode("append").partitionBy("day").parquet(f"{self.base}/{name}")
        self._list({**known, **prints})

    def _list(self, days: Mapping[date, str]) -> None:
        text = json.dumps(
            {
                "format": _FORMAT,
                "days": {day.isoformat(): days[day] for day in sorted(days)},
            },
            indent=1,
        )
        temporary = f"{self.base}/{_LIST}.tmp"
        with self.system.open_output_stream(temporary) as file:
            file.write(text.encode())
        self.system.move(temporary, f"{self.base}/{_LIST}")

    def read(
        self, spark: SparkSession, like: Mapping[str, DataFrame], days: list[date]
    ) -> dict[str, DataFrame]:
        """These days of the tables; `like` has their columns."""
        found = {}
        for name, table in like.items():
            folders = [f"{self.base}/{name}/day={day.isoformat()}" for day in days]
            infos = self.system.get_file_info(folders)
            there = [info.path for info in infos if info.type is fs.FileType.Directory]
            if not there:
                found[name] = table.where(F.lit(False))
                continue
            reader = spark.read.schema(table.schema)
            reader = reader.option("basePath", f"{self.base}/{name}")
            found[name] = reader.parquet(*there)
        return found


def as_aggregates(tables: Mapping[str, DataFrame]) -> Aggregates:
    return Aggregates(tables["by_entity"], tables["by_minute"], tables["signals"])
