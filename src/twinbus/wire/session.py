"""A session: channel numbers, windows, delivery ids, and the links in it.

| state    | the peer may send                                    |
|----------|------------------------------------------------------|
| BEGINNING| begin (the answer to ours)                           |
| BEGUN    | attach, flow, transfer, disposition, detach, end     |
| ENDING   | anything (ignored) until its end                     |
| ENDED    | nothing; frames for it are ignored, not an error     |

Owns the transfer windows of both directions. The incoming one is refreshed at half and
never enforced: the Python SDK counts deliveries where the standard counts frames.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from twinbus import limits
from twinbus.wire.events import Answered, Disposed, Unsettled
from twinbus.wire.frames import encode_disposition, encode_frame
from twinbus.wire.link import Link, LinkState
from twinbus.wire.performatives import (
    SND_SETTLED,
    Attach,
    Begin,
    Disposition,
    End,
    Error,
    Flow,
)

if TYPE_CHECKING:
    from twinbus.wire.connection import Engine

_WRAP = 0xFFFFFFFF
_UNKNOWN_WINDOW = 1 << 31
# Of a transfer frame, for what stands before the payload.
_FRAME_BYTES_KEPT = 64


class SessionState(Enum):
    """See the table at the top."""

    BEGINNING = "beginning"
    BEGUN = "begun"
    ENDING = "ending"
    ENDED = "ended"


class Session:
    """One session of a connection."""

    __slots__ = (
        "_blocked",
        "_frames_out",
        "_frames_since_flow",
        "_peer_window",
        "asking",
        "channel",
        "connection",
        "frames_in",
        "handles_free",
        "links",
        "links_by_peer",
        "next_delivery_in",
        "next_delivery_out",
        "on_unblocked",
        "peer_channel",
        "state",
        "unsettled",
    )

    def __init__(self, connection: Engine, channel: int) -> None:
        self.connection = connection
        self.channel = channel
        self.peer_channel = -1
        self.state = SessionState.BEGINNING
        self.links: dict[int, Link] = {}
        # Those that the peer was asked for and has not answered.
        self.asking: list[Link] = []
        self.links_by_peer: dict[int, Link] = {}
        # A heap: the lowest comes first.
        self.handles_free: list[int] = []
        self.next_delivery_in = 0
        self.next_delivery_out = 0
        # The id that the peer's next transfer frame has.
        self.frames_in = 0
        # Deliveries of ours that are not settled, by delivery id.
        self.unsettled: dict[int, Unsettled] = {}
        # Who waits until transfers can be written again; each is called once.
        self.on_unblocked: dict[Callable[[], None], None] = {}
        self._frames_out = 0
        self._frames_since_flow = 0
        self._peer_window = _UNKNOWN_WINDOW
        # Transfers that wait for the peer's window, with their frames and their link.
        self._blocked: deque[tuple[bytes, int, Link | None]] = deque()

    # -- life --------------------------------------------------------------------

    def take_begin(self, begin: Begin) -> None:
        """Note the peer's windows."""
        self.frames_in = begin.next_outgoing_id or 0
        self.next_delivery_in = self.frames_in
        self._peer_window = begin.incoming_window or 0
        self.state = SessionState.BEGUN

    def write_begin(self, remote_channel: int | None) -> None:
        """Begin, or answer a begin."""
        self.write(
            Begin(
                remote_channel=remote_channel,
                next_outgoing_id=self._frames_out,
                incoming_window=limits.SESSION_WINDOW_FRAMES,
                outgoing_window=limits.SESSION_WINDOW_FRAMES,
                handle_max=limits.LINKS_PER_SESSION_MAX - 1,
            )
        )

    def end(self, error: Error | None = None) -> None:
        """End the session from our side; what the peer still sends is ignored."""
        if self.state is SessionState.BEGUN:
            self.state = SessionState.ENDING
            self.write(End(error=error))

    # -- links -------------------------------------------------------------------

    def new_link(self, name: str, sends: bool) -> Link:
        """A link with the lowest free handle."""
        free = self.handles_free
        handle = heappop(free) if free else len(self.links)
        link = Link(self, name, handle, sends)
        self.links[handle] = link
        self.connection.link_count += 1
        return link

    def attach(self, name: str, sends: bool, attach: Attach) -> Link:
        """Ask the peer for a link."""
        link = self.new_link(name, sends)
        link.state = LinkState.ASKING
        self.asking.append(link)
        link.settled_by_us = sends and attach.snd_settle_mode == SND_SETTLED
        attach.name = name
        attach.handle = link.handle
        attach.role = not sends
        if sends:
            attach.initial_delivery_count = 0
        self.write(attach)
        return link

    def take_attach(self, link: Link, attach: Attach) -> None:
        """Note the peer's end of a link."""
        link.peer_handle = attach.handle or 0
        link.peer_attach = attach
        if not link.sends:
            # Who sends says where the count of its deliveries starts.
            link.delivery_count = attach.initial_delivery_count or 0
        self.links_by_peer[link.peer_handle] = link

    def drop_link(self, link: Link) -> None:
        """Forget a link that both sides have detached."""
        link.state = LinkState.DETACHED
        link.forget_assembly()
        known = self.links.pop(link.handle, None)
        if known is not None and self.state is not SessionState.ENDED:
            self.connection.link_count -= 1
            self.connection.attach_bytes -= link.attach_bytes
        if link in self.asking:
            self.asking.remove(link)
        self.links_by_peer.pop(link.peer_handle, None)
        heappush(self.handles_free, link.handle)
        gone = link.unsettled()
        self.connection.steps += len(gone)
        for entry in gone:
            del self.unsettled[entry.delivery_id]

    # -- writing -----------------------------------------------------------------

    def write(self, performative: Any) -> None:
        """Write a performative on this session's channel."""
        self.connection.write_bytes(encode_frame(self.channel, performative))

    def write_flow(self, flow: Flow) -> None:
        """Write a flow with the session's windows filled in."""
        flow.next_incoming_id = self.frames_in
        flow.incoming_window = limits.SESSION_WINDOW_FRAMES
        flow.next_outgoing_id = self._frames_out
        flow.outgoing_window = limits.SESSION_WINDOW_FRAMES
        self._frames_since_flow = 0
        self.write(flow)

    @property
    def blocked(self) -> bool:
        """Whether transfers wait for the peer's window."""
        return bool(self._blocked)

    def write_transfer(
        self, frames: bytes, payload_bytes: int, link: Link | None = None
    ) -> None:
        """Write a delivery, or keep it until the peer's window opens."""
        room = self.connection.peer_frame_bytes - _FRAME_BYTES_KEPT
        count = 1 if payload_bytes <= room else -(-payload_bytes // room)
        if self._peer_window <= 0 or self._blocked:
            self._blocked.append((frames, count, link))
            self.connection.blocked_bytes += len(frames)
            return
        self._peer_window -= count
        self._frames_out = (self._frames_out + count) & _WRAP
        self.connection.write_bytes(frames)

    def run_bytes_max(self, count: int) -> int:
        """The largest payload of so many deliveries that `write_run` takes; -1: none.

        Each must fit into one frame, and all into the peer's window.
        """
        if self._blocked or self._peer_window < count:
            return -1
        return self.connection.peer_frame_bytes - _FRAME_BYTES_KEPT

    def write_run(self, pieces: list[bytes], count: int) -> None:
        """Write so many deliveries of a frame each."""
        self._peer_window -= count
        self._frames_out = (self._frames_out + count) & _WRAP
        self.connection.write_pieces(pieces)

    def settle(self, first: int, last: int, state: Any) -> None:
        """Settle deliveries of ours, first to last."""
        for delivery_id in range(first, last + 1):
            self.unsettled.pop(delivery_id, None)
        self.connection.write_bytes(
            encode_disposition(self.channel, False, first, last, True, state)
        )

    def answer(self, first: int, last: int, state: Any) -> None:
        """Settle deliveries of the peer, first to last."""
        self.connection.write_bytes(
            encode_disposition(self.channel, True, first, last, True, state)
        )

    def dispose(self, first: int, last: int, settled: bool, state: Any) -> None:
        """Say what became of deliveries of the peer, without ending them ourselves."""
        self.connection.write_bytes(
            encode_disposition(self.channel, True, first, last, settled, state)
        )

    # -- reading -----------------------------------------------------------------

    def note_frames(self, count: int) -> None:
        """Count transfer frames; refresh the window when half of it is used."""
        self.frames_in = (self.frames_in + count) & _WRAP
        self._frames_since_flow += count
        if self._frames_since_flow >= limits.SESSION_WINDOW_FRAMES >> 1:
            self.write_flow(Flow())

    def take_flow(self, flow: Flow) -> None:
        """Note the peer's window and send what waited for it."""
        seen = flow.next_incoming_id
        behind = 0 if seen is None else (self._frames_out - seen) & _WRAP
        if behind > 1 << 31:
            behind = 0
        self._peer_window = (flow.incoming_window or 0) - behind
        was_blocked = self.blocked
        while self._blocked and self._peer_window > 0:
            frames, count, link = self._blocked.popleft()
            self.connection.blocked_bytes -= len(frames)
            self.connection.steps += 1
            if link is not None and link.state is not LinkState.ATTACHED:
                # The link is gone: it is dropped.
                continue
            self._peer_window -= count
            self._frames_out = (self._frames_out + count) & _WRAP
            self.connection.write_bytes(frames)
        if was_blocked and not self._blocked:
            self._tell_unblocked()

    def _tell_unblocked(self) -> None:
        waiting, self.on_unblocked = self.on_unblocked, {}
        self.connection.steps += len(waiting)
        for resume in waiting:
            resume()
        self.connection.tell_unblocked()

    def forget_all(self) -> None:
        """The session has ended: neither what waits nor what is half there goes on."""
        for link in self.links.values():
            link.state = LinkState.DETACHED
            link.forget_assembly()
        if self._blocked:
            gone = sum(len(frames) for frames, _, _ in self._blocked)
            self.connection.blocked_bytes -= gone
            self._blocked.clear()
            self._tell_unblocked()

    def take_disposition(self, disposition: Disposition) -> Disposed | Answered:
        """Find the deliveries of ours that the peer speaks of."""
        unsettled = self.unsettled
        first = disposition.first or 0
        last = disposition.last if disposition.last is not None else first
        if not disposition.role:
            settled = bool(disposition.settled)
            return Answered(self, first, last, settled, disposition.state)
        found: list[Unsettled]
        if first == last:
            entry = unsettled.get(first)
            found = [entry] if entry is not None else []
        else:
            found = self._find_unsettled(first, last)
        settled = bool(disposition.settled)
        if settled:
            self.forget(found)
        return Disposed(self, found, settled, disposition.state)

    def forget(self, deliveries: list[Unsettled]) -> None:
        """Deliveries of ours are settled."""
        forget = self.unsettled.pop
        for delivery_id, _, _ in deliveries:
            forget(delivery_id, None)

    def _find_unsettled(self, first: int, last: int) -> list[Unsettled]:
        """Those from first to last; ids begin anew after the largest."""
        unsettled = self.unsettled
        self.connection.steps += min((last - first) & _WRAP, len(unsettled))
        if -1 < last - first <= len(unsettled):
            return [
                unsettled[key] for key in range(first, last + 1) if key in unsettled
            ]
        if first < last:
            return [e for key, e in unsettled.items() if first <= key <= last]
        span = (last - first) & _WRAP
        if span >= _UNKNOWN_WINDOW:
            # It runs backwards.
            return []
        return [e for key, e in unsettled.items() if (key - first) & _WRAP <= span]
