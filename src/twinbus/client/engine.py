"""What a Service Bus client needs of the engine beyond what both roles share.

Owns two things: deliveries with a message format (batches), and a sender's flow on a
link on which we receive, which is how a drain is answered.
"""

from __future__ import annotations

from typing import Any

from twinbus.wire.connection import Connection
from twinbus.wire.events import Event, Flowed, Outgoing
from twinbus.wire.frames import encode_transfer
from twinbus.wire.link import Link, LinkState
from twinbus.wire.performatives import Flow
from twinbus.wire.session import Session

_WRAP = 0xFFFFFFFF


class ClientEngine(Connection):
    """A connection's engine, as a client."""

    def __init__(self, container_id: str) -> None:
        super().__init__(server=False, container_id=container_id)

    def _take_flow(self, session: Session, flow: Flow) -> Event | None:
        event = super()._take_flow(session, flow)
        if event is not None or flow.handle is None or flow.delivery_count is None:
            return event
        link = session.links_by_peer.get(flow.handle)
        if link is None or link.sends or link.state is not LinkState.ATTACHED:
            return event
        # The count of a sender rules. It runs ahead of ours by the credit that was
        # given back unused, and by nothing else: transfers come in order with this.
        unused = (flow.delivery_count - link.delivery_count) & _WRAP
        link.delivery_count = flow.delivery_count
        link.credit -= unused
        return Flowed(link)


def send(link: Link, payload: bytes, tag: bytes, cookie: Any, form: int) -> None:
    """Send one delivery in a message format; the caller has looked at `credit`."""
    if not form:
        link.send(payload, tag, cookie)
        return
    session = link.session
    delivery_id = session.next_delivery_out
    session.next_delivery_out = (delivery_id + 1) & _WRAP
    link.delivery_count = (link.delivery_count + 1) & _WRAP
    link.credit -= 1
    session.unsettled[delivery_id] = Outgoing(delivery_id, link, cookie)
    frames = encode_transfer(
        session.channel,
        link.handle,
        delivery_id,
        tag,
        payload,
        settled=False,
        max_frame_bytes=session.connection.peer_frame_bytes,
        message_format=form,
    )
    session.write_transfer(frames, len(payload))
