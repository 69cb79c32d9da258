"""The server's side of its supervisor: the heartbeat, and what it has to say.

Owns the three descriptors that the supervisor hands over: a socket pair to talk, the
black box, and a pipe for the stacks of all threads, which a signal writes without the
help of the interpreter. A server whose supervisor is gone stops, since it would keep
the ports and the data folder from the next one.
Knows what a server measures, and nothing about why a supervisor acts.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import logging
import os
import signal
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Self

from twinbus import limits
from twinbus.errors import TwinbusError
from twinbus.server.broker.directory.placement import hosts_of
from twinbus.server.setup.audit import Audit
from twinbus.server.setup.black_box import BlackBox, BlackBoxHandler
from twinbus.server.setup.server import Server
from twinbus.server.setup.supervisor import STACKS_SIGNAL, VARIABLE
from twinbus.server.setup.vitals import Vitals

log = logging.getLogger("twinbus.server")


class Supervised:
    """This process, as a child of a supervisor."""

    def __init__(self, pid: int, descriptors: Sequence[int]) -> None:
        control, box, stacks = descriptors
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        self.supervisor_pid = pid
        self._control = socket.socket(fileno=control)
        self._box = BlackBox(box)
        self._audits: list[asyncio.Task[None]] = []
        logging.getLogger().addHandler(BlackBoxHandler(self._box))
        faulthandler.enable(file=stacks)
        faulthandler.register(STACKS_SIGNAL, file=stacks)
        threading.Thread(target=self._watch, name="supervised", daemon=True).start()

    @classmethod
    def here(cls) -> Self | None:
        """The supervisor of this process, if it has one; only once."""
        text = os.environ.pop(VARIABLE, "0:0")
        pid, supervisor_pid, *descriptors = map(int, text.split(":"))
        return cls(supervisor_pid, descriptors) if pid == os.getpid() else None

    def _watch(self) -> None:
        """Stop the server when its supervisor is gone."""
        with suppress(OSError):
            while self._control.recv(1):
                pass
        os.kill(os.getpid(), signal.SIGTERM)
        # Its loop may be stalled.
        threading.Event().wait(limits.ORPHAN_STOP_SECONDS_MAX)
        os._exit(1)

    # -- what is said --------------------------------------------------------------

    def tell_ready(
        self,
        ready: Mapping[str, Any],
        about: Mapping[str, Any],
        sockets: Mapping[str, socket.socket],
    ) -> None:
        """Say that the server is ready, and hand up the sockets that it has made."""
        items = iter(sockets.items())
        while some := dict(islice(items, limits.SUPERVISOR_SOCKETS_PER_MESSAGE_MAX)):
            line = json.dumps({"sockets": list(some)}).encode() + b"\n"
            socket.send_fds(self._control, [line], [s.fileno() for s in some.values()])
        self._tell({"ready": ready, "about": about})

    def tell_broken(self, text: str) -> None:
        """Say that an invariant does not hold; the supervisor ends this process."""
        log.error("broken: %s", text)
        self._tell({"broken": text})

    def _tell(self, said: Mapping[str, Any]) -> None:
        with suppress(OSError):
            self._control.sendall(json.dumps(said).encode() + b"\n")

    # -- what is shown -------------------------------------------------------------

    def start(self, server: Server) -> None:
        """Show from now on that the event loop moves, and what the server measures."""
        self._loop = asyncio.get_running_loop()
        self._vitals = Vitals(server)
        self._beat()
        self._put_vitals()
        for port in server.ports.values():
            for host in hosts_of(port.host):
                host.on_broken = self.tell_broken
                if not host.in_thread:
                    # A purge of millions takes longer than a stall, but it moves.
                    host.namespace.store.on_progress(self._box.beat)
                task = self._loop.create_task(self._audit(Audit(host)))
                self._audits.append(task)

    def _beat(self) -> None:
        self._loop.call_later(limits.HEARTBEAT_SECONDS, self._beat)
        self._box.beat()

    async def _audit(self, audit: Audit) -> None:
        while True:
            await asyncio.sleep(limits.AUDIT_SECONDS)
            # A store that has stopped has said so, and so has a defect.
            with suppress(TwinbusError):
                if (wrong := await audit.look()) is not None:
                    self.tell_broken(wrong)

    def _put_vitals(self) -> None:
        self._loop.call_later(limits.VITALS_SECONDS, self._put_vitals)
        self._box.put_vitals(self._vitals.text())


__all__ = ["Supervised"]
