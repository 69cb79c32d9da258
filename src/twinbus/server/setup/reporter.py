"""A process that writes a diagnostics bundle, so that a restart waits for no disk.

Owns that process: a copy of the supervisor, which keeps nothing but a socket pair to
it. It writes the bundle and says so. It ends when the supervisor closes its side.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

log = logging.getLogger("twinbus.supervisor")

_WRITTEN = b"w"


class Remains(NamedTuple):
    """What a supervisor gathers when a server has failed."""

    id: str
    time: str
    reason: str
    pid: int
    # How long the server ran, and how often it was restarted before.
    seconds: float
    restarts: int
    command: list[str]
    # Each namespace's ports.
    ports: dict[str, dict[str, Any]]
    stacks: bytes
    log: list[bytes]
    vitals: bytes
    # What could not be had, and why.
    missing: list[str]
    # How long it took to gather this.
    gathered_seconds: float


class Reporter:
    """The supervisor's side."""

    def __init__(self, remains: Remains, data: str, let_go: Callable[[], None]) -> None:
        """Start the process; there `let_go` closes what is the supervisor's alone."""
        self._control, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            self._control.close()
            _run(remains, data, theirs, let_go)
        theirs.close()

    def wait_until_written(self, seconds: float) -> None:
        """Wait for the bundle, but not for longer than that."""
        select.select([self._control], [], [], seconds)

    def close(self) -> None:
        """Let it end as soon as the bundle is written."""
        self._control.close()

    def has_ended(self) -> bool:
        """Whether the process is gone; asked until it is."""
        return os.waitpid(self.pid, os.WNOHANG)[0] != 0


def _run(
    remains: Remains, data: str, control: socket.socket, let_go: Callable[[], None]
) -> NoReturn:
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        let_go()
        # A reader of the ready line must not wait for the end of this process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        _report(remains, data, control)
    except Exception:
        log.exception("diagnostics %s could not be written", remains.id)
    finally:
        os._exit(0)


def _report(remains: Remains, data: str, control: socket.socket) -> None:
    from pathlib import Path

    from twinbus.server.setup.diagnostics import compose, write

    write(Path(data), compose(remains))
    log.warning("twinbus diagnostics show %s --data %s", remains.id, data)
    with suppress(OSError):
        control.sendall(_WRITTEN)
        control.recv(1)
