"""A reader beside an open store: what it sees, and that it changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres import shared_server
from tests.suites.store_suite import LATER, NOW, at, record, records
from twinbus.errors import StoreFault
from twinbus.store.base import SEQUENCE_MAX, Store
from twinbus.store.opening import DatabaseUrl, open_shared, open_store
from twinbus.store.postgres.reader import PostgresReader
from twinbus.store.reading import HasReaders, SessionRow, StoreReader
from twinbus.store.sqlite.reader import SqliteReader


@pytest.fixture(params=["sqlite", "postgres"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Store]:
    if request.param == "sqlite":
        opened = open_store(tmp_path)
    else:
        url = shared_server().new_database()
        opened = open_shared(DatabaseUrl(url), "contoso")
    yield opened
    opened.close()


def inside(store: Store) -> StoreReader:
    assert isinstance(store, HasReaders)
    return store.reader_in()


@pytest.fixture
def queue(store: Store) -> int:
    store.begin()
    made = store.insert_entity("queue", "orders", "{}", NOW)
    store.append(made, records("abc"), at(NOW))
    store.commit()
    return made


@pytest.fixture
def reader(store: Store, queue: int) -> Iterator[StoreReader]:
    assert isinstance(store, HasReaders)
    opened = store.open_reader()
    assert opened is not None
    yield opened
    opened.close()


def seen(reader: StoreReader, queue: int, start: int = 0) -> str:
    found = reader.messages(queue, start, NOW, None)
    return "".join(each.bare.decode() for each in found)


def test_it_sees_what_is_committed(
    reader: StoreReader, store: Store, queue: int
) -> None:
    store.begin()
    store.append(queue, records("d"), at(NOW))

    assert seen(reader, queue) == "abc"
    assert seen(inside(store), queue) == "abcd"

    store.commit()
    assert seen(reader, queue) == "abcd"
    assert seen(reader, queue, 3) == "cd"


def test_a_look_that_is_not_finished_does_not_keep_the_store_from_writing(
    reader: StoreReader, store: Store, queue: int
) -> None:
    look = reader.messages(queue, 0, NOW, None)
    next(look)

    store.begin()
    store.append(queue, records("d"), at(NOW))
    store.commit()

    assert [each.bare for each in look][:2] == [b"b", b"c"]


def test_messages_of_all_states_come_in_order(
    reader: StoreReader, store: Store, queue: int
) -> None:
    store.begin()
    store.append(queue, [record("s", due_ms=LATER)], at(NOW))
    store.append(queue, [record("e", expires_ms=NOW)], at(NOW))
    store.append(queue, [record("z")], at(NOW))
    store.commit()

    assert seen(reader, queue) == "abcsz"
    assert list(reader.messages(queue, SEQUENCE_MAX + 1, NOW, None)) == []


def test_locks_and_ages(reader: StoreReader, store: Store, queue: int) -> None:
    store.begin()
    _, [first] = store.lock(queue, 1, LATER, at(NOW))
    store.commit()

    assert reader.locked([first.id, first.id + 1]) == {first.id}
    assert reader.oldest_ms([queue, queue + 1]) == {queue: NOW}


def test_sessions_with_messages_locks_or_states(
    reader: StoreReader, store: Store, queue: int
) -> None:
    store.begin()
    store.append(queue, records("xy", session="b"), at(NOW))
    grant = store.accept_session(queue, "c", LATER, at(NOW))
    assert grant is not None
    store.put_session_state(queue, "a", b"state", at(NOW))
    store.commit()

    found = reader.sessions(queue, "", 10)

    assert found == [
        SessionRow("a", 0, 0, None, None, 5),
        SessionRow("b", 2, 2, None, None, None),
        SessionRow("c", 0, 0, LATER, grant.nonce, None),
    ]
    assert reader.sessions(queue, "a", 1) == found[1:2]


def test_it_cannot_write(reader: StoreReader) -> None:
    if isinstance(reader, SqliteReader):
        with pytest.raises(Exception, match="readonly"):
            reader._connection.execute("DELETE FROM message")
    else:
        assert isinstance(reader, PostgresReader)
        with pytest.raises(Exception, match="read-only"):
            reader._run("DELETE FROM message", None)


def test_a_damaged_file_is_a_fault_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "messages.db").write_bytes(b"no database" * 100)

    with pytest.raises(StoreFault, match="cannot be read"):
        list(SqliteReader.open(tmp_path).messages(4, 0, NOW, None))


def test_a_store_in_memory_is_read_in_its_transaction_alone() -> None:
    store = open_store(None)

    assert isinstance(store, HasReaders)
    assert store.open_reader() is None
    store.close()
