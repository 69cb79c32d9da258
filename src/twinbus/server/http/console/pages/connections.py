"""Who is connected: clients over AMQP with their links; one can be closed."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from twinbus.core.rights import Operation
from twinbus.errors import MessageNotFound
from twinbus.server.http.console.page import url
from twinbus.server.http.console.visit import Visit
from twinbus.wire.performatives import Error


async def show(visit: Visit) -> Response:
    """All connections of the namespace."""
    visit.demand(Operation.READ_NAMESPACE)
    return visit.page("connections.html", {"connections": _described(visit)})


def _described(visit: Visit) -> list[dict[str, Any]]:
    found = [each.describe() for each in visit.console.port.connections]
    return sorted(found, key=lambda each: str(each["peer"]))


async def close(visit: Visit) -> Response:
    """Close one; its client is told, and may connect again."""
    visit.demand(Operation.CLOSE_CONNECTION)
    peer = (await visit.form()).text("peer")
    for connection in list(visit.console.port.connections):
        if connection.describe()["peer"] == peer:
            text = "An administrator has closed the connection."
            connection.close(
                Error(condition="amqp:connection:forced", description=text)
            )
            await visit.note("close connection", peer)
            return visit.done(
                f"{peer} is closed.", url("connections"), {"closed": peer}
            )
    raise MessageNotFound(f"There is no connection of {peer} any more.")
