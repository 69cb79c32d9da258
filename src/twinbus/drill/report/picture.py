"""The picture of a drill: its timeline as one SVG, for any width.

Owns how the series are drawn: phases on top, rates, the backlog, what an application
without a pair saw, and the state of each entity with its relapses, all over the same
seconds, with the time of the fault shaded through all of them.
Colours are classes, which `report.py` gives values for light and dark. Pure text out of
numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

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
_CHAR = 6.6
_PHASE_HIGH = 22
_LANE_HIGH = 20
# Of a name above its lane, where there is no room beside it.
_LABEL_HIGH = 16
_GAP = 38
_AXIS_HIGH = 24
# Below this a phone is meant.
_NARROW = 600


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where things are."""

    width: int
    left: int
    right: int
    seconds: float

    def x(self, at: float) -> float:
        return self.left + at / self.seconds * (self.width - self.left - self.right)

    @property
    def narrow(self) -> bool:
        return self.width < _NARROW


def nice_ceiling(value: float, factors: Sequence[int] = (1, 2, 3, 4, 6, 8)) -> int:
    """The next number at or above that people like at the end of an axis."""
    step = 1
    while True:
        for factor in factors:
            if factor * step >= value:
                return factor * step
        step *= 10


def tick_seconds(seconds: float, room: int) -> int:
    """How far apart the marks of the time axis are, if so many have room."""
    return nice_ceiling(seconds / max(room, 1), (1, 2, 5))


def draw(timeline: Timeline, width: int) -> str:
    """The whole picture, `width` pixels wide."""
    narrow = width < _NARROW
    frame = _Frame(width, 8 if narrow else 76, 8 if narrow else 16, timeline.seconds)
    high = 96 if narrow else 120
    parts: list[str] = []
    y = _phases(parts, frame, timeline)
    top = y
    y = _rates(parts, frame, timeline, (y + _GAP, high))
    y = _backlog(parts, frame, timeline, (y + _GAP, high))
    y = _ways(parts, frame, timeline, y + _GAP)
    y = _entities(parts, frame, timeline, y + _GAP)
    _axis(parts, frame, y)
    shade = _outage(frame, timeline, top, y)
    label = (
        "Timeline of the drill: phases, rates, backlog, what still worked without a "
        "pair, and the entities over time"
    )
    return (
        f'<svg viewBox="0 0 {width} {y + _AXIS_HIGH}" role="img" '
        f'aria-label="{label}" xmlns="http://www.w3.org/2000/svg">'
        f"{shade}{''.join(parts)}</svg>"
    )


# -- parts ---------------------------------------------------------------------------


def _phases(parts: list[str], frame: _Frame, timeline: Timeline) -> int:
    for name, start, end in timeline.phases:
        x, width = frame.x(start), frame.x(end) - frame.x(start)
        parts.append(
            f'<rect class="phase {name}" x="{x:.1f}" y="0" '
            f'width="{max(width - 1, 0):.1f}" height="{_PHASE_HIGH}" rx="3">'
            f"<title>{escape(_SHORT[name])}, {end - start:.1f} s</title></rect>"
        )
        if len(_SHORT[name]) * _CHAR < width - 4:
            text = escape(_SHORT[name])
            parts.append(_text(x + width / 2, 15, text, "phase-name", "middle"))
    return _PHASE_HIGH


def _rates(
    parts: list[str], frame: _Frame, timeline: Timeline, place: tuple[int, int]
) -> int:
    top, high = place
    most = nice_ceiling(max([1, *timeline.accepted, *timeline.received]))
    _panel(parts, frame, "messages per second", place, most)
    for name, series in (
        ("received", timeline.received),
        ("accepted", timeline.accepted),
    ):
        points = [
            (
                frame.x(min((step + 0.5) * timeline.step_seconds, timeline.seconds)),
                top + high - count / most * high,
            )
            for step, count in enumerate(series)
        ]
        parts.append(f'<polyline class="line {name}" points="{_points(points)}"/>')
    _legend(parts, frame, top, (("accepted", "accepted"), ("received", "received")))
    return top + high


def _backlog(
    parts: list[str], frame: _Frame, timeline: Timeline, place: tuple[int, int]
) -> int:
    top, high = place
    most = nice_ceiling(max(1, timeline.backlog_max))
    _panel(parts, frame, "messages in the backlog", place, most)
    if timeline.backlog:
        base = top + high
        points = [
            (frame.x(min(at, timeline.seconds)), base - depth / most * high)
            for at, depth in timeline.backlog
        ]
        first, last = points[0][0], points[-1][0]
        outline = [(first, float(base)), *points, (last, float(base))]
        parts.append(f'<polygon class="area backlog" points="{_points(outline)}"/>')
    return top + high


def _ways(parts: list[str], frame: _Frame, timeline: Timeline, top: int) -> int:
    _title(parts, frame, "the primary without a pair", top)
    marks = (("suspect", "slow, busy"), ("over", "no"))
    if frame.narrow:
        top += _LANE_HIGH
    _legend(parts, frame, top, marks)
    for way, stretches in timeline.ways.items():
        top = _lane(parts, frame, (way, top), stretches)
    return top


