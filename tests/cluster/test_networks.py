"""Networks that lose packets, between nodes and database and to the standby.

PostgreSQL runs on a machine of its own (`wire.py`), so neither side of a connection is
told that it is gone. The clients of `sdk_story.py` work on three nodes meanwhile.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tests.cluster.site import Cluster, cluster
from tests.cluster.test_faults import ENTITIES, Load, three_nodes, under_load, until
from tests.cluster.wire import Wire, can_have_wires, wire
from tests.postgres import PostgresServer, with_standby
from twinbus import limits
from twinbus.store.postgres.database import Database

WAYS = {
    "there": {"there": True, "here": False},
    "here": {"there": False, "here": True},
    "both": {"there": True, "here": True},
}

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"),
    pytest.mark.timeout(180),
    pytest.mark.skipif(not can_have_wires(), reason="needs root and `ip netns`"),
]


def url_of(cable: Wire) -> str:
    """Where the server is, over the wire."""
    return f"postgresql://postgres@{cable.there}/postgres"


@contextlib.contextmanager
def far_server() -> Iterator[tuple[PostgresServer, Wire]]:
    """PostgreSQL behind a wire; its Unix socket is here all the same."""
    with wire() as made:
        settings = {"listen_addresses": made.there}
        server = PostgresServer.make(settings, made.command)
        try:
            yield server, made
        finally:
            made.mend()
            server.stop()


def test_a_database_that_does_not_answer_any_more_is_noticed() -> None:
    with far_server() as (_, cable):
        connection = Database(url_of(cable), "contoso", 0).connect()
        timer = threading.Timer(0.5, lambda: cable.cut(there=True, here=True))
        timer.start()

        started = time.monotonic()
        with contextlib.closing(connection), pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT pg_sleep(1000)")
        seconds = time.monotonic() - started

    assert seconds < 0.5 + limits.PG_SILENT_SECONDS + 5


def cut(cable: Wire, way: str, seconds: float) -> Callable[[Load], None]:
    def disturb(running: Load) -> None:
        cable.cut(**WAYS[way])
        threading.Event().wait(seconds)
        cable.mend()
        until(lambda: is_well(running.site))

    return disturb


def is_well(site: Cluster) -> bool:
    nodes = range(len(site.nodes))
    return all(site.health(node)["status"] == "healthy" for node in nodes)


@pytest.mark.campaign
@pytest.mark.parametrize("seconds", [1, 4, 15])
@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_lost_between_nodes_and_database(
    tmp_path: Path, way: str, seconds: float
) -> None:
    with far_server() as (_, cable), three_nodes(tmp_path, url_of(cable)) as site:
        verdict, _ = under_load(site, tmp_path, cut(cable, way, seconds))

    assert not verdict.broken, verdict.text()


@pytest.mark.campaign
@pytest.mark.parametrize("seconds", [1, 4, 15])
@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_lost_between_primary_and_standby(
    tmp_path: Path, way: str, seconds: float
) -> None:
    with far_server() as (primary, cable), contextlib.ExitStack() as stack:
        standby = primary.standby(url_of(cable))
        stack.callback(standby.stop)
        site = stack.enter_context(three_nodes(tmp_path, primary.url()))

        def disturb(running: Load) -> None:
            cut(cable, way, seconds)(running)

        verdict, _ = under_load(site, tmp_path, disturb)

    assert not verdict.broken, verdict.text()


@pytest.mark.campaign
def test_nodes_go_on_at_the_standby_when_the_primary_s_machine_is_gone(
    tmp_path: Path,
) -> None:
    with far_server() as (primary, cable), contextlib.ExitStack() as stack:
        standby = primary.standby(url_of(cable))
        stack.callback(standby.stop)
        url = f"postgresql://postgres@/postgres?host={cable.there},{standby.folder}"
        site = stack.enter_context(three_nodes(tmp_path, url))
        took: list[float] = []

        def disturb(running: Load) -> None:
            cable.cut(there=True, here=True)
            started = time.monotonic()
            standby.query("ALTER SYSTEM SET synchronous_standby_names = ''")
            standby.query("SELECT pg_promote()")
            until(lambda: is_well(running.site))
            took.append(time.monotonic() - started)

        verdict, _ = under_load(site, tmp_path, disturb)
        assert not verdict.broken, verdict.text()
        # What the nodes wait for the silent primary, and the time to find the other.
        assert took[0] < 20


@pytest.mark.campaign
def test_nothing_is_lost_when_a_wait_for_the_standby_is_cancelled(
    tmp_path: Path,
) -> None:
    """An administrator cancels it, and PostgreSQL answers as if all were well."""
    with contextlib.ExitStack() as stack:
        primary, standby, url = with_standby(stack)
        site = stack.enter_context(cluster(tmp_path, url, ENTITIES))

        def disturb(running: Load) -> None:
            standby.pause_receiving()
            until(lambda: bool(primary.query(CANCEL)))
            until(lambda: bool(primary.query(CANCEL)))
            primary.kill()
            standby.query("SELECT pg_promote(false)")
            standby.go_on_receiving()
            until(lambda: is_well(running.site))

        verdict, _ = under_load(site, tmp_path, disturb)

    assert not verdict.broken, verdict.text()


CANCEL = (
    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
)
