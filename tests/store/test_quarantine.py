"""A row that cannot be read is set aside, and its neighbours are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.suites.store_suite import LATER, NOW, at, bodies, locks, record
from twinbus.errors import Bug, StoreFault
from twinbus.store.base import SessionGrant, Stored
from twinbus.store.sqlite.store import SqliteStore


class Damaged:
    """A store with three messages in a queue, of which the second is damaged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = SqliteStore.open(folder)
        self.store.begin()
        self.queue = self.store.insert_entity("queue", "q", "{}", NOW)

    def fill(self, **fields: object) -> None:
        """Keep three messages."""
        given = [record(body, **fields) for body in "abc"]
        self.store.append(self.queue, given, at(NOW))

    def break_text(self, column: str, table: str = "message") -> None:
        """Put bytes that are no text into the second message."""
        self.store._connection.execute(
            f"UPDATE {table} SET {column} = CAST(x'ff41' AS TEXT) "  # noqa: S608
            "WHERE id = ?",
            (self.queue << 40 | 2,),
        )

    def left(self) -> str:
        """The bodies of all messages that are there."""
        return bodies(self.store.peek(self.queue, 1, 10, at(0), None))

    def set_aside(self) -> list[tuple[int, bytes]]:
        """Ids and bodies of what is in quarantine."""
        sql = "SELECT id & 0xffffffffff, bare FROM quarantine"
        return self.store._connection.execute(sql).fetchall()


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[Damaged]:
    made = Damaged(tmp_path)
    yield made
    made.store.rollback()
    made.store.close()


Read = Callable[[Damaged], Sequence[Stored]]
READS: dict[str, Read] = {
    "lock": lambda d: d.store.lock(d.queue, 2, LATER, at(NOW))[1],
    "take": lambda d: d.store.take(d.queue, 2, at(NOW)),
    "peek": lambda d: d.store.peek(d.queue, 1, 2, at(NOW), None),
    "find": lambda d: d.store.find(d.queue, [1, 2, 3]),
    "expired": lambda d: d.store.expired(at(LATER), 2),
}


@pytest.mark.parametrize("column", ["session", "source"])
@pytest.mark.parametrize("name", READS)
def test_a_damaged_message_keeps_no_other_from_being_read(
    damaged: Damaged, name: str, column: str
) -> None:
    damaged.fill(expires_ms=LATER)
    damaged.break_text(column)

    found = READS[name](damaged)

    assert bodies(found) == "ac"
    assert damaged.set_aside() == [(2, b"b")]
    assert damaged.store.lock(damaged.queue, 9, LATER, at(NOW))[1] in ([], found)


def test_a_damaged_scheduled_message_keeps_no_other_from_its_time(
    damaged: Damaged,
) -> None:
    damaged.fill(due_ms=LATER)
    damaged.break_text("session", "scheduled")

    assert bodies(damaged.store.due(at(LATER), 2)) == "ac"

    assert damaged.store.counts(damaged.queue).scheduled == 2


def test_counters_and_sessions_go_on_without_the_message(damaged: Damaged) -> None:
    damaged.fill(session="s")
    store, queue = damaged.store, damaged.queue
    before = store.counts(queue)
    grant = store.accept_session(queue, "s", LATER, at(NOW))
    damaged.break_text("session")

    store.quarantine(queue << 40 | 2, "for a test")

    counts = store.counts(queue)
    assert (before.active, counts.active) == (3, 2)
    assert counts.size_bytes == before.size_bytes * 2 // 3
    nonce, held = store.lock(queue, 9, LATER, at(NOW), grant)
    assert bodies(held) == "ac"
    assert store.complete(locks(nonce, held), at(NOW)) == [True, True]
    assert store.counts(queue).size_bytes == 0
    assert isinstance(grant, SessionGrant)
    store.release_session(queue, grant, at(NOW), count=True)
    assert store.accept_session(queue, None, LATER, at(NOW)) is None


def test_a_session_goes_with_its_only_message(damaged: Damaged) -> None:
    damaged.store.append(damaged.queue, [record("a", session="s")], at(NOW))

    damaged.store.quarantine(damaged.queue << 40 | 1, "for a test")

    assert damaged.store.sessions(damaged.queue, None, 0, 9) == []
    assert damaged.store.accept_session(damaged.queue, None, LATER, at(NOW)) is None


def test_the_lock_of_a_damaged_message_is_held_no_more(damaged: Damaged) -> None:
    damaged.fill()
    nonce, held = damaged.store.lock(damaged.queue, 3, NOW + 5, at(NOW))
    damaged.break_text("session")

    # A run of three is settled without a look at the text.
    answers = damaged.store.release(locks(nonce, held), at(NOW), count=True)

    assert [end.id & 0xFF for end in answers] == [1, 3]
    assert damaged.store.ended_locks(at(NOW + 5), 9) == []
    assert damaged.left() == "ac"


def test_the_end_of_a_damaged_lock_keeps_no_other_from_ending(
    damaged: Damaged,
) -> None:
    damaged.fill()
    damaged.store.lock(damaged.queue, 3, NOW + 5, at(NOW))
    damaged.break_text("session")

    ended = damaged.store.end_locks(at(NOW + 5), 9)

    assert [end.id & 0xFF for end in ended] == [1, 3]


def test_a_session_with_a_damaged_message_ends(damaged: Damaged) -> None:
    damaged.fill(session="s")
    store, queue = damaged.store, damaged.queue
    grant = store.accept_session(queue, "s", NOW + 5, at(NOW))
    assert isinstance(grant, SessionGrant)
    store.lock(queue, 9, LATER, at(NOW), grant)
    damaged.break_text("source")

    [ended] = store.end_sessions(at(NOW + 5), 9)

    assert len(ended.messages) == 3
    assert bodies(store.lock(queue, 9, LATER, at(NOW), None)[1]) == "ac"


def test_quarantine_is_counted_at_a_commit_and_kept(damaged: Damaged) -> None:
    damaged.fill()
    store = damaged.store
    store.commit()
    store.begin()
    for number in (1, 2):
        mark = store.begin_part()
        store.quarantine(damaged.queue << 40 | number, "for a test")
        if number == 1:
            store.undo_part(mark)
        else:
            store.end_part()
    assert store.quarantined() == 0
    store.commit()
    assert store.quarantined() == 1
    assert damaged.left() == "ac"
    store.close()

    damaged.store = SqliteStore.open(damaged.folder)

    assert damaged.store.quarantined() == 1
    damaged.store.begin()
    damaged.store.quarantine(damaged.queue << 40 | 9, "it is not there")
    damaged.store.commit()
    assert damaged.store.quarantined() == 1


def test_a_row_that_contradicts_another_is_no_fault_of_the_store(
    damaged: Damaged,
) -> None:
    damaged.fill()
    store, queue = damaged.store, damaged.queue
    nonce, held = store.lock(queue, 1, LATER, at(NOW))
    insert = "INSERT INTO returned VALUES (?)"
    store._connection.execute(insert, (held[0].id,))

    mark = store.begin_part()
    with pytest.raises(Bug, match="is damaged"):
        store.release(locks(nonce, held), at(NOW), count=True)
    store.undo_part(mark)

    store.commit()
    store.begin()
    assert damaged.left() == "abc"


def test_a_closed_database_is_a_fault_of_the_store(damaged: Damaged) -> None:
    damaged.store._connection.close()

    with pytest.raises(StoreFault):
        damaged.store.peek(damaged.queue, 1, 9, at(NOW), None)
