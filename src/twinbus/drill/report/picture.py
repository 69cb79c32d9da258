"""The picture of a drill: its timeline as one SVG, for any width.

Owns how the series are drawn: phases on top, rates, the backlog, what an application
without a pair saw, and the state of each entity with its relapses, all over the same
seconds, with the time of the fault shaded through all of them.
Colours are classes, which `report.py` gives values for light and dark. The pieces are
those of `charts.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from twinbus import charts
from twinbus.charts import CHAR_WIDTH, Canvas, nice_ceiling
from twinbus.drill.report.timeline import Timeline
from twinbus.drill.sightings import BUSY, NO, SLOW, Stretch
from twinbus.drill.states import FAILED_OVER, PROBATION, REFUSED, SUSPECT

_SHORT = {
    "start": "start",
    "healthy": "all is well",
    "outage": "fault",
    "back": "back",
    "home": "syphon",
    "settle": "rest",
    "judge": "judge",
}
# The classes of states, in the order of the legend.
_CLASSES = {
    SUSPECT: "suspect",
    FAILED_OVER: "over",
    PROBATION: "probation",
    REFUSED: "refused",
}
_CLASS_OF = {**_CLASSES, SLOW: "suspect", BUSY: "suspect", NO: "over"}
_PHASE_HIGH = 22
_LANE_HIGH = 20
# Of a name above its lane, where there is no room beside it.
_LABEL_HIGH = 16
_GAP = 38
_AXIS_HIGH = 24


def tick_seconds(seconds: float, room: int) -> int:
    """How far apart the marks of the time axis are, if so many have room."""
    return nice_ceiling(seconds / max(room, 1), (1, 2, 5))


def draw(timeline: Timeline, width: int) -> str:
    """The whole picture, `width` pixels wide."""
    canvas = charts.canvas(width, timeline.seconds)
    high = 96 if canvas.narrow else 120
    parts: list[str] = []
    y = _phases(parts, canvas, timeline)
    top = y
    y = _rates(parts, canvas, timeline, (y + _GAP, high))
    y = _backlog(parts, canvas, timeline, (y + _GAP, high))
    y = _ways(parts, canvas, timeline, y + _GAP)
    y = _entities(parts, canvas, timeline, y + _GAP)
    _axis(parts, canvas, y)
    shade = _outage(canvas, timeline, top, y)
    label = (
        "Timeline of the drill: phases, rates, backlog, what still worked without a "
        "pair, and the entities over time"
    )
    return charts.svg(width, y + _AXIS_HIGH, label, shade + "".join(parts))


# -- parts ---------------------------------------------------------------------------


def _phases(parts: list[str], canvas: Canvas, timeline: Timeline) -> int:
    for name, start, end in timeline.phases:
        x, width = canvas.x(start), canvas.x(end) - canvas.x(start)
        parts.append(
            f'<rect class="phase {name}" x="{x:.1f}" y="0" '
            f'width="{max(width - 1, 0):.1f}" height="{_PHASE_HIGH}" rx="3">'
            f"<title>{escape(_SHORT[name])}, {end - start:.1f} s</title></rect>"
        )
        if len(_SHORT[name]) * CHAR_WIDTH < width - 4:
            at = (x + width / 2, 15)
            parts.append(charts.text(at, _SHORT[name], "phase-name", "middle"))
    return _PHASE_HIGH


def _rates(
    parts: list[str], canvas: Canvas, timeline: Timeline, place: tuple[int, int]
) -> int:
    top, high = place
    most = nice_ceiling(max([1, *timeline.accepted, *timeline.received]))
    parts.append(charts.panel(canvas, "messages per second", place, most))
    for name, series in (
        ("received", timeline.received),
        ("accepted", timeline.accepted),
    ):
        points = [
            (
                canvas.x(min((step + 0.5) * timeline.step_seconds, timeline.seconds)),
                top + high - count / most * high,
            )
            for step, count in enumerate(series)
        ]
        parts.append(charts.line(points, name))
    marks = (("accepted", "accepted"), ("received", "received"))
    parts.append(charts.legend(canvas, top, marks))
    return top + high


def _backlog(
    parts: list[str], canvas: Canvas, timeline: Timeline, place: tuple[int, int]
) -> int:
    top, high = place
    most = nice_ceiling(max(1, timeline.backlog_max))
    parts.append(charts.panel(canvas, "messages in the backlog", place, most))
    base = top + high
    points = [
        (canvas.x(min(at, timeline.seconds)), base - depth / most * high)
        for at, depth in timeline.backlog
    ]
    parts.append(charts.area(points, base, "backlog"))
    return top + high


def _ways(parts: list[str], canvas: Canvas, timeline: Timeline, top: int) -> int:
    parts.append(charts.heading(canvas, "the primary without a pair", top))
    marks = (("suspect", "slow, busy"), ("over", "no"))
    if canvas.narrow:
        top += _LANE_HIGH
    parts.append(charts.legend(canvas, top, marks))
    for way, stretches in timeline.ways.items():
        top = _lane(parts, canvas, (way, top), stretches)
    return top


def _entities(parts: list[str], canvas: Canvas, timeline: Timeline, top: int) -> int:
    parts.append(charts.heading(canvas, "the entities with a pair", top))
    states = {each.state for lane in timeline.entities.values() for each in lane}
    marks = [(_CLASSES[state], state) for state in _CLASSES if state in states]
    if any(timeline.relapses.values()):
        marks.append(("relapse", "relapse"))
    if canvas.narrow:
        # The legend has no room beside the title.
        top += _LANE_HIGH
    parts.append(charts.legend(canvas, top, marks))
    for path, stretches in timeline.entities.items():
        y = top + (_LABEL_HIGH if canvas.narrow else 0)
        top = _lane(parts, canvas, (path, top), stretches)
        for at in timeline.relapses.get(path, ()):
            x = canvas.x(at)
            parts.append(
                f'<line class="relapse" x1="{x:.1f}" x2="{x:.1f}" y1="{y + 2}" '
                f'y2="{y + _LANE_HIGH}"><title>relapse</title></line>'
            )
    return top


def _lane(
    parts: list[str],
    canvas: Canvas,
    place: tuple[str, int],
    stretches: Sequence[Stretch],
) -> int:
    """One lane with its name; returns where the next one begins."""
    name, y = place
    if canvas.narrow:
        parts.append(charts.text((canvas.left, y + 14), name, "label"))
        y += _LABEL_HIGH
    else:
        parts.append(charts.text((canvas.left - 8, y + 14), name, "label", "end"))
    high, right = _LANE_HIGH - 6, canvas.end
    parts.append(
        f'<rect class="healthy" x="{canvas.left}" y="{y + 4}" '
        f'width="{right - canvas.left}" height="{high}" rx="3"/>'
    )
    for each in stretches:
        x = canvas.x(min(each.start, canvas.span))
        width = canvas.x(min(each.end, canvas.span)) - x
        parts.append(
            f'<rect class="{_CLASS_OF[each.state]}" x="{x:.1f}" y="{y + 4}" '
            f'width="{max(width, 1):.1f}" height="{high}"><title>'
            f"{escape(each.state)}, {each.seconds:.1f} s</title></rect>"
        )
    return y + _LANE_HIGH


def _axis(parts: list[str], canvas: Canvas, y: int) -> None:
    step = tick_seconds(canvas.span, 5 if canvas.narrow else 10)
    seconds = range(0, int(canvas.span) + 1, step)
    parts.append(charts.axis(canvas, y, [(at, f"{at} s") for at in seconds]))


def _outage(canvas: Canvas, timeline: Timeline, top: int, bottom: int) -> str:
    if timeline.outage is None:
        return ""
    return charts.shade(canvas, timeline.outage, (top, bottom))
