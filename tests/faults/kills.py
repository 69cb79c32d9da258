"""A server that is killed at chosen points, one after the other, under its clients.

Owns what every such experiment needs: the kills, the server with a part replaced, the
clients that notice its death, and running several experiments beside each other. What
clients do and what is judged at the end stands in `mover_points.py` and
`spool_points.py`.

An experiment is a process of its own (`python -m MODULE FOLDER VARIANT STEP...`): the
official client leaves sockets and threads behind when a server dies under it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from azure.servicebus import ServiceBusClient

from tests.faults.sdk_story import BROKEN, connect
from twinbus.testing.server_process import ServerProcess

NAME = "n"
# The name of the last message of each source, sent when all kills are over.
LAST = "last"
# The clients wait more than they work, so several experiments fit on one core.
AT_ONCE = 4
_CALLS = ("pwrite64", "fdatasync")


class Kill(NamedTuple):
    """When the server is killed.

    `kind` is a step of the replaced part (`mover_server.py`, `spool_server.py`), a
    system call on the log of the database of a shard, or `sends`: after so many
    messages were accepted.
    """

    kind: str
    when: int
    shard: int = 0

    def __str__(self) -> str:
        return f"{self.kind}-{self.when}-{self.shard}"

    @classmethod
    def read(cls, text: str) -> Kill:
        kind, when, shard = text.split("-")
        return cls(kind, int(when), int(shard))


NEVER = Kill("never", 0)


class Outcome(NamedTuple):
    """What an experiment has found."""

    # What is wrong; empty is good.
    problems: list[str]
    # How many of the kills came before the clients had done all.
    reached: int
    # How many messages have arrived.
    arrived: int


class Plan(NamedTuple):
    """An experiment: which variant of the part, and the kills or rounds in order."""

    variant: str
    steps: Sequence[object]


def trials(
    module: str,
    folder: Path,
    kills: Mapping[str, Sequence[object]],
    broken: Mapping[str, tuple[Sequence[object], str]],
) -> dict[str, Outcome]:
    """Run the right part with each of the kills, and each broken one with its own."""
    plans = {name: Plan("right", steps) for name, steps in kills.items()}
    plans |= {name: Plan(name, steps) for name, (steps, _) in broken.items()}
    return experiments(module, folder, plans)


def experiments(
    module: str, folder: Path, plans: Mapping[str, Plan]
) -> dict[str, Outcome]:
    """Run experiments, several at once, each in a folder of its own."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = {
            name: pool.submit(_experiment, module, folder / f"{number}", plan)
            for number, (name, plan) in enumerate(plans.items())
        }
    return {name: each.result() for name, each in running.items()}


def _experiment(module: str, folder: Path, plan: Plan) -> Outcome:
    folder.mkdir(parents=True)
    words = [str(folder), plan.variant, *map(str, plan.steps)]
    command = [sys.executable, "-m", module, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{plan} in {folder}:\n{done.stderr}")
    return Outcome(*json.loads(done.stdout.splitlines()[-1]))


def campaign(
    module: str, folder: Path, plans: Iterable[Sequence[object]]
) -> tuple[dict[str, Outcome], int]:
    """Run very many with the right part; returns those with problems, and the kills."""
    named = {" ".join(map(str, steps)): Plan("right", steps) for steps in plans}
    found = experiments(module, folder, named)
    reached = sum(outcome.reached for outcome in found.values())
    arrived = sum(outcome.arrived for outcome in found.values())
    print(f"{reached} kills, {arrived} messages")
    bad = {name: outcome for name, outcome in found.items() if outcome.problems}
    return bad, reached


# -- the server ------------------------------------------------------------------------


class KilledServer(ServerProcess):
    """The server with a part that a module of tests replaces, and its death.

    The module is run as `python -m MODULE VARIANT STEP WHEN serve ...`.
    """

    module: str
    shards: int
    config: dict[str, Any]

    def __init__(self, folder: Path, variant: str, kill: Kill) -> None:
        super().__init__(
            folder,
            self.config,
            name=NAME,
            options=("--shards", str(self.shards)),
            prefix=_under_strace(folder, kill) if kill.kind in _CALLS else (),
        )
        # A kind that is no step of the module is never reached in it.
        words = [self.module, variant, kill.kind, str(kill.when)]
        at = self._command.index("twinbus.cli.main")
        self._command[at : at + 1] = words

    def errors(self) -> list[str]:
        """What it has written to its log as an error."""
        lines = self.log.read_text().splitlines()
        return [line for line in lines if " ERROR " in line]


def _under_strace(folder: Path, kill: Kill) -> list[str]:
    at = folder / "data" / NAME
    log = (at / f"shard-{kill.shard}" if kill.shard else at) / "messages.db-wal"
    inject = f"inject={kill.kind}:signal=SIGKILL:when={kill.when}"
    options = ["-f", "-o", "/dev/null", "-e", "signal=none"]
    options += ["-e", f"trace={kill.kind}", "-e", inject, "-P", str(log)]
    return ["strace", *options, "--"]


# -- clients ---------------------------------------------------------------------------


class KilledClients:
    """Clients that work until the server is dead, and what was accepted of them."""

    def __init__(self, server: ServerProcess, accepted: set[str], kill: Kill) -> None:
        self._server = server
        # That of the whole experiment; each client adds to it.
        self._accepted = accepted
        self._kill_after = kill.when if kill.kind == "sends" else 0
        self._count = 0
        self._lock = threading.Lock()
        self.broken = threading.Event()

    def run_all(self, jobs: Sequence[Callable[[ServiceBusClient], None]]) -> bool:
        """Run each with a client of its own; False if no client met a dead server."""
        with ThreadPoolExecutor(len(jobs)) as pool:
            list(pool.map(self._try, jobs))
        if not self.broken.is_set():
            return False
        assert self._server.died(), "clients broke off, but the server lives"
        return True

    def _try(self, job: Callable[[ServiceBusClient], None]) -> None:
        try:
            with connect(self._server.connection_string) as client:
                job(client)
        except BROKEN:
            self.broken.set()

    def note(self, names: Iterable[str]) -> None:
        """These were accepted; the kill may come after so many."""
        with self._lock:
            before = len(self._accepted)
            self._accepted.update(names)
            self._count += len(self._accepted) - before
            is_time = 0 < self._kill_after <= self._count
        if is_time:
            self._server.kill()
