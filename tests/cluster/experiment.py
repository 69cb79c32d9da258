"""Two nodes, of which one breaks at a step of a turn, and what their clients see.

Owns the start of nodes of `broken_node.py`, and the judgement: the history checker
decides, and a node that is well refuses no send and logs no defect.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster import broken_node
from tests.cluster.broken_node import ARMED, REACHED
from tests.cluster.site import Cluster
from tests.cluster.test_faults import ENTITIES, until
from tests.faults import sdk_story
from tests.faults.sdk_story import Actor
from twinbus.testing.history import Recorder, check, load
from twinbus.testing.server_process import ServerProcess


class BrokenNode(ServerProcess):
    """A node of `broken_node.py`."""

    def __init__(
        self, folder: Path, url: str, words: Sequence[str], prefix: Sequence[str]
    ) -> None:
        options = ["--database", url]
        super().__init__(folder, ENTITIES, options=options, prefix=prefix)
        at = self._command.index("twinbus.cli.main")
        self._command[at : at + 1] = [broken_node.__name__, *words]


@dataclass
class Experiment:
    """Two nodes, of which the first breaks, and what their clients write down."""

    site: Cluster
    history: Path
    recorder: Recorder
    stack: contextlib.ExitStack
    count: int = 0
    # Sends that a node refused, by node.
    refused: dict[int, int] = field(default_factory=dict)

    def sender(self, node: int, session: str = "") -> Callable[[], bool]:
        """A client of a node; each call sends a message, and says whether it did."""
        queue = "grouped" if session else "plain"
        actor = Actor(f"p@{node}", self.recorder)
        link = self.site.client(node).get_queue_sender(queue)
        self.stack.enter_context(link)

        def send() -> bool:
            self.count += 1
            try:
                actor.send(link, queue, [f"{actor.name}-{self.count}"], session)
            except sdk_story.BROKEN:
                self.refused[node] = self.refused.get(node, 0) + 1
                return False
            return True

        return send

    def arm(self) -> None:
        """Let the next turn of the first node that reaches the step break."""
        os.kill(self.site.nodes[0].pid, signal.SIGUSR1)
        self._said(ARMED)

    def reached(self) -> None:
        """Wait until it is at the step."""
        self._said(REACHED)

    def _said(self, text: str) -> None:
        until(lambda: text in self.site.nodes[0].log.read_text())

    def problems(self) -> set[str]:
        """Take out what is left, through the second node, and judge."""
        until(lambda: self.site.health(1)["status"] == "healthy")
        self.recorder.finish(self.recorder.start("nemesis", "restart"))
        sdk_story.drain(self.site.nodes[1].connection_string, self.recorder)
        found = set(check(load(self.history), sdk_story.RULES).broken)
        if self.refused.get(1):
            found.add("refused")
        if any("Traceback" in node.log.read_text() for node in self.site.nodes):
            found.add("defect")
        return found


@contextlib.contextmanager
def two_nodes(
    folder: Path, url: str, words: Sequence[str], second: Sequence[str] = ()
) -> Iterator[Experiment]:
    """Run a node that breaks, as the words say, and another of the same rules."""
    with contextlib.ExitStack() as stack:
        nodes: list[ServerProcess] = [
            stack.enter_context(BrokenNode(folder / str(number), url, words, prefix))
            for number, prefix in enumerate([(), second])
        ]
        site = Cluster(nodes, url)
        stack.callback(site.close)
        history = folder / "history.jsonl"
        recorder = stack.enter_context(Recorder(history))
        yield Experiment(site, history, recorder, stack)