def _entities(parts: list[str], frame: _Frame, timeline: Timeline, top: int) -> int:
    _title(parts, frame, "the entities with a pair", top)
    states = {each.state for lane in timeline.entities.values() for each in lane}
    marks = [(_CLASSES[state], state) for state in _CLASSES if state in states]
    if any(timeline.relapses.values()):
        marks.append(("relapse", "relapse"))
    if frame.narrow:
        # The legend has no room beside the title.
        top += _LANE_HIGH
    _legend(parts, frame, top, marks)
    for path, stretches in timeline.entities.items():
        y = top + (_LABEL_HIGH if frame.narrow else 0)
        top = _lane(parts, frame, (path, top), stretches)
        for at in timeline.relapses.get(path, ()):
            x = frame.x(at)
            parts.append(
                f'<line class="relapse" x1="{x:.1f}" x2="{x:.1f}" y1="{y + 2}" '
                f'y2="{y + _LANE_HIGH}"><title>relapse</title></line>'
            )
    return top


def _lane(
    parts: list[str],
    frame: _Frame,
    place: tuple[str, int],
    stretches: Sequence[Stretch],
) -> int:
    """One lane with its name; returns where the next one begins."""
    name, y = place
    if frame.narrow:
        parts.append(_text(frame.left, y + 14, escape(name), "label", "start"))
        y += _LABEL_HIGH
    else:
        parts.append(_text(frame.left - 8, y + 14, escape(name), "label", "end"))
    high, right = _LANE_HIGH - 6, frame.width - frame.right
    parts.append(
        f'<rect class="healthy" x="{frame.left}" y="{y + 4}" '
        f'width="{right - frame.left}" height="{high}" rx="3"/>'
    )
    for each in stretches:
        x = frame.x(min(each.start, frame.seconds))
        width = frame.x(min(each.end, frame.seconds)) - x
        parts.append(
            f'<rect class="{_CLASS_OF[each.state]}" x="{x:.1f}" y="{y + 4}" '
            f'width="{max(width, 1):.1f}" height="{high}"><title>'
            f"{escape(each.state)}, {each.seconds:.1f} s</title></rect>"
        )
    return y + _LANE_HIGH


def _axis(parts: list[str], frame: _Frame, y: int) -> None:
    step = tick_seconds(frame.seconds, 5 if frame.narrow else 10)
    at = 0
    while at <= frame.seconds:
        x = frame.x(at)
        parts.append(
            f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 4}"/>'
        )
        parts.append(_text(x, y + 18, f"{at} s", "number", _anchor(frame, x)))
        at += step


def _anchor(frame: _Frame, x: float) -> str:
    if x < frame.left + 10:
        return "start"
    return "end" if x > frame.width - frame.right - 10 else "middle"


def _outage(frame: _Frame, timeline: Timeline, top: int, bottom: int) -> str:
    if timeline.outage is None:
        return ""
    start, end = timeline.outage
    x = frame.x(start)
    return (
        f'<rect class="shade" x="{x:.1f}" y="{top}" '
        f'width="{frame.x(end) - x:.1f}" height="{bottom - top}"/>'
    )


# -- pieces --------------------------------------------------------------------------


def _panel(
    parts: list[str], frame: _Frame, title: str, place: tuple[int, int], most: int
) -> None:
    """The frame of a panel: its title, three lines across and their numbers."""
    top, high = place
    _title(parts, frame, title, top)
    right = frame.width - frame.right
    for share in (0, 0.5, 1):
        y = top + high - share * high
        parts.append(
            f'<line class="grid" x1="{frame.left}" x2="{right}" '
            f'y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        number = f"{most * share:,.0f}" if most * share % 1 == 0 else ""
        if frame.narrow:
            # Inside, since there is no room beside it.
            if share:
                parts.append(_text(frame.left + 2, y + 12, number, "number", "start"))
        else:
            parts.append(_text(frame.left - 8, y + 4, number, "number", "end"))


def _title(parts: list[str], frame: _Frame, title: str, top: int) -> None:
    parts.append(_text(frame.left, top - 9, escape(title), "title", "start"))


def _legend(
    parts: list[str], frame: _Frame, top: int, marks: Sequence[tuple[str, str]]
) -> None:
    x = float(frame.width - frame.right)
    for name, text in reversed(marks):
        x -= len(text) * _CHAR
        parts.append(_text(x, top - 9, text, "legend", "start"))
        x -= 15
        parts.append(
            f'<rect class="key {name}" x="{x:.1f}" y="{top - 18}" '
            f'width="10" height="10" rx="2"/>'
        )
        x -= 14


def _text(x: float, y: float, text: str, name: str, anchor: str) -> str:
    return (
        f'<text class="{name}" x="{x:.1f}" y="{y:.1f}" '
        f'text-anchor="{anchor}">{text}</text>'
    )


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
