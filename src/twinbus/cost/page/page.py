"""The page of a report: sums for its tables, and the template filled in.

Owns the page. It asks for nothing from anywhere: styles and pictures are inside, and
there is no script. Everything that comes from a ledger is escaped, by the template and
by `charts.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from twinbus import limits
from twinbus.cost.forecast import STAGES
from twinbus.cost.page import pictures
from twinbus.ledger.schema import BUSY

_WIDE, _NARROW = 640, 340
_FOLDER = Path(__file__).parent
_STAGES = (*STAGES, "other")
Values = Mapping[str, Any]


def write_page(file: Path, report: Values) -> None:
    """Write the page of a report, given as its JSON, to a file."""
    file.write_text(page(report, datetime.now(UTC)), encoding="utf-8")


def page(report: Values, made_at: datetime) -> str:
    """The whole page."""
    loader = FileSystemLoader(_FOLDER)
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True)
    environment.filters["count"] = lambda value: f"{value:,}"
    environment.filters["megabytes"] = lambda value: f"{value / 1e6:,.1f}"
    environment.filters |= {"when": _when, "end": _end, "minutes": _minutes}
    empty = report["from"] is None
    return environment.get_template("page.html.j2").render(
        report=report,
        style=Markup((_FOLDER / "page.css").read_text()),  # noqa: S704
        version=version("twinbus"),
        made_at=f"{made_at:%Y-%m-%d %H:%M} UTC",
        **({} if empty else _content(report)),
    )


def _when(text: str) -> str:
    return text.replace("T", " ").removesuffix("Z")[:16]


def _end(outage: Values) -> str:
    """When an outage ended; without the day if it is that of the start."""
    text = _when(outage["end"])
    return text[11:] if text[:10] == outage["start"][:10] else text


def _minutes(count: int) -> str:
    for size, name in ((1440, "day"), (60, "hour"), (1, "minute")):
        if count % size == 0:
            number = count // size
            return f"{number} {name}{'s' * (number != 1)}"
    raise AssertionError


def by_day(report: Values) -> tuple[dict[str, int], dict[str, int]]:
    """Operations by day, and how many outages began on each."""
    days: dict[str, int] = defaultdict(int)
    for row in report["days"]:
        days[row["day"]] += row["operations"]
    outages: dict[str, int] = defaultdict(int)
    for outage in report["outages"]:
        outages[outage["start"][:10]] += 1
    return days, outages


def _content(report: Values) -> dict[str, Any]:
    days, outages = by_day(report)
    places = sorted(report["around"], key=int)
    drawn = [_drawn(report, place) for place in places if report["around"][place]]
    return {
        "calendar": _both(lambda width: pictures.calendar(days, outages, width)),
        "rates": _both(lambda width: pictures.rates(report, width)),
        "costs": _both(lambda width: pictures.costs(report, _STAGES, width)),
        "months": _months(report, outages),
        "primaries": _primaries(report),
        "stages": _stages(report),
        "drawn": drawn,
        "entities": _entities(report),
        "totals": _totals(report),
    }


def _drawn(report: Values, place: str) -> dict[str, Any]:
    outage, rows = report["outages"][int(place)], report["around"][place]
    picture = _both(lambda width: pictures.backlog(outage, rows, width))
    return {"outage": outage, "picture": picture, "deepest": _deepest(rows)}


def _both(draw: Callable[[int], str]) -> Markup:
    """A picture for desktops and one for phones; the style shows one of them."""
    return Markup(  # noqa: S704
        f'<div class="wide">{draw(_WIDE)}</div>'
        f'<div class="narrow">{draw(_NARROW)}</div>'
    )


def _deepest(rows: list[Values]) -> int:
    depth = deepest = 0
    for row in rows:
        depth = max(depth + row["diverted"] - row["drained"], 0)
        deepest = max(deepest, depth)
    return deepest


def _totals(report: Values) -> dict[str, Any]:
    rows = report["days"]
    return {
        "operations": sum(row["operations"] for row in rows),
        "messages": sum(row["messages"] for row in rows if row["stage"] == _STAGES[0]),
        "bytes_in": sum(row["bytes_in"] for row in rows),
        "bytes_out": sum(row["bytes_out"] for row in rows),
        "denied": sum(row["operations"] for row in rows if row["outcome"] == BUSY),
        "diverted": sum(each["diverted_messages"] for each in report["outages"]),
    }


def _months(report: Values, outages: Mapping[str, int]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for row in report["days"]:
        name = row["day"][:7]
        month = found.setdefault(name, {"name": name, "operations": 0, "cost": 0.0})
        month["operations"] += row["operations"]
        month["cost"] += row["cost"]
    for name, month in found.items():
        own = [count for day, count in outages.items() if day.startswith(name)]
        month["outages"] = sum(own)
    return list(found.values())


def _primaries(report: Values) -> list[dict[str, Any]]:
    names = ("sent", "received", "diverted", "home", "failed", "busy")
    found: dict[str, dict[str, Any]] = {}
    for row in report["rates"]:
        start = dict.fromkeys(names, 0)
        each = found.setdefault(row["primary"], {"name": row["primary"], **start})
        for name in names:
            each[name] += row[name]
    return sorted(found.values(), key=lambda each: -each["sent"])


def _stages(report: Values) -> list[dict[str, Any]]:
    found = []
    for place, stage in enumerate(_STAGES):
        own = [row for row in report["days"] if row["stage"] == stage]
        if own:
            count = sum(row["operations"] for row in own)
            cost = sum(row["cost"] for row in own)
            found.append(
                {"name": stage, "place": place, "operations": count, "cost": cost}
            )
    return found


def _entities(report: Values) -> list[dict[str, Any]]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in report["entities"]:
        key = (row["label"], row["entity"])
        each = found.setdefault(
            key,
            {
                "namespace": row["label"],
                "name": row["entity"] or "(the namespace)",
                "operations": 0,
                "denied": 0,
                "bytes_in": 0,
                "bytes_out": 0,
            },
        )
        each["operations"] += row["operations"]
        each["bytes_in"] += row["bytes_in"]
        each["bytes_out"] += row["bytes_out"]
        each["denied"] += row["operations"] * (row["outcome"] == BUSY)
    ordered = sorted(found.values(), key=lambda each: -each["operations"])
    return ordered[: limits.REPORT_ENTITIES_SHOWN_MAX]
