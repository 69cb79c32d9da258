"""The overview: the namespace and its entities at a glance."""

from __future__ import annotations

from starlette.responses import Response

from twinbus.server.http.console.visit import Visit


async def show(visit: Visit) -> Response:
    """What the visitor may see of the namespace."""
    return visit.page("overview.html", {"name": visit.namespace})
