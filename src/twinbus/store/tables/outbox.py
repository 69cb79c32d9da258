"""The outbox of a store, and the mirror of entities of other stores.

Owns the numbers of rows in the outbox. Rule: they count from 1 without gaps for each
target, unless some are skipped, and rows are forgotten from the front. Knows nothing of
what is in a body, nor how it comes to its target.
"""

from __future__ import annotations

from collections import Counter

from twinbus.errors import Bug
from twinbus.store.base import EntityRow, Mirrored, OutboxCounts, Posted
from twinbus.store.tables.rows import Rows, guarded

_NONE_YET = OutboxCounts(0, 0, 0)


class OutboxRows(Rows):
    """The part of the store that other stores read from, and note their work in."""

    @guarded
    def post(self, target: int, kind: str, body: bytes) -> int:
        self._old.check()
        rows, size_bytes, last_number = self._outbox_for(target)
        number = last_number + 1
        self._run(self._sql["post"], (target, number, kind, body))
        counts = OutboxCounts(rows + 1, size_bytes + len(body), number)
        self._outbox.targets.put(target, counts)
        return number

    def _outbox_for(self, target: int) -> OutboxCounts:
        return self._outbox.targets.values.get(target, _NONE_YET)

    @guarded
    def posted(self, target: int, limit: int, bytes_max: int) -> list[Posted]:
        if not self._outbox_for(target).rows:
            return []
        sizes = self._run(self._sql["posted_sizes"], (target, limit)).fetchall()
        until, total_bytes = 0, 0
        for number, size_bytes in sizes:
            total_bytes += size_bytes
            if until and total_bytes > bytes_max:
                break
            until = number
        rows = self._run(self._sql["posted"], (target, until)).fetchall()
        return [Posted._make(row) for row in rows]

    @guarded
    def posted_bytes(self, target: int) -> dict[str, int]:
        found: Counter[str] = Counter()
        for kind, size_bytes in self._run(self._sql["posted_bytes"], (target,)):
            found[kind] += size_bytes
        return dict(found)

    @guarded
    def forget_posted(self, target: int, until: int) -> None:
        self._old.check()
        counts = self._outbox_for(target)
        if until > counts.last_number:
            raise Bug(
                f"Store {target} has applied {until} rows of an outbox that has given "
                f"out {counts.last_number}."
            )
        at = (target, until)
        rows, size_bytes = self._run(self._sql["posted_total"], at).fetchone()
        if rows:
            self._run(self._sql["forget_posted"], at)
            left = (counts.rows - rows, counts.size_bytes - size_bytes)
            self._outbox.targets.put(target, OutboxCounts(*left, counts.last_number))

    def skip_numbers(self, target: int, until: int) -> None:
        counts = self._outbox_for(target)
        if until <= counts.last_number:
            raise Bug(
                f"Numbers up to {until} for store {target} cannot be skipped: "
                f"{counts.last_number} are given out."
            )
        self._outbox.targets.put(target, counts._replace(last_number=until))

    def outbox(self) -> dict[int, OutboxCounts]:
        return dict(self._outbox.targets.values)

    def applied(self, source: int) -> int:
        return self._outbox.applied.values.get(source, 0)

    def put_applied(self, source: int, number: int) -> None:
        if number <= self.applied(source):
            raise Bug(
                f"Row {number} of store {source} was applied twice: the last one was "
                f"{self.applied(source)}."
            )
        self._outbox.applied.put(source, number)

    @guarded
    def mirrored(self) -> list[Mirrored]:
        rows = self._run(self._sql["mirrored"]).fetchall()
        return [Mirrored(shard, EntityRow._make(row)) for shard, *row in rows]

    @guarded
    def mirror(self, shard: int, entity: EntityRow) -> None:
        self._old.check()
        self._run(self._sql["mirror"], (shard, *entity))

    @guarded
    def unmirror(self, shard: int, key: str) -> None:
        self._old.check()
        self._run(self._sql["unmirror"], (shard, key))
