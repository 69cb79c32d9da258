"""One soak from its start to its report.

Owns the order of things: servers and workers start, the nemesis has its time, senders
stop, the backlog comes home as far as there is patience, receivers stop, a last look,
and the checker judges.
"""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from pathlib import Path
from time import monotonic
from typing import Any

from tests.soak import plan
from tests.soak.look import look, waiting
from tests.soak.nemesis import Nemesis
from tests.soak.site import Site
from twinbus.testing.events import load
from twinbus.testing.history_paired import PairedReport, check_paired

# A syphon that was killed holds messages until their locks end, after a minute. Those
# behind them are left locked meanwhile and come back a minute later, and so on while
# faults have left several such gaps.
HOME_SECONDS_MAX = 300.0
_LOOK_SECONDS = 0.5


class Soak:
    """A soak with a seed."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        seconds: float,
        home_seconds: float = HOME_SECONDS_MAX,
    ) -> None:
        self._folder = folder
        self._seed = seed
        self._seconds = seconds
        self._home_seconds = home_seconds
        self._faults: Counter[str] = Counter()

    def run(self) -> PairedReport:
        """Do all of it; raises if a worker failed or hangs."""
        with Site(self._folder, self._seed) as site:
            site.start()
            nemesis = Nemesis(site)
            nemesis.run(self._seconds)
            self._faults = nemesis.counts
            site.stop([name for name in site.workers if name.startswith("send")])
            threading.Event().wait(plan.SCHEDULED_SECONDS_MAX)
            self._wait_for_home(site)
            site.stop(list(site.workers))
            look(site)
        return check_paired(load(site.history), plan.RULES)

    def _wait_for_home(self, site: Site) -> None:
        """Until the backlog is empty, or for so long."""
        until = monotonic() + self._home_seconds
        never = threading.Event()
        while monotonic() < until and waiting(site):
            site.check_workers()
            never.wait(_LOOK_SECONDS)

    def figures(self, report: PairedReport) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "seed": self._seed,
            "seconds": self._seconds,
            "faults": dict(self._faults),
            **report.figures(),
        }

    def text(self, report: PairedReport) -> str:
        """The report for people."""
        faults = ", ".join(f"{count} {kind}" for kind, count in self._faults.items())
        return f"faults: {faults}\n{report.text()}"

    def clean(self) -> None:
        """Remove what is no longer of interest."""
        shutil.rmtree(self._folder)
