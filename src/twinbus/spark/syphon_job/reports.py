"""What the tasks of a syphon say about themselves, in small files beside the journal.

    <pair>/reports/<run>/<epoch>-<index>-<slice>-<attempt>.json   every second
    <pair>/reports/<run>/totals.json                  all epochs that have ended
    <pair>/reports/<run>/stop                         asks the tasks to end

Spark has no way back from a task to the driver of a source, so the driver reads these.
It adds up the reports of an epoch that has ended, writes the totals, and only then
removes the reports; totals and the reports of later epochs are always the whole. The
command line reads the same files. No secret is in them. Knows nothing about Spark.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from twinbus.pairing.status import DestinationCounts, PumpCounts
from twinbus.spark.syphon_job.storage import Storage

# Why a task ended. After these there may be more to do at once.
BUDGET = "budget"
LIMIT = "limit"
AWAY = "away"
MORE = frozenset((BUDGET, LIMIT, AWAY))
# After these there is not.
EMPTY = "empty"
STOPPED = "stopped"

_STOP = "stop"
_TOTALS = "totals.json"


@dataclass(slots=True)
class Report:
    """One task, now or at its end."""

    epoch: int
    index: int
    slice: int
    # Of one attempt: what a killed one did still counts.
    attempt: str
    queue: str
    # Where it runs: machine and process.
    host: str
    pid: int
    started_ms: int
    updated_ms: int
    # None while it runs, and if it was killed.
    ended: str | None = None
    # What last went wrong with the backlog queue, for people.
    trouble: str | None = None
    counts: PumpCounts = field(default_factory=PumpCounts)

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{self.epoch}-{self.index}-{self.slice}-{self.attempt}.json"

    @property
    def gone(self) -> int:
        """How many messages have left the backlog queue."""
        counts = self.counts
        dead = sum(counts.dead_lettered.values())
        return counts.moved + counts.skipped + counts.pings + dead


@dataclass(slots=True)
class QueueTotals:
    """One backlog queue over all epochs that have ended."""

    index: int
    queue: str
    # At most so many are left, by their numbers.
    depth: int = 0
    counts: PumpCounts = field(default_factory=PumpCounts)

    def add(self, counts: PumpCounts) -> None:
        """Add what a task did. What is so only now is taken over, not added."""
        self.counts.add(counts)
        self.counts.resting = counts.resting
        for path, theirs in counts.destinations.items():
            self.counts.destinations[path].state = theirs.state


@dataclass(slots=True)
class Totals:
    """All backlog queues over all epochs that have ended."""

    epoch: int = 0
    # Whether tasks are planned or running, or the driver waits.
    working: bool = False
    queues: list[QueueTotals] = field(default_factory=list)


def counts_of(given: dict[str, Any]) -> PumpCounts:
    """Counts from their plain values."""
    destinations = given.pop("destinations", {})
    counts = PumpCounts(**given)
    counts.destinations = {
        path: DestinationCounts(**each) for path, each in destinations.items()
    }
    return counts


class Reports:
    """The files of one run."""

    def __init__(self, storage: Storage, pair_folder: str, run: str) -> None:
        self._storage = storage
        self._runs = f"{pair_folder}/reports"
        self._folder = f"{self._runs}/{run}"

    # -- tasks -------------------------------------------------------------------------

    def write(self, report: Report) -> None:
        """Say how far a task is."""
        text = json.dumps(asdict(report))
        self._storage.write(f"{self._folder}/{report.name}", text.encode())

    def stop_asked(self) -> bool:
        """Whether the tasks should end after the chunk in hand."""
        wanted = f"{self._folder}/{_STOP}"
        return any(each.name == wanted for each in self._storage.entries(self._folder))

    # -- driver and command line -------------------------------------------------------

    def begin(self) -> None:
        """Make the folder, which shows whether the location can be written at all."""
        self.write_totals(Totals())

    def is_begun(self) -> bool:
        """Whether this machine sees what the driver wrote."""
        return bool(self._storage.entries(self._folder))

    def ask_stop(self) -> None:
        """Have the tasks end after the chunk in hand, and no more of them start."""
        self._storage.write(f"{self._folder}/{_STOP}", b"")

    def read(self) -> list[Report]:
        """All reports that there are."""
        found = []
        for entry in self._storage.entries(self._folder):
            if entry.name.endswith(f"/{_TOTALS}") or entry.name.endswith(f"/{_STOP}"):
                continue
            given = self._json(entry.name)
            if given is not None:
                given["counts"] = counts_of(given["counts"])
                found.append(Report(**given))
        return found

    def remove(self, epoch: int) -> None:
        """Remove the reports up to an epoch; the totals have them."""
        for entry in self._storage.entries(self._folder):
            number = entry.name.rpartition("/")[2].partition("-")[0]
            if number.isdigit() and int(number) <= epoch:
                self._storage.delete(entry.name)

    def write_totals(self, totals: Totals) -> None:
        """Keep the sums."""
        text = json.dumps(asdict(totals))
        self._storage.write(f"{self._folder}/{_TOTALS}", text.encode())

    def read_totals(self) -> Totals:
        """The sums that were last kept."""
        given = self._json(f"{self._folder}/{_TOTALS}")
        if given is None:
            return Totals()
        for each in given["queues"]:
            each["counts"] = counts_of(each["counts"])
        given["queues"] = [QueueTotals(**each) for each in given["queues"]]
        return Totals(**given)

    def forget_before(self, run: str) -> None:
        """Remove what earlier runs left; runs are named by their time."""
        for name in self._storage.folders(self._runs):
            if name < run:
                self._storage.delete_folder(f"{self._runs}/{name}")

    def _json(self, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(self._storage.read(name).to_pybytes())
        except (FileNotFoundError, ValueError):
            # Just removed or, where storage cannot replace a file at once, half there.
            return None
        return found
