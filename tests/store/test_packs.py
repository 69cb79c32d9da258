"""Messages that are kept together: the behaviour suite with small packs, and packs.

The suites have few messages, so packs are small here: from two to four messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.store.test_sqlite import Folder, audited, behind_its_back, check_rows
from tests.suites import store_history
from tests.suites.store_all import SUITES
from tests.suites.store_suite import (
    LATER,
    NOW,
    Backend,
    at,
    bodies,
    locks,
    record,
    records,
)
from twinbus import limits
from twinbus.store.base import Lock
from twinbus.store.records import AlikeRecords, Record
from twinbus.store.sqlite.store import SqliteStore

MOST = 4


@pytest.fixture(autouse=True)
def small_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PACK_MESSAGES_MIN", 2)
    monkeypatch.setattr(limits, "PACK_MESSAGES_MAX", MOST)


@pytest.fixture
def backend(tmp_path: Path) -> Backend:
    return Folder(tmp_path / "data")


globals().update(SUITES)


def test_histories_of_seeds_are_those_of_the_model(tmp_path: Path) -> None:
    for seed in range(500, 560):
        folder = Folder(tmp_path / str(seed))
        store_history.walk(folder, seed, steps=150)
        check_rows(folder.path)


def test_histories_of_hypothesis_are_those_of_the_model(tmp_path: Path) -> None:
    folders = (Folder(tmp_path / str(number)) for number in count())
    run_state_machine_as_test(
        store_history.machine(lambda: next(folders)),
        settings=settings(max_examples=25, stateful_step_count=40),
    )


# -- which messages are kept together ------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore.open(tmp_path / "store")
    opened.begin()
    yield opened
    if opened._old.in_transaction:
        opened.commit()
    opened.close()
    check_rows(tmp_path / "store")


@pytest.fixture
def queue(store: SqliteStore) -> int:
    return store.insert_entity("queue", "orders", "{}", NOW)


def kept(store: SqliteStore) -> tuple[list[int], int]:
    """How many messages are left in each pack, and how many have rows."""
    query = """SELECT last - coalesce(pack_lock.first, pack.first) + 1
        FROM pack LEFT JOIN pack_lock USING (last) ORDER BY last"""
    packs = [row[0] for row in store._connection.execute(query)]
    (rows,) = store._connection.execute("SELECT count(*) FROM message").fetchone()
    return packs, rows


def test_messages_that_are_alike_are_kept_in_packs_of_about_one_size(
    store: SqliteStore, queue: int
) -> None:
    store.append(queue, records("abcdefghi"), at(NOW))

    assert kept(store) == ([3, 3, 3], 0)
    assert bodies(store.peek(queue, 1, 100, at(NOW), None)) == "abcdefghi"


def test_a_group_of_alike_messages_is_divided_into_packs(
    store: SqliteStore, queue: int
) -> None:
    groups = [
        AlikeRecords(b"head", [1, 2, 1, 0, 2], b"abbcdd", origin=7),
        AlikeRecords(b"head", [1] * 4, b"efgh"),
    ]

    store.append_alike(queue, groups, at(NOW))

    assert kept(store) == ([2, 3, 4], 0)
    found = store.peek(queue, 1, 100, at(NOW), None)
    expected = [b"a", b"bb", b"c", b"", b"dd", b"e", b"f", b"g", b"h"]
    assert [message.bare for message in found] == expected
    assert [message.origin for message in found[:5]] == [7, 8, 9, 10, 11]
    assert store.audit(queue, 100) is None


def test_groups_too_small_for_a_pack_are_joined(store: SqliteStore, queue: int) -> None:
    groups = [AlikeRecords(b"head", [1], letter) for letter in (b"a", b"b", b"c")]

    store.append_alike(queue, groups, at(NOW))

    assert kept(store) == ([3], 0)
    assert bodies(store.peek(queue, 1, 100, at(NOW), None)) == "abc"


@pytest.mark.parametrize(
    "other",
    [
        Record(b"other head", b"b"),
        record("b", session="s"),
        record("b", expires_ms=LATER),
        record("b", source="topic"),
        record("b", deliveries=1),
        record("b", origin=7),
        record("b", due_ms=LATER),
    ],
    ids=["head", "session", "expiry", "source", "deliveries", "origin", "schedule"],
)
def test_messages_that_differ_have_rows(
    store: SqliteStore, queue: int, other: Record
) -> None:
    store.append(queue, [*records("aa"), other], at(NOW))
    store.append(queue, [other, *records("aa")], at(NOW))

    assert kept(store)[0] == []


def test_a_single_message_and_large_ones_have_rows(
    store: SqliteStore, queue: int
) -> None:
    large = Record(b"", bytes(limits.PACK_BYTES_MAX // 2 + 1))
    small = Record(b"", bytes(limits.PACK_BYTES_MAX // 2))

    store.append(queue, records("a"), at(NOW))
    store.append(queue, [large] * 4, at(NOW))
    assert kept(store) == ([], 5)

    store.append(queue, [small] * 4, at(NOW))
    assert kept(store) == ([2, 2], 5)


def test_origins_that_count_on_are_kept(store: SqliteStore, queue: int) -> None:
    given = [record("x", origin=number) for number in range(90, 96)]
    store.append(queue, given, at(NOW))
    nonce, first = store.lock(queue, 2, LATER, at(NOW))
    store.complete(locks(nonce, first[:1]), at(NOW))

    assert kept(store) == ([1, 1, 3], 0)
    left = store.peek(queue, 1, 100, at(NOW), None)
    assert [message.origin for message in left] == [91, 92, 93, 94, 95]
    assert [stored.origin for stored in store.find(queue, [2, 3])] == [91, 92]


# -- received and completed ------------------------------------------------------------


def test_what_is_completed_in_order_never_has_a_row(
    store: SqliteStore, queue: int, tmp_path: Path
) -> None:
    store.append(queue, records("abcdefgh"), at(NOW))
    nonce, messages = store.lock(queue, 6, LATER, at(NOW))
    held = locks(nonce, messages)
    assert kept(store) == ([4, 2, 2], 0)

    assert store.complete(held[:1], at(NOW)) == [True]
    assert store.complete(held[1:5], at(NOW)) == [True] * 4
    assert kept(store) == ([1, 2], 0)
    assert store.counts(queue)[:4] == (3, 0, 0, 15)

    # A restart loses nothing of it.
    store.commit()
    store.close()
    again = SqliteStore.open(tmp_path / "store")
    again.begin()
    assert again.complete(held, at(NOW)) == [False] * 5 + [True]
    assert bodies(again.peek(queue, 1, 100, at(NOW), None)) == "gh"
    assert kept(again) == ([2], 0)
    again.commit()
    again.close()


def test_a_run_over_rows_and_packs_is_completed(store: SqliteStore, queue: int) -> None:
    store.append(queue, records("a"), at(NOW))
    store.append(queue, records("bcd"), at(NOW))
    store.append(queue, records("e"), at(NOW))
    store.append(queue, records("fg"), at(NOW))
    nonce, messages = store.lock(queue, 100, LATER, at(NOW))

    assert bodies(messages) == "abcdefg"
    assert store.complete(locks(nonce, messages), at(NOW)) == [True] * 7
    assert kept(store) == ([], 0)
    assert store.counts(queue)[:4] == (0, 0, 0, 0)


def test_what_is_completed_out_of_order_gets_rows(
    store: SqliteStore, queue: int
) -> None:
    store.append(queue, records("abcd"), at(NOW))
    nonce, messages = store.lock(queue, 4, LATER, at(NOW))
    held = locks(nonce, messages)

    assert store.complete(held[2:3], at(NOW)) == [True]

    assert kept(store) == ([], 3)
    assert store.complete(held, at(NOW)) == [True, True, False, True]


def test_locks_that_are_wrong_or_have_ended_complete_nothing(
    store: SqliteStore, queue: int
) -> None:
    store.append(queue, records("abcd"), at(NOW))
    nonce, messages = store.lock(queue, 4, LATER, at(NOW))
    forged = [Lock(message.id, nonce + 1) for message in messages]
    elsewhere = [Lock(message.id << 20, nonce) for message in messages]

    assert store.complete(forged, at(NOW)) == [False] * 4
    assert store.complete(elsewhere, at(NOW)) == [False] * 4
    assert store.complete(locks(nonce, messages), at(LATER)) == [False] * 4
    assert store.counts(queue).active == 4


def test_a_receiver_of_few_messages_makes_rows_of_a_pack(
    store: SqliteStore, queue: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PACK_MESSAGES_MAX", 12)
    store.append(queue, records("abcdefghijkl"), at(NOW))

    # Of a quarter it is divided, of less it is not.
    assert bodies(store.lock(queue, 3, LATER, at(NOW))[1]) == "abc"
    assert kept(store) == ([3, 9], 0)
    assert bodies(store.lock(queue, 2, LATER, at(NOW))[1]) == "de"
    assert kept(store) == ([3], 9)


def test_removing_receivers_take_whole_packs_and_parts(
    store: SqliteStore, queue: int
) -> None:
    store.append(queue, records("abcdefgh"), at(NOW))

    assert bodies(store.take(queue, 6, at(NOW))) == "abcdef"

    assert kept(store) == ([2], 0)
    assert store.counts(queue)[:4] == (2, 0, 0, 10)
    assert bodies(store.take(queue, 100, at(NOW))) == "gh"


# -- time ----------------------------------------------------------------------------


def test_the_end_of_a_pack_s_lock_is_found(store: SqliteStore, queue: int) -> None:
    store.append(queue, records("abcdef"), at(NOW))
    _, messages = store.lock(queue, 100, LATER, at(NOW))
    ids = [message.id for message in messages]

    assert store.next_wait_ms(at(NOW)) == LATER - NOW
    assert store.ended_locks(at(LATER - 1), 100) == []
    assert store.ended_locks(at(LATER), 2) == ids[:2]
    # No more became rows than were needed.
    assert kept(store) == ([3], 3)
    assert [ended.id for ended in store.end_locks(at(LATER), 100)] == ids
    assert bodies(store.lock(queue, 100, LATER, at(NOW))[1]) == "abcdef"


def test_locks_of_packs_are_cut(store: SqliteStore, queue: int) -> None:
    store.append(queue, records("abcd"), at(NOW))
    store.lock(queue, 100, LATER, at(NOW))

    store.cut_locks(NOW + 5)

    assert store.next_wait_ms(at(NOW)) == 5


# -- looked at -----------------------------------------------------------------------


def test_a_reader_sees_packs_between_rows(store: SqliteStore, queue: int) -> None:
    store.append(queue, records("abcd"), at(NOW))
    store.append(queue, records("e"), at(NOW + 1))
    nonce, messages = store.lock(queue, 2, LATER, at(NOW))
    store.complete(locks(nonce, messages[:1]), at(NOW))
    reader = store.reader_in()

    def seen(start: int) -> str:
        return bodies([*reader.messages(queue, start, NOW, None)])

    assert (seen(0), seen(4), seen(6)) == ("bcde", "de", "")
    assert reader.oldest_ms([queue]) == {queue: NOW}
    ids = [message.id for message in store.peek(queue, 1, 9, at(NOW), None)]
    assert reader.locked([messages[0].id, *ids]) == {ids[0]}


def test_peeking_leaves_packs_as_they_are(store: SqliteStore, queue: int) -> None:
    store.append(queue, records("abcd"), at(NOW))

    assert bodies(store.peek(queue, 3, 1, at(NOW), None)) == "c"
    assert bodies(store.peek(queue, 2, 2, at(NOW), None)) == "bc"

    assert kept(store) == ([4], 0)


def test_an_audit_counts_packs(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path)
    store.begin()
    queue = store.insert_entity("queue", "orders", "{}", NOW)
    store.append(queue, records("abcdefgh"), at(NOW))
    nonce, messages = store.lock(queue, 4, LATER, at(NOW))
    store.complete(locks(nonce, messages[:1]), at(NOW))
    store.commit()
    assert audited(store, queue) is None

    behind_its_back(tmp_path, "DELETE FROM pack WHERE last & 7 = 0")

    # Some are there, as counted.
    assert audited(store, queue, rows_max=3) is None
    wrong = audited(store, queue)
    assert wrong is not None
    assert wrong.startswith("the counters had 7 active")
    assert store.counts(queue)[:4] == (3, 0, 0, 15)
    store.close()
