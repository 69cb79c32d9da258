"""Which shape should a turn have against PostgreSQL? One hot queue, 1 and 3 processes.

    python -m bench.spikes.postgres_turn --batch 100 [--rounds 3] [--delay-ms 3] [--pin]
    python -m bench.spikes.postgres_turn --scenes

Starts PostgreSQL in a temporary folder as an unprivileged user, with every commit
synced, and stops it. Each process sends a batch in one turn and takes a batch in the
next, as fast as it is answered. `--pin` does it beside a transaction that stays open,
`--delay-ms` with a sync that is slower by so much, as with a standby that must answer.
`--scenes` stops processes in the middle of a turn, and ends PostgreSQL under load.
What was found is in `docs/notes/postgres-spike.md`; the shapes are in
`postgres_shapes.py`.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import psycopg

from bench.processes import cpu_seconds
from bench.spikes.postgres_shapes import (
    ALL,
    LEASE,
    PINNED,
    SCHEMA,
    SHAPES,
    Ask,
    Asking,
    EarlyRelease,
    Found,
    Lease,
    OurStore,
    RowLock,
    messages,
)

_CLUSTER = "*/bin/initdb"
_USER = "postgres"
_IDLE_SECONDS = 1.0
_LEASE_SECONDS = 2

# -- PostgreSQL ------------------------------------------------------------------------


@dataclass(frozen=True)
class Server:
    """PostgreSQL while it runs."""

    where: str
    pid: int


def _binaries() -> Path:
    for found in sorted(Path("/usr/lib/postgresql").glob(_CLUSTER), reverse=True):
        return found.parent
    raise SystemExit("PostgreSQL is missing: run apt-get install postgresql.")


@contextmanager
def postgres(delay_ms: int = 0) -> Iterator[Server]:
    """Run PostgreSQL in a folder of its own."""
    with cluster() as folder, running(folder, delay_ms) as server:
        yield server


@contextmanager
def cluster() -> Iterator[Path]:
    """Make a folder for PostgreSQL, for this time only."""
    folder = Path(tempfile.mkdtemp(prefix="postgres-turn-"))
    try:
        if _user() is not None:
            shutil.chown(folder, _USER)
        command = [str(_binaries() / "initdb"), "-D", str(folder / "data")]
        command += ["-A", "trust", "-N", "-U", _USER]
        if _start(command, folder).wait() != 0:
            raise SystemExit("initdb failed.")
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def running(folder: Path, delay_ms: int = 0) -> Iterator[Server]:
    """Run PostgreSQL, synced, on a socket in its folder.

    Each sync waits for `delay_ms` first, as if a standby had to answer.
    """
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": str(folder),
        "fsync": "on",
        "synchronous_commit": "on",
        "shared_buffers": "256MB",
        "max_wal_size": "4GB",
        "commit_delay": str(delay_ms * 1000),
        "commit_siblings": "0",
        "idle_in_transaction_session_timeout": f"{_IDLE_SECONDS:g}s",
    }
    command = [str(_binaries() / "postgres"), "-D", str(folder / "data")]
    for name, value in settings.items():
        command += ["-c", f"{name}={value}"]
    server = _start(command, folder)
    try:
        where = f"host={folder} user={_USER} dbname=postgres"
        _answers(where, server)
        yield Server(where, server.pid)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()


@contextmanager
def standby(folder: Path, primary: Server) -> Iterator[Server]:
    """Run a standby that every synced commit of the primary waits for."""
    data = str(folder / "standby")
    command = [str(_binaries() / "pg_basebackup"), "-d", primary.where]
    if _start([*command, "-D", data, "-R", "-c", "fast"], folder).wait() != 0:
        raise SystemExit("pg_basebackup failed.")
    settings = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={data}"]
    server = _start([str(_binaries() / "postgres"), "-D", data, *settings], folder)
    try:
        where = f"host={data} user={_USER} dbname=postgres"
        _answers(where, server)
        with psycopg.connect(primary.where, autocommit=True) as db:
            db.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            db.execute("SELECT pg_reload_conf()")
            state = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
            while db.execute(state).fetchone() is None:
                time.sleep(0.1)
        yield Server(where, server.pid)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()


def _user() -> str | None:
    """PostgreSQL does not run as root."""
    return _USER if os.geteuid() == 0 else None


def _start(command: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            command, user=_user(), group=_user(), cwd=folder, stdout=log, stderr=log
        )


def _answers(where: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        with suppress(psycopg.OperationalError):
            psycopg.connect(where).close()
            return
        if server.poll() is not None:
            break
        time.sleep(0.1)
    raise SystemExit("PostgreSQL does not start.")


# -- measuring -------------------------------------------------------------------------


@dataclass
class Plan:
    """What each process does."""

    where: str
    batch: int
    seconds: float


@dataclass
class Done:
    """What one process did."""

    taken: int = 0
    cpu_seconds: float = 0.0
    turns: list[float] = field(default_factory=list)
    commits: list[float] = field(default_factory=list)


def _load(plan: Plan, node: Any, until: float) -> Done:
    """Send a batch, take a batch, and so on until the time is over."""
    batch = messages(plan.batch)
    done = Done()
    while time.perf_counter() < until:
        started = time.perf_counter()
        node.send(batch)
        sent = time.perf_counter()
        done.taken += len(node.take(plan.batch))
        done.turns += (sent - started, time.perf_counter() - sent)
    done.commits = node.commits
    return done


def _own(plan: Plan, node: Lease, others: list[Connection], until: float) -> Done:
    """The same for the owner of a lease, with what the others ask for."""
    batch = messages(plan.batch)
    done = Done()
    sends = False
    while others or time.perf_counter() < until:
        sends = not sends
        own: list[Ask] = [batch if sends else plan.batch]
        if time.perf_counter() >= until:
            own = []
        asking: list[Connection] = []
        asks = list(own)
        for each in wait(others, 0 if own else None):
            assert isinstance(each, Connection)
            ask = each.recv()
            if ask is None:
                others.remove(each)
            else:
                asking.append(each)
                asks.append(ask)
        started = time.perf_counter()
        answers = node.serve(asks) if asks else []
        for each, answer in zip(asking, answers[len(own) :], strict=True):
            each.send(answer)
        if own:
            done.taken += len(answers[0])
            done.turns.append(time.perf_counter() - started)
    done.commits = node.commits
    return done


def work(shape: str, plan: Plan, parent: Connection, links: list[Connection]) -> None:
    """One process: get ready, wait for the start, work, say what was done."""
    asks = shape == LEASE and len(links) == 1
    node = Asking(links[0]) if asks else ALL[shape](plan.where)
    if isinstance(node, OurStore):
        node.send(messages(plan.batch))
    parent.send("ready")
    parent.recv()
    spent = time.process_time()
    until = time.perf_counter() + plan.seconds
    if isinstance(node, Lease):
        done = _own(plan, node, links, until)
    else:
        done = _load(plan, node, until)
    if asks:
        links[0].send(None)
    done.cpu_seconds = time.process_time() - spent
    parent.send(done)


def measure(shape: str, server: Server, plan: Plan, processes: int) -> Sequence[float]:
    """Run one shape with some processes; returns the figures of a row."""
    _fill(server.where, plan.batch * processes * 2)
    fork = multiprocessing.get_context("fork")
    pairs = [fork.Pipe() for _ in range(processes - 1)] if shape == LEASE else []
    ends = []
    for number in range(processes):
        ours, theirs = fork.Pipe()
        # Two or more links, or none: the owner. One link: a process that asks it.
        links = [pair[1] for pair in pairs]
        if pairs and number:
            links = [pairs[number - 1][0]]
        child = fork.Process(target=work, args=(shape, plan, theirs, links))
        child.start()
        # So that the end of the process is the end of the pipe.
        theirs.close()
        ends.append((child, ours))
    for _, end in ends:
        end.recv()
    spent, started = cpu_seconds(server.pid), time.perf_counter()
    for _, end in ends:
        end.send("go")
    dones: list[Done] = [end.recv() for _, end in ends]
    seconds = time.perf_counter() - started
    spent = cpu_seconds(server.pid) - spent
    for child, _ in ends:
        child.join()
    return _figures(dones, seconds, spent)


def _fill(where: str, count: int) -> None:
    with psycopg.connect(where, autocommit=True) as db:
        db.execute(SCHEMA)
    node = RowLock(where)
    node.send(messages(count))
    node.run("SELECT setval('numbers', %b::bigint)", count)
    node.run("UPDATE shard SET last = %b::bigint", count)
    node.db.close()


def _figures(
    dones: Sequence[Done], seconds: float, server_seconds: float
) -> Sequence[float]:
    taken = max(sum(done.taken for done in dones), 1)
    figures = [taken / seconds]
    for name in ("turns", "commits"):
        times = [each for done in dones for each in getattr(done, name)]
        cuts = statistics.quantiles(times, n=100)
        figures += [cuts[49] * 1e3, cuts[98] * 1e3]
    spent = (sum(done.cpu_seconds for done in dones), server_seconds)
    return *figures, *(each / taken * 1e6 for each in spent)


def _line(name: str, processes: int, rounds: Sequence[Sequence[float]]) -> str:
    """A row: the median of each figure, and the range of the first."""
    rate, *others = (statistics.median(each) for each in zip(*rounds, strict=True))
    rates = [each[0] for each in rounds]
    cells = [name, str(processes), f"{rate:,.0f}"]
    cells += [f"{min(rates):,.0f} to {max(rates):,.0f}"]
    cells += [f"{each:.1f}" for each in others]
    return f"| {' | '.join(cells)} |"


_TITLE = (
    "| shape, batches of {batch} | processes | messages/s | range | turn p50 ms | p99 "
    "| last round trip p50 ms | p99 | nodes us/message | PostgreSQL us/message |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


@contextmanager
def pinned(where: str) -> Iterator[None]:
    """Hold back the removal of dead rows, as a long report or a backup would."""
    with psycopg.connect(where) as db:
        db.execute("SET idle_in_transaction_session_timeout = 0")
        db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        db.execute("SELECT txid_current()")
        yield


def compare(given: argparse.Namespace) -> None:
    """Measure every shape, one after the other, in several rounds."""
    print(_TITLE.format(batch=given.batch), flush=True)
    cells = [
        (shape, processes, pin)
        for shape in (PINNED if given.pin else SHAPES)
        for processes in (1, 3)
        if processes <= ALL[shape].processes_max
        for pin in ((False, True) if given.pin else (False,))
    ]
    rounds: dict[tuple[str, int, bool], list[Sequence[float]]] = defaultdict(list)
    with postgres(given.delay_ms) as server, tempfile.TemporaryDirectory() as folder:
        for number in range(given.rounds):
            for cell in cells[:: -1 if number % 2 else 1]:
                shape, processes, pin = cell
                ours = ALL[shape] is OurStore
                where = f"{folder}/{number}" if ours else server.where
                plan = Plan(where, given.batch, given.seconds)
                with pinned(server.where) if pin else nullcontext():
                    rounds[cell].append(measure(shape, server, plan, processes))
    for shape, processes, pin in cells:
        name = f"{shape}, xmin pinned" if pin else shape
        print(_line(name, processes, rounds[shape, processes, pin]))


# -- a process that is stopped ---------------------------------------------------------


def stop_myself() -> None:
    """Stand still until the parent lets this process go on."""
    os.kill(os.getpid(), signal.SIGSTOP)


def stale_owner(where: str, parent: Connection) -> None:
    """An owner that is stopped between two turns, and goes on with the next."""
    node = Lease(where)
    node.send(messages(10))
    stop_myself()
    _report(parent, lambda: node.send(messages(10)))


def stopped_in_turn(where: str, parent: Connection) -> None:
    """A node that is stopped with the shard's lock and rows that are not committed."""
    node = RowLock(where)
    found = Found._make(node.begin().fetchone())
    node.insert(found.last, messages(10))
    stop_myself()
    last = found.last + 10
    _report(parent, lambda: node.commit(found._replace(last=last)))


