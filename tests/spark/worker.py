"""What a Python worker does, alone in a process whose memory can be watched.

    python -m tests.spark.worker <connection string> <queue> <out> <folder>

Reads a queue through a spool, and writes another one's messages into a third, as tasks
of a source and a sink would. Prints the peak of its memory, in MB, after every batch.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from tests.spark.reading import Stream
from twinbus.spark.schema import spark_schema
from twinbus.spark.sink.encoding import Identity
from twinbus.spark.sink.sink import SinkSettings, write_partition
from twinbus.spark.source.browsing import Range, read_range
from twinbus.spark.source.settings import SourceSettings

_PEAK = re.compile(r"VmHWM:\s+(\d+) kB")


def peak_mb() -> float:
    """The most memory that this process ever had."""
    found = _PEAK.search(Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def main(text: str, source: str, out: str, folder: str) -> None:
    """Read, write, and say how much it took."""
    access = {"connectionString": text, "entity": source}
    stream = Stream({**access, "settle": "spool", "spoolLocation": folder})
    planned = stream.plan()
    assert planned is not None
    reading = [(each.num_rows, peak_mb()) for each in stream.reader.read(planned[0])]
    stream.close()

    writing: list[tuple[int, float]] = []
    browsed = SourceSettings.of(access | {"entity": f"{source}-2"})

    def watched() -> Iterator[pa.RecordBatch]:
        for batch in read_range(browsed, Range(1, 1_000_000)):
            yield batch
            writing.append((batch.num_rows, peak_mb()))

    settings = SinkSettings.of({**access, "entity": out}, spark_schema(locks=False))
    done = write_partition(settings, Identity("write", 0, 0), watched())
    print(json.dumps({"reading": reading, "writing": writing, "sent": done.sent}))


if __name__ == "__main__":
    main(*sys.argv[1:])
