"""Packs: messages that arrived together, kept in one row.

A row for each message costs more than the message: to insert, lock and delete it is
most of what the store does. So messages that a sender hands in together, and that are
alike, are kept in one row, and locked and completed with a few statements.

Owns the tables `pack` and `pack_lock`; the first migration that has them says what is
in them. Rule: a pack is only appended, received, completed in order and deleted. For
all else (`_unpack`) its messages first become rows of `message` and `lock`, and the
rules of `store/tables/` are true of them. A pack that has no lock is above the head of
its container, and one with a lock is not.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from heapq import merge
from itertools import islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

from twinbus import limits
from twinbus.clock import Now
from twinbus.store.base import (
    FOREVER_MS,
    SEQUENCE_BITS,
    SEQUENCE_MASK,
    EndedLock,
    Lock,
    Stored,
)
from twinbus.store.queries import load
from twinbus.store.received import AlikeStored, ReceivedMessages
from twinbus.store.records import AlikeRecords, Record
from twinbus.store.sqlite.transaction import SqliteTransaction
from twinbus.store.tables.auditing import Auditing, Holdings
from twinbus.store.tables.containers import Container
from twinbus.store.tables.entities import EntityRows
from twinbus.store.tables.messages import LockTerms, next_sequence, runs_of
from twinbus.store.tables.rows import guarded
from twinbus.store.tables.times import Times

if TYPE_CHECKING:
    import sqlite3

_SQL = load("sqlite", "packs")
_SIZE = struct.Struct("<I")


class Pack(NamedTuple):
    """A pack, or what is left of it; ids are those of messages."""

    last: int
    first: int
    enqueued_ms: int
    origin: int | None
    head: bytes
    # Of the messages from `first` on.
    sizes: bytes
    # Those before `first` may still be in front.
    bares: bytes
    # None without a lock.
    nonce: int | None
    until_ms: int | None

    @property
    def left(self) -> int:
        """How many messages there are."""
        return self.last - self.first + 1

    def alike(self) -> AlikeStored:
        """The messages that are left, joined; if it is damaged, what can be read."""
        origin = self.origin
        if origin is not None and origin + self.left > limits.SEQUENCE_NUMBER_MAX:
            # No message was ever given such a number.
            origin = None
        front = (self.first, self.enqueued_ms, origin, self.head)
        return AlikeStored(*front, sizes_of(self.sizes)[: self.left], self.bares)

    def messages(self) -> list[Stored]:
        """The messages that are left."""
        return self.alike().messages()


class HeldPack(NamedTuple):
    """What a completion needs to know of a locked pack."""

    last: int
    first: int
    nonce: int
    until_ms: int
    head_bytes: int
    sizes: bytes


def sizes_of(sizes: bytes) -> tuple[int, ...]:
    """The lengths in the column `sizes`."""
    return struct.unpack_from(f"<{len(sizes) // _SIZE.size}I", sizes)


def packs_in(connection: sqlite3.Connection, first: int, end: int) -> Generator[Pack]:
    """What is left of the packs with messages from an id on and before another."""
    with closing(connection.execute(_SQL["packs_after"], (first, end))) as cursor:
        for row in cursor:
            yield Pack._make(row)


def packed_messages(
    connection: sqlite3.Connection, first: int, end: int
) -> Generator[Stored]:
    """The messages in packs from an id on and before another."""
    for pack in packs_in(connection, first, end):
        for message in pack.messages():
            if message.id >= first:
                yield message


class Packs(EntityRows, Times, Auditing, SqliteTransaction):
    """The parts of the store that know of packs."""

    def _attach(self) -> None:
        super()._attach()
        # Whether there may be packs; without any, nothing is looked for.
        self._has_packs = bool(self._run(_SQL["has_packs"]).fetchone()[0])

    # -- in --------------------------------------------------------------------

    @guarded
    def append(self, container: int, records: Sequence[Record], now: Now) -> int:
        groups = _grouped(records)
        if not groups:
            return super().append(container, records, now)
        return self._append_packs(container, groups, now)

    @guarded
    def append_alike(
        self, container: int, groups: Sequence[AlikeRecords], now: Now
    ) -> int:
        packs: list[AlikeRecords] = []
        for each in groups:
            parts = _divided(each)
            if not parts:
                return super().append_alike(container, groups, now)
            packs += parts
        return self._append_packs(container, packs, now)

    def _append_packs(
        self, container: int, packs: Sequence[AlikeRecords], now: Now
    ) -> int:
        """Keep each of these as a pack."""
        counters = self._containers.change(container)
        count = sum(len(pack.sizes) for pack in packs)
        first = next_sequence(counters, count)
        next_id = container << SEQUENCE_BITS | first
        rows: list[tuple[object, ...]] = []
        size_bytes = 0
        for head, sizes, bares, origin in packs:
            first_id, next_id = next_id, next_id + len(sizes)
            packed = struct.pack(f"<{len(sizes)}I", *sizes)
            front = (next_id - 1, first_id, now.wall_ms, origin)
            rows.append((*front, head, packed, bares))
            size_bytes += len(bares) + len(head) * len(sizes)
        self._has_packs = True
        self._insert(_SQL["insert_pack"], rows)
        counters.last_sequence += count
        counters.active += count
        counters.size_bytes += size_bytes
        self._containers.stored_bytes += size_bytes
        counters.accessed_ms = now.wall_ms
        return first

    # -- out -------------------------------------------------------------------

    def _receive_above(
        self,
        received: ReceivedMessages,
        counters: Container,
        limit: int,
        wall_ms: int,
        terms: LockTerms | None,
    ) -> None:
        while counters.head < counters.last_sequence and len(received) < limit:
            missing, last = limit - len(received), counters.last_sequence
            pack = self._next_pack(counters)
            if pack is not None:
                last = (pack.first & SEQUENCE_MASK) - 1
            if pack is not None and last == counters.head:
                front = self._cut(pack, missing)
                if front is not None:
                    received.add_alike(self._receive_pack(counters, front, terms))
                    continue
                last += missing
            received.add(self._receive_rows(counters, last, missing, wall_ms, terms))

    def _next_pack(self, counters: Container) -> Pack | None:
        """The first pack above the head."""
        if not self._has_packs:
            return None
        base = counters.id << SEQUENCE_BITS
        at = (base | counters.head, base | SEQUENCE_MASK)
        row = self._run(_SQL["next_pack"], at).fetchone()
        return None if row is None else Pack._make(row)

    def _cut(self, pack: Pack, most: int) -> Pack | None:
        """A pack of no more than so many messages; None if they are rows now."""
        if pack.left <= most:
            return pack
        self._containers.change(pack.last >> SEQUENCE_BITS)
        if most * limits.PACK_PART_TO_DIVIDE < pack.left:
            self._make_rows(pack)
            return None
        at = sum(sizes_of(pack.sizes[: most * _SIZE.size]))
        divided = most * _SIZE.size
        front = pack._replace(
            last=pack.first + most - 1,
            sizes=pack.sizes[:divided],
            bares=pack.bares[:at],
        )
        back = pack._replace(
            first=pack.first + most,
            origin=None if pack.origin is None else pack.origin + most,
            sizes=pack.sizes[divided:],
            bares=pack.bares[at:],
        )
        self._run(_SQL["delete_pack"], (pack.last,))
        self._insert(_SQL["insert_pack"], [each[:-2] for each in (front, back)])
        return front

    def _receive_pack(
        self, counters: Container, pack: Pack, terms: LockTerms | None
    ) -> AlikeStored:
        counters = self._containers.change(counters.id)
        counters.head = pack.last & SEQUENCE_MASK
        if terms is None:
            size_bytes = len(pack.bares) + len(pack.head) * pack.left
            self._discount_packed(counters, pack.left, size_bytes)
            self._run(_SQL["delete_pack"], (pack.last,))
        else:
            self._run(_SQL["lock_pack"], (pack.last, pack.first, *terms))
        return pack.alike()

    def _discount_packed(
        self, counters: Container, count: int, size_bytes: int
    ) -> None:
        counters.active -= count
        counters.size_bytes -= size_bytes
        self._containers.stored_bytes -= size_bytes

    @guarded
    def peek(
        self, container: int, start: int, limit: int, now: Now, session: str | None
    ) -> list[Stored]:
        rows = super().peek(container, start, limit, now, session)
        if session is not None or not self._has_packs or start > SEQUENCE_MASK:
            return rows
        first = container << SEQUENCE_BITS | max(start, 0)
        end = (container + 1) << SEQUENCE_BITS
        with closing(packed_messages(self._connection, first, end)) as packed:
            return list(islice(merge(rows, packed), max(limit, 0)))

    # -- settled ---------------------------------------------------------------

    @guarded
    def complete(self, locks: Sequence[Lock], now: Now) -> list[bool]:
        if not self._has_packs:
            return super().complete(locks, now)
        answers: list[bool] = []
        others: list[Lock] = []
        for run in runs_of(locks):
            if not self._held_packs(run):
                others += run
                continue
            # In order, because a lock may be named twice.
            answers += super().complete(others, now)
            others = []
            # Packs may have become rows by that.
            left = run
            for pack in self._held_packs(run):
                before = max(pack.first - left[0].id, 0)
                answers += super().complete(left[:before], now)
                part = left[before : pack.last - left[0].id + 1]
                left = left[before + len(part) :]
                if self._complete_in_pack(pack, part, now.steady_ms):
                    answers += [True] * len(part)
                else:
                    answers += super().complete(part, now)
            others += left
        return answers + super().complete(others, now)

    def _held_packs(self, run: Sequence[Lock]) -> list[HeldPack]:
        """The locked packs that messages of a run may belong to, in order."""
        first, last = run[0].id, run[-1].id
        if not self._containers.has(first >> SEQUENCE_BITS):
            return []
        at = {"first": first, "last": last, "most": limits.PACK_MESSAGES_MAX}
        rows = self._run(_SQL["held_packs"], at).fetchall()
        return list(map(HeldPack._make, rows))

    def _complete_in_pack(
        self, pack: HeldPack, part: Sequence[Lock], steady_ms: int
    ) -> bool:
        """Complete the first messages of a pack, if they are held and are the first."""
        (first, nonce), count = part[0], len(part)
        if first != pack.first or nonce != pack.nonce or pack.until_ms <= steady_ms:
            return False
        counters = self._containers.change(first >> SEQUENCE_BITS)
        sizes = sizes_of(pack.sizes[: count * _SIZE.size])
        self._discount_packed(counters, count, sum(sizes) + count * pack.head_bytes)
        if part[-1].id == pack.last:
            self._forget_pack(pack.last)
        else:
            self._run(_SQL["complete_in_pack"], (first + count, pack.last))
        return True

    def _forget_pack(self, last: int) -> None:
        self._run(_SQL["delete_pack_lock"], (last,))
        self._run(_SQL["delete_pack"], (last,))

    # -- all else --------------------------------------------------------------

    def _unpack(self, ids: Iterable[int]) -> None:
        if self._has_packs:
            rows = self._run(_SQL["packs_of"], (self._ids(ids),)).fetchall()
            for row in rows:
                self._make_rows(Pack._make(row))

    def _make_rows(self, pack: Pack) -> None:
        """Give each message that is left in a pack a row, and its lock, too."""
        self._containers.change(pack.last >> SEQUENCE_BITS)
        self._forget_pack(pack.last)
        messages = pack.messages()
        head = bytearray(pack.head)
        rows = [
            (key, pack.enqueued_ms, 0, FOREVER_MS, origin or 0, head, bytearray(bare))
            for key, _, _, _, _, _, _, origin, _, _, bare in messages
        ]
        self._insert(self._sql["append_plain"], rows)
        if pack.nonce is not None and pack.until_ms is not None:
            self._hold(messages, LockTerms(pack.nonce, pack.until_ms))

    def _empty(self, container: int, end: int) -> None:
        super()._empty(container, end)
        for table in ("packs", "pack_locks"):
            ids = (container << SEQUENCE_BITS, end << SEQUENCE_BITS)
            self._run(_SQL[f"empty_{table}"], ids)

    def _purge_messages(self, container: int, until: int, limit: int) -> int:
        base = container << SEQUENCE_BITS
        ids = (base, base | SEQUENCE_MASK)
        gone = 0
        while self._has_packs and gone < limit:
            row = self._run(_SQL["pack_sizes"], ids).fetchone()
            if row is None or row[1] > base + until:
                break
            last, first, head_bytes, sizes = row
            before = (first & SEQUENCE_MASK) - 1
            gone += super()._purge_messages(container, before, limit - gone)
            count = last - first + 1
            if last > base + until or count > limit - gone:
                self._unpack([last])
                break
            counters = self._containers.change(container)
            size_bytes = sum(sizes_of(sizes)) + head_bytes * count
            self._discount_packed(counters, count, size_bytes)
            self._forget_pack(last)
            gone += count
        return gone + super()._purge_messages(container, until, limit - gone)

    def _held(self, container: int, limit: int) -> Holdings:
        found = super()._held(container, limit)
        base = container << SEQUENCE_BITS
        active, size_bytes = found.active, found.size_bytes
        with closing(
            self._connection.execute(_SQL["pack_sizes"], (base, base | SEQUENCE_MASK))
        ) as packs:
            for last, first, head_bytes, sizes in packs:
                if active >= limit:
                    break
                count = last - first + 1
                active += count
                size_bytes += sum(sizes_of(sizes)) + head_bytes * count
        return found._replace(active=active, size_bytes=size_bytes)

    # -- time ------------------------------------------------------------------

    @guarded
    def end_locks(self, now: Now, limit: int) -> list[EndedLock]:
        self._unpack_ended(now.steady_ms, limit)
        return super().end_locks(now, limit)

    @guarded
    def ended_locks(self, now: Now, limit: int) -> list[int]:
        self._unpack_ended(now.steady_ms, limit)
        return super().ended_locks(now, limit)

    def _unpack_ended(self, steady_ms: int, limit: int) -> None:
        """Give rows to the messages of packs whose locks have ended, to so many."""
        while limit > 0 and self._has_packs:
            row = self._run(_SQL["ended_packs"], (steady_ms, 1)).fetchone()
            if row is None:
                return
            pack = Pack._make(row)
            self._make_rows(pack)
            limit -= pack.left

    @guarded
    def cut_locks(self, until_ms: int) -> None:
        super().cut_locks(until_ms)
        self._run(_SQL["cut_pack_locks"], {"until_ms": until_ms})


def _grouped(records: Sequence[Record]) -> list[AlikeRecords]:
    """The messages as packs; none if they may not be kept so."""
    bares = _alike(records)
    lengths = _pack_lengths(list(map(len, bares)))
    head, origin = (records[0].head, records[0].origin) if lengths else (b"", None)
    groups: list[AlikeRecords] = []
    end = 0
    for length in lengths:
        start, end = end, end + length
        part = bares[start:end]
        number = None if origin is None else origin + start
        sizes = list(map(len, part))
        groups.append(AlikeRecords(head, sizes, b"".join(part), number))
    return groups


def _divided(group: AlikeRecords) -> list[AlikeRecords]:
    """A group as packs; none if its messages should have rows of their own."""
    lengths = _pack_lengths(group.sizes)
    if len(lengths) == 1:
        return [group]
    parts: list[AlikeRecords] = []
    bares = memoryview(group.bares)
    end = end_at = 0
    for length in lengths:
        start, end = end, end + length
        sizes = group.sizes[start:end]
        start_at, end_at = end_at, end_at + sum(sizes)
        number = None if group.origin is None else group.origin + start
        part = bytes(bares[start_at:end_at])
        parts.append(AlikeRecords(group.head, sizes, part, number))
    return parts


def _pack_lengths(sizes: Sequence[int]) -> list[int]:
    """How many messages of these sizes go into each pack; none if packs do not pay.

    The packs are of about the same size, so that none is too small.
    """
    count = len(sizes)
    if count < limits.PACK_MESSAGES_MIN:
        return []
    most = limits.PACK_BYTES_MAX // (max(sizes) or 1)
    most = min(most, limits.PACK_MESSAGES_MAX)
    if most < limits.PACK_MESSAGES_MIN:
        return []
    packs = -(-count // most)
    ends = [number * count // packs for number in range(packs + 1)]
    return [end - start for start, end in pairwise(ends)]


def _alike(records: Sequence[Record]) -> list[bytes]:
    """The messages themselves, if they may be kept in packs; else none."""
    bares: list[bytes] = []
    if len(records) < limits.PACK_MESSAGES_MIN:
        return bares
    alike, origin = records[0].head, records[0].origin
    for record in records:
        head, bare, session, expires_ms, due_ms, number, source, deliveries = record
        if (
            head != alike
            or number != origin
            or session is not None
            or expires_ms is not None
            or due_ms is not None
            or source is not None
            or deliveries
        ):
            return []
        bares.append(bare)
        if origin is not None:
            origin += 1
    return bares
