"""What a connection tells its owner.

Each event is handed out when its frame is read, before the next frame is looked at, so
answers leave in the order of the questions. Nothing here does anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

from twinbus.wire.performatives import Error, Open, Transfer

if TYPE_CHECKING:
    from twinbus.wire.link import Link
    from twinbus.wire.session import Session


class LoggedIn(NamedTuple):
    """A name and a password came. A server answers with `Engine.answer_login`."""

    name: str
    password: str
    hostname: str | None


class Opened(NamedTuple):
    """The peer's open. A server answers with `Engine.open`."""

    performative: Open


class Begun(NamedTuple):
    """A session exists on both sides."""

    session: Session


class Attached(NamedTuple):
    """The peer's attach. A server answers with `Link.accept` or `Link.refuse`."""

    link: Link


class Delivered:
    """A whole message from the peer; `oversize` ones come without their payload.

    If the link takes runs, `run` has the payloads of messages that came right after it.
    They have the next ids, and are settled and formatted as it is; their tags are not
    told.
    """

    __slots__ = (
        "delivery_id",
        "link",
        "message_format",
        "oversize",
        "payload",
        "run",
        "settled",
        "state",
        "tag",
    )

    def __init__(self, link: Link, delivery_id: int, transfer: Transfer) -> None:
        self.link = link
        self.delivery_id = delivery_id
        self.tag = transfer.delivery_tag or b""
        self.message_format = transfer.message_format or 0
        self.settled = transfer.settled
        self.payload = b""
        self.state: Any = transfer.state
        self.oversize = False
        self.run: list[bytes] | None = None

    def apart(self) -> Iterator[Delivered]:
        """The deliveries of a run, each for itself."""
        payloads, self.run = self.run or [], None
        yield self
        for number, payload in enumerate(payloads, 1):
            other = copy(self)
            other.delivery_id = self.delivery_id + number
            other.payload, other.tag = payload, b""
            other.oversize = False
            yield other


class Passed(NamedTuple):
    """So many frames were read that say nothing to the owner of the connection."""

    frames: int


class Flowed(NamedTuple):
    """The peer changed the credit of a link on which we send, or asks for an echo."""

    link: Link


class Drained(NamedTuple):
    """The peer gave back credit that it did not use: its answer to a drain."""

    link: Link


class Unsettled(NamedTuple):
    """A delivery of ours that is not settled; `cookie` is its sender's own."""

    delivery_id: int
    link: Link
    cookie: Any


class Disposed(NamedTuple):
    """The peer's word on deliveries of ours; `settled` means that it has forgotten."""

    session: Session
    deliveries: list[Unsettled]
    settled: bool
    state: Any


class Answered(NamedTuple):
    """The peer's word on deliveries of its own, by their ids: how it took ours."""

    session: Session
    first: int
    last: int
    settled: bool
    state: Any


class Detached(NamedTuple):
    """A link is gone; the answer, where one is due, is already written."""

    link: Link
    error: Error | None


class Ended(NamedTuple):
    """A session is gone with all its links."""

    session: Session
    error: Error | None


class Closed(NamedTuple):
    """The peer closed the connection; the answer is already written."""

    error: Error | None


Event = (
    LoggedIn
    | Opened
    | Begun
    | Attached
    | Delivered
    | Passed
    | Flowed
    | Drained
    | Disposed
    | Answered
    | Detached
    | Ended
    | Closed
)
