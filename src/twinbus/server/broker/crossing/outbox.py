"""What crosses shards: the commands at both ends of an outbox.

A shard posts parcels for another one in its own transaction (`store/base.py`). They are
read in a turn of the source (`TakePosted`), applied in a turn of the target
(`ApplyPosted`), and forgotten in a later turn of the source. The target remembers the
last number that it has applied of each source, in the transaction that applies it: so
each parcel is applied once and in order, wherever a crash comes. A shard that was
replaced by an older copy goes on, and the log says what is missing. Owns what each kind
of parcel does where it arrives. Knows nothing about who carries them (`mover.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from twinbus import limits
from twinbus.errors import StoreFault
from twinbus.server.broker.crossing import parcels
from twinbus.server.broker.crossing.parcels import Route
from twinbus.server.broker.sending.letter import Letter, error_text
from twinbus.server.broker.turn import Turn
from twinbus.store.base import PROBE, OutboxCounts, Posted, id_of

if TYPE_CHECKING:
    from twinbus.server.broker.namespace import Namespace

log = logging.getLogger("twinbus.outbox")


class TakePosted:
    """Forget what a target has applied, and read what comes next (`turn.Command`)."""

    __slots__ = ("_applied", "_target")

    def __init__(self, target: int, applied: int) -> None:
        self._target = target
        # The number of the last parcel that the target has applied; 0: unknown.
        self._applied = applied

    def __call__(self, namespace: Namespace, turn: Turn) -> list[Posted]:
        store = namespace.store
        if self._applied:
            store.forget_posted(self._target, self._applied)
        rows, size_bytes = limits.OUTBOX_ROWS, limits.OUTBOX_BYTES
        found = store.posted(self._target, rows, size_bytes)
        turn.left -= len(found)
        return found


class ApplyPosted:
    """Apply what another shard has posted; returns the last number (`turn.Command`)."""

    __slots__ = ("_posted", "_source")

    def __init__(self, source: int, posted: Sequence[Posted]) -> None:
        self._source = source
        self._posted = posted

    def __call__(self, namespace: Namespace, turn: Turn) -> int:
        store = namespace.store
        first = last = store.applied(self._source)
        for row in self._posted:
            if row.number <= last:
                # The source was stopped before it had forgotten this one.
                continue
            if row.number != last + 1:
                # It can be had nowhere: what is there is better than to stop.
                _say_missing(namespace, self._source, last + 1, row.number - 1)
            self._apply(row, namespace, turn)
            last = row.number
            if turn.is_full:
                break
        if last > first:
            store.put_applied(self._source, last)
        return last

    def _apply(self, row: Posted, namespace: Namespace, turn: Turn) -> None:
        """Apply one parcel; if that fails it goes back, and those behind it go on."""
        turn.left -= 1
        try:
            with namespace.part():
                action = _ACTIONS[row.kind.partition(":")[0]]
                action(namespace, self._source, row.body, turn)
        except StoreFault:
            raise
        except Exception as error:
            where = f"{row.number} of shard {self._source}"
            log.exception("parcel %s could not be applied", where)
            if parcels.is_letter(row.kind):
                letter, way = parcels.unpack_letter(row.body, turn.now.wall_ms)
                problem = ("InternalError", error_text(error))
                _send_back(namespace, self._source, (letter, way), problem)


def check_numbers(source: Namespace, target: int, applied: int) -> None:
    """Compare the numbers for a target with what it has applied.

    If one of the two was replaced by an older copy, the log says what is missing. A
    source that is behind goes on above what the target has, since the target would
    take new parcels for those that it knows. In a transaction of the source. Shards in
    one database are never replaced one by one, and other nodes go on with them.
    """
    if source.store.is_remote:
        return
    rows, _size_bytes, last = _counts(source, target)
    if last < applied:
        log.error(
            "shard %d of %s was replaced by an older copy: shard %d has its numbers "
            "%d to %d, which the copy does not know; it goes on above them",
            *(source.shard, source.name, target, last + 1, applied),
        )
        source.store.skip_numbers(target, applied)
    elif last - rows > applied:
        _say_missing(source.shards[target], source.shard, applied + 1, last - rows)


def compare(source: Namespace) -> None:
    """Check the numbers of a shard that was opened, before it posts something."""
    others = [each for each in source.shards if each is not source and not each.is_away]
    known = {each.shard: each.store.applied(source.shard) for each in others}
    store = source.store
    if any(_counts(source, each).last_number < known[each] for each in known):
        store.begin()
        try:
            for target, applied in known.items():
                check_numbers(source, target, applied)
            store.commit()
        except BaseException:
            store.rollback()
            raise
        return
    for target, applied in known.items():
        check_numbers(source, target, applied)


def _counts(source: Namespace, target: int) -> OutboxCounts:
    return source.store.outbox().get(target, OutboxCounts(0, 0, 0))


def _say_missing(target: Namespace, source: int, first: int, last: int) -> None:
    log.error(
        "shard %d of %s misses numbers %d to %d of shard %d: it was replaced by an "
        "older copy, and what they held is lost",
        *(target.shard, target.name, first, last, source),
    )


def _mirror(namespace: Namespace, source: int, body: bytes, turn: Turn) -> None:
    del turn
    namespace.store.mirror(source, parcels.unpack_entity(body))


def _unmirror(namespace: Namespace, source: int, body: bytes, turn: Turn) -> None:
    del turn
    namespace.store.unmirror(source, body.decode())


def _put_fragment(namespace: Namespace, source: int, body: bytes, turn: Turn) -> None:
    del source
    namespace.entities.put_fragment(parcels.unpack_entity(body), turn)


def _drop_fragment(namespace: Namespace, source: int, body: bytes, turn: Turn) -> None:
    entity = namespace.entities.find(body.decode())
    # Another one may have taken the name meanwhile, with a home elsewhere.
    if entity is not None and entity.fragments[:1] == (source,):
        namespace.delete(entity.path, turn)


def _keep_rules(namespace: Namespace, source: int, body: bytes, turn: Turn) -> None:
    del source
    namespace.keep_rules(body.decode(), turn)


def _deliver(namespace: Namespace, source: int, body: bytes, turn: Turn) -> None:
    letter, way = parcels.unpack_letter(body, turn.now.wall_ms)
    problem = namespace.router.arrive(letter, way, turn)
    if problem is not None:
        _send_back(namespace, source, (letter, way), problem)


def _send_back(
    namespace: Namespace,
    source: int,
    sent: tuple[Letter, Route],
    problem: tuple[str, str],
) -> None:
    letter, way = sent
    back = replace(way, problem=problem)
    namespace.store.post(source, parcels.RETURNED, parcels.pack_letter(letter, back))


def _take_back(namespace: Namespace, source: int, body: bytes, turn: Turn) -> None:
    """A letter could not be delivered elsewhere: set it aside where it came from."""
    letter, way = parcels.unpack_letter(body, turn.now.wall_ms)
    assert way.problem is not None
    entity = namespace.entities.find(way.source)
    if entity is not None:
        namespace.router.give_up(entity, letter, way.problem, turn)
        return
    # Its entity is gone, but it was accepted: an administrator can look at it.
    text = f"from {way.source} to {way.target}, shard {source}: {way.problem[1]}"
    letter.scheduled_ms = None
    sequence = namespace.store.append(PROBE, [letter.record(None, None)], turn.now)
    namespace.store.quarantine(id_of(PROBE, sequence), text)


_ACTIONS: dict[str, Callable[[Namespace, int, bytes, Turn], None]] = {
    parcels.MIRROR: _mirror,
    parcels.UNMIRROR: _unmirror,
    parcels.FRAGMENT: _put_fragment,
    parcels.UNFRAGMENT: _drop_fragment,
    parcels.RULES: _keep_rules,
    parcels.LETTER: _deliver,
    parcels.SPOOLED: _deliver,
    parcels.RETURNED: _take_back,
}
