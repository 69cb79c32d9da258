"""Streams that remove what they read: nothing is lost, whatever breaks in between.

The readers run in this process, so that a test can stop them at any point.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.bus import Bus, message
from tests.spark.reading import Stream, ids_of
from twinbus.client.receiver import ReceiveOptions
from twinbus.errors import ArgumentError, ConfigError
from twinbus.spark.source.spool import Part, Spool, SpooledSlice
from twinbus.testing.namespace import serve_namespace

LONG = {"lock_duration": "PT5M"}
SHORT = {"lock_duration": "PT5S"}
SESSIONS = {"requires_session": True}


def spooling(bus: Bus, queue: str, folder: Path, **others: object) -> Stream:
    location = folder / "spool"
    return Stream(bus.options(queue, settle="spool", spoolLocation=location, **others))


def flat(parts: list[list[dict[str, Any]]]) -> list[str]:
    return [each for part in parts for each in ids_of(part)]


# -- spool -----------------------------------------------------------------------------


def test_messages_are_removed_once_they_are_in_a_file(
    bus: Bus, queue: str, tmp_path: Path
) -> None:
    sent = bus.fill(queue, 250)
    stream = spooling(bus, queue, tmp_path, maxMessagesPerBatch=200, chunkSize=60)

    first, second = stream.run()

    assert (ids_of(first), ids_of(second)) == (sent[:200], sent[200:])
    assert bus.held(queue) == 0
    # Both batches are committed, so their files are gone.
    assert not list(tmp_path.rglob("*.arrow"))
    stream.close()


def test_a_batch_that_runs_again_has_the_same_rows(
    bus: Bus, queue: str, tmp_path: Path
) -> None:
    bus.fill(queue, 50)
    stream = spooling(bus, queue, tmp_path, parallelism=3, chunkSize=10)
    planned = stream.plan()
    assert planned is not None
    first = stream.read(planned)
    bus.fill(queue, 5)

    # As another process would, with another number of tasks asked for.
    later = spooling(bus, queue, tmp_path, parallelism=1)
    later._end = stream._end

    assert later.read(later.again()) == first
    assert bus.held(queue) == 5
    stream.close()


def test_parts_written_by_a_killed_task_count(
    bus: Bus, queue: str, tmp_path: Path
) -> None:
    sent = bus.fill(queue, 30)
    stream = spooling(bus, queue, tmp_path, chunkSize=10, maxMessagesPerBatch=25)
    planned = stream.plan()
    assert planned is not None
    half = stream.reader.read(planned[0])
    [next(half), next(half)]
    half.close()
    assert bus.held(queue) == 10

    again = stream.read(stream.again())

    assert flat(again) == sent[:25]
    assert bus.held(queue) == 5
    stream.close()


class Killed(BaseException):
    """Stands for the end of a process in the middle of something."""


@pytest.mark.parametrize("queue", [LONG], indirect=True)
def test_a_task_that_dies_before_the_file_is_there_gives_all_back(
    bus: Bus, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = bus.fill(queue, 10)
    stream = spooling(bus, queue, tmp_path)
    planned = stream.plan()
    assert planned is not None

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Spool, "publish", fail)
        with pytest.raises(OSError, match="No space"):
            stream.read(planned)

    rows = stream.read(stream.again())
    assert flat(rows) == sent
    assert [row["delivery_count"] for row in rows[0]] == [1] * 10
    assert bus.held(queue) == 0
    stream.close()


@pytest.mark.parametrize("queue", [LONG], indirect=True)
def test_a_task_that_dies_before_it_completes_yields_no_row_twice(
    bus: Bus, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = bus.fill(queue, 10)
    stream = spooling(bus, queue, tmp_path)
    planned = stream.plan()
    assert planned is not None
    publish = Spool.publish

    def publish_and_die(spool: Spool, part: Part, batch: Any) -> None:
        publish(spool, part, batch)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Spool, "publish", publish_and_die)
        # A dead process gives nothing back either.
        patch.setattr("twinbus.client.sync.receiver.Receiver.abandon", _nothing)
        with pytest.raises(Killed):
            stream.read(planned)
    assert bus.held(queue) == 10
    # It was only one delivery's worth of work: the rows are there.
    assert flat(stream.read(stream.again())) == sent

    stream.commit()
    # The driver sees that the batch is committed, and completes by the locks it kept.
    assert stream.run() == []
    assert bus.held(queue) == 0
    assert not list(tmp_path.rglob("*.arrow"))
    stream.close()


def _nothing(*_: object) -> None:
    """What a process does when it is gone."""


def test_messages_that_come_again_are_known_from_the_spool(
    bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock ends before the complete; time is moved by hand."""
    entities = {"queues": [{"name": "orders", **SHORT}]}
    with serve_namespace(entities, manual_clock=True) as namespace:
        own = Bus(namespace, {"connectionString": namespace.connection_string})
        sent = own.fill("orders", 10)
        stream = spooling(own, "orders", tmp_path)
        planned = stream.plan()
        assert planned is not None
        with monkeypatch.context() as patch:
            patch.setattr("twinbus.client.sync.receiver.Receiver.complete", _refuse)
            assert flat(stream.read(planned)) == sent
        own.send("orders", [message("new", b"")])
        namespace.advance(6)

        stream.commit()
        batches = stream.run()

        assert [ids_of(rows) for rows in batches] == [["new"]]
        assert own.held("orders") == 0
        assert not list(tmp_path.rglob("*.arrow"))
        stream.close()


