"""What `twinbus syphon` shows while it runs: numbers out of reports, or of pumps.

Owns the adding up of ended and running tasks, rates and the time that is left. The
reports are read before the totals: an epoch that moves from one to the other in between
is then counted once. Knows nothing about Spark or terminals, but for how a table of it
looks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from twinbus import limits
from twinbus.pairing.status import PumpCounts, total

if TYPE_CHECKING:
    from rich.console import RenderableType

    from twinbus.pairing.pump.pump import Pump
    from twinbus.spark.syphon_job.reports import Report, Reports


@dataclass(slots=True)
class QueueLine:
    """One backlog queue."""

    index: int
    queue: str
    depth: int
    rate: float
    moved: int
    redelivered: int
    skipped: int
    dead_lettered: int
    resting: int
    trouble: str | None = None


@dataclass(slots=True)
class DestinationLine:
    """One entity of the primary."""

    path: str
    moved: int
    state: str


@dataclass(slots=True)
class Snapshot:
    """Everything at one moment."""

    epoch: int = 0
    depth: int = 0
    moved: int = 0
    rate: float = 0.0
    eta_seconds: float | None = None
    redelivered: int = 0
    skipped: int = 0
    dead_lettered: int = 0
    # Whether tasks are planned or running.
    working: bool = False
    queues: list[QueueLine] = field(default_factory=list)
    destinations: list[DestinationLine] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


class ReportWatch:
    """Looks at the reports of one run again and again."""

    def __init__(self, reports: Reports) -> None:
        self._reports = reports
        self._rates = _Rates()

    def look(self, now: float) -> Snapshot:
        """How it stands now; `now` is in seconds since the epoch."""
        reports = self._reports.read()
        totals = self._reports.read_totals()
        live: dict[int, list[Report]] = {}
        for report in reports:
            if report.epoch > totals.epoch:
                live.setdefault(report.index, []).append(report)
        shot = Snapshot(
            epoch=max([totals.epoch, *(each.epoch for each in reports)]),
            working=totals.working,
        )
        everything = PumpCounts()
        for queue in totals.queues:
            mine = live.get(queue.index, [])
            for report in sorted(mine, key=lambda each: each.updated_ms):
                queue.add(report.counts)
                queue.depth = max(queue.depth - report.gone, 0)
            everything.add(queue.counts)
            shot.queues.append(
                _line(queue.index, queue.queue, queue.depth, queue.counts)
            )
            shot.queues[-1].trouble = mine[-1].trouble if mine else None
        self._rates.fill_in(shot, now)
        _sum_up(shot, everything)
        return shot


class PumpWatch:
    """Looks at the pumps of this process again and again."""

    def __init__(self, pumps: Mapping[int, Pump], depths: Mapping[int, int]) -> None:
        self._pumps = pumps
        self._before = depths
        # Set when the queues were counted anew; before that it is reckoned.
        self.depths: Mapping[int, int] | None = None
        self._rates = _Rates()

    def look(self, now: float) -> Snapshot:
        """How it stands now; `now` is in seconds since the epoch."""
        shot = Snapshot(working=True)
        for index, pump in self._pumps.items():
            counts = pump.counts
            dead = sum(counts.dead_lettered.values())
            gone = counts.moved + counts.skipped + counts.pings + dead
            depth = max(self._before[index] - gone, 0)
            if self.depths is not None:
                depth = self.depths[index]
            shot.queues.append(_line(index, pump.queue_path, depth, counts))
        self._rates.fill_in(shot, now)
        _sum_up(shot, total(pump.counts for pump in self._pumps.values()))
        return shot


class _Rates:
    """How many messages each queue moves in a second, on average."""

    def __init__(self) -> None:
        # When, and how many each queue had moved.
        self._past: deque[tuple[float, dict[int, int]]] = deque()

    def fill_in(self, shot: Snapshot, now: float) -> None:
        """Give each queue its rate."""
        moved = {line.index: line.moved for line in shot.queues}
        self._past.append((now, moved))
        while len(self._past) > 2 and now - self._past[0][0] > limits.CLI_RATE_SECONDS:
            self._past.popleft()
        before, then = self._past[0]
        seconds = now - before
        if seconds <= 0:
            return
        for line in shot.queues:
            line.rate = (line.moved - then.get(line.index, 0)) / seconds


def _line(index: int, queue: str, depth: int, counts: PumpCounts) -> QueueLine:
    return QueueLine(
        index=index,
        queue=queue,
        depth=depth,
        rate=0.0,
        moved=counts.moved,
        redelivered=counts.redelivered,
        skipped=counts.skipped,
        dead_lettered=sum(counts.dead_lettered.values()),
        resting=counts.resting,
    )


def _sum_up(shot: Snapshot, counts: PumpCounts) -> None:
    shot.depth = sum(line.depth for line in shot.queues)
    shot.rate = sum(line.rate for line in shot.queues)
    shot.moved = counts.moved
    shot.redelivered = counts.redelivered
    shot.skipped = counts.skipped
    shot.dead_lettered = sum(counts.dead_lettered.values())
    if shot.rate > 0:
        shot.eta_seconds = round(shot.depth / shot.rate, 1)
    shot.destinations = [
        DestinationLine(path, each.moved, each.state)
        for path, each in sorted(counts.destinations.items())
    ]


# -- for people ----------------------------------------------------------------------


def duration_text(seconds: float | None) -> str:
    """A time that is left, roughly."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def line_of(shot: Snapshot) -> str:
    """One line, for a file or a pipe."""
    return (
        f"epoch {shot.epoch}  left {shot.depth}  moved {shot.moved}  "
        f"{shot.rate:.0f}/s  redelivered {shot.redelivered}  "
        f"dead-lettered {shot.dead_lettered}  ETA {duration_text(shot.eta_seconds)}"
    )


def table_of(shot: Snapshot, title: str, note: str) -> RenderableType:
    """Both tables, for a terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    queues = Table(title=title, title_justify="left", expand=False)
    columns = ("queue", "left", "per s", "moved", "again", "skipped", "dead", "resting")
    for name in columns:
        queues.add_column(name, justify="left" if name == "queue" else "right")
    for line in shot.queues:
        queues.add_row(
            str(line.index),
            *(f"{line.depth:,}", f"{line.rate:,.0f}", f"{line.moved:,}"),
            *(str(line.redelivered), str(line.skipped), str(line.dead_lettered)),
            str(line.resting),
        )
    queues.add_section()
    resting = sum(line.resting for line in shot.queues)
    queues.add_row(
        "all",
        *(f"{shot.depth:,}", f"{shot.rate:,.0f}", f"{shot.moved:,}"),
        *(str(shot.redelivered), str(shot.skipped), str(shot.dead_lettered)),
        str(resting),
    )
    homes = Table(expand=False)
    homes.add_column("destination")
    homes.add_column("moved", justify="right")
    homes.add_column("state")
    for each in shot.destinations:
        homes.add_row(Text(each.path), f"{each.moved:,}", each.state)
    parts: list[RenderableType] = [queues]
    if shot.destinations:
        parts.append(homes)
    troubles = {line.trouble for line in shot.queues if line.trouble}
    parts += [Text(f"trouble: {each}") for each in sorted(troubles)]
    eta = duration_text(shot.eta_seconds)
    parts.append(Text(f"ETA {eta}  micro-batch {shot.epoch}  {note}"))
    return Group(*parts)
