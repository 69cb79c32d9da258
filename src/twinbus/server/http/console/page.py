"""How a page becomes bytes: templates, files, and the headers that every answer has.

Owns the templates, which escape everything, and the policy of the browser: scripts and
styles come from this server's own files alone, and no other site may frame a page.
The same data is answered as JSON to a client that asks for it. Knows no page.
"""

from __future__ import annotations

import hashlib
import urllib.parse
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

if TYPE_CHECKING:
    from jinja2 import Environment

ROOT = "/$console/"
# What stands where there is no value.
_NONE = "-"

_FOLDER = Path(__file__).parent
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # With no-referrer browsers would say that forms come from nowhere.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def url(page: str, /, **query: Any) -> str:
    """The address of a page; what is None is left out of the query."""
    given = {name: value for name, value in query.items() if value is not None}
    text = urllib.parse.urlencode(given, doseq=True)
    return f"{ROOT}{page}?{text}" if text else f"{ROOT}{page}"


def render(template: str, context: Mapping[str, Any]) -> str:
    """A page as HTML."""
    return _environment().get_template(template).render(context)


@cache
def _environment() -> Environment:
    # Not above: the first page pays for it, and not the start of the server.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"url": url, "static": _static_url}
    # Pages call the namespace of the server `namespace`.
    environment.globals["namespace_"] = environment.globals.pop("namespace")
    environment.filters |= {"count": _count, "size": _size, "money": _money}
    environment.filters |= {"age": age, "when": when}
    return environment


# -- files -----------------------------------------------------------------------------


@cache
def _file(name: str) -> tuple[bytes, str, str] | None:
    """The bytes of a file, its type and its version; None if there is none."""
    listed = {each.name: each for each in (_FOLDER / "static").iterdir()}
    if name not in listed or listed[name].suffix not in _TYPES:
        return None
    content = listed[name].read_bytes()
    version = hashlib.sha256(content).hexdigest()[:16]
    return content, _TYPES[listed[name].suffix], version


def static_file(name: str) -> Response | None:
    """A style or script of the console; None if there is none of that name."""
    found = _file(name)
    if found is None:
        return None
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(found[0], media_type=found[1], headers=headers)


def _static_url(name: str) -> str:
    """Where a file is; another content has another address."""
    found = _file(name)
    assert found is not None, name
    return f"{ROOT}static/{name}?v={found[2]}"


# -- values ----------------------------------------------------------------------------


def _count(value: float | None) -> str:
    return _NONE if value is None else f"{value:,g}" if value < 1e6 else f"{value:,}"


def _size(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:,.0f} {unit}" if size >= 10 else f"{size:,.3g} {unit}"
        size /= 1024
    return ""


def _money(amount: str) -> str:
    """An amount as people write it; it may be less than the smallest coin."""
    exact = Decimal(amount)
    return "under 0.01" if 0 < exact < Decimal("0.01") else f"{exact:,.2f}"


def age(seconds: float | None) -> str:
    """How long something has lasted, in its two largest units."""
    if seconds is None:
        return _NONE
    left = max(int(seconds), 0)
    parts: list[str] = []
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def when(wall_ms: int | None) -> str:
    """A moment in UTC, to the millisecond."""
    if wall_ms is None:
        return _NONE
    try:
        moment = datetime.fromtimestamp(wall_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return _NONE
    return f"{moment:%Y-%m-%d %H:%M:%S}.{wall_ms % 1000:03d}"