def stopped_reading(where: str, parent: Connection) -> None:
    """A node that is stopped with the lock while the database writes to it."""
    node = RowLock(where)
    node.begin()
    node.db.pgconn.send_query(
        b"SELECT id, repeat('x', 9999) FROM generate_series(1, 9999) id"
    )
    while node.db.pgconn.flush():
        pass
    stop_myself()
    _report(parent, lambda: node.run("COMMIT"))


def _report(parent: Connection, turn: Callable[[], object]) -> None:
    try:
        turn()
    except psycopg.Error as error:
        parent.send(f"refused: {type(error).__name__}")
    else:
        parent.send("COMMITTED")


def scene(server: Server, play: Callable[..., None], other: Callable[..., str]) -> str:
    """Stop a process, let another one take its turns, let the first go on."""
    _fill(server.where, 100)
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    child = fork.Process(target=play, args=(server.where, theirs))
    child.start()
    assert child.pid is not None
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    started = time.perf_counter()
    how = other(server.where)
    waited = time.perf_counter() - started
    os.kill(child.pid, signal.SIGCONT)
    answer = ours.recv()
    child.join()
    with psycopg.connect(server.where) as db:
        rows = db.execute("SELECT count(*), max(id) FROM message").fetchone()
        last = db.execute("SELECT max(last) FROM turn").fetchone()
    return (
        f"{play.__name__}: {how} after {waited:.2f} s; the stopped turn {answer}; "
        f"rows and last id {rows}, last number in the log {last}"
    )


