"""A process that writes a diagnostics bundle, so that a restart waits for no disk.

Owns that process: a copy of the supervisor, which keeps nothing but a socket pair to
it. It writes the bundle and says so. When the server is back it checks the stores,
beside the service, and adds the result. It ends when the supervisor closes its side.
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

from twinbus import limits

log = logging.getLogger("twinbus.supervisor")

_WRITTEN = b"w"
_CHECK = b"c"
_LOWEST_PRIORITY = 19


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
        self._is_checking = False

    def check_stores(self) -> None:
        """The server is back: look whether its stores are sound."""
        if not self._is_checking:
            self._is_checking = True
            with suppress(OSError):
                self._control.sendall(_CHECK)

    def wait_until_written(self, seconds: float) -> None:
        """Wait for the bundle, but not for longer than that."""
        select.select([self._control], [], [], seconds)

    def close(self) -> None:
        """Let it end as soon as the bundle is written; no check goes on."""
        self._control.close()
        if self._is_checking:
            os.kill(self.pid, signal.SIGKILL)

    def has_ended(self) -> bool:
        """Whether the process is gone; asked until it is."""
        if os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            return False
        self._control.close()
        return True


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


def _asked_to_check(control: socket.socket) -> bool:
    """Say that the bundle is written, and wait for an answer or the end."""
    try:
        control.sendall(_WRITTEN)
        return control.recv(1) == _CHECK
    except OSError:
        return False


def _report(remains: Remains, data: str, control: socket.socket) -> None:
    from pathlib import Path

    from twinbus.server.setup.diagnostics import compose, write

    bundle = compose(remains)
    write(Path(data), bundle)
    log.warning("twinbus diagnostics show %s --data %s", remains.id, data)
    if not _asked_to_check(control):
        return
    os.nice(_LOWEST_PRIORITY)
    from twinbus.store.opening import check_stores

    stores = check_stores(Path(data), limits.STORE_CHECK_SECONDS_MAX)
    write(Path(data), {**bundle, "stores": stores})
    for store in stores:
        said = {True: "sound", False: "damaged", None: "too large to be checked"}
        level = logging.ERROR if store["sound"] is False else logging.INFO
        log.log(level, "%s is %s", store["file"], said[store["sound"]])
