"""What is seen while a drill runs: a view that changes, lines, or JSON.

Owns the three forms. A terminal gets the view, on standard error, so that standard
output has the result alone; without one there is a line for each part and every few
seconds. For machines every line on standard output is a JSON object, the result last.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from twinbus import limits
from twinbus.drill.report.summary import figures
from twinbus.drill.scene import PHASES, Scene
from twinbus.drill.states import FAILED_OVER, HEALTHY, PROBATION, REFUSED, SUSPECT

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.table import Table

_BAR = 10
_COLOURS = {
    HEALTHY: "green",
    SUSPECT: "yellow",
    PROBATION: "yellow",
    REFUSED: "red",
    FAILED_OVER: "red",
}


class LineScreen:
    """Lines for a file or a pipe."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._phase = ""
        self._printed = 0.0

    def show(self, scene: Scene) -> None:
        pause = (
            limits.DRILL_JSON_SECONDS if self._as_json else limits.DRILL_LINE_SECONDS
        )
        if scene.phase == self._phase and scene.now - self._printed < pause:
            return
        if self._as_json:
            _print(json.dumps({"progress": scene.as_dict()}))
        else:
            if scene.phase != self._phase:
                _print(f"{scene.now:5.1f} s  {PHASES[scene.phase]}", error=True)
            _print(f"         {_numbers(scene)}", error=True)
        self._phase, self._printed = scene.phase, scene.now


class LiveScreen:
    """A view that changes in its place."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, scene: Scene) -> None:
        self._live.update(view_of(scene), refresh=True)


@contextmanager
def opened(*, as_json: bool) -> Iterator[LineScreen | LiveScreen]:
    """The form that fits."""
    if as_json or not sys.stderr.isatty():
        yield LineScreen(as_json=as_json)
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), auto_refresh=False) as live:
        yield LiveScreen(live)


def _print(text: str, *, error: bool = False) -> None:
    stream = sys.stderr if error else sys.stdout
    stream.write(text + "\n")
    stream.flush()


def _numbers(scene: Scene) -> str:
    sent, received = scene.rates()
    parts = [
        f"accepted {scene.accepted:,} ({sent:.0f}/s)",
        f"received {scene.received:,} ({received:.0f}/s)",
        f"held {scene.held:,}",
        f"backlog {scene.depth:,}",
    ]
    if scene.moved:
        parts.append(f"home {scene.moved:,}")
    return ", ".join([*parts, f"ETA {duration(scene.eta_seconds())}"])


def duration(seconds: float | None) -> str:
    """Minutes and seconds."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


# -- the view ------------------------------------------------------------------------


def view_of(scene: Scene) -> RenderableType:
    """Everything at once, in 80 columns and 24 lines."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    plan = scene.plan
    head = (
        f"twinbus drill: {plan.senders} senders, {plan.rate:.0f} messages a second, "
        f"seed {plan.seed}; the fault of the primary: {plan.fault_text}"
    )
    intervals = (
        f"failover interval {limits.DRILL_FAILOVER_SECONDS:g} s, "
        f"ping interval {limits.DRILL_PING_SECONDS:g} s (usually a minute each)"
    )
    parts: list[RenderableType] = [Text(head, style="bold"), Text(intervals, "dim")]
    both = Table.grid(padding=(0, 1, 0, 0))
    both.add_row(_entities(scene), _backlog(scene))
    parts += [_phases(scene), both]
    foot = _numbers(scene)
    if scene.spark:
        foot = f"{foot}; {scene.spark}"
    parts.append(Text(foot))
    parts += [Text(note, style="yellow") for note in scene.notes]
    return Group(*parts)


def _phases(scene: Scene) -> RenderableType:
    from rich.text import Text

    seen = {phase.name: phase for phase in scene.phases}
    text = Text()
    for name, told in PHASES.items():
        phase = seen.get(name)
        if phase is None:
            text.append(f"    {told}\n", style="dim")
        else:
            over = phase.ended is not None
            mark, style = ("✓", "green") if over else ("▶", "bold")
            text.append(f"  {mark} {told}  {phase.seconds(scene.now):.1f} s\n", style)
    text.rstrip()
    return text


def _entities(scene: Scene) -> RenderableType:
    from rich.text import Text

    table = _plain("entity", "state", "accepted", "delivered")
    for line in scene.entities():
        colour = next((_COLOURS[each] for each in _COLOURS if each in line.state), "")
        state = Text(line.state or "-", style=colour)
        table.add_row(line.path, state, f"{line.accepted:,}", f"{line.received:,}")
    return table


def _backlog(scene: Scene) -> RenderableType:
    from rich.text import Text

    table = _plain("queue", "backlog", "messages")
    table.columns[1].min_width = _BAR
    depths = (depth for each in scene.samples for depth in each.backlog.values())
    most = max([1, *depths])
    for index, depth in sorted(scene.backlog.items()):
        bar = Text("█" * round(depth / most * _BAR), style="magenta")
        table.add_row(str(index), bar, f"{depth:,}")
    return table


def _plain(*names: str) -> Table:
    """A table without lines, so that two have room beside each other."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for number, name in enumerate(names):
        justify: Any = "left" if number < 2 else "right"
        table.add_column(name, justify=justify, no_wrap=True)
    return table


# -- the end -------------------------------------------------------------------------


def final_table(summary: dict[str, Any]) -> RenderableType:
    """The result, for people."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    colour = "green" if summary["ok"] else "red"
    table = Table("figure", "value")
    for name, value in figures(summary):
        table.add_row(name, value)
    parts = Table("part", "took")
    for phase in summary["phases"]:
        parts.add_row(phase["text"], f"{phase['seconds']:.1f} s")
    lines: list[RenderableType] = [table, parts]
    for title, name in (("without a pair", "saw"), ("what helped", "helped")):
        lessons = Table(title, "")
        for each in summary[name]:
            lessons.add_row(each["what"], each["text"])
        lines.append(lessons)
    copies = summary["figures"]["duplicates"]
    lines += [
        Text(f"Further copies: {count:,}, because {why}.")
        for why, count in copies.items()
    ]
    lines += [Text(note, style="yellow") for note in summary["notes"]]
    lines.append(Text(summary["sentence"], style=f"bold {colour}"))
    lines += [Text(f"* {reason}", style=colour) for reason in summary["reasons"]]
    repeats = [summary["repeat"], summary["repeat_with_make"]]
    words = ", or ".join(each for each in repeats if each)
    lines.append(Text(f"Again: {words}", style="dim"))
    return Group(*lines)
