"""Browsing: the same rows as often as one looks, and nothing changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark.bus import Bus, message
from tests.spark.reading import Stream, browse, ids_of
from twinbus.spark.connections import connection_for
from twinbus.spark.source.browsing import NOTHING, Range, last_from, split, whole
from twinbus.spark.source.settings import SourceSettings

EVERYTHING = Range(1, (1 << 63) - 1)


@pytest.mark.parametrize(
    ("given", "parts", "ranges"),
    [
        (Range(1, 10), 3, [(1, 3), (4, 6), (7, 10)]),
        (Range(5, 6), 4, [(5, 5), (6, 6)]),
        (Range(5, 5), 1, [(5, 5)]),
        (NOTHING, 3, [(1, 0)]),
    ],
)
def test_a_range_is_cut_into_about_equal_ones(
    given: Range, parts: int, ranges: list[tuple[int, int]]
) -> None:
    assert split(given, parts) == ranges


@pytest.fixture
def sparse(bus: Bus, queue: str) -> list[int]:
    """The numbers of a queue with gaps."""
    bus.fill(queue, 40)
    kept = [3, 4, 17, 31]
    with bus.connection.receiver(queue) as receiver:
        found = receiver.receive(40, 5.0)
        assert len(found) == 40
        receiver.complete([each for each in found if each.sequence_number not in kept])
        receiver.abandon([each for each in found if each.sequence_number in kept])
    return kept


def test_the_first_and_last_sequence_numbers_are_found(
    bus: Bus, queue: str, sparse: list[int]
) -> None:
    settings = SourceSettings.of(bus.options(queue))
    management = connection_for(settings.access).management(queue)

    assert whole(management, EVERYTHING) == Range(3, 31)
    assert whole(management, Range(4, 30)) == Range(4, 30)
    assert whole(management, Range(18, 30)) == NOTHING
    assert whole(management, Range(32, 99)) == NOTHING
    for high in range(3, 40):
        # Messages above it make `high` the end, whether it has one itself or not.
        assert last_from(management, 3, high) == min(high, 31)
    assert ids_of([row for part in browse(bus.options(queue)) for row in part]) == [
        f"{queue}-{number - 1}" for number in sparse
    ]


def test_partitions_together_are_everything_once(bus: Bus, queue: str) -> None:
    sent = bus.fill(queue, 700)

    parts = browse(bus.options(queue, parallelism=4))

    assert [len(part) for part in parts] == [175] * 4
    assert ids_of([row for part in parts for row in part]) == sent


def test_a_range_can_be_asked_for(bus: Bus, queue: str) -> None:
    sent = bus.fill(queue, 20)

    [rows] = browse(bus.options(queue, firstSequence=5, lastSequence=9))

    assert ids_of(rows) == sent[4:9]


def test_an_empty_entity_has_no_rows(bus: Bus, queue: str) -> None:
    assert browse(bus.options(queue, parallelism=3)) == [[]]


def test_looking_changes_nothing(bus: Bus, queue: str) -> None:
    bus.fill(queue, 5)
    before = payloads(bus, queue)

    first = browse(bus.options(queue))
    again = browse(bus.options(queue))

    assert first == again
    assert [row["delivery_count"] for row in first[0]] == [0] * 5
    assert payloads(bus, queue) == before
    assert len(bus.take(queue, 5)) == 5


def payloads(bus: Bus, queue: str) -> list[bytes]:
    return [each.payload for each in bus.connection.management(queue).peek(100)]


@pytest.fixture
def topic(bus: Bus, name: str) -> Iterator[str]:
    bus.namespace.create_topic(name, subscriptions=["all"])
    yield name
    bus.namespace.delete(name)


def test_subscriptions_and_dead_letters_are_read_like_queues(
    bus: Bus, topic: str
) -> None:
    bus.send(topic, [message("1", b"a"), message("2", b"b")])
    path = f"{topic}/Subscriptions/all"
    with bus.connection.receiver(path) as receiver:
        receiver.dead_letter(receiver.receive(1, 5.0), "no", "use")

    [left] = browse(bus.options(topic, subscription="all"))
    [dead] = browse(bus.options(topic, subscription="all", subQueue="deadLetter"))

    assert [row["body"] for row in left] == [b"b"]
    assert [row["entity"] for row in left] == [path]
    [row] = dead
    assert row["body"] == b"a"
    assert row["entity"] == f"{topic}/Subscriptions/all/$DeadLetterQueue"
    assert (row["dead_letter_reason"], row["dead_letter_description"]) == ("no", "use")


def test_large_messages_come_in_small_batches(bus: Bus, queue: str) -> None:
    bus.fill(queue, 50, size_bytes=200_000)
    stream = Stream(bus.options(queue, settle="peek"))

    planned = stream.plan()

    assert planned is not None
    sizes = [each.num_rows for each in stream.reader.read(planned[0])]
    assert sum(sizes) == 50
    assert max(sizes) <= 21
    stream.close()


# -- as a stream -----------------------------------------------------------------------


def test_a_stream_looks_at_what_is_new(bus: Bus, queue: str) -> None:
    first = bus.fill(queue, 5)
    stream = Stream(bus.options(queue, settle="peek", maxMessagesPerBatch=3))

    assert [ids_of(rows) for rows in stream.run()] == [first[:3], first[3:]]
    assert bus.held(queue) == 5
    stream.close()


def test_with_available_now_a_stream_ends_at_what_was_there(
    bus: Bus, queue: str
) -> None:
    bus.fill(queue, 3)
    stream = Stream(bus.options(queue, settle="peek"))
    stream.reader.prepareForTriggerAvailableNow()
    bus.fill(queue, 2)

    planned = stream.plan()

    assert planned is not None
    assert [len(part) for part in stream.read(planned)] == [3]
    stream.commit()
    assert stream.plan() is None
    stream.close()


def test_a_batch_that_runs_again_looks_at_the_same_numbers(
    bus: Bus, queue: str
) -> None:
    bus.fill(queue, 3)
    stream = Stream(bus.options(queue, settle="peek", parallelism=2))
    planned = stream.plan()
    assert planned is not None
    first = stream.read(planned)
    bus.fill(queue, 2)

    assert stream.read(stream.again()) == first
    stream.close()
