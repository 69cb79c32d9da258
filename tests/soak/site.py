"""Everything that a soak runs: two servers, the workers, and a proxy between each two.

Owns the processes and the proxies. Each worker has its own way to each namespace, with
a tap on it, so that one of them can be cut off while the others go on.
"""

from __future__ import annotations

import select
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.soak import plan
from tests.soak.plan import Orders
from twinbus.client.transport.loop_thread import LoopThread
from twinbus.testing.events import Recorder
from twinbus.testing.proxy import FaultyProxy
from twinbus.testing.server_process import ServerProcess
from twinbus.testing.wiretap import Wiretap

PRIMARY, SECONDARY = "primary", "secondary"
SENDERS = 4
SYPHON = "syphon"
_READY_SECONDS = 60.0
_STOP_SECONDS = 60.0


class Worker:
    """A process that sends or receives."""

    def __init__(self, orders: Orders, folder: Path) -> None:
        self.process = orders.process
        self._log = folder / f"{orders.process}.log"
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "tests.soak.worker", orders.to_json()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def wait_ready(self) -> None:
        out = self._child.stdout
        assert out is not None
        if not select.select([out], [], [], _READY_SECONDS)[0] or not out.readline():
            self.kill()
            raise RuntimeError(f"{self.process} did not start:\n{self.log}")

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    def kill(self) -> None:
        """End it as a crash does."""
        self._child.kill()
        self._child.communicate()

    def tell_to_stop(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.stdin = None

    def wait(self) -> None:
        """It must end by itself, and well."""
        try:
            self._child.communicate(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"{self.process} hangs:\n{self.log}") from None
        if self._child.returncode:
            raise RuntimeError(f"{self.process} failed:\n{self.log}")


class Site:
    """The servers, the workers and the ways between them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.seed = seed
        self.history = folder / "history.jsonl"
        self.recorder = Recorder(self.history)
        self._thread = LoopThread("proxies")
        self.servers = {
            PRIMARY: ServerProcess(
                folder / PRIMARY, plan.ENTITIES, name=PRIMARY, options=("--faults",)
            ),
            SECONDARY: ServerProcess(folder / SECONDARY, name=SECONDARY),
        }
        # By worker and namespace.
        self.proxies: dict[tuple[str, str], FaultyProxy] = {}
        self.workers: dict[str, Worker] = {}
        self._orders: dict[str, Orders] = {}
        self._syphons = 0

    # -- starting ------------------------------------------------------------------

    def start(self) -> None:
        for server in self.servers.values():
            server.start()
        half = len(plan.SOURCES) // 2
        names = [f"send{number}" for number in range(SENDERS)]
        for name in names:
            self._start_worker(self._make_orders(name))
        # Both receive from the first queue, so that there is some competition.
        sources = (plan.SOURCES[0], *plan.SOURCES[half:])
        self._start_worker(
            replace(self._make_orders("receive"), sources=plan.SOURCES[:half])
        )
        self._start_worker(
            replace(self._make_orders(SYPHON), sources=sources, syphon=True)
        )
        for worker in self.workers.values():
            worker.wait_ready()

    def _make_orders(self, name: str) -> Orders:
        texts = {}
        for side, server in self.servers.items():
            tap = Wiretap(self.recorder, name, backlog=side == SECONDARY)
            port = server.ports["amqp"]
            proxy = FaultyProxy("127.0.0.1", port, tap=tap, thread=self._thread)
            self.proxies[name, side] = proxy
            texts[side] = server.connection_string_through(proxy.port)
        secondary = self.servers[SECONDARY]
        return Orders(
            process=name,
            history=str(self.history),
            seed=self.seed,
            primary=texts[PRIMARY],
            secondary=texts[SECONDARY],
            admin=secondary.admin_connection_string,
            ca_file=secondary.ca_file,
        )

    def _start_worker(self, orders: Orders) -> Worker:
        worker = Worker(orders, self.folder)
        self.workers[orders.process] = worker
        self._orders[orders.process] = orders
        return worker

    # -- breaking ------------------------------------------------------------------

    def ways(self, side: str, process: str = "") -> list[FaultyProxy]:
        """The proxies to a namespace, of one worker or of all."""
        return [
            proxy
            for (name, way), proxy in self.proxies.items()
            if way == side and process in ("", name)
        ]

    @property
    def syphon(self) -> str:
        """The process that brings the backlog home now."""
        return f"{SYPHON}{self._syphons}" if self._syphons else SYPHON

    def replace_syphon(self) -> None:
        """Kill the syphon, and start another under another name."""
        old = self.syphon
        self.workers.pop(old).kill()
        # All that it held is lost with it.
        self.recorder.finish(self.recorder.start(old, "detach"))
        self._syphons += 1
        orders = self._orders.pop(old)
        new = replace(
            self._make_orders(self.syphon), sources=orders.sources, syphon=True
        )
        self._start_worker(new).wait_ready()

    # -- ending --------------------------------------------------------------------

    def mend(self) -> None:
        """All is well again."""
        for server in self.servers.values():
            server.resume()
            server.start()
        for proxy in self.proxies.values():
            proxy.heal()

    def stop(self, names: list[str]) -> None:
        """Let workers end, all at once."""
        for name in names:
            self.workers[name].tell_to_stop()
        for name in names:
            self.workers.pop(name).wait()

    def check_workers(self) -> None:
        """A worker that ended by itself has found a defect."""
        for worker in self.workers.values():
            if not worker.alive:
                raise RuntimeError(f"{worker.process} ended:\n{worker.log}")

    def close(self) -> None:
        for worker in self.workers.values():
            worker.kill()
        for proxy in self.proxies.values():
            proxy.close()
        for server in self.servers.values():
            server.close()
        self._thread.stop()
        self.recorder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
