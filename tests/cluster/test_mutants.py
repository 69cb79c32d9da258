"""What each rule of a node is for: without it, an experiment convicts the node.

Each experiment breaks something at the worst moment of a turn. Nodes as they are pass
it; nodes that lack one rule (`broken_node.py`) do not. One pair here, the others as a
campaign.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.cluster.broken_node import WRITTEN
from tests.cluster.experiment import two_nodes
from tests.faults.sdk_story import Actor
from tests.postgres import shared_server, with_standby

# The clock of the second node is wrong by less than what keeps a node from starting.
AHEAD = ("faketime", "-f", "+30s")

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"),
    pytest.mark.timeout(120),
]


# -- experiments -----------------------------------------------------------------------


def kill_after_an_answer(folder: Path, rules: str) -> set[str]:
    """A node dies when it has just answered."""
    url = shared_server().new_database()
    with two_nodes(folder, url, [rules, "", ""]) as running:
        send = running.sender(0)
        assert send()
        assert send()
        running.site.nodes[0].kill()
        return running.problems()


def cut_before_a_commit(folder: Path, rules: str) -> set[str]:
    """The connection to the database is gone when a turn is to be committed."""
    url = shared_server().new_database()
    with two_nodes(folder, url, [rules, WRITTEN, "cut"]) as running:
        send = running.sender(0)
        assert send()
        running.arm()
        send()
        running.reached()
        return running.problems()


def hold_a_message(folder: Path, rules: str) -> set[str]:
    """A message is held by a client of one node; the clock of the other is wrong."""
    url = shared_server().new_database()
    with two_nodes(folder, url, [rules, "", ""], AHEAD) as running:
        assert running.sender(0)()
        holder, taker = (Actor(name, running.recorder) for name in ("holder", "taker"))
        here, there = (
            running.stack.enter_context(
                running.site.client(node).get_queue_receiver("plain")
            )
            for node in (0, 1)
        )
        [message] = holder.receive(here, "plain", 1, 10)
        for taken in taker.receive(there, "plain", 1, 2):
            taker.settle(there, "plain", taken, "complete")
        holder.settle(here, "plain", message, "complete")
        return running.problems()


def send_to_both(folder: Path, rules: str) -> set[str]:
    """A node has a turn while the other is in the middle of one."""
    url = shared_server().new_database()
    with two_nodes(folder, url, [rules, WRITTEN, "hold"]) as running:
        first, second = running.sender(0), running.sender(1)
        assert first()
        assert second()
        running.arm()
        at_first = threading.Thread(target=first)
        at_first.start()
        running.reached()
        second()
        at_first.join()
        return running.problems()


def promote_a_standby(folder: Path, rules: str) -> set[str]:
    """The standby gets nothing any more, the primary dies, the standby follows it."""
    with contextlib.ExitStack() as stack:
        primary, standby, url = with_standby(stack)
        words = [rules, "", ""]
        running = stack.enter_context(two_nodes(folder, url, words))
        send = running.sender(0)
        assert send()
        standby.pause_receiving()
        send()
        primary.kill()
        # In this order, so that it does not read what is left in its socket.
        standby.query("SELECT pg_promote(false)")
        standby.go_on_receiving()
        return running.problems()


EXPERIMENTS: Mapping[str, Callable[[Path, str], set[str]]] = {
    "early": kill_after_an_answer,
    "believing": cut_before_a_commit,
    "own clock": hold_a_message,
    "no lock": send_to_both,
    "no standby": promote_a_standby,
    "no sync": promote_a_standby,
}
CHARGES = {
    "early": {"lost"},
    "believing": {"lost"},
    "own clock": {"settle"},
    "no lock": {"defect"},
    "no standby": {"lost"},
    "no sync": {"lost"},
}
QUICK = ("believing",)


def cases(names: Sequence[str]) -> list[object]:
    campaign = pytest.mark.campaign
    return [
        pytest.param(name, marks=() if name in QUICK else campaign) for name in names
    ]


@pytest.mark.parametrize("rules", cases([*EXPERIMENTS]))
def test_a_node_that_lacks_a_rule_is_convicted(tmp_path: Path, rules: str) -> None:
    assert EXPERIMENTS[rules](tmp_path, rules) >= CHARGES[rules]


@pytest.mark.parametrize("rules", cases([*EXPERIMENTS][:-1]))
def test_nodes_as_they_are_pass_the_experiment(tmp_path: Path, rules: str) -> None:
    assert EXPERIMENTS[rules](tmp_path, "right") == set()