def _refuse(*_: object) -> None:
    from twinbus.errors import Disconnected

    raise Disconnected


def test_a_second_attempt_at_the_same_time_leaves_the_part_to_the_first(
    bus: Bus, queue: str, tmp_path: Path
) -> None:
    bus.fill(queue, 20)
    stream = spooling(bus, queue, tmp_path, chunkSize=5, maxMessagesPerBatch=10)
    planned = stream.plan()
    assert planned is not None
    slow = stream.reader.read(planned[0])
    next(slow)
    assert len(flat(stream.read(planned))) == 10

    with pytest.raises(ConfigError, match="Another attempt has written part 1"):
        next(slow)

    # What the slower one had received meanwhile is back.
    assert bus.held(queue) == 10
    assert len(bus.take(queue, 10)) == 10
    stream.close()


def test_an_attempt_that_is_late_cannot_add_to_a_slice(
    bus: Bus, queue: str, tmp_path: Path
) -> None:
    """Its executor was taken for dead, and the batch may be committed already."""
    bus.fill(queue, 20)
    stream = spooling(bus, queue, tmp_path, chunkSize=5, maxMessagesPerBatch=10)
    planned = stream.plan()
    assert planned is not None
    late = stream.reader.read(planned[0])
    next(late)
    next(late)
    assert len(flat(stream.read(planned))) == 10
    bus.fill(queue, 5)

    rest = [each.num_rows for each in late]

    assert rest == []
    assert len(flat(stream.read(stream.again()))) == 10
    assert bus.held(queue) == 15
    stream.close()


def test_a_spool_of_another_query_is_refused(
    bus: Bus, queue: str, tmp_path: Path
) -> None:
    bus.fill(queue, 5)
    stream = spooling(bus, queue, tmp_path)
    planned = stream.plan()
    assert planned is not None
    stream.read(planned)

    new = spooling(bus, queue, tmp_path)

    with pytest.raises(ConfigError, match=r"'spoolLocation': it holds batch 1"):
        new.plan()
    stream.close()
    new.close()


def test_a_slice_knows_its_limits(bus: Bus, queue: str, tmp_path: Path) -> None:
    bus.fill(queue, 12)
    stream = spooling(bus, queue, tmp_path, maxMessagesPerBatch=10, parallelism=3)

    planned = stream.plan()

    assert planned is not None
    assert [each.value.messages_max for each in planned] == [4, 3, 3]
    assert [len(part) for part in stream.read(planned)] == [4, 3, 3]
    stream.close()


def test_large_messages_are_written_in_small_parts(
    bus: Bus, queue: str, tmp_path: Path
) -> None:
    bus.fill(queue, 50, size_bytes=200_000)
    stream = spooling(bus, queue, tmp_path)
    planned = stream.plan()
    assert planned is not None

    sizes = [each.num_rows for each in stream.reader.read(planned[0])]

    assert sum(sizes) == 50
    assert max(sizes) <= 2 * 21
    stream.close()


# -- sessions --------------------------------------------------------------------------


