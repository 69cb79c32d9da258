"""The pictures of a report, for any width: calendar, rates, costs and backlogs.

Owns how a report's counts are drawn, with the pieces of `charts.py`. Each picture takes
plain rows of the report and a width. Times are seconds since 1970.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from html import escape
from typing import Any

from twinbus import charts, limits
from twinbus.charts import Canvas, nice_ceiling

Values = Mapping[str, Any]

_HIGH = 150
_TOP = 30
_AXIS_HIGH = 24
_CELL = 14
_LEVELS = 4
_DAY = 86_400


def seconds(text: str) -> float:
    """A time of the report."""
    return datetime.fromisoformat(text).timestamp()


# -- calendar --------------------------------------------------------------------------


def calendar(days: Mapping[str, int], outages: Mapping[str, int], width: int) -> str:
    """A square for each day, stronger with more operations, with marks for outages."""
    first = date.fromisoformat(min(days))
    last = date.fromisoformat(max(days))
    start = first - timedelta(days=first.weekday())
    weeks = (last - start).days // 7 + 1
    left = 34
    fit = min(max((width - left) // _CELL, 1), weeks)
    strip = 7 * _CELL + 34
    most = max([1, *days.values()])
    parts = []
    for number in range((last - start).days + 1):
        day = start + timedelta(days=number)
        if day < first:
            continue
        row, column = divmod(number // 7, fit)
        x, y = left + column * _CELL, row * strip + 20 + number % 7 * _CELL
        if number % 7 == 0 and (day.day <= 7 or weeks == 1):
            parts.append(charts.text((x, row * strip + 12), f"{day:%b}", "number"))
        parts.append(_square(day, (x, y), days, outages, most))
    rows = -(-weeks // fit)
    for row in range(rows):
        for place, name in ((0, "Mon"), (2, "Wed"), (4, "Fri")):
            y = row * strip + 20 + place * _CELL + 10
            parts.append(charts.text((0, y), name, "number"))
    label = "Calendar of days, stronger with more operations, with marks for outages"
    return charts.svg(width, rows * strip, label, "".join(parts))


def _square(
    day: date,
    at: tuple[float, float],
    days: Mapping[str, int],
    outages: Mapping[str, int],
    most: int,
) -> str:
    count, hit = days.get(day.isoformat(), 0), outages.get(day.isoformat(), 0)
    level = -(-count * _LEVELS // most)
    x, y = at
    said = f"{day.isoformat()}: {count:,} operations"
    if hit:
        said += f", {hit} {'outage' if hit == 1 else 'outages'}"
    text = (
        f'<rect class="day level{level}" x="{x}" y="{y}" width="{_CELL - 2}" '
        f'height="{_CELL - 2}" rx="2"><title>{escape(said)}</title></rect>'
    )
    if hit:
        middle = (_CELL - 2) / 2
        text += f'<circle class="hit" cx="{x + middle:g}" cy="{y + middle:g}" r="3.5"/>'
    return text


# -- rates -----------------------------------------------------------------------------


def rates(report: Values, width: int) -> str:
    """Messages a minute over the whole time, with outages shaded."""
    begun, span = _span(report)
    canvas = charts.canvas(width, span)
    step = report["step_minutes"]
    names = ("diverted", "received", "sent")
    sums: dict[str, dict[int, float]] = {name: defaultdict(float) for name in names}
    for row in report["rates"]:
        for name in names:
            sums[name][row["at"]] += row[name] / step
    top_value = max([1.0, *(max(each.values(), default=0) for each in sums.values())])
    most = nice_ceiling(top_value)
    # On a phone the legend has a line of its own.
    top = _TOP + (16 if canvas.narrow else 0)
    shades = _shades(report["outages"], canvas, begun, top)
    parts = [*shades, charts.panel(canvas, "messages a minute", (top, _HIGH), most)]
    steps = range(int(begun), int(begun + span), step * 60)
    for name in names:
        points = [
            (
                canvas.x(min(at + step * 30 - begun, span)),
                top + _HIGH - sums[name].get(at, 0) / most * _HIGH,
            )
            for at in steps
        ]
        if any(sums[name].values()):
            parts.append(charts.line(points, name))
    marks = [(name, name) for name in ("sent", "received", "diverted")]
    parts.append(charts.legend(canvas, _TOP, marks))
    parts.append(charts.axis(canvas, top + _HIGH, _day_marks(canvas, begun)))
    label = "Messages a minute over time, with outages shaded"
    return charts.svg(width, top + _HIGH + _AXIS_HIGH, label, "".join(parts))


def _span(report: Values) -> tuple[float, float]:
    begun = _midnight(date.fromisoformat(report["from"]))
    return begun, _midnight(date.fromisoformat(report["to"])) + _DAY - begun


def _midnight(day: date) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()


def _shades(
    outages: Sequence[Values], canvas: Canvas, begun: float, top: int
) -> list[str]:
    """At least a pixel for each, so that a short one is seen in a year."""
    least = canvas.span / (canvas.end - canvas.left) * 1.5
    found = []
    for outage in outages:
        start = max(seconds(outage["start"]) - begun, 0)
        end = min(max(seconds(outage["end"]) - begun, start + least), canvas.span)
        found.append(charts.shade(canvas, (start, end), (top, top + _HIGH)))
    return found


def _day_marks(canvas: Canvas, begun: float) -> list[tuple[float, str]]:
    """Days, or months where there are many."""
    days = int(canvas.span // _DAY)
    first = datetime.fromtimestamp(begun, UTC).date()
    room = 4 if canvas.narrow else 10
    every = [first + timedelta(days=number) for number in range(days)]
    if days > 62:
        every = [day for day in every if day.day == 1]
        step = max(1, -(-len(every) // room))
        return [(_midnight(day) - begun, f"{day:%b}") for day in every[::step]]
    step = nice_ceiling(days / room, (1, 2, 5)) if days > room else 1
    return [(_midnight(day) - begun, f"{day:%-d %b}") for day in every[::step]]


# -- costs -----------------------------------------------------------------------------


def costs(report: Values, stages: Sequence[str], width: int) -> str:
    """What each day cost by stage, as stacked bars; operations if all were free."""
    begun, span = _span(report)
    canvas = charts.canvas(width, span)
    days = int(span // _DAY)
    bars = days if days <= limits.REPORT_BARS_MAX else -(-days // 7)
    each = 1 if bars == days else 7
    priced = any(row["cost"] for row in report["days"])
    what = "cost" if priced else "operations"
    sums: dict[tuple[int, str], float] = defaultdict(float)
    for row in report["days"]:
        number = int((_midnight(date.fromisoformat(row["day"])) - begun) // _DAY)
        sums[number // each, row["stage"]] += row[what]
    totals: dict[int, float] = defaultdict(float)
    for (bar, _), value in sums.items():
        totals[bar] += value
    highest = max([0.0, *totals.values()])
    # Axes end at whole numbers, so small amounts are drawn in thousandths.
    scale = 1000 if priced and highest < 10 else 1
    most = nice_ceiling(max(highest * scale, 1))
    title = _cost_title(report, priced=priced, scale=scale, each=each)
    parts = []
    wide = canvas.x(each * _DAY) - canvas.x(0)
    for bar in range(bars):
        base = float(_TOP + _HIGH)
        for place, stage in enumerate(stages):
            high = sums[bar, stage] * scale / most * _HIGH
            if high < 0.05:
                continue
            base -= high
            x = canvas.x(bar * each * _DAY)
            right = min(x + max(wide - 1, 0.5), canvas.end)
            parts.append(
                f'<rect class="stage{place}" x="{x:.1f}" y="{base:.1f}" '
                f'width="{right - x:.1f}" height="{high:.1f}"/>'
            )
    # Above the bars, where a phone has the numbers.
    parts.append(charts.panel(canvas, title, (_TOP, _HIGH), most))
    parts.append(charts.axis(canvas, _TOP + _HIGH, _day_marks(canvas, begun)))
    label = "Costs by stage over time"
    return charts.svg(width, _TOP + _HIGH + _AXIS_HIGH, label, "".join(parts))


def _cost_title(report: Values, *, priced: bool, scale: int, each: int) -> str:
    time = "day" if each == 1 else "week"
    if not priced:
        return f"operations a {time}"
    unit = report["currency"] if scale == 1 else f"1/1000 {report['currency']}"
    return f"{unit} a {time}"


# -- backlog ---------------------------------------------------------------------------


def backlog(outage: Values, rows: Sequence[Values], width: int) -> str:
    """How deep the backlog of one outage was, minute by minute, and how it drained."""
    begun = min(row["at"] for row in rows)
    ended = max(row["at"] for row in rows) + 60
    canvas = charts.canvas(width, max(ended - begun, 60))
    by_minute = {row["at"]: row for row in rows}
    points, depth, deepest = [], 0, 0
    for at in range(begun, ended, 60):
        row = by_minute.get(at, {})
        depth = max(depth + row.get("diverted", 0) - row.get("drained", 0), 0)
        deepest = max(deepest, depth)
        points.append((at + 60, depth))
    most = nice_ceiling(max(deepest, 1))
    stretch = tuple(
        min(max(seconds(outage[name]) - begun, 0), canvas.span)
        for name in ("start", "end")
    )
    high = _HIGH - 30
    spots = [
        (canvas.x(at - begun), _TOP + high - value / most * high)
        for at, value in points
    ]
    title = "messages in the backlog"
    parts = [
        charts.shade(canvas, (stretch[0], stretch[1]), (_TOP, _TOP + high)),
        charts.panel(canvas, title, (_TOP, high), most),
        charts.area(spots, _TOP + high, "backlog"),
        charts.axis(canvas, _TOP + high, _clock_marks(canvas, begun)),
    ]
    label = f"Backlog of {outage['primary']} in the outage of {outage['start']}"
    return charts.svg(width, _TOP + high + _AXIS_HIGH, label, "".join(parts))


def _clock_marks(canvas: Canvas, begun: float) -> list[tuple[float, str]]:
    minutes = canvas.span / 60
    room = 4 if canvas.narrow else 6
    step = next(
        (each for each in (5, 10, 15, 30, 60, 120, 240) if minutes / each <= room), 480
    )
    first = -(-int(begun) // (step * 60)) * step * 60
    return [
        (at - begun, f"{datetime.fromtimestamp(at, UTC):%H:%M}")
        for at in range(first, int(begun + canvas.span) + 1, step * 60)
    ]
