"""`settle=spool`: messages are in files until the batches of a stream are committed.

    <location>/<entity>/<epoch>/plan.json               how many slices the batch has
    <location>/<entity>/<epoch>/<slice>-<part>.arrow    messages, as rows with locks
    <location>/<entity>/<epoch>/<slice>-<part>.settled  they are removed from the entity

A part is written and synced under another name and then linked, so that it appears
whole, once, whichever attempt of a task was first. An empty part ends its slice: it
takes the place of the next one, so that a late attempt cannot add to it.

Rule: a part is durable before one of its messages is settled, and no part is deleted
before all of them are. So a message is in the entity, in a part, or in both, and never
in neither.

`Spool` is the files. `SpooledSlice` runs in a task: receive, write and sync a part,
complete, hand the rows on; a batch that runs again reads its parts first. What may fail
in between:

* before the part is there: nothing was handed on, and the messages come again;
* after that, before they are completed: they come again too, are known by number and
  time from the parts that are not settled, and are completed without a row.

`Sweeper` runs on the driver: it deletes a part when its batch is committed and its
messages are gone from the entity.
"""

from __future__ import annotations

import json
import os
import shutil
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple
from uuid import uuid4

import pyarrow as pa

from twinbus import limits
from twinbus.client.message import Message
from twinbus.client.sync.management import Management
from twinbus.errors import ArgumentError, ConfigError, RemoteError
from twinbus.spark.connections import connection_for
from twinbus.spark.schema import COLUMNS, arrow_schema
from twinbus.spark.settling import LockSettler, read_lock
from twinbus.spark.source.intake import Chunk, Intake, Share
from twinbus.spark.source.rows import RowBatch
from twinbus.spark.source.settings import SourceSettings

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
        """No part follows; reading the slice again gives the same rows."""
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


def spool_of(settings: SourceSettings) -> Spool:
    """The spool that the options name."""
    assert settings.spool is not None
    return Spool(settings.spool, settings.path)


class SpooledSlice:
    """One slice of a batch, in a task."""

    def __init__(self, settings: SourceSettings, share: Share) -> None:
        self._place = settings.place
        self._share = share
        self._spool = spool_of(settings)
        # Messages of parts that are not settled; looked up when one may be among them.
        self._known: set[Key] | None = None

    def read(self, intake: Intake) -> Iterator[pa.RecordBatch]:
        """The rows of the slice: what is in the spool, and then what is new."""
        epoch, number = self._share.epoch, self._share.slice
        following = Part(epoch, number, 0)
        for part in self._spool.parts(epoch, number):
            if self._spool.ends(part):
                return
            for batch in self._spool.read(part):
                # An attempt before this one did not come to its end; this counts.
                intake.have(batch.num_rows)
                yield _without_locks(batch)
            following = part._replace(number=part.number + 1)
        for chunk in intake.chunks(kept=False):
            batch = self._keep(chunk, following)
            if batch is not None:
                yield _without_locks(batch)
                following = following._replace(number=following.number + 1)
        self._spool.end(following)

    def _keep(self, chunk: Chunk, part: Part) -> pa.RecordBatch | None:
        """Write a chunk into a part and complete it; None if it was all known."""
        rows = RowBatch(self._place, locks=True)
        kept = False
        try:
            known = self._known_among(chunk.messages)
            fresh = [each for each in chunk.messages if key_of(each) not in known]
            for message in fresh:
                rows.add(message)
            batch = rows.take() if fresh else None
            if batch is not None:
                self._spool.publish(part, batch)
            kept = True
        finally:
            if not kept:
                with suppress(RemoteError):
                    chunk.receiver.abandon(chunk.messages)
        try:
            chunk.receiver.complete(chunk.messages)
        except RemoteError:
            # They are in the part, so nothing is lost. Those that come again are known.
            return batch
        if batch is not None:
            self._spool.settle(part)
        return batch

    def _known_among(self, messages: list[Message]) -> set[Key]:
        """What is in a part that is not settled; only its completion was lost."""
        if self._known is None or any(each.delivery_count > 0 for each in messages):
            self._known = self._spool.unsettled()
        return self._known


def key_of(message: Message) -> Key:
    """A message by its number and its time."""
    return Key(message.sequence_number, (message.enqueued_ms or 0) * 1000)


def _without_locks(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [batch.column(name) for name in COLUMNS]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(locks=False))


class Sweeper:
    """Removes what is no longer needed, on the driver."""

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings
        self.spool = spool_of(settings)

    def sweep(self, committed: int) -> None:
        """Delete the batches up to one, as far as their messages are gone."""
        for epoch in self.spool.epochs():
            if epoch > committed:
                raise ConfigError(
                    f"Option 'spoolLocation': it holds batch {epoch}, which the "
                    f"checkpoint of this query does not know (it is at {committed}). "
                    "The messages in it are no longer in the entity. Use the "
                    "checkpoint that belongs to it, or another folder."
                )
            if all(self._settle(part) for part in self.spool.unsettled_parts(epoch)):
                self.spool.remove(epoch)

    def _settle(self, part: Part) -> bool:
        """Complete what was not known to be; True if all of it is gone."""
        locks = self.spool.locks(part)
        connection = connection_for(self._settings.access)
        left = self._left(connection.management(self._settings.path), set(locks))
        if left:
            if self._settings.sessions:
                # Only the holder of the session can; they come again when it is free.
                return False
            held = [read_lock(locks[key]) for key in left]
            if LockSettler(connection).complete(held):
                return False
        self.spool.settle(part)
        return True

    def _left(self, management: Management, keys: set[Key]) -> set[Key]:
        """Those of some messages that the entity still holds."""
        found: set[Key] = set()
        following = min(key.sequence for key in keys)
        last = max(key.sequence for key in keys)
        while following <= last:
            page = management.peek(limits.PEEK_MESSAGES_MAX, following)
            if not page:
                break
            found |= keys & {key_of(each) for each in page}
            following = page[-1].sequence_number + 1
        return found
