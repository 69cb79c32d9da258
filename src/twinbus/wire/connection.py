"""An AMQP 1.0 connection without I/O: bytes in, events and bytes out.

`feed` takes bytes as they come, in any pieces; `next_event` gives what they mean, one
at a time; `take` gives what has to be written. It serves both roles: a server answers,
a client (`start`) asks. Each state accepts what this table names, and all else closes
the connection:

| state   | a server accepts            | a client accepts                |
|---------|-----------------------------|---------------------------------|
| START   | SASL header, AMQP header    | SASL header, AMQP header        |
| SASL    | sasl-init                   | sasl-mechanisms, sasl-outcome   |
| LOGIN   | nothing                     |                                 |
| HEADER  | AMQP header                 | AMQP header                     |
| OPENING | open                        | open                            |
| OPEN    | begin, close, session frames, heartbeat (both)                |
| CLOSING | anything (ignored) until close                                |
| CLOSED  | nothing                                                       |

Only `PeerError` escapes `next_event`. Two of the mechanisms that a server offers check
nothing and promise nothing: the peer is let through without any right, and claims come
from `$cbs`. With PLAIN the owner checks name and password (`LoggedIn`); nothing more is
read before it has answered. Another mechanism is refused with the SASL outcome `auth`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from twinbus import limits
from twinbus.errors import FrameError, LimitExceeded
from twinbus.wire.events import (
    Attached,
    Begun,
    Closed,
    Detached,
    Drained,
    Ended,
    Event,
    Flowed,
    LoggedIn,
    Opened,
    Passed,
)
from twinbus.wire.frames import (
    AMQP_HEADER,
    HEARTBEAT,
    SASL_HEADER,
    Frame,
    FrameReader,
    Header,
    encode_frame,
)
from twinbus.wire.link import Link, LinkState
from twinbus.wire.performatives import (
    SND_SETTLED,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Transfer,
)
from twinbus.wire.session import Session, SessionState

PLAIN = "PLAIN"
MECHANISMS = ("MSSBCBS", PLAIN, "ANONYMOUS")
_SASL_OK, _SASL_AUTH = 0, 1
_SASL_FRAME = 1


def _held_max() -> int:
    return limits.MEMORY_PER_CONNECTION_BYTES_MAX


class ConnectionState(Enum):
    """See the table at the top."""

    START = "start"
    SASL = "sasl"
    LOGIN = "login"
    HEADER = "header"
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


class Engine:
    """One AMQP connection, either end."""

    def __init__(self, *, server: bool, container_id: str) -> None:
        self.server = server
        self.container_id = container_id
        self.state = ConnectionState.START
        self.sessions: dict[int, Session] = {}
        self.sessions_by_peer: dict[int, Session] = {}
        self.peer_open = Open()
        self.peer_frame_bytes = limits.FRAME_BYTES_MIN
        # A client's own: what it says when it is its turn.
        self._client_open: Open | None = None
        self._client_init: SaslInit | None = None
        self._open_sent = False
        self._trusted = False
        self._channels_free: list[int] = []
        self._out: list[bytes] = []
        # Links of all sessions, and the bytes of their attaches, which are kept.
        self.link_count = 0
        self.attach_bytes = 0
        # Transfers that wait for windows of the peer, of all sessions.
        self.blocked_bytes = 0
        # Parts of deliveries that the peer has not ended, of all links.
        self.assembly_bytes = 0
        # What is held for the peer beside them, as the owner has counted it.
        self.other_bytes = 0
        # Work that frames have made beyond one step each; who bounds it sets it back.
        self.steps = 0
        # Who waits until any session can write again; each is called once.
        self.on_unblocked: dict[Callable[[], None], None] = {}
        self._reader = FrameReader(limits.HANDSHAKE_FRAME_BYTES_MAX)
        self._reader.expect_header()

    # -- bytes -------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Take bytes from the peer."""
        self._reader.feed(data)

    def take(self) -> bytes:
        """What has to be written to the peer now."""
        out = self._out
        if not out:
            return b""
        self._out = []
        return out[0] if len(out) == 1 else b"".join(out)

    def write_bytes(self, frames: bytes) -> None:
        """Add encoded frames to what has to be written."""
        self._out.append(frames)

    def write_pieces(self, pieces: list[bytes]) -> None:
        """The same for frames in pieces."""
        self._out += pieces

    def tell_unblocked(self) -> None:
        """A session can write again: its waiting transfers may go on."""
        waiting, self.on_unblocked = self.on_unblocked, {}
        for resume in waiting:
            resume()

    def trust(self) -> None:
        """The peer has shown a claim: the narrow bounds of before end."""
        self._trusted = True
        self._reader.max_frame_bytes = limits.FRAME_BYTES_MAX

    def forget_all(self) -> None:
        """The connection is over: let go of all that was held for the peer."""
        for session in self.sessions.values():
            self.forget(session)
        self.sessions.clear()
        self.sessions_by_peer.clear()
        self.on_unblocked.clear()
        self.link_count = self.attach_bytes = 0

    @staticmethod
    def forget(session: Session) -> None:
        """Let go of what a session holds, of a connection that is over."""
        session.forget_all()
        session.links.clear()
        session.links_by_peer.clear()
        session.unsettled.clear()
        session.on_unblocked.clear()

    def heartbeat(self) -> None:
        """Show the peer that we are alive."""
        if self._open_sent and self.state is ConnectionState.OPEN:
            self._out.append(HEARTBEAT)

    # -- commands ----------------------------------------------------------------

    def start(self, init: SaslInit, opening: Open) -> None:
        """Begin as a client."""
        assert not self.server
        self._client_init = init
        self._client_open = opening
        self.trust()
        self._out.append(SASL_HEADER)

    def open(self, answer: Open) -> None:
        """Send our open; a server does so when it has seen the peer's."""
        answer.container_id = self.container_id
        answer.max_frame_size = limits.FRAME_BYTES_MAX
        answer.channel_max = limits.SESSIONS_PER_CONNECTION_MAX - 1
        self._open_sent = True
        self._out.append(encode_frame(0, answer))

    def begin(self) -> Session:
        """Ask the peer for a session."""
        session = self._new_session()
        session.write_begin(None)
        return session

    def close(self, error: Error | None = None) -> None:
        """Close from our side; what the peer still sends is ignored until its close."""
        if self.state in (ConnectionState.CLOSING, ConnectionState.CLOSED):
            return
        if self.state in (ConnectionState.OPEN, ConnectionState.OPENING):
            if not self._open_sent:
                # A close may not be the first word.
                self.open(Open())
            self._out.append(encode_frame(0, Close(error=error)))
            self.state = ConnectionState.CLOSING
        else:
            self.state = ConnectionState.CLOSED

    # -- events ------------------------------------------------------------------

    def next_event(self) -> Event | None:
        """The next thing the peer said; None when more bytes are needed.

        Frames without an event do not keep the caller long: `Passed` says that there
        may be more.
        """
        next_item = self._reader.next
        for _ in range(limits.QUIET_FRAMES_MAX):
            item = next_item()
            if item is None:
                return None
            if isinstance(item, Header):
                self._take_header(item)
                continue
            transfer = item.performative
            if type(transfer) is Transfer and self.state is ConnectionState.OPEN:
                event = self._take_transfer(item, transfer)
            else:
                event = self._take_frame(item)
            if event is not None:
                return event
        return Passed(limits.QUIET_FRAMES_MAX)

    def _take_frame(self, frame: Frame) -> Event | None:
        performative = frame.performative
        if self.state is ConnectionState.OPEN:
            if performative is None:
                return None
            if frame.kind == _SASL_FRAME:
                raise FrameError("A SASL frame after the handshake.")
            return self._take_open_state(frame.channel, performative)
        if self.state is ConnectionState.SASL:
            return self._take_sasl(frame)
        if self.state is ConnectionState.OPENING:
            return self._take_opening(frame)
        if self.state is ConnectionState.CLOSING:
            if type(performative) is Close:
                self.state = ConnectionState.CLOSED
                return Closed(performative.error)
            return None
        if self.state is ConnectionState.CLOSED:
            return None
        raise FrameError(f"A frame in state {self.state.value}.")

    # -- handshake ---------------------------------------------------------------

    def _take_header(self, header: Header) -> None:
        if header.protocol_id == 3 and self.state is ConnectionState.START:
            self.state = ConnectionState.SASL
            if self.server:
                self._out.append(SASL_HEADER)
                mechanisms = SaslMechanisms(mechanisms=list(MECHANISMS))
                self._out.append(encode_frame(0, mechanisms, kind=_SASL_FRAME))
            return
        allowed = (ConnectionState.START, ConnectionState.HEADER)
        if header.protocol_id == 0 and self.state in allowed:
            self.state = ConnectionState.OPENING
            if self.server:
                self._out.append(AMQP_HEADER)
            return
        raise FrameError(f"Protocol {header.protocol_id} in state {self.state.value}.")

    def _take_sasl(self, frame: Frame) -> Event | None:
        performative = frame.performative
        if frame.kind != _SASL_FRAME:
            raise FrameError("An AMQP frame before SASL has ended.")
        if self.server and type(performative) is SaslInit:
            return self._take_init(performative)
        if not self.server and type(performative) is SaslMechanisms:
            self._out.append(encode_frame(0, self._client_init, kind=_SASL_FRAME))
        elif not self.server and type(performative) is SaslOutcome:
            if performative.code != _SASL_OK:
                raise FrameError(f"The peer refused the login ({performative.code}).")
            self._expect_amqp()
            self._out.append(AMQP_HEADER)
            assert self._client_open is not None
            self.open(self._client_open)
        else:
            raise FrameError("A frame that does not belong into SASL.")
        return None

    def _take_init(self, init: SaslInit) -> LoggedIn | None:
        if init.mechanism not in MECHANISMS:
            self.answer_login(False)
            raise FrameError(
                f"SASL mechanism {init.mechanism[:20]!r} is not offered. Log in with "
                "PLAIN, or with MSSBCBS or ANONYMOUS and put a token to $cbs."
            )
        if init.mechanism != PLAIN:
            self.answer_login(True)
            return None
        try:
            given = (init.initial_response or b"").decode()
            _acting_for, name, password = given.split("\0")
        except ValueError:
            self.answer_login(False)
            raise FrameError(
                "The initial response of SASL PLAIN must have a name and a password "
                "after zero bytes, in UTF-8."
            ) from None
        self.state = ConnectionState.LOGIN
        return LoggedIn(name, password, init.hostname)

    def answer_login(self, accepted: bool) -> None:
        """Let the peer through, or refuse it; a server calls this after `LoggedIn`."""
        outcome = SaslOutcome(code=_SASL_AUTH)
        if accepted:
            outcome = SaslOutcome(code=_SASL_OK, additional_data=b"Welcome!")
        self._out.append(encode_frame(0, outcome, kind=_SASL_FRAME))
        if accepted:
            self._expect_amqp()

    def _expect_amqp(self) -> None:
        self.state = ConnectionState.HEADER
        self._reader.expect_header()

    def _take_opening(self, frame: Frame) -> Event | None:
        performative = frame.performative
        if frame.kind == _SASL_FRAME or type(performative) is not Open:
            raise FrameError("The first frame must be an open.")
        self.state = ConnectionState.OPEN
        self.peer_open = performative
        size = min(performative.max_frame_size, limits.FRAME_BYTES_OUT_MAX)
        self.peer_frame_bytes = max(size, limits.FRAME_BYTES_MIN)
        return Opened(performative)

    # -- an open connection --------------------------------------------------------

    def _take_open_state(self, channel: int, performative: Any) -> Event | None:
        kind = type(performative)
        if kind is Begin:
            return self._take_begin(channel, performative)
        if kind is Close:
            if self._open_sent:
                self._out.append(encode_frame(0, Close()))
            self.state = ConnectionState.CLOSED
            return Closed(performative.error)
        session = self.sessions_by_peer.get(channel)
        if session is None:
            if kind in (Attach, Flow, Transfer, Disposition, Detach, End):
                # The Python SDK detaches on channels that it has ended already.
                return None
            raise FrameError("A performative that does not belong here.")
        if session.state is not SessionState.BEGUN:
            return self._take_end(session, performative) if kind is End else None
        if kind is Flow:
            return self._take_flow(session, performative)
        if kind is Disposition:
            self._reader.join_after(performative, limits.RUN_FRAMES_MAX)
            return session.take_disposition(performative)
        if kind is Attach:
            return self._take_attach(session, performative)
        if kind is Detach:
            return self._take_detach(session, performative)
        if kind is End:
            return self._take_end(session, performative)
        raise FrameError("A performative that does not belong here.")

    def _new_session(self) -> Session:
        channel = len(self.sessions)
        if self._channels_free:
            channel = self._channels_free.pop()
        session = Session(self, channel)
        self.sessions[channel] = session
        return session

    def _take_begin(self, channel: int, begin: Begin) -> Event | None:
        if begin.remote_channel is not None:
            known = self.sessions.get(begin.remote_channel)
            if known is None or known.state is not SessionState.BEGINNING:
                raise FrameError("A begin that answers nothing.")
            known.peer_channel = channel
            self.sessions_by_peer[channel] = known
            known.take_begin(begin)
            return Begun(known)
        if channel in self.sessions_by_peer:
            raise FrameError(f"Channel {channel} is in use.")
        if len(self.sessions) >= self._sessions_max():
            raise LimitExceeded("Too many sessions on one connection.")
        session = self._new_session()
        session.peer_channel = channel
        self.sessions_by_peer[channel] = session
        session.take_begin(begin)
        session.write_begin(channel)
        return Begun(session)

    def _sessions_max(self) -> int:
        most = limits.SESSIONS_PER_CONNECTION_MAX
        return most if self._trusted else min(most, limits.HANDSHAKE_SESSIONS_MAX)

    def _has_room(self, session: Session) -> bool:
        """Whether the session may have one more link."""
        most = limits.LINKS_PER_CONNECTION_MAX
        if not self._trusted:
            most = limits.HANDSHAKE_LINKS_MAX
        of_session = len(session.links)
        return self.link_count < most and of_session < limits.LINKS_PER_SESSION_MAX

    def _take_end(self, session: Session, end: End) -> Event:
        if session.state is SessionState.BEGUN:
            session.write(End())
        session.state = SessionState.ENDED
        self.link_count -= len(session.links)
        self.attach_bytes -= sum(link.attach_bytes for link in session.links.values())
        self.sessions.pop(session.channel, None)
        self.sessions_by_peer.pop(session.peer_channel, None)
        self._channels_free.append(session.channel)
        session.forget_all()
        self.steps += len(session.links)
        return Ended(session, end.error)

    def _end_session(self, session: Session, condition: str, text: str) -> Event:
        """The peer broke a rule of its session: end that and nothing more."""
        error = Error(condition=condition, description=text)
        session.end(error)
        session.forget_all()
        return Ended(session, error)

    def _take_attach(self, session: Session, attach: Attach) -> Event | None:
        handle = attach.handle or 0
        if handle in session.links_by_peer:
            return self._end_session(
                session, "amqp:session:handle-in-use", f"Handle {handle} is in use."
            )
        sends = bool(attach.role)
        for link in session.asking:
            if link.name == attach.name and link.sends == sends:
                session.asking.remove(link)
                link.state = LinkState.ATTACHED
                session.take_attach(link, attach)
                return Attached(link)
        if not self._has_room(session):
            return self._end_session(
                session, "amqp:resource-limit-exceeded", "Too many links."
            )
        link = session.new_link(attach.name or "", sends)
        link.settled_by_us = sends and attach.snd_settle_mode == SND_SETTLED
        link.attach_bytes = self._reader.frame_bytes
        self.attach_bytes += link.attach_bytes
        session.take_attach(link, attach)
        return Attached(link)

    def _take_detach(self, session: Session, detach: Detach) -> Event | None:
        link = session.links_by_peer.get(detach.handle or 0)
        if link is None:
            return self._end_session(
                session, "amqp:session:unattached-handle", "No link with that handle."
            )
        was = link.state
        if was is LinkState.ASKED:
            link.refuse(Error(condition="amqp:link:detach-forced"))
        elif was is LinkState.ATTACHED:
            session.write(Detach(handle=link.handle, closed=True))
        session.drop_link(link)
        return Detached(link, detach.error)

    def _take_flow(self, session: Session, flow: Flow) -> Event | None:
        session.take_flow(flow)
        if flow.handle is None:
            if flow.echo:
                session.write_flow(Flow())
            return None
        link = session.links_by_peer.get(flow.handle)
        if link is None:
            return self._end_session(
                session, "amqp:session:unattached-handle", "No link with that handle."
            )
        if link.state not in (LinkState.ATTACHED, LinkState.ASKED):
            return None
        if link.sends:
            link.take_flow(flow)
            return Flowed(link)
        gave_back = link.take_back(flow)
        if flow.echo:
            link.write_flow()
        return Drained(link) if gave_back else None

    def _take_transfer(self, frame: Frame, transfer: Transfer) -> Event | None:
        session = self.sessions_by_peer.get(frame.channel)
        if session is None or session.state is not SessionState.BEGUN:
            return None
        session.note_frames(1)
        link = session.links_by_peer.get(transfer.handle or 0)
        if link is None or link.sends:
            return self._end_session(
                session, "amqp:session:unattached-handle", "No such link to send on."
            )
        if link.state is not LinkState.ATTACHED:
            return None
        is_first = link.takes_runs and not link.is_assembling
        delivery = link.take_transfer(transfer, frame.payload)
        if delivery is None:
            self._check_assembly(link)
        elif is_first:
            most = min(link.credit, limits.RUN_MESSAGES_MAX)
            run = self._reader.run_after(most, link.max_message_bytes)
            if run:
                delivery.run = run
                session.note_frames(len(run))
                link.note_run(len(run))
        return delivery

    def _check_assembly(self, link: Link) -> None:
        """Detach a link whose delivery never ends, or is one too many."""
        error = None
        if link.endless():
            error = Error(
                condition="amqp:link:message-size-exceeded",
                description="The message has no end.",
            )
        elif self.assembly_bytes + self.other_bytes > _held_max():
            error = Error(
                condition="amqp:resource-limit-exceeded",
                description="Too many messages are unfinished: with all else, the "
                f"connection holds more than {_held_max() >> 20} MiB. End some first.",
            )
        if error is not None:
            link.forget_assembly()
            link.detach(error)
