"""The supervisor: starts the server, watches it, and starts it again when it fails.

Owns the listening sockets, so that clients who connect during a restart wait instead of
being refused, and the black box, so that something is left of a server that failed. The
server is a child process, which runs the same command with `--no-supervisor`. It has
failed when it has ended, when its event loop has not moved for five seconds, or when it
says itself that something is broken. After five restarts in a minute the supervisor
gives up. It does nothing else, and imports nothing of the server: the less there is,
the less can fail here.

What a child says comes over a socket pair, as lines of JSON:

    {"sockets": [NAME, ...]}        listening sockets; their descriptors come with it
    {"ready": {...}, "about": {...}}  the ready line, and what the supervisor must know
    {"broken": TEXT}                an invariant does not hold: start me again

The child reads the end of that socket pair as the end of its supervisor.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from select import select
from time import monotonic, time
from typing import Any, NoReturn

from twinbus import limits
from twinbus.server.setup import handover
from twinbus.server.setup.black_box import BlackBox, make_file, time_text
from twinbus.server.setup.reporter import Remains, Reporter

log = logging.getLogger("twinbus.supervisor")

# In the environment of the child: its process id, the supervisor's, three descriptors.
VARIABLE = "TWINBUS_SUPERVISED"
# Makes the child write the stacks of its threads.
STACKS_SIGNAL = signal.SIGUSR2
FAILED = 1

_READ_SIZE = 64 * 1024


class ServerLife:
    """One life of the server."""

    def __init__(self, pid: int, control: socket.socket, beats: int) -> None:
        self.pid = pid
        self.control = control
        self.started_at = monotonic()
        self.is_ready = False
        self.beats = beats
        self.silent_seconds = 0.0
        # What it says is broken.
        self.broken = ""
        # How it ended, as `os.waitstatus_to_exitcode` says it.
        self.exit_code: int | None = None
        # When it is killed, once it was asked to stop.
        self.kill_at: float | None = None
        # A line that is not whole yet, and descriptors whose names are in it.
        self.heard = b""
        self.descriptors: list[int] = []

    @property
    def failure(self) -> str | None:
        """Why it cannot go on; None if it can."""
        if self.exit_code is not None:
            return f"ended {_exit_text(self.exit_code)}"
        if self.broken:
            return f"is broken: {self.broken}"
        if self.silent_seconds >= limits.HEARTBEAT_SILENCE_SECONDS_MAX:
            seconds = limits.HEARTBEAT_SILENCE_SECONDS_MAX
            return f"is stalled: its event loop has not moved for {seconds:g} seconds"
        return None


def _exit_text(code: int) -> str:
    return f"with code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"


class Supervisor:
    """Runs a command as its child until it is asked to stop.

    `set_up_log` is called with the level and the form of the server's log.
    """

    def __init__(
        self, command: Sequence[str], set_up_log: Callable[[str, str], None]
    ) -> None:
        self._command = list(command)
        self._set_up_log = set_up_log
        self._sockets = handover.received()
        self._box_file = make_file()
        self._box = BlackBox(self._box_file)
        # What the child writes when it is asked for the stacks of its threads.
        self._stacks, self._stacks_end = os.pipe()
        self._selector = selectors.DefaultSelector()
        self._restarts: deque[float] = deque()
        # Those that write bundles of former failures.
        self._reporters: list[Reporter] = []
        # What the first ready line said, and the data folder.
        self._ready: Mapping[str, Any] = {}
        self._data = ""
        # How often a signal has asked for a stop.
        self._stop_asked = 0
        self._looked_at = monotonic()

    # -- the loop ------------------------------------------------------------------

    def run(self) -> int:
        """Run until the server has stopped; returns the exit code."""
        self._take_signals()
        try:
            return self._watch()
        finally:
            for reporter in self._reporters:
                reporter.close()

    def _watch(self) -> int:
        child = self._start()
        while True:
            self._wait(child)
            if self._stop_asked:
                self._stop(child)
            if (code := self._code_at_end(child)) is not None:
                return code
            if child.failure and child.kill_at is None:
                if not self._end(child):
                    return FAILED
                child = self._start()

    def _take_signals(self) -> None:
        """Let signals end a wait."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        self._selector.register(ours, selectors.EVENT_READ, theirs)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._asked_to_stop)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)

    def _asked_to_stop(self, _number: int, _frame: object) -> None:
        self._stop_asked += 1

    def _wait(self, child: ServerLife) -> None:
        """Wait for news of the child, or until it is time to look at it."""
        for key, _ in self._selector.select(limits.SUPERVISOR_LOOK_SECONDS):
            if key.fileobj is child.control:
                self._hear(child)
            else:
                assert isinstance(key.fileobj, socket.socket)
                key.fileobj.recv(_READ_SIZE)
        _reap(child)
        self._reporters = [each for each in self._reporters if not each.has_ended()]
        now = monotonic()
        # More than that has passed only if this process stood still.
        passed = min(now - self._looked_at, 2 * limits.SUPERVISOR_LOOK_SECONDS)
        self._looked_at = now
        if child.beats != self._box.beats or not child.is_ready:
            child.beats = self._box.beats
            child.silent_seconds = 0.0
        else:
            child.silent_seconds += passed

    # -- starting ------------------------------------------------------------------

    def _start(self) -> ServerLife:
        while select([self._stacks], [], [], 0)[0]:
            # What a former child wrote too late.
            os.read(self._stacks, _READ_SIZE)
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            self._become_server(theirs)
        theirs.close()
        ours.setblocking(False)
        self._selector.register(ours, selectors.EVENT_READ)
        return ServerLife(pid, ours, self._box.beats)

    def _become_server(self, control: socket.socket) -> NoReturn:
        """Turn this new process into the server."""
        try:
            pids = os.getpid(), os.getppid()
            others = [control.fileno(), self._box_file, self._stacks_end]
            variables, places = handover.hand_over(self._sockets, others)
            variables[VARIABLE] = ":".join(map(str, (*pids, *places)))
            environment = {**os.environ, **variables}
            # systemd listens to the supervisor alone.
            environment.pop("NOTIFY_SOCKET", None)
            os.execve(self._command[0], self._command, environment)  # noqa: S606
        except OSError as error:
            _say(f"the server cannot be started: {error}")
        finally:
            os._exit(FAILED)

    # -- what the child says -------------------------------------------------------

    def _hear(self, child: ServerLife) -> None:
        most = limits.SUPERVISOR_SOCKETS_PER_MESSAGE_MAX
        try:
            data, descriptors, _, _ = socket.recv_fds(child.control, _READ_SIZE, most)
        except ConnectionError:
            data, descriptors = b"", []
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        child.descriptors += descriptors
        if not data:
            # It has ended, or is about to.
            self._selector.unregister(child.control)
            child.control.close()
            return
        *lines, child.heard = (child.heard + data).split(b"\n")
        for line in lines:
            self._obey(child, json.loads(line))

    def _obey(self, child: ServerLife, said: Mapping[str, Any]) -> None:
        for name in said.get("sockets", ()):
            self._sockets[name] = socket.socket(fileno=child.descriptors.pop(0))
        if "broken" in said:
            child.broken = said["broken"]
        if "ready" in said:
            child.is_ready = True
            self._is_ready(child, said["ready"], said["about"])

    def _is_ready(
        self, child: ServerLife, ready: Mapping[str, Any], about: Mapping[str, Any]
    ) -> None:
        if self._ready:
            seconds = monotonic() - child.started_at
            log.warning(
                "the server is back as process %d after %.1f s", child.pid, seconds
            )
            for reporter in self._reporters:
                reporter.check_stores()
            return
        self._ready, self._data = ready, about["data"]
        self._set_up_log(about["log_level"], about["log_format"])
        print(json.dumps(ready), flush=True)  # noqa: T201

    # -- ending --------------------------------------------------------------------

    def _stop(self, child: ServerLife) -> None:
        """Ask the child to stop; kill it if it takes too long or is asked twice."""
        if child.kill_at is None:
            child.kill_at = monotonic() + limits.SUPERVISOR_STOP_SECONDS_MAX
            for listening in self._sockets.values():
                listening.close()
            _send(child, signal.SIGTERM)
            # It may be stopped, and could not stop then.
            _send(child, signal.SIGCONT)
        elif self._stop_asked > 1 or monotonic() >= child.kill_at:
            _send(child, signal.SIGKILL)

    def _code_at_end(self, child: ServerLife) -> int | None:
        """The exit code, if the end of the child is the end of all."""
        code = child.exit_code
        if code is None:
            return None
        if child.kill_at is not None:
            if code == -signal.SIGKILL:
                log.error("the server did not stop in time, and was killed")
            # A server that is still starting ends by the signal.
            return 0 if code == -signal.SIGTERM else _own_code(code)
        if code == 0:
            # It was asked to stop itself: by a terminal, or as part of a group.
            return 0
        if not self._ready:
            # It has said why, unless a signal ended it.
            if code < 0:
                _say(f"the server ended {_exit_text(code)} before it was ready.")
            return _own_code(code)
        return None

    def _end(self, child: ServerLife) -> bool:
        """End a child that has failed; False if it is not to be started again."""
        failure = child.failure or ""
        remains = self._gather(child, failure)
        log.error("the server (process %d) %s", child.pid, failure)
        _send(child, signal.SIGKILL)
        if child.exit_code is None:
            os.waitpid(child.pid, 0)
        self._forget(child)
        for former in self._reporters:
            former.close()
        reporter = Reporter(remains, self._data, self._let_go)
        self._reporters.append(reporter)
        if self._may_restart():
            return True
        reporter.wait_until_written(limits.DIAGNOSTICS_SECONDS_MAX)
        _say(
            f"the server failed {len(self._restarts) + 1} times in "
            f"{monotonic() - self._restarts[0]:.0f} seconds and is not started again; "
            f"the last one {failure}."
        )
        return False

    def _may_restart(self) -> bool:
        """Count a restart; False if there were too many."""
        now = monotonic()
        oldest = now - limits.SUPERVISOR_RESTART_WINDOW_SECONDS
        while self._restarts and self._restarts[0] < oldest:
            self._restarts.popleft()
        if len(self._restarts) >= limits.SUPERVISOR_RESTARTS_MAX:
            return False
        self._restarts.append(now)
        return True

    # -- diagnostics ---------------------------------------------------------------

    def _gather(self, child: ServerLife, failure: str) -> Remains:
        """What there is to know of a child that has failed, without any disk."""
        began, now = monotonic(), time()
        stacks = self._read_stacks(child)
        missing = []
        if not stacks:
            why = "it had ended" if child.exit_code is not None else "it wrote none"
            missing.append(f"stacks of the server's threads: {why}")
        text = time_text(now)
        ports = {
            name: {key: value for key, value in each.items() if key.endswith("_port")}
            for name, each in self._ready["namespaces"].items()
        }
        return Remains(
            id=f"{text.replace(':', '').replace('-', '')}-{child.pid}",
            time=text,
            reason=f"The server {failure}.",
            pid=child.pid,
            seconds=began - child.started_at,
            restarts=len(self._restarts),
            command=self._command,
            ports=ports,
            stacks=stacks,
            log=self._box.records(),
            vitals=self._box.vitals(),
            missing=missing,
            gathered_seconds=monotonic() - began,
        )

    def _read_stacks(self, child: ServerLife) -> bytes:
        """Let the child write its stacks; one that crashed may have done so already."""
        _send(child, STACKS_SIGNAL)
        # It may be stopped.
        _send(child, signal.SIGCONT)
        most = 0.0 if child.exit_code is not None else limits.STACKS_SECONDS_MAX
        until = monotonic() + most
        found, seconds = b"", most
        while select([self._stacks], [], [], seconds)[0]:
            found += os.read(self._stacks, _READ_SIZE)
            if len(found) >= limits.STACKS_BYTES_MAX:
                break
            # There is no mark at the end.
            left = max(0.0, until - monotonic())
            seconds = min(left, limits.STACKS_QUIET_SECONDS)
        return found

    def _let_go(self) -> None:
        """Close all that belongs to the supervisor, in a copy of it."""
        for listening in self._sockets.values():
            listening.close()
        for key in list(self._selector.get_map().values()):
            os.close(key.fd)
        self._selector.close()

    def _forget(self, child: ServerLife) -> None:
        """Close what belongs to a child that is gone."""
        if child.control.fileno() >= 0:
            self._selector.unregister(child.control)
            child.control.close()
        for descriptor in child.descriptors:
            os.close(descriptor)


def _own_code(code: int) -> int:
    """The exit code of a supervisor whose child ended so."""
    return code if code >= 0 else FAILED


def _send(child: ServerLife, number: int) -> None:
    if child.exit_code is None:
        os.kill(child.pid, number)


def _reap(child: ServerLife) -> None:
    """Notice the end of a child; until then its process id is taken."""
    if child.exit_code is None:
        pid, status = os.waitpid(child.pid, os.WNOHANG)
        if pid:
            child.exit_code = os.waitstatus_to_exitcode(status)


def _say(text: str) -> None:
    """Say something that must be seen, whatever the log's level is."""
    print(f"twinbus: {text}", file=sys.stderr, flush=True)  # noqa: T201


__all__ = ["VARIABLE", "Supervisor"]