@pytest.mark.parametrize("queue", [SESSIONS], indirect=True)
def test_a_session_stays_in_one_partition_and_in_order(
    bus: Bus, queue: str, tmp_path: Path
) -> None:
    names = [f"s{number % 7}" for number in range(140)]
    bus.send(
        queue,
        [message(str(at), str(at).encode(), name) for at, name in enumerate(names)],
    )
    stream = spooling(bus, queue, tmp_path, sessions="true", parallelism=3)
    planned = stream.plan()
    assert planned is not None

    parts = stream.read(planned)

    homes: dict[str, set[int]] = {}
    for at, part in enumerate(parts):
        for row in part:
            homes.setdefault(row["session_id"], set()).add(at)
        for name in set(names):
            numbers = [int(row["body"]) for row in part if row["session_id"] == name]
            assert numbers == sorted(numbers)
    assert {name: len(home) for name, home in homes.items()} == dict.fromkeys(homes, 1)
    assert sum(map(len, parts)) == 140
    assert bus.held(queue) == 0
    stream.commit()
    assert stream.run() == []
    stream.close()


@pytest.mark.parametrize("queue", [SESSIONS], indirect=True)
def test_a_session_held_by_another_receiver_is_left_alone(
    bus: Bus, queue: str, tmp_path: Path
) -> None:
    for session in ("mine", "theirs"):
        bus.send(queue, [message(session, b"", session)])
    stream = spooling(bus, queue, tmp_path, sessions="true")
    theirs = ReceiveOptions(session_id="theirs")
    with bus.connection.receiver(queue, theirs) as receiver:
        receiver.open()
        planned = stream.plan()
        assert planned is not None
        [rows] = stream.read(planned)

    assert [row["session_id"] for row in rows] == ["mine"]
    assert bus.held(queue) == 1
    stream.close()


@pytest.mark.parametrize("queue", [SESSIONS], indirect=True)
def test_sessions_have_to_be_asked_for(
    bus: Bus, queue: str, name: str, tmp_path: Path
) -> None:
    from twinbus.spark.source.source import ServiceBusSource

    options = bus.options(queue, settle="spool", spoolLocation=tmp_path)
    with pytest.raises(ArgumentError, match="requires sessions"):
        ServiceBusSource(options).schema()
    ServiceBusSource({**options, "sessions": "true"}).schema()


# -- sink ------------------------------------------------------------------------------


@pytest.mark.parametrize("queue", [LONG], indirect=True)
def test_rows_carry_locks_that_hold(bus: Bus, queue: str) -> None:
    sent = bus.fill(queue, 30)
    stream = Stream(bus.options(queue, settle="sink", chunkSize=8))
    planned = stream.plan()
    assert planned is not None

    [rows] = stream.read(planned)

    assert ids_of(rows) == sent
    assert len({row["lock_token"] for row in rows}) == 30
    assert all(row["locked_until"] > row["enqueued_at"] for row in rows)
    assert bus.take(queue, 1) == []
    stream.close()


@pytest.mark.parametrize("queue", [LONG], indirect=True)
def test_a_read_that_stops_in_the_middle_keeps_no_lock(bus: Bus, queue: str) -> None:
    bus.fill(queue, 30)
    stream = Stream(bus.options(queue, settle="sink", chunkSize=8))
    planned = stream.plan()
    assert planned is not None

    rows = stream.reader.read(planned[0])
    assert next(rows).num_rows == 8
    assert next(rows).num_rows == 8
    rows.close()

    assert len(bus.take(queue, 30)) == 30
    stream.close()


def test_nothing_new_is_no_batch(bus: Bus, queue: str) -> None:
    stream = Stream(bus.options(queue, settle="sink"))
    stream.reader.prepareForTriggerAvailableNow()

    assert stream.plan() is None
    bus.fill(queue, 1)
    # It came after the start, so it is for another run.
    assert stream.plan() is None
    stream.close()


# -- a namespace that goes away --------------------------------------------------------


def test_a_share_ends_early_when_the_namespace_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task comes to its end with what it has; the driver waits for the rest."""
    with serve_namespace({"queues": ["orders"]}) as namespace:
        own = Bus(namespace, {"connectionString": namespace.connection_string})
        sent = own.fill("orders", 20)
        stream = spooling(own, "orders", tmp_path, chunkSize=5)
        planned = stream.plan()
        assert planned is not None
        keep = SpooledSlice._keep
        parts: list[int] = []

        def keep_one(slice_: SpooledSlice, chunk: Any, part: Part) -> Any:
            found = keep(slice_, chunk, part)
            parts.append(part.number)
            return found

        monkeypatch.setattr(SpooledSlice, "_keep", keep_one)
        rows = stream.reader.read(planned[0])
        assert next(rows).num_rows == 5
    # The namespace is gone now.
    assert list(rows) == []
    assert parts == [0]
    [again] = stream.read(planned)
    assert ids_of(again) == sent[:5]
