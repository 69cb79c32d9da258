"""A page of the documentation, followed by a reader who has nothing but the page.

Owns how the blocks of a page are carried out: in their order, in an empty folder, with
the text that is printed. The configuration is written, servers are started in the
background, commands and programs are run, and what they export is there for all that
follows. A block of another kind is an error, so that none is left out by mistake.

Only the ports are changed, since those of the page may be taken on this machine: a
server gets free ones, and what follows names them. In a network of its own a reader
has all ports, and nothing is changed.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from azure.servicebus import ServiceBusClient

from tests.printed import ROOT, blocks
from tests.spark.conftest import SETTINGS

_PORT_OPTION = re.compile(r"--(amqp|http|https)-port (\d+)")
_DEFAULT_PORTS = {"amqp": "5672", "http": "5300"}
_UNSHARE = ("unshare", "--map-root-user", "--net")
_RUN_SECONDS_MAX = 500
_STOP_SECONDS_MAX = 30


class OwnNetwork:
    """A network that no other process has, with loopback alone."""

    # Why a test is skipped where a user may not have one.
    NEEDS = "needs `unshare --map-root-user --net`"

    def __init__(self) -> None:
        # It is there as long as a process is in it.
        self._holder = subprocess.Popen(
            [*_UNSHARE, "sh", "-ec", "ip link set lo up; echo up; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "up\n"
        self.enter = (
            *("nsenter", "--user", "--preserve-credentials", "--net"),
            *("--target", str(self._holder.pid)),
        )

    def close(self) -> None:
        """Let it go."""
        self._holder.communicate(timeout=_STOP_SECONDS_MAX)

    @staticmethod
    def is_allowed() -> bool:
        """Whether this user may have one."""
        words = [*_UNSHARE, "ip", "link", "set", "lo", "up"]
        try:
            done = subprocess.run(words, check=False, capture_output=True)
        except FileNotFoundError:
            return False
        return done.returncode == 0


class Walk:
    """A reader in an empty folder. Ends the servers that it has started."""

    def __init__(self, folder: Path, network: OwnNetwork | None = None) -> None:
        self.folder = folder
        # What commands and programs have printed, in their order.
        self.printed: list[str] = []
        # What the newest server has said when it was ready.
        self.ready: dict[str, Any] = {}
        self._enter = network.enter if network else ()
        self._ports: dict[str, str] = {}
        self._servers: list[subprocess.Popen[str]] = []
        self._environment = {
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.defpath)),
            "PYTHONPATH": str(ROOT / "src"),
            # The journal of a syphon is below it.
            "HOME": str(folder),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_CONF_DIR": str(folder),
        }
        # As in other tests: a driver that starts fast and stays small.
        settings = "".join(f"{name} {value}\n" for name, value in SETTINGS.items())
        (folder / "spark-defaults.conf").write_text(settings)
        if "JAVA_HOME" in os.environ:
            self._environment["JAVA_HOME"] = os.environ["JAVA_HOME"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        codes = self._stop()
        assert error is not None or not any(codes), codes

    def configure(self, text: str) -> None:
        """Write the configuration that the page shows."""
        (self.folder / "twinbus.yaml").write_text(text)

    def shell(self, text: str) -> None:
        """Carry out a block of shell lines."""
        if text.startswith("twinbus serve "):
            self._serve(text)
        else:
            self._run(self._at_own_ports(text))

    def program(self, text: str) -> None:
        """Run a Python program."""
        file = self.folder / "program.py"
        file.write_text(self._at_own_ports(text))
        self._run(f"python {file.name}")

    def stop(self) -> None:
        """Stop the servers, as Ctrl-C does."""
        codes = self._stop()
        assert not any(codes), codes

    def start(self, text: str) -> subprocess.Popen[str]:
        """Start a command that goes on, in a group of its own; the caller ends it."""
        return subprocess.Popen(
            [*self._enter, "/bin/sh", "-ec", f"exec {text}"],
            cwd=self.folder,
            env=self._environment,
            # A terminal where nothing is typed.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def variable(self, name: str) -> str:
        """The value of a variable that the page has set."""
        return self._environment[name]

    def _stop(self) -> list[int]:
        """Returns the exit codes."""
        stopped, self._servers = self._servers, []
        for server in stopped:
            server.send_signal(signal.SIGINT)
        codes = [server.wait(_STOP_SECONDS_MAX) for server in stopped]
        for server in stopped:
            assert server.stdout is not None
            server.stdout.close()
        return codes

    def _run(self, text: str) -> None:
        kept = self.folder / ".exported"
        with subprocess.Popen(
            [*self._enter, "/bin/sh", "-ec", f"{text}\nenv --null > {kept.name}"],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as shell:
            try:
                out, errors = shell.communicate(timeout=_RUN_SECONDS_MAX)
            except BaseException:
                # With what it has started: a test that is out of time waits for its
                # end otherwise.
                os.killpg(shell.pid, signal.SIGKILL)
                raise
        assert shell.returncode == 0, f"{text}\n{out}\n{errors}"
        self.printed.append(out)
        entries = kept.read_text().removesuffix("\0").split("\0")
        self._environment = dict(entry.split("=", 1) for entry in entries)

    def _serve(self, text: str) -> None:
        command, given = text, {}
        if not self._enter:
            given = {**_DEFAULT_PORTS, **dict(_PORT_OPTION.findall(text))}
            words = "".join(f" --{kind}-port 0" for kind in given)
            command = _PORT_OPTION.sub("", text).strip().removesuffix("\\") + words
        with (self.folder / "servers.log").open("ab") as log:
            server = subprocess.Popen(
                [*self._enter, "/bin/sh", "-ec", f"exec {command}"],
                cwd=self.folder,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._servers.append(server)
        assert server.stdout is not None
        self.ready = json.loads(server.stdout.readline())
        ((_, entry),) = self.ready["namespaces"].items()
        for kind, port in given.items():
            self._ports[port] = str(entry[f"{kind}_port"])

    def _at_own_ports(self, text: str) -> str:
        """The text with the ports that the servers have got."""
        if "5672" in self._ports:
            text = text.replace("127.0.0.1;", f"127.0.0.1:{self._ports['5672']};")
        return re.sub(
            r"(127\.0\.0\.1:)(\d+)",
            lambda found: found[1] + self._ports.get(found[2], found[2]),
            text,
        )


@contextmanager
def walked(
    page: str, test: str, folder: Path, *, programs: bool = True
) -> Iterator[Walk]:
    """A page that was followed from its top to its end; its servers still run.

    Carries out the blocks that are given to a test file. Without `programs` the Python
    blocks are one program, run at the end.
    """
    joined = ""
    with Walk(folder) as walk:
        for language, text in blocks(page, test):
            if language == "yaml":
                walk.configure(text)
            elif language == "python" and programs:
                walk.program(text)
            elif language == "python":
                joined += text
            else:
                walk.shell(text)
        if joined:
            walk.program(joined)
        yield walk


def peeked(connection: str, queue: str) -> list[str]:
    """The bodies of the messages in a queue, which stay there."""
    with (
        ServiceBusClient.from_connection_string(connection) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        return [str(each) for each in receiver.peek_messages(10)]
