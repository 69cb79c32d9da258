"""A turn that breaks in the middle: all of it has happened, or nothing.

The node is killed, stopped, or loses its database at each step of a turn, and goes on
where it can. Clients of the other node notice nothing.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.cluster.broken_node import COMMITTED, DURABLE, STEPS, WRITTEN
from tests.cluster.experiment import two_nodes
from tests.cluster.test_faults import until
from tests.postgres import shared_server

SESSION = "s0"

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"),
    pytest.mark.timeout(180),
]
QUICK = ((COMMITTED, "cut"), (WRITTEN, "stop 1 s"))


@pytest.mark.parametrize(
    ("step", "action"),
    [
        pytest.param(
            step,
            action,
            marks=() if (step, action) in QUICK else pytest.mark.campaign,
        )
        for step in STEPS
        for action in ("kill", "cut", "stop 1 s", "stop 5 s", "stop 60 s")
    ],
)
def test_a_turn_that_breaks_has_happened_or_not(
    tmp_path: Path, step: str, action: str
) -> None:
    url = shared_server().new_database()
    kind, *rest = action.split()
    with two_nodes(tmp_path, url, ["right", step, kind]) as running:
        first, second = running.sender(0, SESSION), running.sender(1, SESSION)
        assert first()
        assert second()
        running.arm()
        at_first = threading.Thread(target=first)
        at_first.start()
        running.reached()
        for _ in range(5):
            second()
        if rest:
            threading.Event().wait(float(rest[0]))
            running.site.nodes[0].resume()
        at_first.join()
        if kind == "cut" and step in (COMMITTED, DURABLE):
            # The commit was found in the log of turns.
            assert not running.refused
        if kind != "kill":
            until(lambda: running.site.health(0)["status"] == "healthy")
            assert running.sender(0, SESSION)()

        assert running.problems() == set()
