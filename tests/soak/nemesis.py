"""What goes wrong during a soak, and when: all of it from one seed.

Owns the faults and their plan. Servers are killed and stopped; ways to them are
refused, swallowed, held back and reset, for all workers or for one; the primary is sick
(`twinbus fault`); and the syphon is killed. Each fault is written down from begin to
end.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from time import monotonic
from typing import Any

from tests.soak.plan import PLAIN, TOPIC, UNIQUE
from tests.soak.site import PRIMARY, SECONDARY, SENDERS, Site
from twinbus.cli.remote import reach
from twinbus.testing.proxy import Fault
from twinbus.testing.server_process import ServerProcess

_GAP_SECONDS = (0.3, 2.5)
_AWAY_SECONDS = (0.3, 4.0)
_STRIKES_MIN = 3

# What to do with a way to a namespace.
_WAYS: dict[str, Fault | None] = {
    "refused": None,
    "black hole": Fault("silence"),
    "reset inside a frame": Fault(
        "reset", "server", after_frame="transfer", inside=True
    ),
    "reset before an answer": Fault("reset", "client", after_frame="disposition"),
    "answers swallowed": Fault("silence", "client"),
    "requests swallowed": Fault("silence", "server"),
    "held back": Fault("hold"),
}
_SERVERS = ("killed", "stopped")
# Faults of the primary that is there: for the namespace, or for one entity of it.
_SICK: dict[str, dict[str, Any]] = {
    "sick": {"target": PLAIN},
    "send-down": {"target": UNIQUE},
    "slow": {"target": TOPIC, "delay_seconds": 3},
    "ping-down": {},
    "storage-full": {},
    "storage-slow": {"delay_seconds": 0.5},
    "stall": {"delay_seconds": 1},
}


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault: what, where, to which client (none: all), how long, after how long."""

    kind: str
    side: str
    process: str
    seconds: float
    gap_seconds: float


def draw(random: Random) -> Strike:
    """The next fault."""
    side = random.choices((PRIMARY, SECONDARY), (4, 1))[0]
    kind = random.choice((*_SERVERS, *_SERVERS, *_WAYS, *_SICK))
    if kind in _SICK:
        side = PRIMARY
    process = ""
    if kind in _WAYS and random.random() < 0.5:
        process = random.choice([f"send{number}" for number in range(SENDERS)])
    if random.random() < 0.06:
        kind, side, process = "syphon killed", "", ""
    return Strike(
        kind,
        side,
        process,
        random.uniform(*_AWAY_SECONDS),
        random.uniform(*_GAP_SECONDS),
    )


def _ask(server: ServerProcess, method: str, body: Any = None) -> Any:
    """Switch a fault of a server on, or all off, as `twinbus fault` does."""
    url = f"http://127.0.0.1:{server.ports['http']}"
    remote = reach(server.connection_string, url, None)
    return remote.ask(method, "/$faults", body)


class Nemesis:
    """Breaks one thing after another."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._random = Random(site.seed)
        self._stopped = threading.Event()
        self.counts: Counter[str] = Counter()

    def run(self, seconds: float) -> None:
        """Until the time is over; then all is well again.

        However slow the machine is, some faults have struck by then.
        """
        until = monotonic() + seconds
        while not self._stopped.is_set() and (
            monotonic() < until or self.counts.total() < _STRIKES_MIN
        ):
            strike = draw(self._random)
            self._stopped.wait(strike.gap_seconds)
            self._site.check_workers()
            self._strike(strike)
        self._site.mend()

    def _strike(self, strike: Strike) -> None:
        site = self._site
        event = site.recorder.start("nemesis", "fault", link=strike.process)
        event.queue, event.state = strike.side, strike.kind
        name = f"{strike.side} {strike.kind}".strip()
        self.counts[f"{name} for one" if strike.process else name] += 1
        if strike.kind == "syphon killed":
            site.replace_syphon()
            site.recorder.finish(event)
            return
        # Now and then both namespaces are away at once, and sends are refused.
        both = strike.side == PRIMARY and self._random.random() < 0.08
        undo = [self._break(strike)]
        if both:
            self.counts["both away"] += 1
            undo.append(self._break(Strike("killed", SECONDARY, "", 0, 0)))
        self._stopped.wait(strike.seconds)
        for each in reversed(undo):
            each()
        site.recorder.finish(event)

    def _break(self, strike: Strike) -> Callable[[], object]:
        """Break something; gives what puts it right."""
        site = self._site
        server = site.servers[strike.side]
        if strike.kind == "killed":
            server.kill()
            site.recorder.finish(site.recorder.start("nemesis", "restart"))
            return server.start
        if strike.kind == "stopped":
            server.pause()
            return server.resume
        if strike.kind in _SICK:
            _ask(server, "POST", {"kind": strike.kind, **_SICK[strike.kind]})
            return partial(_ask, server, "DELETE")
        ways = site.ways(strike.side, strike.process)
        fault = _WAYS[strike.kind]
        for proxy in ways:
            if fault is None:
                proxy.refuse()
                proxy.cut()
            else:
                proxy.inject(fault)

        def heal() -> None:
            for proxy in ways:
                proxy.heal()

        return heal
