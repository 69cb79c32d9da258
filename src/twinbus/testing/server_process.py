"""A server as a process that a test kills, stops and starts again.

Owns the command line, the ready line, the signals and the end of the process. The data
and the ports stay the same from one start to the next, so clients find it again. A wait
for it has an end. Knows nothing about clients; for a namespace inside the test process,
which is quicker, see `namespace.py`.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self

from twinbus import limits
from twinbus.core.sas import DEV_KEY_NAME, DEV_KEY_TEXT
from twinbus.testing.namespace import HOST, NAME, Entities, config_text

_KINDS = ("amqp", "amqps", "http", "https")


class ServerDied(Exception):
    """The process ended before it was ready; the text is the end of its log."""


class ServerProcess:
    """`twinbus serve` with one namespace, in a folder of its own.

    `entities` is what the namespace has at the start, as for `serve_namespace`;
    `options` are further words of the command line; `prefix` is a program to run it
    under, such as strace. It has no supervisor, so that what is killed stays away;
    set `supervised` before the start for one.
    """

    supervised = False

    def __init__(
        self,
        folder: Path,
        entities: Entities | None = None,
        *,
        name: str = NAME,
        options: Sequence[str] = (),
        prefix: Sequence[str] = (),
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.name = name
        self.log = folder / "server.log"
        self._prefix = prefix
        config = entities if isinstance(entities, Path) else folder / "config.json"
        if not isinstance(entities, Path):
            config.write_text(config_text(entities or {}, name))
        # Bound but not listening, so that no other process gets the ports meanwhile.
        self._places = {kind: _place() for kind in _KINDS}
        self.ports: dict[str, int] = {
            kind: place.getsockname()[1] for kind, place in self._places.items()
        }
        self._command = [sys.executable, "-m", "twinbus.cli.main", "serve", "--dev"]
        self._command += ["--namespace", name, "--data", str(folder / "data")]
        self._command += ["--config", str(config), *options]
        if "--ledger" not in options:
            self._command += ["--no-ledger"]
        for kind, port in self.ports.items():
            self._command += [f"--{kind}-port", str(port)]
        self._process: subprocess.Popen[bytes] | None = None
        # What it said when it was ready.
        self.ready: dict[str, Any] = {}

    # -- where it is found ---------------------------------------------------------

    @property
    def connection_string(self) -> str:
        """What clients connect with; it stays the same."""
        return self.connection_string_through(self.ports["amqp"])

    def connection_string_through(self, port: int) -> str:
        """The same by way of another port, which is that of a proxy."""
        return (
            f"Endpoint=sb://{HOST}:{port};SharedAccessKeyName={DEV_KEY_NAME};"
            f"SharedAccessKey={DEV_KEY_TEXT};UseDevelopmentEmulator=true;"
        )

    @property
    def admin_connection_string(self) -> str:
        """What administration clients connect with, over HTTPS."""
        return (
            f"Endpoint=sb://{HOST}:{self.ports['https']}/;"
            f"SharedAccessKeyName={DEV_KEY_NAME};SharedAccessKey={DEV_KEY_TEXT}"
        )

    @property
    def ca_file(self) -> str:
        """The certificate that signs those of the server."""
        return str(self.ready["ca_file"])

    # -- its life ------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether there is a process, however it feels."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id of the server, or of the program that it runs under."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> Self:
        """Start it and wait until it is ready; does nothing if it runs."""
        if self.running:
            return self
        alone = [] if self.supervised else ["--no-supervisor"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                [*self._prefix, *self._command, *alone],
                stdout=subprocess.PIPE,
                stderr=log,
                # One group, so that the program it runs under goes with it.
                start_new_session=True,
            )
        line = self._read_line()
        if not line:
            self.kill()
            raise ServerDied(self.log.read_text(errors="replace")[-2000:])
        self.ready = json.loads(line)
        return self

    def kill(self) -> None:
        """End it at once, as a crash does, also while it is paused."""
        self._signal(signal.SIGKILL)
        self._reap(None)

    def pause(self) -> None:
        """Stop it in the middle of its work: it hangs, and keeps its sockets."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after a pause."""
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        """Kill it and start it again."""
        self.kill()
        self.start()

    def stop(self) -> int:
        """Ask it to end, as an administrator does; gives its exit code."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)
        return self._reap(limits.TESTING_STOP_SECONDS_MAX)

    def died(self, timeout_seconds: float = limits.TESTING_STOP_SECONDS_MAX) -> bool:
        """Wait for its end, if it is about to end by itself."""
        assert self._process is not None
        try:
            self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """Kill it, if it runs, and give its ports back. It cannot start again."""
        self.kill()
        for place in self._places.values():
            place.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- the process ---------------------------------------------------------------

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _reap(self, timeout_seconds: float | None) -> int:
        process = self._process
        if process is None:
            return 0
        code = process.wait(timeout_seconds)
        assert process.stdout is not None
        process.stdout.close()
        return code

    def _read_line(self) -> bytes:
        """The ready line; empty if it ends without one."""
        assert self._process is not None
        out = self._process.stdout
        assert out is not None
        line = b""
        until = monotonic() + limits.TESTING_READY_SECONDS_MAX
        while not line.endswith(b"\n"):
            left = until - monotonic()
            if left <= 0 or not select.select([out], [], [], left)[0]:
                self.kill()
                raise ServerDied("it was not ready in time")
            piece = os.read(out.fileno(), 65536)
            if not piece:
                return b""
            line += piece
        return line


def _place() -> socket.socket:
    place = socket.socket()
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    place.bind(("127.0.0.1", 0))
    return place
