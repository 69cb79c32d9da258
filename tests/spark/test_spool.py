"""The files of a stream: whole, once, and as long as they are needed."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest

from twinbus.client.message import Message
from twinbus.errors import ArgumentError
from twinbus.spark.source.rows import Place, RowBatch
from twinbus.spark.source.spool import Key, Part, PartTaken, Spool
from twinbus.wire.codec import encode
from twinbus.wire.message import sections
from twinbus.wire.types import Described, Symbol, Timestamp, ULong


def batch(*numbers: int) -> pa.RecordBatch:
    rows = RowBatch(Place("here", "orders"), locks=True)
    for number in numbers:
        annotations = {
            Symbol("x-opt-sequence-number"): number,
            Symbol("x-opt-enqueued-time"): Timestamp(number * 10),
        }
        code = ULong(sections.MESSAGE_ANNOTATIONS)
        rows.add(Message(encode(Described(code, annotations)), UUID(int=number)))
    return rows.take()


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    made = Spool(str(tmp_path), "topic/Subscriptions/all")
    made.plan(1, 2)
    return made


def test_a_part_comes_back_as_it_was(spool: Spool) -> None:
    written = batch(1, 2)

    spool.publish(Part(1, 0, 0), written)

    assert list(spool.read(Part(1, 0, 0))) == [written]
    assert spool.parts(1) == [Part(1, 0, 0)]
    assert list(spool.locks(Part(1, 0, 0))) == [Key(1, 10_000), Key(2, 20_000)]


def test_a_part_is_written_once(spool: Spool) -> None:
    spool.publish(Part(1, 0, 0), batch(1))

    with pytest.raises(PartTaken):
        spool.publish(Part(1, 0, 0), batch(2))

    assert list(spool.locks(Part(1, 0, 0))) == [Key(1, 10_000)]


def test_parts_are_in_their_order(spool: Spool) -> None:
    for part in (Part(1, 1, 0), Part(1, 0, 11), Part(1, 0, 2)):
        spool.publish(part, batch(1))

    assert spool.parts(1) == [Part(1, 0, 2), Part(1, 0, 11), Part(1, 1, 0)]
    assert spool.parts(1, 0) == [Part(1, 0, 2), Part(1, 0, 11)]
    assert spool.parts(2) == []


def test_a_draft_of_a_crash_is_no_part(spool: Spool, tmp_path: Path) -> None:
    spool.publish(Part(1, 0, 0), batch(1))
    [file] = tmp_path.rglob("*.arrow")
    (file.parent / ".draft.arrow").write_bytes(b"torn")

    assert spool.parts(1) == [Part(1, 0, 0)]


def test_a_batch_keeps_the_slices_that_it_was_planned_with(spool: Spool) -> None:
    assert spool.plan(1, 5) == 2
    assert spool.plan(2, 5) == 5
    assert spool.epochs() == [1, 2]


def test_a_slice_ends_once_and_for_all(spool: Spool) -> None:
    spool.publish(Part(1, 0, 0), batch(1))
    spool.end(Part(1, 0, 1))
    spool.end(Part(1, 0, 1))

    assert [spool.ends(part) for part in spool.parts(1, 0)] == [False, True]
    # An attempt that is late can neither add to it nor end it earlier.
    with pytest.raises(PartTaken):
        spool.publish(Part(1, 0, 1), batch(2))
    with pytest.raises(PartTaken):
        spool.end(Part(1, 0, 0))
    assert spool.unsettled() == {Key(1, 10_000)}


def test_messages_that_may_come_again_are_known(spool: Spool) -> None:
    spool.publish(Part(1, 0, 0), batch(1))
    spool.publish(Part(1, 0, 1), batch(2))
    spool.plan(2, 1)
    spool.publish(Part(2, 0, 0), batch(3))

    spool.settle(Part(1, 0, 1))

    assert spool.unsettled() == {Key(1, 10_000), Key(3, 30_000)}


def test_a_batch_that_is_removed_leaves_nothing(spool: Spool, tmp_path: Path) -> None:
    spool.publish(Part(1, 0, 0), batch(1))

    spool.remove(1)

    assert spool.epochs() == []
    assert not list(tmp_path.rglob("*.arrow"))


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ArgumentError, match="'spoolLocation'"):
        Spool(str(tmp_path / "file"), "orders").plan(1, 1)
