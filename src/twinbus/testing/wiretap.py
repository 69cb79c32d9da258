"""Listens on the wire of a faulty proxy, and writes down what crosses it.

Owns the reading of AMQP in clear text, connection by connection: which message was sent
to which entity and how that was answered, and what a syphon took out of a backlog queue
and settled there. So a history can be checked against what really happened instead of
against what its processes believe. What a fault swallowed was never there. What a
process sends begins when it comes to the proxy; an answer counts once it goes on.

Judges nothing. A stream that is not AMQP in clear text is let go without a word.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from twinbus import limits
from twinbus.client.message import Message
from twinbus.core.names import strip_uri
from twinbus.errors import PeerError
from twinbus.pairing.errors import AliasInvalid
from twinbus.pairing.rules.envelope import Backlogged
from twinbus.testing.events import Event, Recorder, Result
from twinbus.wire.frames import Frame, FrameReader, Header
from twinbus.wire.message.names import PING_CONTENT_TYPE
from twinbus.wire.message.sections import BATCH_FORMAT, CONTENT_TYPE, split_batch
from twinbus.wire.performatives import (
    RECEIVER,
    Accepted,
    Attach,
    Begin,
    Detach,
    Disposition,
    Modified,
    Rejected,
    Released,
    SaslInit,
    SaslOutcome,
    Transfer,
)

_SETTLEMENTS = {
    Accepted: "complete",
    Rejected: "dead_letter",
    Released: "release",
    Modified: "abandon",
}


class Wiretap:
    """The `tap` of a proxy between one process and one namespace."""

    def __init__(self, recorder: Recorder, process: str, backlog: bool) -> None:
        self.recorder = recorder
        self.process = process
        # Whether it is the namespace that holds the backlog queues.
        self.backlog = backlog
        self._connections: dict[int, _TappedConnection] = {}

    def __call__(self, number: int, side: str, data: bytes, came_ms: int) -> None:
        connection = self._connections.get(number)
        if not side:
            if connection is not None:
                del self._connections[number]
                connection.end()
            return
        if connection is None:
            connection = self._connections[number] = _TappedConnection(self, number)
        connection.came_ms = came_ms
        connection.hear(side, data)


@dataclass(slots=True)
class _Link:
    """One link, by the client's view."""

    path: str
    client_sends: bool
    # The frames of a delivery that is not whole yet.
    first: Transfer | None = None
    payload: list[bytes] = field(default_factory=list)


