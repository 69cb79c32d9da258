"""PostgreSQL for tests: Debian's, as an unprivileged user, in a temporary folder.

Owns the processes: a primary and its standbys listen on Unix sockets in their folders
and are stopped by their process ids. A test session (and each worker of it) has one
server, `shared_server`; tests that break a server start their own.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

USER = "postgres"
_AS_USER = ["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups"]
_AS_USER += ["--pdeathsig", "INT"]
_PR_SET_PDEATHSIG = 1
_numbers = count(1)


def with_standby(
    stack: ExitStack,
) -> tuple[PostgresServer, PostgresServer, str]:
    """A primary and its standby until the stack ends, and a URL that names both."""
    primary = PostgresServer.make()
    stack.callback(primary.stop)
    standby = primary.standby()
    stack.callback(standby.stop)
    both = f"{primary.folder},{standby.folder}"
    return primary, standby, primary.url().replace(str(primary.folder), both)


@cache
def binaries() -> Path:
    """Where PostgreSQL's programs are."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.fail("PostgreSQL is missing. Run `make setup`, or install postgresql.")
    return found[-1].parent


def _user() -> str | None:
    """PostgreSQL does not run as root."""
    return USER if os.geteuid() == 0 else None


class PostgresServer:
    """A PostgreSQL server in a folder of its own."""

    def __init__(
        self,
        folder: Path,
        settings: dict[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        # A program to run it under, which does not change the user.
        self._prefix = prefix
        self.data = folder / "data"
        self.settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(folder),
            # A process is killed in these tests, never the machine.
            "fsync": "off",
            "shared_buffers": "32MB",
            "max_connections": "300",
            **(settings or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def make(
        cls, settings: dict[str, str] | None = None, prefix: Sequence[str] = ()
    ) -> PostgresServer:
        """Make a server with an empty database, and start it."""
        server = cls(_new_folder(), settings, prefix)
        server.run("initdb", "-D", str(server.data), "-U", USER, "-A", "trust", "-N")
        with (server.data / "pg_hba.conf").open("a") as access:
            access.write("host all,replication all samenet trust\n")
        server.start()
        return server

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def url(self, database: str = "postgres", user: str = USER) -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def start(self) -> None:
        command = [str(binaries() / "postgres"), "-D", str(self.data)]
        for name, value in self.settings.items():
            command += ["-c", f"{name}={value}"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._prefix, *_AS_USER, *command] if self._prefix else command,
                user=None if self._prefix else _user(),
                group=None if self._prefix else _user(),
                cwd=self.folder,
                stdout=log,
                stderr=log,
                # A test process that is killed leaves no server behind.
                preexec_fn=_end_with_parent,  # noqa: PLW1509
            )
        self._await()

    def _await(self) -> None:
        for _ in range(600):
            try:
                psycopg.connect(self.url()).close()
            except psycopg.OperationalError:
                assert self._process is not None
                assert self._process.poll() is None, (self.folder / "log").read_text()
                threading.Event().wait(0.05)
            else:
                return
        pytest.fail(f"PostgreSQL did not start: {(self.folder / 'log').read_text()}")

    def query(self, text: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run a statement as the owner of everything."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(text.encode())
            return cursor.fetchall() if cursor.description else []

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"test_{os.getpid()}_{next(_numbers)}"
        self.query(f"CREATE DATABASE {name}")
        return self.url(name)

    @classmethod
    def empty(cls) -> PostgresServer:
        """A server that is not made yet."""
        return cls(_new_folder())

    def standby(self, url: str = "") -> PostgresServer:
        """Make a standby, which finds this server at a URL; all commits wait for it."""
        other = PostgresServer.empty()
        url = url or self.url()
        arguments = ("-D", str(other.data), "-R", "-c", "fast", "-d", url)
        other.run("pg_basebackup", *arguments)
        other.start()
        self.query("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.query("SELECT pg_reload_conf()")
        self.await_standby()
        return other

    def await_standby(self) -> None:
        """Wait until commits wait for a standby."""
        state = (
            "SELECT 1 FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')"
        )
        while not self.query(state):
            threading.Event().wait(0.05)

    def pause_receiving(self) -> None:
        """Let a standby confirm nothing for now."""
        self._signal_receiver(signal.SIGSTOP)

    def go_on_receiving(self) -> None:
        """Let it confirm again."""
        self._signal_receiver(signal.SIGCONT)

    def _signal_receiver(self, number: signal.Signals) -> None:
        [(pid,)] = self.query("SELECT pid FROM pg_stat_wal_receiver")
        os.kill(pid, number)

    def kill(self) -> None:
        """End it as a crash does."""
        self._end(signal.SIGQUIT)

    def stop(self) -> None:
        """End it, with its sessions."""
        self._end(signal.SIGINT)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(number)
            process.wait(30)

    def run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs as its user."""
        command: Sequence[str] = [str(binaries() / program), *arguments]
        done = subprocess.run(
            command,
            user=_user(),
            group=_user(),
            cwd=self.folder,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()


def _end_with_parent() -> None:
    """Let the kernel stop this process when the one that started it is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


def _new_folder() -> Path:
    """A folder with a short path, since a socket's path is short."""
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    if _user() is not None:
        shutil.chown(folder, USER, USER)
    folder.chmod(0o711)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def shared_server() -> PostgresServer:
    """The server that the tests of this process share."""
    server = PostgresServer.make()
    atexit.register(server.stop)
    return server
