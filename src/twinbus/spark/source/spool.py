"""The spool: what a stream has received, in files, until its batches are committed.

    <location>/<entity>/<epoch>/plan.json               how many slices the batch has
    <location>/<entity>/<epoch>/<slice>-<part>.arrow    messages, as rows with locks
    <location>/<entity>/<epoch>/<slice>-<part>.settled  they are removed from the entity

A part is written and synced under another name and then linked, so that it appears
whole, once, whichever attempt of a task was first. An empty part ends its slice: it
takes the place of the next one, so that no attempt that is late can add to it.

Rule: a part is durable before one of its messages is settled, and no part is deleted
before all of them are. So a message is in the entity, in a part, or in both, and never
in neither. Knows no network.
"""

from __future__ import annotations

import json
import os
import shutil
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple
from uuid import uuid4

import pyarrow as pa

from twinbus.errors import ArgumentError, ConfigError

_PLAN = "plan.json"
_PART = ".arrow"
_SETTLED = ".settled"


class PartTaken(ConfigError):
    """Another attempt of the same task has written this part."""


class Part(NamedTuple):
    """One file of messages."""

    epoch: int
    slice: int
    number: int


class Key(NamedTuple):
    """A message by its number and its time, in microseconds.

    Numbers start again when an entity is deleted and made anew; the time does not.
    """

    sequence: int
    enqueued_us: int


class Spool:
    """The files of one entity."""

    def __init__(self, location: str, path: str) -> None:
        self._root = Path(location) / urllib.parse.quote(path, safe="$.~")

    # -- batches -----------------------------------------------------------------------

    def epochs(self) -> list[int]:
        """The batches that have files, oldest first."""
        if not self._root.is_dir():
            return []
        names = (entry.name for entry in self._root.iterdir())
        return sorted(int(name) for name in names if name.isdecimal())

    def plan(self, epoch: int, slices: int) -> int:
        """How many slices a batch has: as many as when it was planned first."""
        file = self._folder(epoch) / _PLAN
        if not file.exists():
            try:
                self._folder(epoch).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ArgumentError(
                    f"Option 'spoolLocation': '{self._root}' cannot be made "
                    f"({error.strerror})."
                ) from None
            plan = json.dumps({"slices": slices}).encode()
            self._appear(file, lambda stream: stream.write(plan))
            _sync(self._root)
        found: int = json.loads(file.read_bytes())["slices"]
        return found

    def remove(self, epoch: int) -> None:
        """Forget a batch: it is committed, and its messages are settled."""
        shutil.rmtree(self._folder(epoch), ignore_errors=True)

    # -- parts -------------------------------------------------------------------------

    def parts(self, epoch: int, number: int | None = None) -> list[Part]:
        """The parts of a batch or of one slice in their order, ends included."""
        found: list[Part] = []
        folder = self._folder(epoch)
        for entry in folder.iterdir() if folder.is_dir() else ():
            if entry.suffix == _PART and not entry.name.startswith("."):
                at, _, count = entry.stem.partition("-")
                found.append(Part(epoch, int(at), int(count)))
        return sorted(part for part in found if number in (None, part.slice))

    def ends(self, part: Part) -> bool:
        """Whether this is the end of its slice instead of a part."""
        return self._file(part).stat().st_size == 0

    def end(self, part: Part) -> None:
        """No part follows; whoever reads the slice again reads the same."""
        if not self._appear(self._file(part), lambda _: None) and not self.ends(part):
            raise _taken(part)

    def publish(self, part: Part, batch: pa.RecordBatch) -> None:
        """Write a part; durable when this returns, `PartTaken` if there is one."""

        def write(stream: BinaryIO) -> None:
            with pa.ipc.new_file(stream, batch.schema) as writer:
                writer.write_batch(batch)

        if not self._appear(self._file(part), write):
            raise _taken(part)

    def read(self, part: Part) -> Iterator[pa.RecordBatch]:
        """The messages of a part."""
        with pa.memory_map(str(self._file(part))) as source:
            reader = pa.ipc.open_file(source)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)

    def locks(self, part: Part) -> dict[Key, str]:
        """The messages of a part by number and time, each with its lock."""
        found: dict[Key, str] = {}
        for batch in self.read(part):
            numbers = batch.column("sequence_number").to_pylist()
            times = batch.column("enqueued_at").cast(pa.int64()).to_pylist()
            locks = batch.column("lock_token").to_pylist()
            found.update(zip(map(Key, numbers, times), locks, strict=True))
        return found

    def is_settled(self, part: Part) -> bool:
        """Whether the messages of a part are known to be gone from the entity."""
        return self._file(part).with_suffix(_SETTLED).exists()

    def settle(self, part: Part) -> None:
        """They are gone. Should this be lost with a crash, it is found out again."""
        self._file(part).with_suffix(_SETTLED).touch()

    def unsettled_parts(self, epoch: int) -> list[Part]:
        """Parts of a batch whose messages may still be in the entity."""
        return [
            part
            for part in self.parts(epoch)
            if not self.ends(part) and not self.is_settled(part)
        ]

    def unsettled(self) -> set[Key]:
        """Messages that are in a part and may still be in the entity."""
        return {
            key
            for epoch in self.epochs()
            for part in self.unsettled_parts(epoch)
            for key in self.locks(part)
        }

    # -- files -------------------------------------------------------------------------

    def _folder(self, epoch: int) -> Path:
        return self._root / f"{epoch:012d}"

    def _file(self, part: Part) -> Path:
        name = f"{part.slice:05d}-{part.number:06d}{_PART}"
        return self._folder(part.epoch) / name

    def _appear(self, file: Path, write: Callable[[BinaryIO], object]) -> bool:
        """Make a file with all its content at once; False if there is one."""
        draft = file.parent / f".{uuid4().hex}"
        with draft.open("wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        try:
            os.link(draft, file)
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        _sync(file.parent)
        return True


def _taken(part: Part) -> PartTaken:
    return PartTaken(
        f"Another attempt has written part {part.number} of slice {part.slice} "
        "already; this one stops."
    )


def _sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