class _TappedConnection:
    """One connection of the process."""

    def __init__(self, tap: Wiretap, number: int) -> None:
        self._tap = tap
        kind = "secondary" if tap.backlog else "primary"
        self._link_name = f"{kind}/{number}"
        self._readers = {
            side: FrameReader(limits.WIRETAP_FRAME_BYTES_MAX) for side in _SIDES
        }
        for reader in self._readers.values():
            reader.expect_header()
        # The client's channel, by the server's.
        self._channels: dict[int, int] = {}
        # By channel of the client and name; by side, channel of that side and handle.
        self._named: dict[tuple[int, str], _Link] = {}
        self._handles: dict[tuple[str, int, int], _Link] = {}
        # Without an answer: by the side that sent, channel of the client, delivery.
        self._open: dict[tuple[str, int, int], list[Event]] = {}
        self._fetched: dict[tuple[int, int], Event] = {}
        self._deaf = False
        # When the bytes that are being read came to the proxy.
        self.came_ms = 0

    def hear(self, side: str, data: bytes) -> None:
        """Bytes on their way to a side."""
        if self._deaf:
            return
        reader = self._readers[side]
        reader.feed(data)
        try:
            while (frame := reader.next()) is not None:
                if isinstance(frame, Frame):
                    self._frame(side, frame)
                else:
                    assert isinstance(frame, Header)
        except PeerError:
            self._deaf = True

    def end(self) -> None:
        """The connection is gone; what has no answer yet will never have one here."""
        recorder = self._tap.recorder
        for events in self._open.values():
            for event in events:
                recorder.finish(event, "unknown")
        self._open.clear()
        lost = recorder.start(self._tap.process, "detach", link=self._link_name)
        recorder.finish(lost)

    # -- frames --------------------------------------------------------------------

    def _frame(self, side: str, frame: Frame) -> None:
        body = frame.performative
        if isinstance(body, SaslInit | SaslOutcome):
            self._readers[side].expect_header()
        elif isinstance(body, Begin):
            if side == "client" and body.remote_channel is not None:
                self._channels[frame.channel] = body.remote_channel
        elif isinstance(body, Attach):
            self._attach(side, frame.channel, body)
        elif isinstance(body, Detach):
            self._handles.pop((side, frame.channel, body.handle), None)
        elif isinstance(body, Transfer):
            self._transfer(side, frame.channel, body, frame.payload)
        elif isinstance(body, Disposition):
            self._disposition(side, frame.channel, body)

    def _channel(self, side: str, channel: int) -> int:
        """The channel that the client knows it by."""
        return channel if side == "server" else self._channels.get(channel, channel)

    def _attach(self, side: str, channel: int, attach: Attach) -> None:
        name = (self._channel(side, channel), attach.name)
        if side == "server":
            receives = attach.role is RECEIVER
            terminus: Any = attach.source if receives else attach.target
            address = strip_uri(str(getattr(terminus, "address", None) or ""))
            self._named[name] = _Link(address, client_sends=not receives)
        link = self._named.get(name)
        if link is not None:
            self._handles[side, channel, attach.handle] = link

    def _transfer(
        self, side: str, channel: int, transfer: Transfer, payload: bytes
    ) -> None:
        link = self._handles.get((side, channel, transfer.handle))
        if link is None or "$" in link.path:
            return
        if link.first is None:
            link.first = transfer
        link.payload.append(payload)
        if transfer.more:
            return
        first, whole = link.first, b"".join(link.payload)
        link.first, link.payload = None, []
        if transfer.aborted or first.delivery_id is None:
            return
        delivery = (self._channel(side, channel), first.delivery_id)
        if side == "server" and link.client_sends:
            self._sent(link, delivery, whole, first.message_format)
        elif side == "client" and self._tap.backlog:
            self._delivered(link, delivery, whole)

    # -- what the client sends -----------------------------------------------------

    def _sent(
        self, link: _Link, delivery: tuple[int, int], payload: bytes, form: int | None
    ) -> None:
        each = split_batch(payload) if form == BATCH_FORMAT else [payload]
        op = "divert" if self._tap.backlog else "attempt"
        events = [self._event(op, link.path, message) for message in each]
        self._open["server", *delivery] = [event for event in events if event.key]

    def _event(self, op: str, path: str, payload: bytes) -> Event:
        """An event about a message that begins now."""
        message = Message(payload)
        event = self._begin(op, str(message.message_id or ""), path)
        event.content_type = str(message.properties[CONTENT_TYPE] or "")
        if self._tap.backlog and event.content_type != PING_CONTENT_TYPE:
            try:
                aliases = Backlogged(payload).aliases()
            except AliasInvalid:
                return event
            event.path = aliases.path
            event.session = aliases.session_id or ""
            event.ttl_ms = aliases.ttl_ms or 0
            event.not_before = aliases.scheduled_ms or 0
            event.diverted_at = aliases.diverted_at_ms or 0
        return event

    def _begin(self, op: str, key: str, path: str) -> Event:
        event = self._tap.recorder.start(
            self._tap.process, op, key=key, queue=path, link=self._link_name
        )
        event.invoke_at = self.came_ms
        return event

    # -- what a syphon receives ----------------------------------------------------

    def _delivered(
        self, link: _Link, delivery: tuple[int, int], payload: bytes
    ) -> None:
        event = self._event("receive", link.path, payload)
        if not event.key:
            return
        event.token = f"{self._link_name}/{delivery[0]}/{delivery[1]}"
        event.sequence = Message(payload).sequence_number
        self._fetched[delivery] = self._tap.recorder.finish(event)

    # -- answers -------------------------------------------------------------------

    def _disposition(self, side: str, channel: int, said: Disposition) -> None:
        channel = self._channel(side, channel)
        last = said.first if said.last is None else said.last
        for number in range(said.first, last + 1):
            if side == "client":
                # To what the client sent, or to how it settled.
                answered = "server" if said.role is RECEIVER else "client"
                self._answered((answered, channel, number), said)
            elif said.role is RECEIVER:
                self._settled((channel, number), said)

    def _answered(self, name: tuple[str, int, int], said: Disposition) -> None:
        events = self._open.pop(name, None)
        if events is None:
            return
        state = said.state
        result: Result = "ok" if state is None or type(state) is Accepted else "fail"
        if name[0] == "client":
            # The answer to a settlement repeats it, unless it was refused.
            result = "fail" if type(state) is Rejected else "ok"
        for event in events:
            self._tap.recorder.finish(event, result)

    def _settled(self, delivery: tuple[int, int], said: Disposition) -> None:
        """The client has decided about a delivery."""
        fetched = self._fetched.pop(delivery, None)
        op = _SETTLEMENTS.get(type(said.state))
        if fetched is None or op is None:
            return
        event = self._begin(op, fetched.key, fetched.queue)
        event.token = fetched.token
        if said.settled:
            # No answer will come, so the outcome is unknown.
            self._tap.recorder.finish(event, "unknown")
        else:
            self._open["client", *delivery] = [event]


_SIDES = ("server", "client")