def _take_over(where: str) -> str:
    with psycopg.connect(where, autocommit=True) as db:
        db.execute(
            "UPDATE shard SET lease_until = clock_timestamp() + %s * interval '1 s'",
            (_LEASE_SECONDS,),
        )
        db.execute("SELECT pg_sleep_until(lease_until) FROM shard")
        taken = db.execute(
            "UPDATE shard SET epoch = epoch + 1 WHERE lease_until <= clock_timestamp()"
        )
        assert taken.rowcount == 1
    Lease(where).send(messages(10))
    return "another owner committed"


def _next_turn(where: str) -> str:
    RowLock(where).send(messages(10))
    return "another node committed"


def _end_holder(where: str) -> str:
    """Wait for the lock for a time, then end the session that has it."""
    node = RowLock(where)
    node.run("SET lock_timeout = '3s'")
    try:
        node.send(messages(10))
    except psycopg.errors.LockNotAvailable:
        node.run("ROLLBACK")
    else:
        return "another node committed"
    with psycopg.connect(where, autocommit=True) as db:
        # The holder of the row's lock is the one with a transaction on the table.
        ended = db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks "
            "WHERE relation = 'shard'::regclass AND pid <> pg_backend_pid()"
        ).fetchall()
    node.send(messages(10))
    return f"the idle timeout did nothing, {len(ended)} session ended, then a commit"


