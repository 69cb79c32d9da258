"""What the other products' brokers have in common: a port, a wait, an end."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

from bench.blocking import BlockingConnection
from bench.target import Missing, Target
from twinbus.errors import TwinbusError

_START_SECONDS_MAX = 90.0
_STOP_SECONDS_MAX = 60.0
_POLL_SECONDS = 0.2
_TAIL_CHARACTERS = 400


def free_port() -> int:
    """A port of loopback that is free now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def wait_until_started(
    name: str, target: Target, broker: subprocess.Popen[bytes], log: Path
) -> Target | Missing:
    """Wait until the broker takes logins; tell the end of its log if it does not."""
    end = time.monotonic() + _START_SECONDS_MAX
    while time.monotonic() < end and broker.poll() is None:
        connection = BlockingConnection(target.host, target.port, timeout_seconds=5)
        try:
            connection.open(target.user, target.password)
        except TwinbusError:
            time.sleep(_POLL_SECONDS)
            continue
        finally:
            connection.close()
        return target
    tail = log.read_text(errors="replace")[-_TAIL_CHARACTERS:]
    return Missing(name, f"the broker did not start: {' '.join(tail.split())}")


def stop(child: subprocess.Popen[bytes]) -> None:
    """End a broker, by force if it takes too long."""
    child.terminate()
    try:
        child.wait(_STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
