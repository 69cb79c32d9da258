"""Pieces of SVG charts: the frame of a panel, lines, areas, shades, axes and legends.

Owns what the pictures of a drill and of a cost report have in common. Pure text out of
numbers. Colours are classes, which the style of each page gives values for light and
dark. A caller escapes nothing: every text is escaped here. Knows no page and no data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

# The width of a character of a label, about.
CHAR_WIDTH = 6.6
# Below this a phone is meant.
_NARROW = 600

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Canvas:
    """Where things are: `span` units lie between the two margins."""

    width: int
    left: int
    right: int
    span: float

    def x(self, at: float) -> float:
        return self.left + at / self.span * (self.width - self.left - self.right)

    @property
    def end(self) -> int:
        return self.width - self.right

    @property
    def narrow(self) -> bool:
        return self.width < _NARROW


def canvas(width: int, span: float) -> Canvas:
    """A canvas with room for numbers beside it; a narrow one has them inside."""
    narrow = width < _NARROW
    return Canvas(width, 8 if narrow else 76, 8 if narrow else 16, span)


def svg(width: int, height: float, label: str, content: str) -> str:
    """A whole picture."""
    return (
        f'<svg viewBox="0 0 {width} {height:g}" role="img" '
        f'aria-label="{escape(label)}" xmlns="http://www.w3.org/2000/svg">'
        f"{content}</svg>"
    )


def nice_ceiling(value: float, factors: Sequence[int] = (1, 2, 3, 4, 6, 8)) -> int:
    """The next number at or above that people like at the end of an axis."""
    step = 1
    while True:
        for factor in factors:
            if factor * step >= value:
                return factor * step
        step *= 10


def panel(canvas: Canvas, title: str, place: tuple[int, int], most: float) -> str:
    """The frame of a panel: its title, three lines across and their numbers."""
    top, high = place
    parts = [heading(canvas, title, top)]
    for share in (0, 0.5, 1):
        y = top + high - share * high
        parts.append(
            f'<line class="grid" x1="{canvas.left}" x2="{canvas.end}" '
            f'y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        number = f"{most * share:,.0f}" if most * share % 1 == 0 else ""
        if canvas.narrow:
            # Inside, since there is no room beside it.
            if share:
                parts.append(text((canvas.left + 2, y + 12), number, "number"))
        else:
            parts.append(text((canvas.left - 8, y + 4), number, "number", "end"))
    return "".join(parts)


def heading(canvas: Canvas, title: str, top: int) -> str:
    return text((canvas.left, top - 9), title, "title")


def legend(canvas: Canvas, top: int, marks: Sequence[tuple[str, str]]) -> str:
    """Keys and their texts, from the right: the class of each, and what it means."""
    parts = []
    x = float(canvas.end)
    for name, label in reversed(marks):
        x -= len(label) * CHAR_WIDTH
        parts.append(text((x, top - 9), label, "legend"))
        x -= 15
        parts.append(
            f'<rect class="key {name}" x="{x:.1f}" y="{top - 18}" '
            f'width="10" height="10" rx="2"/>'
        )
        x -= 14
    return "".join(parts)


def line(points: Sequence[Point], name: str) -> str:
    return f'<polyline class="line {name}" points="{_joined(points)}"/>'


def area(points: Sequence[Point], base: float, name: str) -> str:
    """What lies between the points and a level."""
    if not points:
        return ""
    outline = [(points[0][0], base), *points, (points[-1][0], base)]
    return f'<polygon class="area {name}" points="{_joined(outline)}"/>'


def shade(canvas: Canvas, stretch: tuple[float, float], place: tuple[int, int]) -> str:
    """A time that is set off, from the top of a picture to its bottom."""
    top, bottom = place
    x = canvas.x(stretch[0])
    return (
        f'<rect class="shade" x="{x:.1f}" y="{top}" '
        f'width="{canvas.x(stretch[1]) - x:.1f}" height="{bottom - top}"/>'
    )


def axis(canvas: Canvas, y: int, marks: Sequence[tuple[float, str]]) -> str:
    """Marks below everything, each with its text."""
    parts = []
    for at, label in marks:
        x = canvas.x(at)
        parts.append(
            f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 4}"/>'
        )
        parts.append(text((x, y + 18), label, "number", _anchor(canvas, x)))
    return "".join(parts)


def _anchor(canvas: Canvas, x: float) -> str:
    if x < canvas.left + 10:
        return "start"
    return "end" if x > canvas.end - 10 else "middle"


def text(at: Point, label: str, name: str, anchor: str = "start") -> str:
    return (
        f'<text class="{name}" x="{at[0]:.1f}" y="{at[1]:.1f}" '
        f'text-anchor="{anchor}">{escape(label)}</text>'
    )


def _joined(points: Sequence[Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
