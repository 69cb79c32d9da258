"""Apache ActiveMQ Artemis as a peer: its distribution, run from a folder of its own.

Owns its start and its end. `make peers` fetches it where Maven is there. The journal is
synced to disk, with asynchronous input and output where the machine has it, and as its
own set-up has tuned it for this disk.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peer import free_port, stop, wait_until_started
from bench.target import QUEUE, Missing, Target

NAME = "artemis"
INSTALLED = Path(__file__).resolve().parent.parent / ".peers"
_USER = "guest"
_CREATE_SECONDS_MAX = 120
_OPTIONS = (
    *("--silent", "--no-web", "--no-amqp-acceptor", "--no-hornetq-acceptor"),
    *("--no-mqtt-acceptor", "--no-stomp-acceptor", "--host", "127.0.0.1"),
    *("--user", _USER, "--password", _USER, "--role", "amq", "--queues", QUEUE),
)


@contextmanager
def artemis(folder: Path) -> Iterator[Target | Missing]:
    """Run a broker until the block ends; says why if there can be none."""
    programs = sorted(INSTALLED.glob("apache-artemis-*/bin/artemis"))
    if not programs:
        why = "it is not installed: `make peers` fetches it where Maven and Java are"
        yield Missing(NAME, why)
        return
    port, log = free_port(), folder.with_suffix(".log")
    create = [str(programs[-1]), "create", str(folder), *_OPTIONS]
    with log.open("wb") as written:
        made = subprocess.run(
            [*create, "--default-port", str(port)],
            stdout=written,
            stderr=written,
            timeout=_CREATE_SECONDS_MAX,
            check=False,
        )
        if made.returncode:
            tail = " ".join(log.read_text(errors="replace")[-400:].split())
            yield Missing(NAME, f"no broker could be made: {tail}")
            return
        # The script becomes the broker, so that its process is ours to stop.
        broker = subprocess.Popen(
            [folder / "bin" / "artemis", "run"], stdout=written, stderr=written
        )
        # It gives credit for 1,000 at a time.
        target = Target(
            "127.0.0.1", port, "{}", _USER, _USER, window=1000, pid=broker.pid
        )
        try:
            yield wait_until_started(NAME, target, broker, log)
        finally:
            stop(broker)
