"""Nodes and databases that are killed or stopped under load: nothing is lost.

The clients of `sdk_story.py` work on all nodes at once; the history checker decides.
One case of each kind here, more of them as a campaign.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.cluster.site import Cluster, cluster
from tests.faults import sdk_story
from tests.postgres import PostgresServer, shared_server, with_standby
from twinbus import limits
from twinbus.testing.history import HistoryVerdict, Recorder, check, load

[NAMESPACE] = sdk_story.CONFIG["namespaces"]
ENTITIES: dict[str, Any] = {"queues": NAMESPACE["queues"]}
MESSAGES = 25

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"),
    pytest.mark.timeout(180),
]


@dataclass
class Load:
    """The clients of all nodes, and what they wrote down."""

    site: Cluster
    history: Path
    # Nodes whose clients broke off.
    broken: set[int] = field(default_factory=set)

    def sends(self) -> int:
        """How many messages were accepted until now."""
        lines = self.history.read_bytes().splitlines()
        return sum(b'"send"' in line and b'"result"' not in line for line in lines)

    def reach(self, sends: int) -> None:
        """Wait until so many messages were accepted."""
        for _ in range(3_000):
            if self.sends() >= sends:
                return
            threading.Event().wait(0.01)
        pytest.fail(f"{self.sends()} of {sends} messages were accepted in 30 seconds")


def under_load(
    site: Cluster, folder: Path, disturb: Callable[[Load], None]
) -> tuple[HistoryVerdict, Load]:
    """Let clients work on all nodes, break something meanwhile, and judge."""
    history = folder / "history.jsonl"
    with Recorder(history) as recorder:
        running = Load(site, history)

        def tell(node: int) -> None:
            text = site.nodes[node].connection_string
            story = sdk_story.Story(text, recorder, MESSAGES, f"@{node}")
            story.run()
            if story.broken.is_set():
                running.broken.add(node)

        clients = [
            threading.Thread(target=tell, args=(node,))
            for node in range(len(site.nodes))
        ]
        for client in clients:
            client.start()
        running.reach(10)
        disturb(running)
        for client in clients:
            client.join()
        recorder.finish(recorder.start("nemesis", "restart"))
        sdk_story.drain(site.nodes[-1].connection_string, recorder)
    return check(load(history), sdk_story.RULES), running


@contextlib.contextmanager
def three_nodes(folder: Path, url: str) -> Iterator[Cluster]:
    with cluster(folder, url, ENTITIES) as site:
        yield site


def test_nothing_is_lost_when_a_node_is_killed(tmp_path: Path) -> None:
    def disturb(running: Load) -> None:
        running.site.nodes[0].kill()

    with three_nodes(tmp_path, shared_server().new_database()) as site:
        verdict, running = under_load(site, tmp_path, disturb)

    assert not verdict.broken, verdict.text()
    # Clients of the other nodes have noticed nothing.
    assert running.broken == {0}


@pytest.mark.campaign
def test_nothing_is_lost_when_a_node_is_stopped_and_goes_on(tmp_path: Path) -> None:
    def disturb(running: Load) -> None:
        running.site.nodes[0].pause()
        before = running.sends()
        # The others go on without it.
        running.reach(before + 20)
        running.site.nodes[0].resume()

    with three_nodes(tmp_path, shared_server().new_database()) as site:
        verdict, running = under_load(site, tmp_path, disturb)

    assert not verdict.broken, verdict.text()
    assert running.broken <= {0}


def test_nothing_is_lost_when_a_standby_is_promoted(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        primary, standby, url = with_standby(stack)
        site = stack.enter_context(three_nodes(tmp_path, url))
        assert site.nodes[0].ready["namespaces"]["testing"]["durability"] == "standby"

        def disturb(running: Load) -> None:
            primary.kill()
            standby.query("SELECT pg_promote()")

        verdict, _ = under_load(site, tmp_path, disturb)

    assert not verdict.broken, verdict.text()


@pytest.mark.campaign
def test_nodes_go_on_when_the_database_is_back(tmp_path: Path) -> None:
    server = PostgresServer.make()
    with contextlib.ExitStack() as stack:
        stack.callback(server.stop)
        site = stack.enter_context(three_nodes(tmp_path, server.url()))

        def disturb(running: Load) -> None:
            server.kill()
            server.start()

        verdict, _ = under_load(site, tmp_path, disturb)

    assert not verdict.broken, verdict.text()


def test_sends_are_held_and_then_refused_while_the_database_is_away(
    tmp_path: Path,
) -> None:
    server = PostgresServer.make()
    with contextlib.ExitStack() as stack:
        stack.callback(server.stop)
        site = stack.enter_context(cluster(tmp_path, server.url(), ENTITIES, 1))
        sender = stack.enter_context(site.client(0).get_queue_sender("plain"))
        sender.send_messages(ServiceBusMessage("before"))
        server.kill()

        started = time.monotonic()
        with pytest.raises(ServiceBusError, match="internal-error"):
            sender.send_messages(ServiceBusMessage("refused"))
        seconds = time.monotonic() - started
        # The official client tries once more by itself.
        assert limits.PG_AWAY_SECONDS / 2 < seconds < 25
        assert site.health(0)["status"] == "unhealthy"

        server.start()
        until(lambda: site.health(0)["status"] == "healthy")
        after = stack.enter_context(site.client(0).get_queue_sender("plain"))
        after.send_messages(ServiceBusMessage("after"))
        with site.client(0).get_queue_receiver("plain") as receiver:
            found = receiver.receive_messages(5, max_wait_time=10)
            found += receiver.receive_messages(5, max_wait_time=2)

    assert [str(each) for each in found] == ["before", "after"]


def until(is_so: Callable[[], bool]) -> None:
    """Wait for something, up to 30 seconds."""
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        threading.Event().wait(0.1)


# -- the matrix ------------------------------------------------------------------------


def killed(node: int) -> Callable[[Load], None]:
    return lambda running: running.site.nodes[node].kill()


def stopped(seconds: float) -> Callable[[Load], None]:
    def disturb(running: Load) -> None:
        running.site.nodes[0].pause()
        threading.Event().wait(seconds)
        running.site.nodes[0].resume()

    return disturb


def killed_and_started(running: Load) -> None:
    for node in running.site.nodes[:2]:
        node.restart()


@pytest.mark.campaign
@pytest.mark.timeout(0)
@pytest.mark.parametrize("sends", [2, 15, 30, 45, 60, 75, 90])
@pytest.mark.parametrize(
    "disturb",
    [killed(0), killed(1), stopped(1), stopped(3), stopped(10), killed_and_started],
    ids=["kill 0", "kill 1", "stop 1 s", "stop 3 s", "stop 10 s", "restart two"],
)
def test_nothing_is_lost_at_many_moments(
    tmp_path: Path, sends: int, disturb: Callable[[Load], None]
) -> None:
    def later(running: Load) -> None:
        running.reach(sends)
        disturb(running)

    with three_nodes(tmp_path, shared_server().new_database()) as site:
        verdict, _ = under_load(site, tmp_path, later)

    assert not verdict.broken, verdict.text()
