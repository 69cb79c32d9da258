"""One end of a link: credit, assembly of deliveries, and its life.

| state    | we may send                     | the peer may send                  |
|----------|---------------------------------|------------------------------------|
| ASKED    | accept, refuse (the answer)     | flow, detach                       |
| ASKING   | detach                          | attach (the answer)                |
| ATTACHED | flow, transfer, detach          | flow, transfer, detach             |
| DETACHING| nothing: our detach is on its way | anything (ignored), detach       |
| DETACHED | nothing                         | nothing: its handle is free        |

Owns the credit of both directions. Knows nothing about messages but their bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

from twinbus import limits
from twinbus.wire.events import Delivered, Unsettled
from twinbus.wire.frames import RUN_TAG_BYTES, encode_run, encode_transfer
from twinbus.wire.performatives import Attach, Detach, Error, Flow, Transfer

if TYPE_CHECKING:
    from twinbus.wire.session import Session

_WRAP = 0xFFFFFFFF
# A delivery that goes on for ever is dropped after this many times its limit.
_ENDLESS_FACTOR = 16
_RUN_TAG = bytes(RUN_TAG_BYTES)
# As `Unsettled._make`, but without a Python call for each.
_unsettled: Callable[[Any], Unsettled] = partial(tuple.__new__, Unsettled)


class LinkState(Enum):
    """See the table at the top."""

    ASKED = "asked"
    ASKING = "asking"
    ATTACHED = "attached"
    DETACHING = "detaching"
    DETACHED = "detached"


class Link:
    """One end of a link. `sends` tells whether messages flow from us to the peer."""

    __slots__ = (
        "_assembly",
        "_assembly_held",
        "_assembly_parts",
        "_assembly_size",
        "_sent",
        "_sent_max",
        "attach_bytes",
        "credit",
        "credit_window",
        "delivery_count",
        "drain",
        "echo",
        "handle",
        "max_message_bytes",
        "name",
        "owner",
        "peer_attach",
        "peer_handle",
        "sends",
        "session",
        "settled_by_us",
        "state",
        "takes_runs",
    )

    def __init__(self, session: Session, name: str, handle: int, sends: bool) -> None:
        self.session = session
        self.name = name
        self.handle = handle
        self.peer_handle = -1
        self.sends = sends
        self.state = LinkState.ASKED
        # Messages that may still be sent: by us if we send, by the peer if not.
        self.credit = 0
        self.delivery_count = 0
        self.drain = False
        self.echo = False
        # If we receive: credit is topped up to this at half. 0: by hand.
        self.credit_window = 0
        self.max_message_bytes = 0
        # If we receive: whether messages may be handed out in runs.
        self.takes_runs = False
        # We send pre-settled: the peer asked for it when it attached.
        self.settled_by_us = False
        self.peer_attach = Attach()
        # The size of the peer's attach, if it asked for the link.
        self.attach_bytes = 0
        # Whatever stands behind the link, for its user alone.
        self.owner: object = None
        self._assembly: Delivered | None = None
        self._assembly_parts: list[bytes] = []
        self._assembly_size = 0
        self._assembly_held = 0
        # Ids of what we sent, in order. Settled ones are taken out now and then, and
        # not one by one.
        self._sent: list[int] = []
        self._sent_max = limits.SETTLED_IDS_PER_LINK_MAX

    # -- life --------------------------------------------------------------------

    def accept(self, answer: Attach) -> None:
        """Answer the peer's attach with yes; `answer` brings source, target, etc."""
        assert self.state is LinkState.ASKED
        self.state = LinkState.ATTACHED
        answer.name = self.name
        answer.handle = self.handle
        answer.role = not self.sends
        if self.sends:
            answer.initial_delivery_count = 0
        self.session.write(answer)

    def refuse(self, error: Error) -> None:
        """Answer the peer's attach with no: an attach to nowhere, then a detach."""
        assert self.state is LinkState.ASKED
        self.state = LinkState.ATTACHED
        refusal = Attach(name=self.name, handle=self.handle, role=not self.sends)
        if self.sends:
            refusal.initial_delivery_count = 0
        refusal.max_message_size = self.max_message_bytes
        self.session.write(refusal)
        self.detach(error)

    def detach(self, error: Error | None = None) -> None:
        """Close the link from our side; the peer's detach will not be answered."""
        if self.state is not LinkState.ATTACHED:
            return
        self.state = LinkState.DETACHING
        self.session.write(Detach(handle=self.handle, closed=True, error=error))

    # -- we receive ----------------------------------------------------------------

    def grant(self, credit: int) -> None:
        """Let the peer send up to `credit` messages from now on."""
        self.credit = credit
        self.write_flow()

    def write_flow(self, echo: bool = False) -> None:
        """Tell the peer where the link and its session stand."""
        # The caller that asked for it has it now.
        self.echo = False
        self.session.write_flow(
            Flow(
                handle=self.handle,
                delivery_count=self.delivery_count,
                link_credit=max(self.credit, 0),
                drain=self.drain,
                echo=echo,
            )
        )

    def take_transfer(self, transfer: Transfer, payload: bytes) -> Delivered | None:
        """Add a frame of a delivery; returns the delivery when it is whole."""
        delivery = self._assembly
        if delivery is None:
            delivery = self._first_frame(transfer)
            if not transfer.more and not transfer.aborted:
                # The usual case: a message in one frame.
                self._finish(delivery, payload)
                return delivery
        if transfer.settled:
            delivery.settled = True
        if transfer.state is not None:
            delivery.state = transfer.state
        if transfer.aborted:
            self.forget_assembly()
            return None
        self._assembly = delivery
        self._assembly_size += len(payload)
        if self._assembly_size <= self._limit():
            self._assembly_parts.append(payload)
            self._hold(len(payload))
        else:
            self._drop_parts()
            delivery.oversize = True
        if transfer.more:
            return None
        whole = b"".join(self._assembly_parts)
        oversize = delivery.oversize
        self.forget_assembly()
        self._finish(delivery, whole)
        delivery.oversize = oversize or delivery.oversize
        return delivery

    @property
    def is_assembling(self) -> bool:
        """Whether a delivery has begun that has not ended."""
        return self._assembly is not None

    def endless(self) -> bool:
        """Whether the delivery under way has no intention to end."""
        return self._assembly_size > _ENDLESS_FACTOR * self._limit()

    def _limit(self) -> int:
        return self.max_message_bytes or 1 << 30

    def _first_frame(self, transfer: Transfer) -> Delivered:
        session = self.session
        delivery_id = transfer.delivery_id
        if delivery_id is None:
            delivery_id = session.next_delivery_in
        session.next_delivery_in = (delivery_id + 1) & _WRAP
        return Delivered(self, delivery_id, transfer)

    def _finish(self, delivery: Delivered, payload: bytes) -> None:
        if self.max_message_bytes and len(payload) > self.max_message_bytes:
            delivery.oversize = True
        else:
            delivery.payload = payload
        self._use_credit(1)

    def note_run(self, count: int) -> None:
        """Count messages that came after another, each in a frame of its own."""
        session = self.session
        session.next_delivery_in = (session.next_delivery_in + count) & _WRAP
        self._use_credit(count)

    def _use_credit(self, count: int) -> None:
        self.delivery_count = (self.delivery_count + count) & _WRAP
        self.credit -= count
        if self.credit_window and self.credit <= self.credit_window >> 1:
            self.grant(self.credit_window)

    def forget_assembly(self) -> None:
        """Drop what has come of a delivery."""
        self._drop_parts()
        self._assembly = None
        self._assembly_size = 0

    def _drop_parts(self) -> None:
        self._hold(-self._assembly_held)
        self._assembly_parts = []

    def _hold(self, size_bytes: int) -> None:
        """Count bytes of unfinished deliveries, here and for the connection."""
        self._assembly_held += size_bytes
        self.session.connection.assembly_bytes += size_bytes

    def take_back(self, flow: Flow) -> bool:
        """Note the count of a sender, which rules; True if it gave credit back.

        Its count runs ahead of ours by the credit that it will not use, and by nothing
        else, because its transfers come in order with its flows.
        """
        if flow.delivery_count is None:
            return False
        unused = (flow.delivery_count - self.delivery_count) & _WRAP
        if not 0 < unused <= self.credit:
            return False
        self.delivery_count = flow.delivery_count
        self.credit -= unused
        return True

    # -- we send -------------------------------------------------------------------

    def take_flow(self, flow: Flow) -> None:
        """Note the peer's credit. It is absolute, counted from its own view."""
        self.echo = bool(flow.echo)
        self.drain = bool(flow.drain)
        seen = flow.delivery_count if flow.delivery_count is not None else 0
        behind = (self.delivery_count - seen) & _WRAP
        self.credit = max((flow.link_credit or 0) - behind, 0)

    def send(
        self, payload: bytes, tag: bytes, cookie: Any = None, message_format: int = 0
    ) -> int:
        """Send one message; the caller has looked at `credit`. Returns its id."""
        session = self.session
        delivery_id = session.next_delivery_out
        session.next_delivery_out = (delivery_id + 1) & _WRAP
        self.delivery_count = (self.delivery_count + 1) & _WRAP
        self.credit -= 1
        settled = self.settled_by_us
        if not settled:
            session.unsettled[delivery_id] = Unsettled(delivery_id, self, cookie)
            sent = self._sent
            sent.append(delivery_id)
            if len(sent) > self._sent_max:
                self._forget_settled()
        session.write_transfer(
            encode_transfer(
                session.channel,
                self.handle,
                delivery_id,
                tag,
                payload,
                settled,
                session.connection.peer_frame_bytes,
                message_format,
            ),
            len(payload),
            self,
        )
        return delivery_id

    def send_run(
        self,
        run: Sequence[tuple[bytes, bytes, bytes]],
        sizes: Sequence[int],
        cookies: Sequence[Any],
    ) -> None:
        """Send messages, as `send` does, at less cost for each.

        A message is a tag of `RUN_TAG_BYTES` and a payload in two parts; `sizes` are
        those of the payloads.
        """
        session = self.session
        if max(sizes) > session.run_bytes_max(len(run)):
            for (tag, front, back), cookie in zip(run, cookies, strict=True):
                self.send(front + back, tag, cookie)
            return
        first, count = session.next_delivery_out, len(run)
        ids = [number & _WRAP for number in range(first, first + count)]
        session.next_delivery_out = (first + count) & _WRAP
        self.delivery_count = (self.delivery_count + count) & _WRAP
        self.credit -= count
        settled = self.settled_by_us
        if not settled:
            entries = map(_unsettled, zip(ids, repeat(self), cookies, strict=False))
            session.unsettled.update(zip(ids, entries, strict=True))
            self._sent += ids
            if len(self._sent) > self._sent_max:
                self._forget_settled()
        template = encode_transfer(
            session.channel, self.handle, 0, _RUN_TAG, b"", settled, 512
        )
        session.write_run(encode_run(template, ids, run), count)

    def unsettled(self) -> list[Unsettled]:
        """What we sent here and is not settled, without a look at other links."""
        self._forget_settled()
        held = self.session.unsettled
        found = [held[key] for key in self._sent]
        # Ids begin anew: another link may have one by now.
        return [entry for entry in found if entry.link is self]

    def _forget_settled(self) -> None:
        held = self.session.unsettled
        self._sent = [key for key in self._sent if key in held]
        self._sent_max = 2 * len(self._sent) + limits.SETTLED_IDS_PER_LINK_MAX

    def drained(self) -> None:
        """Answer a drain: what credit is left is used up."""
        # Less than none is left where the peer took credit back meanwhile.
        left = max(self.credit, 0)
        self.delivery_count = (self.delivery_count + left) & _WRAP
        self.credit = 0
        self.write_flow()
        self.drain = False
