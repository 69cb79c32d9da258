"""A connection as an administrator sees it: where from, which links, what is unsettled.

Reads, and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twinbus.server.amqp.node import Node

if TYPE_CHECKING:
    from twinbus.server.amqp.connection import ServerConnection
    from twinbus.wire.link import Link


def describe_connection(connection: ServerConnection) -> dict[str, Any]:
    """What the console shows of a connection."""
    engine = connection.engine
    links = [link for each in engine.sessions.values() for link in each.links.values()]
    shown = [_link(link) for link in links]
    return {
        "peer": connection.peer,
        "address": connection.address,
        "kind": connection.kind,
        "client": str(engine.peer_open.container_id or ""),
        "unsettled": connection.unsettled,
        "links": sorted(shown, key=lambda each: (each["path"], each["role"])),
    }


def _link(link: Link) -> dict[str, Any]:
    node = link.owner
    needed = node.needed if isinstance(node, Node) else None
    return {
        "name": link.name,
        "role": "receiver" if link.sends else "sender",
        "path": needed[1].text if needed is not None else "$cbs",
        "credit": max(link.credit, 0),
    }
