"""The way of a message with `settle=spool`, and of the files behind it.

In a task: receive, write and sync a part, complete, hand the rows on. A batch that runs
again reads its parts first. What may go wrong in between:

* before the part is there: nothing was handed on, and the messages come again;
* after that, before they are completed: they come again too, are known by number and
  time from the parts that are not settled, and are completed without a row.

On the driver: a part is deleted when its batch is committed and its messages are gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa

from twinbus import limits
from twinbus.client.message import Message
from twinbus.client.sync.management import Management
from twinbus.errors import ConfigError, RemoteError
from twinbus.spark.connections import connection_for
from twinbus.spark.schema import COLUMNS, arrow_schema
from twinbus.spark.settling import Settler, read_lock
from twinbus.spark.source.intake import Chunk, Intake, Share
from twinbus.spark.source.rows import RowBatch
from twinbus.spark.source.settings import SourceSettings
from twinbus.spark.source.spool import Key, Part, Spool


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
                # Only who holds the session can; they come again when nobody does.
                return False
            held = [read_lock(locks[key]) for key in left]
            if Settler(connection).complete(held):
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
