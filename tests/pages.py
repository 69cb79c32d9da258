"""Checks that pages with pictures share: what they fetch, where things are drawn."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from html.parser import HTMLParser

SVG = "{http://www.w3.org/2000/svg}"
# Half of what coordinates are rounded to, and a little.
_ROUNDED = 0.11
# Roughly: how wide a character is, and how far lines are apart.
_CHARACTER, _LINE = 6.2, 11


class Reader(HTMLParser):
    """Collects what a browser would fetch, and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag != "meta":
            self.open.append(tag)
        self.fetched += [
            str(value) for name, value in attrs if name in ("src", "href", "style")
        ]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + " "


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    return reader


def check_inside(tree: ET.Element, width: int) -> None:
    """Nothing is drawn outside of a picture, which has that width."""
    _, _, right, bottom = map(float, tree.attrib["viewBox"].split())
    assert right == width
    for node in tree.iter():
        x, y = float(node.get("x", 0)), float(node.get("y", 0))
        assert 0 <= x <= x + float(node.get("width", 0)) <= right + _ROUNDED
        assert -_ROUNDED <= y <= y + float(node.get("height", 0)) <= bottom + _ROUNDED
        for point in node.get("points", "").split():
            left, top = map(float, point.split(","))
            assert 0 <= left <= right
            assert 0 <= top <= bottom


def check_labels(tree: ET.Element) -> None:
    """No label runs into another one."""
    boxes = [_box(node) for node in tree.iter(f"{SVG}text") if node.text]
    for place, (x1, x2, y, text) in enumerate(boxes):
        for other in boxes[place + 1 :]:
            apart = x2 <= other[0] or other[1] <= x1 or abs(y - other[2]) >= _LINE
            assert apart, f"{text!r} and {other[3]!r}"


def _box(node: ET.Element) -> tuple[float, float, float, str]:
    text = node.text or ""
    x, wide = float(node.attrib["x"]), len(text) * _CHARACTER
    start = {"start": x, "middle": x - wide / 2, "end": x - wide}
    left = start[node.attrib["text-anchor"]]
    return left, left + wide, float(node.attrib["y"]), text
