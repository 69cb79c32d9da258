"""Nodes that share a shard: what they learn of each other, and how a turn is lost."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.postgres import PostgresServer, shared_server
from tests.store.test_postgres import Shared
from tests.suites.store_suite import LATER, NOW, at, bodies, locks, part, records
from twinbus.errors import Bug, InvalidField, StoreFault
from twinbus.store.base import id_of
from twinbus.store.nodes import News
from twinbus.store.postgres.store import PostgresStore
from twinbus.store.records import Record


@pytest.fixture(scope="module")
def database() -> Shared:
    return Shared(shared_server().new_database())


@pytest.fixture
def nodes(database: Shared) -> Iterator[tuple[PostgresStore, PostgresStore]]:
    database.node().close()
    database.empty()
    first, second = database.node(), database.node()
    yield first, second
    for node in (first, second):
        node.close()


def make_queue(node: PostgresStore, text: str = "") -> int:
    """A queue with a message for each letter."""
    node.begin()
    queue = node.insert_entity("queue", "orders", "{}", NOW)
    node.append(queue, records(text), at(NOW))
    node.commit()
    return queue


def left(node: PostgresStore, queue: int) -> str:
    """What a look at a queue shows."""
    node.begin()
    found = bodies(node.peek(queue, 1, 100, at(NOW), None))
    node.rollback()
    return found


def session_of(node: PostgresStore) -> int:
    """The process of PostgreSQL that serves a node."""
    connection = node._pipe._connection
    assert connection is not None
    return connection.info.backend_pid


# -- what nodes know -------------------------------------------------------------------


def test_a_node_continues_the_numbers_and_heads_of_the_other(
    nodes: tuple[PostgresStore, PostgresStore],
) -> None:
    first, second = nodes
    queue = make_queue(first, "ab")

    second.begin()
    nonce, held = second.lock(queue, 1, LATER, at(NOW))
    assert second.append(queue, records("c"), at(NOW)) == 3
    second.commit()

    first.begin()
    assert bodies(held) == "a"
    assert bodies(first.lock(queue, 9, LATER, at(NOW))[1]) == "bc"
    assert first.counts(queue).active == 3
    first.commit()
    assert nonce


def test_a_node_is_told_once_that_the_directory_has_changed(
    nodes: tuple[PostgresStore, PostgresStore],
) -> None:
    first, second = nodes
    queue = make_queue(first)
    second.begin()
    assert second.changed_elsewhere()
    second.commit()
    changes: list[Callable[[], None]] = [
        lambda: first.put_setting("name", "value"),
        lambda: first.update_entity(queue, "{}", NOW),
        lambda: first.delete_entity(queue),
    ]
    for change in changes:
        first.begin()
        change()
        first.commit()

        second.begin()

        assert second.changed_elsewhere()
        assert not second.changed_elsewhere()
        second.rollback()


def test_messages_of_another_node_do_not_change_the_directory(
    nodes: tuple[PostgresStore, PostgresStore],
) -> None:
    first, second = nodes
    queue = make_queue(first)
    second.begin()
    second.changed_elsewhere()
    second.commit()
    first.begin()
    first.append(queue, records("a"), at(NOW))
    first.commit()

    second.begin()

    assert not second.changed_elsewhere()
    second.rollback()


def test_time_goes_on_from_node_to_node(
    nodes: tuple[PostgresStore, PostgresStore],
) -> None:
    first, second = nodes
    make_queue(first)
    times = []
    for node in (first, second, first, second):
        node.begin()
        times.append(node.now())
        node.put_setting("turn", str(len(times)))
        node.commit()

    steady = [now.steady_ms for now in times if now is not None]
    assert steady == sorted(steady)
    assert len(steady) == 4


def test_steady_time_does_not_go_back_with_the_clock_of_the_database(
    database: Shared, nodes: tuple[PostgresStore, PostgresStore]
) -> None:
    first, second = nodes
    make_queue(first)
    # As if the last turn had been an hour later.
    database.run("UPDATE turn SET wall_ms = wall_ms + 3600000, steady_ms = 5000")

    second.begin()
    now = second.now()
    second.rollback()

    assert now is not None
    assert now.steady_ms == 5000


def test_news_reach_other_nodes_and_not_the_own(
    nodes: tuple[PostgresStore, PostgresStore],
) -> None:
    first, second = nodes
    queue = make_queue(first)
    heard: list[News] = []
    own: list[News] = []
    told = threading.Event()

    def hear(news: News) -> None:
        if news.ready:
            heard.append(news)
            told.set()

    second.watch(hear)
    first.watch(lambda news: own.append(news) if news.ready else None)
    first.begin()
    first.append(queue, records("a"), at(NOW))
    first.announce(News((queue,), ((queue, 7),), (queue + 1,)))
    first.commit()

    assert told.wait(10)
    assert heard == [News((queue,), ((queue, 7),), (queue + 1,))]
    assert own == []


def test_a_message_in_quarantine_is_counted_by_all_nodes(
    nodes: tuple[PostgresStore, PostgresStore],
) -> None:
    first, second = nodes
    queue = make_queue(first, "ab")
    first.begin()
    first.append(queue, records("c", session="s"), at(NOW))
    first.append(queue, records("d", due_ms=LATER), at(NOW))
    for sequence in (1, 3, 4):
        first.quarantine(id_of(queue, sequence), "damaged")
    first.commit()

    second.begin()
    assert first.quarantined() == second.quarantined() == 3
    assert second.counts(queue)[:4] == (1, 0, 0, 5)
    assert second.sessions(queue, None, 0, 10) == []
    assert second.audit(queue, 100) is None
    second.rollback()


def test_an_audit_sets_the_counters_of_all_nodes_right(
    database: Shared, nodes: tuple[PostgresStore, PostgresStore]
) -> None:
    first, second = nodes
    queue = make_queue(first, "abcde")
    database.run("DELETE FROM message WHERE id & 1 = 0")

    first.begin()
    wrong = first.audit(queue, 100)
    first.commit()

    assert wrong is not None
    assert wrong.startswith("the counters had 5 active, 0 deferred, 0 scheduled")
    second.begin()
    assert second.counts(queue)[:4] == (3, 0, 0, 15)
    second.rollback()


# -- turns that are lost ---------------------------------------------------------------


def test_a_turn_of_many_megabytes_does_not_hang(
    nodes: tuple[PostgresStore, PostgresStore],
) -> None:
    first, second = nodes
    queue = make_queue(first)
    large = [Record(b"head", bytes(1 << 20)) for _ in range(12)]

    first.begin()
    first.append(queue, large, at(NOW))
    assert len(first.lock(queue, 20, LATER, at(NOW))[1]) == 12
    first.commit()

    second.begin()
    assert second.counts(queue).size_bytes == 12 * ((1 << 20) + 4)
    second.rollback()


def test_a_text_that_cannot_be_kept_is_refused_alone(
    nodes: tuple[PostgresStore, PostgresStore],
) -> None:
    first, _ = nodes
    queue = make_queue(first)
    first.begin()
    first.append(queue, records("a"), at(NOW))

    with pytest.raises(InvalidField), part(first):
        first.append(queue, records("b", session="s\0"), at(NOW))
    with pytest.raises(InvalidField), part(first):
        first.accept_session(queue, "s\0", LATER, at(NOW))

    first.commit()
    assert left(first, queue) == "a"


def test_a_refused_statement_loses_its_turn_and_then_fails_alone(
    nodes: tuple[PostgresStore, PostgresStore],
) -> None:
    first, second = nodes
    queue = make_queue(first)

    def refused() -> None:
        first.append(queue, records("x"), at(NOW))
        try:
            first._changes("UPDATE entity SET id = 1 / 0 RETURNING 1", None)
        except psycopg.Error as error:
            raise first._failed(error) from error

    first.begin()
    first.append(queue, records("a"), at(NOW))
    with pytest.raises(Bug), part(first):
        refused()
    with pytest.raises(Bug):
        first.commit()
    first.rollback()
    assert left(second, queue) == ""

    first.begin()
    first.append(queue, records("a"), at(NOW))
    with pytest.raises(Bug), part(first):
        refused()
    first.append(queue, records("b"), at(NOW))
    first.commit()

    assert left(second, queue) == "ab"


def test_a_turn_whose_session_is_ended_did_not_happen(
    database: Shared, nodes: tuple[PostgresStore, PostgresStore]
) -> None:
    first, second = nodes
    queue = make_queue(first)
    first.begin()
    first.append(queue, records("a"), at(NOW))
    first.peek(queue, 1, 1, at(NOW), None)
    database.run(f"SELECT pg_terminate_backend({session_of(first)}, 5000)")

    with pytest.raises(StoreFault):
        first.commit()

    assert left(second, queue) == ""
    assert first.recover()
    assert left(first, queue) == ""


def test_a_node_that_holds_a_shard_and_does_not_go_on_loses_its_turn(
    nodes: tuple[PostgresStore, PostgresStore],
) -> None:
    first, second = nodes
    queue = make_queue(first)
    first.begin()
    first.append(queue, records("a"), at(NOW))

    second.begin()
    second.append(queue, records("b"), at(NOW))
    second.commit()

    with pytest.raises(StoreFault):
        first.commit()
    assert left(second, queue) == "b"


def test_a_node_that_does_not_read_its_answer_loses_its_turn(
    nodes: tuple[PostgresStore, PostgresStore],
) -> None:
    first, second = nodes
    queue = make_queue(first)
    first.begin()
    first.append(queue, records("a"), at(NOW))
    # PostgreSQL cannot write it, so the session does not count as idle.
    first._pipe.execute("SELECT repeat('x', 50000000)")

    second.begin()
    second.append(queue, records("b"), at(NOW))
    second.commit()

    with pytest.raises(StoreFault):
        first.commit()
    assert left(second, queue) == "b"


# -- a standby -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    with contextlib.ExitStack() as stack:
        primary = PostgresServer.make()
        stack.callback(primary.stop)
        standby = primary.standby()
        stack.callback(standby.stop)
        yield primary, standby


def test_a_commit_whose_answer_is_lost_is_found_in_the_log(
    pair: tuple[PostgresServer, PostgresServer],
) -> None:
    primary, standby = pair
    node = Shared(primary.url()).node()
    queue = make_queue(node)
    assert node.about()["durability"] == "standby"
    # The commit has happened, and waits for the standby, when its session is ended.
    standby.query("SELECT pg_wal_replay_pause()")
    standby.pause_receiving()
    node.begin()
    node.append(queue, records("a"), at(NOW))
    session = session_of(node)
    waits = threading.Thread(target=_end_when_it_waits, args=(primary, session))
    waits.start()
    resumes = threading.Thread(target=_resume_later, args=(waits, standby))
    resumes.start()

    node.commit()

    resumes.join()
    assert session_of(node) != session
    assert left(node, queue) == "a"
    node.close()


def _end_when_it_waits(primary: PostgresServer, session: int) -> None:
    waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    while (session,) not in primary.query(waiting):
        threading.Event().wait(0.01)
    primary.query(f"SELECT pg_terminate_backend({session}, 5000)")


def _resume_later(ended: threading.Thread, standby: PostgresServer) -> None:
    ended.join()
    standby.go_on_receiving()


# -- the next look at time -------------------------------------------------------------


def test_the_known_wait_is_never_longer_than_the_real_one(
    nodes: tuple[PostgresStore, PostgresStore],
) -> None:
    node, _ = nodes
    queue = make_queue(node, "ab")
    node.begin()
    assert node.next_wait_ms(at(NOW)) is None
    assert node.known_wait_ms(at(NOW)) is None

    nonce, held = node.lock(queue, 1, NOW + 50, at(NOW))
    assert node.known_wait_ms(at(NOW)) == node.next_wait_ms(at(NOW)) == 50
    node.append(queue, [Record(b"", b"", expires_ms=NOW + 40)], at(NOW))
    assert node.known_wait_ms(at(NOW)) == node.next_wait_ms(at(NOW)) == 40
    node.append(queue, [Record(b"", b"", due_ms=NOW + 30)], at(NOW))
    assert node.known_wait_ms(at(NOW)) == node.next_wait_ms(at(NOW)) == 30
    node.accept_session(queue, "s", NOW + 20, at(NOW))
    assert node.known_wait_ms(at(NOW)) == node.next_wait_ms(at(NOW)) == 20
    node.complete(locks(nonce, held), at(NOW))
    node.rollback()


def test_a_lock_that_ends_is_found_after_a_sweep_that_was_undone(
    nodes: tuple[PostgresStore, PostgresStore],
) -> None:
    node, other = nodes
    queue = make_queue(node, "ab")
    node.begin()
    node.lock(queue, 1, NOW + 5, at(NOW))
    node.commit()
    node.begin()
    assert len(node.end_locks(at(NOW + 5), 10)) == 1
    node.rollback()

    node.begin()
    assert len(node.end_locks(at(NOW + 6), 10)) == 1
    node.commit()
    # Another node takes it once more, and dies.
    other.begin()
    other.lock(queue, 1, NOW + 20, at(NOW + 10))
    other.commit()
    node.begin()
    assert node.end_locks(at(NOW + 19), 10) == []
    assert len(node.end_locks(at(NOW + 20), 10)) == 1
    node.rollback()


def test_a_look_at_time_that_finds_nothing_is_not_logged(
    nodes: tuple[PostgresStore, PostgresStore],
) -> None:
    node, _ = nodes
    make_queue(node, "a")
    known = node._log.known

    node.begin()
    node.end_locks(at(NOW), 10)
    node.end_sessions(at(NOW), 10)
    node.forget_duplicates(at(NOW), 10)
    node.commit()

    assert node._log.known == known
