"""Kill the server before a chosen system call, start it again, and judge the history.

Owns running the server under strace, which sends SIGKILL before the Nth call of a kind,
and the experiment around it: clients work, the server dies, it starts again on the same
data, everything left is taken out, and the history checker decides.

Run one as `python -m tests.faults.killpoints FOLDER CALL WHEN [forget]`. An experiment
is a process of its own: the official client leaves sockets and threads behind when a
server dies under it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic

from tests.faults import idle_server, sdk_story
from twinbus.testing.history import Recorder, check, load
from twinbus.testing.server_process import ServerDied, ServerProcess

# The calls that change what is on the disk, or tell a client about it.
DISK_CALLS = ("pwrite64", "fdatasync", "fsync", "ftruncate", "rename", "unlink")
NETWORK_CALLS = ("write", "writev", "sendto", "sendmsg")
CALLS = DISK_CALLS + NETWORK_CALLS

MESSAGES = 24


@dataclass(frozen=True, slots=True)
class Point:
    """Die before the Nth call of this kind, counted in each thread."""

    call: str
    when: int

    def __str__(self) -> str:
        return f"{self.call}-{self.when}"


# Counts the calls instead of dying at one.
COUNT_ONLY = Point("none", 0)


@dataclass(frozen=True, slots=True)
class Outcome:
    point: Point
    # False if the story ended first; then the server was killed after it.
    reached: bool
    restart_seconds: float
    # How many promises of each kind were broken; empty is good.
    broken: dict[str, int]
    explanation: str

    def text(self) -> str:
        how = "" if self.reached else " (not reached, killed at the end)"
        restart = f"restart {self.restart_seconds:.2f} s"
        return f"{self.point}{how}: {restart}, {self.explanation}"


class IdleServer(ServerProcess):
    """The server of `idle_server.py`, in whose checkpoints it can be killed, too."""

    def __init__(self, folder: Path, prefix: Sequence[str] = ()) -> None:
        [namespace] = sdk_story.CONFIG["namespaces"]
        super().__init__(folder, namespace, name="n", prefix=prefix)
        at = self._command.index("twinbus.cli.main")
        self._command[at] = idle_server.__name__


def _under_strace(folder: Path, point: Point) -> list[str]:
    options = ["-e", "signal=none", "-e", f"trace={','.join(CALLS)}"]
    if point != COUNT_ONLY:
        inject = f"inject={point.call}:signal=SIGKILL:when={point.when}"
        options += ["-e", inject]
    return ["strace", "-f", "-o", str(folder / "trace"), *options, "--"]


def experiment(folder: Path, point: Point, *, forget: bool = False) -> Outcome:
    """Run one experiment in a process of its own and a folder of its own.

    With `forget` the data is removed before the restart: the checker must notice.
    """
    folder.mkdir()
    command = [sys.executable, "-m", __name__, str(folder)]
    options = [point.call, str(point.when), *(["forget"] if forget else [])]
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{point} in {folder}:\n{done.stderr}")
    return Outcome(**json.loads(done.stdout) | {"point": point})


def main(folder: Path, call: str, when: str, forget: str = "") -> None:
    outcome = run_point(folder, Point(call, int(when)), forget=bool(forget))
    print(json.dumps(asdict(outcome)))


def run_point(folder: Path, point: Point, *, forget: bool) -> Outcome:
    """Kill, restart, drain and judge."""
    history = folder / "history.jsonl"
    with Recorder(history) as recorder:
        reached = _until_killed(folder, point, recorder)
        if forget:
            shutil.rmtree(folder / "data")
        recorder.finish(recorder.start("nemesis", "restart"))
        began = monotonic()
        with IdleServer(folder) as server:
            restart_seconds = monotonic() - began
            sdk_story.drain(server.connection_string, recorder)
    verdict = check(load(history), sdk_story.RULES)
    broken = dict(verdict.broken)
    return Outcome(point, reached, restart_seconds, broken, verdict.text())


def _until_killed(folder: Path, point: Point, recorder: Recorder) -> bool:
    """Let clients work until the server is dead; False if the point did not come."""
    strace = _under_strace(folder, point)
    with suppress(ServerDied), IdleServer(folder, strace) as server:
        if not _tell_story(server, recorder):
            return False
        assert server.died(), "clients broke off, but the server lives"
    return True


def _tell_story(server: ServerProcess, recorder: Recorder) -> bool:
    """True if the story broke off."""
    story = sdk_story.Story(server.connection_string, recorder, MESSAGES)
    story.run()
    return story.broken.is_set()


def census(folder: Path) -> Counter[str]:
    """How many calls of each kind the busiest thread makes during the story."""
    experiment(folder, COUNT_ONLY)
    counts: Counter[tuple[str, str]] = Counter()
    for line in (folder / "trace").read_text(errors="replace").splitlines():
        if match := re.match(r"(\d+) +(\w+)\(", line):
            counts[match[1], match[2]] += 1
    busiest: Counter[str] = Counter()
    for (_, call), count in counts.items():
        busiest[call] = max(busiest[call], count)
    return busiest


def points(calls: Counter[str], per_call: int) -> list[Point]:
    """So many points per kind of call: the first ones, then evenly spread."""
    chosen = []
    for call in CALLS:
        count = calls[call]
        wanted = {1 + place * count // per_call for place in range(per_call)}
        chosen += [Point(call, when) for when in sorted(wanted) if when <= count]
    return chosen


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
