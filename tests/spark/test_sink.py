"""One task of a sink: what it sends, what it settles, and what it gives back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.spark.bus import Bus
from tests.spark.reading import Stream
from twinbus.errors import ArgumentError
from twinbus.spark.schema import arrow_schema, spark_schema
from twinbus.spark.sink.encoding import Identity
from twinbus.spark.sink.sending import RowRefused
from twinbus.spark.sink.sink import SinkSettings, Written, write_partition
from twinbus.testing.namespace import serve_namespace

LONG = {"lock_duration": "PT5M"}
ROW = {"body": b"x", "message_id": "one"}


def batch(*rows: Mapping[str, object]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=arrow_schema(locks=False))


def write(
    bus: Bus,
    batches: Iterator[pa.RecordBatch] | list[pa.RecordBatch],
    partition: int = 0,
    **options: str,
) -> Written:
    """Run a task."""
    given = {**bus.access, **options}
    settings = SinkSettings.of(given, spark_schema(locks=True))
    return write_partition(settings, Identity("query", 5, partition), iter(batches))


@pytest.fixture
def out(bus: Bus, name: str) -> str:
    return bus.namespace.create_queue(f"{name}-out", requires_duplicate_detection=True)


def received(bus: Bus, queue: str) -> list[pa.RecordBatch]:
    """What a source that leaves settling to the sink hands on."""
    stream = Stream(bus.options(queue, settle="sink", chunkSize=4))
    planned = stream.plan()
    assert planned is not None
    found = list(stream.reader.read(planned[0]))
    stream.close()
    return found


# -- ids -------------------------------------------------------------------------------


def test_a_task_that_runs_again_sends_nothing_twice(bus: Bus, out: str) -> None:
    rows = [batch({"body": b"same"}, {"body": b"same"}), batch({"body": b"other"})]

    for _ in range(2):
        assert write(bus, rows, entity=out) == Written(sent=3)

    assert bus.held(out) == 3
    assert write(bus, rows, partition=1, entity=out).sent == 3
    assert bus.held(out) == 6


def test_rows_that_come_in_another_order_are_not_taken_for_each_other(
    bus: Bus, out: str
) -> None:
    first, second = {"body": b"first"}, {"body": b"second"}
    write(bus, [batch(first)], entity=out)

    write(bus, [batch(second, first)], entity=out)

    # "first" came twice, and that is better than "second" not at all.
    assert bus.held(out) == 3


# -- entities --------------------------------------------------------------------------


def test_a_row_says_where_it_goes_unless_an_option_does(
    bus: Bus, queue: str, out: str
) -> None:
    rows = [batch({**ROW, "entity": queue})]

    write(bus, rows)
    write(bus, rows, entity=out)

    assert (bus.held(queue), bus.held(out)) == (1, 1)


def test_a_row_without_an_entity_is_refused(bus: Bus) -> None:
    with pytest.raises(RowRefused, match=r"Row 0 of .*'one'.* 'entity' is null"):
        write(bus, [batch(ROW)])


# -- locks -----------------------------------------------------------------------------


@pytest.mark.parametrize("queue", [LONG], indirect=True)
def test_locks_of_sent_rows_are_settled(bus: Bus, queue: str, out: str) -> None:
    sent = bus.fill(queue, 10)

    done = write(bus, received(bus, queue), entity=out)

    assert done == Written(sent=10, settled=10)
    assert bus.held(queue) == 0
    assert bus.take(out, 10) == sent


@pytest.mark.parametrize("queue", [LONG], indirect=True)
def test_a_write_that_fails_gives_back_what_it_holds(bus: Bus, queue: str) -> None:
    sent = bus.fill(queue, 3)
    rows = received(bus, queue)

    with pytest.raises(RowRefused, match="nowhere"):
        write(bus, rows, entity="nowhere")

    assert bus.take(queue, 3) == sent


@pytest.mark.parametrize("queue", [LONG], indirect=True)
def test_a_bad_row_is_settled_once_it_is_kept(
    bus: Bus, queue: str, tmp_path: Path
) -> None:
    bus.fill(queue, 3)

    done = write(
        bus, received(bus, queue), entity="nowhere", badRows=str(tmp_path / "bad")
    )

    assert done == Written(bad=3, settled=3)
    assert bus.held(queue) == 0
    [file] = (tmp_path / "bad").iterdir()
    assert file.name == "query-5-0.parquet"
    assert parquet.read_table(file).num_rows == 3


def test_a_lock_that_was_lost_is_counted(tmp_path: Path) -> None:
    queues = [{"name": "in", "lock_duration": "PT5S"}, "out"]
    with serve_namespace({"queues": queues}, manual_clock=True) as namespace:
        bus = Bus(namespace, {"connectionString": namespace.connection_string})
        bus.fill("in", 5)
        rows = received(bus, "in")
        namespace.advance(6)

        done = write(bus, rows, entity="out")

        assert done == Written(sent=5, lost=5)
        assert bus.held("in") == 5


def test_a_lock_of_another_namespace_needs_its_connection_string(
    bus: Bus, out: str
) -> None:
    with serve_namespace({"queues": ["in"]}) as namespace:
        other = Bus(namespace, {"connectionString": namespace.connection_string})
        other.fill("in", 2)
        rows = received(other, "in")

        with pytest.raises(ArgumentError, match="'sourceConnectionStringEnv'"):
            write(bus, rows, entity=out)

        text = namespace.connection_string
        done = write(bus, rows, entity=out, sourceConnectionString=text)
        assert done == Written(sent=2, settled=2)
        assert other.held("in") == 0


# -- bad rows --------------------------------------------------------------------------


def test_a_task_that_runs_again_replaces_its_bad_rows(
    bus: Bus, out: str, tmp_path: Path
) -> None:
    folder = str(tmp_path / "bad")
    wrong = {**ROW, "body_type": "wrong"}
    write(bus, [batch(wrong, ROW, wrong)], entity=out, badRows=folder)
    assert write(bus, [batch(wrong)], entity=out, badRows=folder).bad == 1

    [file] = (tmp_path / "bad").iterdir()
    [row] = parquet.read_table(file).to_pylist()
    assert "'body_type' is 'wrong'" in row["error"]

    assert write(bus, [batch(ROW)], entity=out, badRows=folder).bad == 0
    assert not list((tmp_path / "bad").iterdir())


def test_a_task_that_fails_leaves_no_half_of_a_file(
    bus: Bus, out: str, tmp_path: Path
) -> None:
    folder = tmp_path / "bad"

    def rows() -> Iterator[pa.RecordBatch]:
        yield batch({**ROW, "body_type": "wrong", "body": b"x" * 5_000_000})
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011
        write(bus, rows(), entity=out, badRows=str(folder))

    assert not list(folder.iterdir())