def crash(shape: type[RowLock], *, promote: bool) -> str:
    """End PostgreSQL at once under load, and look for what was answered.

    It is started again, or its synchronous standby is promoted.
    """
    fork = multiprocessing.get_context("fork")
    # What each process was answered: two that send, one that takes.
    answered = fork.Array("q", 3)
    with cluster() as folder, ExitStack() as stack:
        with running(folder) as server:
            if promote:
                second = stack.enter_context(standby(folder, server))
            _fill(server.where, 10)
            children = [
                fork.Process(target=_until_the_end, args=(shape, folder, answered, at))
                for at in range(3)
            ]
            for child in children:
                child.start()
            time.sleep(1.0)
            os.kill(server.pid, signal.SIGQUIT)
            for child in children:
                child.join()
        after = second if promote else stack.enter_context(running(folder))
        with psycopg.connect(after.where, autocommit=True) as db:
            if promote:
                db.execute("SELECT pg_promote()")
            found = db.execute(
                "SELECT last, head, (SELECT count(*) FROM message) FROM turn "
                "ORDER BY number DESC LIMIT 1"
            ).fetchone()
    assert found is not None
    last, head, rows = found
    sent, taken = 10 + answered[0] + answered[1], answered[2]
    assert rows == last - head
    how = "promotion" if promote else "crash"
    return (
        f"{how}, {shape.__name__}: lost {max(sent - last, 0)} of {sent} sent, "
        f"{max(taken - head, 0)} of {taken} taken ones are there again"
    )


def _until_the_end(
    shape: type[RowLock], folder: Path, answered: Any, place: int
) -> None:
    node = shape(f"host={folder} user={_USER} dbname=postgres")
    batch = messages(10)
    # It warns of every pipeline that ends with its connection.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    with suppress(psycopg.Error):
        while True:
            if place < 2:
                node.send(batch)
                answered[place] += len(batch)
            else:
                answered[place] += len(node.take(10))


class NeverSynced(EarlyRelease):
    """A mutant: it answers without the sync. The crash must show what it lost."""

    def commit(self, found: Found) -> None:
        self.run("SET LOCAL synchronous_commit = off")
        RowLock.commit(self, found)


def scenes() -> None:
    """Print what becomes of a turn whose process is stopped, or whose database ends."""
    with postgres() as server:
        print(scene(server, stale_owner, _take_over), flush=True)
        print(scene(server, stopped_in_turn, _next_turn), flush=True)
        print(scene(server, stopped_reading, _end_holder), flush=True)
    for promote in (False, True):
        for shape in (RowLock, EarlyRelease, NeverSynced):
            print(crash(shape, promote=promote), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=0.6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--delay-ms", type=int, default=0)
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--scenes", action="store_true")
    given = parser.parse_args()
    # So that PostgreSQL is stopped when this process is.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    scenes() if given.scenes else compare(given)


if __name__ == "__main__":
    main()
