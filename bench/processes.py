"""Our servers and the clients under measurement, as processes.

Owns their start, what they say on standard output, and their end. Every wait for an
answer has an end: a child that is silent is killed and the bench stops with its log.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.target import QUEUE, Target
from twinbus.core.sas import format_connection_string, parse_connection_string

# A report of 100 million rows takes minutes, and more on a busy machine.
_ANSWER_SECONDS_MAX = 1800.0
_STOP_SECONDS_MAX = 30.0
NAMESPACE = "contoso"
# Ten million messages of 1 KiB fit; a queue takes less than one million by default.
_SIZE_MB = 16 * 1024


class Child:
    """A process that answers with lines of JSON."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.started_at = time.perf_counter()
        self._log = log
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def read(self) -> Any:
        """The next line that it says."""
        out = self.process.stdout
        assert out is not None
        # One line per question, so nothing is left in the buffer from before.
        if not select.select([out], [], [], _ANSWER_SECONDS_MAX)[0]:
            self.process.kill()
        line = out.readline()
        if not line:
            tail = self._log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{self.process.args!r} said nothing:\n{tail}")
        return json.loads(line)

    def ask(self, **command: Any) -> Any:
        """Write a command and wait for the answer."""
        self.tell(**command)
        return self.read()

    def tell(self, **command: Any) -> None:
        """Write a command; `read` gives its answer."""
        writer = self.process.stdin
        assert writer is not None
        writer.write(json.dumps(command).encode() + b"\n")
        writer.flush()

    def rate(self, do: str, count: int) -> float:
        """Messages per second of one round."""
        return count / float(self.ask(do=do, count=count)["seconds"])

    def stop(self) -> None:
        """End it, gently if it listens."""
        self.process.terminate()
        try:
            self.process.communicate(timeout=_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()


def _target(child: Child) -> Target:
    ready = child.read()
    (described,) = ready["namespaces"].values()
    text = described["connection_string"]
    admin = None
    if "https_port" in described:
        given = parse_connection_string(text)
        assert given.key_name is not None
        assert given.key is not None
        port = described["https_port"]
        admin = format_connection_string(
            "localhost", port, given.key_name, given.key, dev=False
        )
    return Target(
        host="127.0.0.1",
        port=described["amqp_port"],
        connection_string=text,
        pid=child.process.pid,
        admin_connection_string=admin,
        ca_file=ready.get("ca_file", ""),
        http_port=described.get("http_port", 0),
    )


@contextmanager
def twinbus(
    folder: Path,
    *,
    https: bool = False,
    queues: Sequence[str | dict[str, Any]] = (QUEUE,),
    topics: Sequence[dict[str, Any]] = (),
    options: Sequence[str] = (),
) -> Iterator[Target]:
    """Run our server on a data folder, without supervisor: its process is measured."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "namespaces.json"
    given = [{"name": each} if isinstance(each, str) else each for each in queues]
    made = [{"max_size_in_megabytes": _SIZE_MB, **each} for each in given]
    namespace = {"name": NAMESPACE, "queues": made, "topics": topics}
    config.write_text(json.dumps({"namespaces": [namespace]}))
    command = ["-m", "twinbus.cli.main", "serve", "--dev", "--namespace", NAMESPACE]
    command += ["--data", str(folder / "data"), "--config", str(config)]
    command += ["--no-supervisor", *options]
    command += ["--amqp-port", "0", "--http-port", "0", "--log-level", "warning"]
    command += ["--https-port", "0"] if https else []
    child = Child(command, folder / "server.log")
    try:
        target = _target(child)
        yield target
    finally:
        child.stop()


def start_seconds(folder: Path) -> float:
    """How long our server takes on this data folder until it is ready."""
    started = time.perf_counter()
    with twinbus(folder):
        return time.perf_counter() - started


@contextmanager
def limit(folder: Path) -> Iterator[Target]:
    """Run our engine with the store switched off."""
    folder.mkdir(parents=True, exist_ok=True)
    child = Child(["-m", "bench.limit_server"], folder / "server.log")
    try:
        yield _target(child)
    finally:
        child.stop()


@contextmanager
def worker(
    target: Target, log: Path, module: str = "bench.worker", *arguments: str
) -> Iterator[Child]:
    """Run a client of a server."""
    with running(log, module, *arguments, target.text()) as child:
        yield child


@contextmanager
def running(log: Path, module: str, *arguments: str) -> Iterator[Child]:
    """Run a module that says when it is ready, and then answers."""
    child = Child(["-m", module, *arguments], log)
    try:
        child.read()
        yield child
    finally:
        child.stop()


def resident_mib(pid: int) -> float:
    """The memory of a process that is really there."""
    return _status_mib(pid, "VmRSS:")


def peak_mib(pid: int) -> float:
    """The most memory that a process has had."""
    return _status_mib(pid, "VmHWM:")


def _status_mib(pid: int, name: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} has no memory")


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and of all below it, also of those that ended."""
    spent = 0.0
    # A process or a thread may end just now.
    with contextlib.suppress(OSError):
        # The clock of another process on Linux; its file has ticks of 10 ms only.
        spent += time.clock_gettime(~pid << 3 | 2)
        # Those that ended, behind the name, which may hold anything: fields 16 and 17.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        spent += sum(int(each) for each in fields[13:15]) / os.sysconf("SC_CLK_TCK")
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                children = (task / "children").read_text().split()
                spent += sum(cpu_seconds(int(child)) for child in children)
    return spent


def run_ns(pid: int) -> int:
    """How long threads of a process have run."""
    spent_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            spent_ns += int((task / "schedstat").read_text().split()[0])
    return spent_ns
