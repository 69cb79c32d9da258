"""The report of a drill: one HTML file that needs nothing else.

Owns the page. It asks for nothing from anywhere: styles and picture are inside, and
there is no script. It reads well on a desktop and on a phone, in light and dark.
Everything that comes from a drill is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

from twinbus.drill.report.picture import draw
from twinbus.drill.report.summary import figures
from twinbus.drill.report.timeline import Timeline

_WIDE, _NARROW = 960, 360
_STYLE = Path(__file__).with_name("report.css")


def page(summary: dict[str, Any], timeline: Timeline, made_at: datetime) -> str:
    """The whole page."""
    outcome = "passed" if summary["ok"] else "failed"
    title = "Nothing was lost" if summary["ok"] else "The drill failed"
    body = [
        f'<header class="{outcome}"><p class="badge">{outcome}</p>',
        f"<h1>{title}</h1><p>{escape(_rest(title, summary['sentence']))}</p></header>",
        _reasons(summary["reasons"]),
        _figure(timeline),
        '<div class="columns">',
        _section("What an application without a pair saw", _lessons(summary["saw"])),
        _section("What helped", _lessons(summary["helped"])),
        _section("Figures", _pairs(figures(summary))),
        _section("Entities", _entities(summary["entities"])),
        _section("Parts", _parts(summary["phases"]) + _notes(summary)),
        _section("How it was set up", _pairs(summary["settings"].items())),
        "</div>",
        _copies(summary["figures"]["duplicates"]),
        _cost(summary),
        _again(summary),
        _footer(made_at),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>twinbus drill: {outcome}</title>"
        f"<style>{_STYLE.read_text()}</style></head>"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )


def write(file: Path, summary: dict[str, Any], timeline: Timeline) -> None:
    """Write the page to a file."""
    file.write_text(page(summary, timeline, datetime.now(UTC)), encoding="utf-8")


def _rest(title: str, sentence: str) -> str:
    """The sentence without what the title says already."""
    return sentence.removeprefix(f"{title}. ")


# -- sections ------------------------------------------------------------------------


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def _reasons(reasons: Sequence[str]) -> str:
    if not reasons:
        return ""
    items = "".join(f"<li>{escape(reason)}</li>" for reason in reasons)
    return _section("Why", f'<ul class="why">{items}</ul>')


def _figure(timeline: Timeline) -> str:
    return (
        "<figure>"
        f'<div class="wide">{draw(timeline, _WIDE)}</div>'
        f'<div class="narrow">{draw(timeline, _NARROW)}</div>'
        "<figcaption>Shaded: the primary has its fault. An entity is shown in its "
        "worst state of all senders. Without a pair, each attempt is made once."
        "</figcaption></figure>"
    )


def _cost(summary: dict[str, Any]) -> str:
    """Where the page about costs is, if there is one beside this."""
    if "cost" not in summary:
        return ""
    name = escape(Path(summary["cost"]["page"]).name)
    count = summary["cost"]["operations"]
    text = f'<a href="{name}">{count:,} operations</a> of both namespaces and clients'
    return _section("What it cost", f"<p>{text}, day by day and stage by stage.</p>")


def _lessons(lessons: Sequence[dict[str, str]]) -> str:
    return _pairs(((each["what"], each["text"]) for each in lessons), "lessons")


def _pairs(pairs: Iterable[tuple[str, str]], name: str = "") -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>'
        for name, value in pairs
    )
    return f'<table class="{f"pairs {name}".strip()}">{rows}</table>'


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    lines = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table>"


def _entities(lines: Iterable[dict[str, Any]]) -> str:
    return (
        _table(
            ("entity", "accepted", "delivered"),
            (
                (line["path"], f"{line['accepted']:,}", f"{line['received']:,}")
                for line in lines
            ),
        )
        + "<p>A topic delivers each message to both of its subscriptions.</p>"
    )


def _parts(phases: Iterable[dict[str, Any]]) -> str:
    return _table(
        ("part", "took"),
        ((phase["text"], f"{phase['seconds']:.1f} s") for phase in phases),
    )


def _copies(duplicates: dict[str, int]) -> str:
    if not duplicates:
        return ""
    rows = ((why, f"{count:,}") for why, count in duplicates.items())
    text = (
        "<p>A message whose outcome is unknown is sent again, under the same "
        "message id. Duplicate detection on the entity removes the second copy.</p>"
    )
    return _section("Why some came twice", _table(("reason", "copies"), rows) + text)


def _notes(summary: dict[str, Any]) -> str:
    return "".join(
        f"<p>{escape(note)}</p>"
        for note in (summary["spark"], *summary["notes"])
        if note
    )


def _again(summary: dict[str, Any]) -> str:
    command = escape(summary["repeat"])
    return _section("Again", f"<p>The same drill again:</p><pre>{command}</pre>")


def _footer(made_at: datetime) -> str:
    when = made_at.strftime("%Y-%m-%d %H:%M UTC")
    return f"<footer>twinbus {escape(version('twinbus'))}, {when}</footer>"
