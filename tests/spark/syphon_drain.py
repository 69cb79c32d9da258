"""A syphon as a process of its own, for tests that kill parts of it.

Owns starting `twinbus syphon --until-empty` on a master, seeing how far it is, and
finding what can be killed: a Python worker, an executor, the driver with all below it.
Also a standalone cluster of one master and some workers, as a user would start it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pyspark

from tests.spark.syphon_pair import PRIMARY, Pair, Server
from twinbus.cli.pair.syphon_view import ReportWatch, Snapshot
from twinbus.spark.syphon_job.reports import Reports
from twinbus.spark.syphon_job.storage import storage_at

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_EXECUTOR = "CoarseGrainedExecutorBackend"
_READY_SECONDS_MAX = 300.0
_POLL_SECONDS = 0.1


def poll(what: Callable[[], bool], seconds_max: float) -> bool:
    """Ask again and again; whether it was so in time."""
    deadline = time.monotonic() + seconds_max
    never = threading.Event()
    while not what():
        if time.monotonic() > deadline:
            return False
        never.wait(_POLL_SECONDS)
    return True


def descendants(pid: int) -> Iterator[int]:
    """All processes below one, those of other groups too."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        found = [
            int(child)
            for task in tasks
            for child in (task / "children").read_text().split()
        ]
    except FileNotFoundError:
        return
    for child in found:
        yield child
        yield from descendants(child)


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("latin-1")
    except FileNotFoundError:
        return ""


class Drain:
    """One run of the command."""

    def __init__(self, pair: Pair[Server], master: str, *options: object) -> None:
        self._pair = pair
        self._journal = str(pair.options["journalLocation"])
        for name, server in (("p", pair.primary), ("s", pair.secondary)):
            (pair.folder / name).write_text(server.connection_string)
        command = [sys.executable, "-m", "twinbus.cli.main", "syphon", "--until-empty"]
        command += ["--primary", f"@{pair.folder / 'p'}"]
        command += ["--secondary", f"@{pair.folder / 's'}"]
        command += ["--primary-name", PRIMARY, "--journal", self._journal, "--json"]
        command += ["--master", master, *map(str, options)]
        self._before = set(self._runs())
        self.log = pair.folder / f"drain-{time.monotonic_ns()}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            )
        self.begun = time.monotonic()

    def _runs(self) -> list[str]:
        storage = storage_at(self._journal)
        return storage.folders(f"{self._pair.journal_pair}/reports")

    def reports(self) -> Reports | None:
        """The reports of this run, once it has begun."""
        new = [run for run in self._runs() if run not in self._before]
        if not new:
            return None
        storage = storage_at(self._journal)
        return Reports(storage, self._pair.journal_pair, new[-1])

    def look(self) -> Snapshot:
        """How far it is."""
        reports = self.reports()
        return Snapshot() if reports is None else ReportWatch(reports).look(time.time())

    def moved(self, count: int) -> bool:
        """Wait until so many were moved; False if it ended before."""
        return poll(
            lambda: self.look().moved >= count or self.process.poll() is not None,
            _READY_SECONDS_MAX,
        ) and (self.process.poll() is None)

    def busy(self) -> bool:
        """Wait until tasks have messages in hand; False if it ended before."""
        return poll(
            lambda: bool(self.worker_pids()) or self.process.poll() is not None,
            _READY_SECONDS_MAX,
        ) and (self.process.poll() is None)

    def pause(self, seconds: float) -> None:
        """Let it go on for a moment, or to its end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)

    def worker_pids(self) -> list[int]:
        """Python workers that have a task in hand."""
        reports = self.reports()
        assert reports is not None
        running = [each for each in reports.read() if each.ended is None]
        return [each.pid for each in running if "pyspark" in command_of(each.pid)]

    def executor_pids(self) -> list[int]:
        """Executors, where they are processes of their own."""
        below = descendants(self.process.pid)
        return [pid for pid in below if _EXECUTOR in command_of(pid)]

    def kill(self) -> None:
        """End it with all that it started, and give none of them a moment."""
        below = list(descendants(self.process.pid))
        os.killpg(self.process.pid, signal.SIGKILL)
        for pid in below:
            if command_of(pid):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()

    def wait(self, seconds_max: float) -> None:
        """Wait for a good end."""
        try:
            code = self.process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            self.kill()
            code = None
        assert code == 0, f"{code}: {self.log.read_text()[-3000:]}"


@contextmanager
def standalone(folder: Path, workers: int) -> Iterator[str]:
    """A standalone cluster on this machine; yields the master's address."""
    folder.mkdir(parents=True, exist_ok=True)
    running: list[subprocess.Popen[bytes]] = []

    def launch(name: str, *args: str) -> Path:
        log = folder / f"{name}.log"
        with log.open("w") as out:
            running.append(
                subprocess.Popen(
                    [str(SPARK_CLASS), *args], stdout=out, stderr=out, env=_quiet()
                )
            )
        return log

    try:
        common = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        log = launch("master", "org.apache.spark.deploy.master.Master", *common)
        address = _found(log, r"(spark://127\.0\.0\.1:\d+)")
        for number in range(workers):
            kind = "org.apache.spark.deploy.worker.Worker"
            own = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work"))
            log = launch(f"worker-{number}", kind, *common, *own, address)
            _found(log, "(Successfully registered)")
        yield address
    finally:
        for process in reversed(running):
            for pid in [*descendants(process.pid), process.pid]:
                if command_of(pid):
                    os.kill(pid, signal.SIGKILL)
            process.wait()


def _quiet() -> dict[str, str]:
    return {**os.environ, "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1"}


def _found(log: Path, pattern: str) -> str:
    found: list[str] = []

    def look() -> bool:
        found[:] = re.findall(pattern, log.read_text())
        return bool(found)

    assert poll(look, _READY_SECONDS_MAX), log.read_text()
    return found[0]
