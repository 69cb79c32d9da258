"""One file for each closed day of a writer.

A day has a file for each minute; readers are faster with one. Files cannot be replaced
by another in one step, so the order of steps decides what a reader sees and what a
crash leaves:

1. All rows are written into a hidden file, whose metadata lists the files it replaces.
2. It is renamed to `.ready-...`, still hidden. From here on it stands for its rows.
3. The files that it replaces are removed.
4. It gets a name that readers see.

A crash before step 2 leaves a temporary file, which the next start removes. A crash
after it leaves a ready file, and the next start goes on with step 3. So rows are never
there twice and never lost. Between the steps 3 and 4, some milliseconds or until the
next start, readers miss rows of that day.

Reading files needs Arrow. A server is small without it and lets a child process do it,
which is this module as a program: `python -m twinbus.ledger.compaction WRITER DAY ...`.
"""

from __future__ import annotations

import logging
import secrets
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from twinbus import limits
from twinbus.ledger.files import TEMPORARY, LedgerDisk, hidden_files, own_files
from twinbus.ledger.schema import FILE_SUFFIX

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("twinbus.ledger")

READY = ".ready-"
_REPLACES = "twinbus_replaces"
_MODULE = "twinbus.ledger.compaction"


def clean(folder: Path, writer: str, disk: LedgerDisk) -> None:
    """Remove what a crash has left of files that were being written."""
    left = hidden_files(folder, TEMPORARY, writer)
    if left:
        disk.remove(folder, left)


def is_unfinished(folder: Path, writer: str) -> bool:
    """Whether a crash has left a compaction that has to go on."""
    return bool(hidden_files(folder, READY, writer))


def is_compact(folder: Path, writer: str) -> bool:
    """Whether there is nothing to put together."""
    return len(own_files(folder, writer)) < 2


def _finish(folder: Path, writer: str, disk: LedgerDisk) -> None:
    for name in hidden_files(folder, READY, writer):
        disk.remove(folder, _replaced_by(folder / name))
        disk.rename(folder / name, name.removeprefix(READY))


def compact(folder: Path, writer: str, disk: LedgerDisk) -> None:
    """Put all rows of a writer in a closed day into one file."""
    clean(folder, writer, disk)
    _finish(folder, writer, disk)
    if is_compact(folder, writer):
        return
    names = [name for name in own_files(folder, writer) if _is_readable(folder / name)]
    if len(names) < 2:
        return
    # A time after all others of the day.
    name = f"{writer}-240000-{secrets.token_hex(4)}{FILE_SUFFIX}"
    temporary = folder / f"{TEMPORARY}{name}"
    disk.write(temporary, partial(_merge, folder, names))
    disk.rename(temporary, f"{READY}{name}")
    _finish(folder, writer, disk)


def compact_apart(folders: Sequence[Path], writer: str, marker: int) -> None:
    """Compact several days in a child process; `OSError` if it fails.

    The child has the locked marker too: if this process is killed meanwhile, the next
    one does not touch the same files.
    """
    command = [sys.executable, "-m", _MODULE, writer, *map(str, folders)]
    done = subprocess.run(  # noqa: S603
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
        timeout=limits.LEDGER_COMPACT_SECONDS_MAX,
        pass_fds=[marker],
    )
    said = done.stderr.splitlines()
    if done.returncode != 0:
        reason = said[-1] if said else "it said nothing"
        raise OSError(f"a child process ended with {done.returncode}: {reason}")
    for line in said:
        log.warning("%s", line)


def _is_readable(path: Path) -> bool:
    """Whether a file can be read; a damaged one stays as it is, for people to see."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        pq.ParquetFile(path).read(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        log.warning("%s cannot be read and stays as it is: %s", path, error)
        return False
    return True


def _merge(folder: Path, names: Sequence[str], file: BinaryIO) -> None:
    """Write the rows of all files, a row group for each of the groups."""
    import pyarrow.parquet as pq

    writer = None
    try:
        for table in _groups(folder, names):
            if writer is None:
                kept = table.schema.metadata or {}
                metadata = {**kept, _REPLACES: "\n".join(names)}
                schema = table.schema.with_metadata(metadata)
                writer = pq.ParquetWriter(file, schema, compression="zstd")
            writer.write_table(table.cast(writer.schema))
    finally:
        if writer is not None:
            writer.close()


def _groups(folder: Path, names: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of all files, in groups of a size that suits readers and memory."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    waiting: list[pa.Table] = []
    for name in names:
        table = pq.ParquetFile(folder / name).read(use_threads=False)
        # The metadata of a file that was compacted before lists files that are gone.
        waiting.append(table.replace_schema_metadata(_version_of(table)))
        if sum(each.num_rows for each in waiting) >= limits.LEDGER_COMPACT_ROWS:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def _version_of(table: pa.Table) -> dict[bytes, bytes]:
    kept = table.schema.metadata or {}
    return {key: value for key, value in kept.items() if key != _REPLACES.encode()}


def _replaced_by(path: Path) -> list[str]:
    import pyarrow.parquet as pq

    metadata = pq.read_schema(path).metadata or {}
    listed: bytes = metadata.get(_REPLACES.encode(), b"")
    return listed.decode().split("\n")


if __name__ == "__main__":
    for _each in sys.argv[2:]:
        compact(Path(_each), sys.argv[1], LedgerDisk())
