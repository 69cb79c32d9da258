"""Errors as AMQP carries them, and the links on which replies are sent."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from twinbus import limits
from twinbus.core.names import EntityPath
from twinbus.errors import LimitExceeded, TwinbusError
from twinbus.server.amqp.node import Node
from twinbus.server.broker.directory.placement import host_of
from twinbus.wire.link import Link, LinkState
from twinbus.wire.performatives import Error, Rejected, Target

if TYPE_CHECKING:
    from twinbus.server.amqp.connection import ServerConnection
    from twinbus.wire.session import Session

# The node that is asked, how its reply link is named, that name, and the session of the
# link; None for any session.
ReplyKey = tuple[str, str, str | None, "Session | None"]


def wire_error(error: TwinbusError) -> Error:
    """An error as it goes over the wire."""
    text = error.text[: limits.ERROR_TEXT_CHARS_MAX]
    return Error(condition=error.condition, description=text)


def rejected(error: TwinbusError) -> Rejected:
    """The outcome that refuses a delivery."""
    return Rejected(error=wire_error(error))


class UnreadBytes:
    """Bytes of replies that a client has not read: plain data that a turn can count."""

    __slots__ = ("made", "waiting")

    def __init__(self) -> None:
        # On links without credit, or in the socket.
        self.waiting = 0
        # Made in a turn that is not handed out yet.
        self.made = 0

    @property
    def total(self) -> int:
        return self.waiting + self.made


class ReplyNode(Node):
    """Our end of a link on which `$cbs` or `$management` answers."""

    def __init__(
        self, connection: ServerConnection, link: Link, path: EntityPath
    ) -> None:
        super().__init__(connection, link, host_of(connection.host, path))
        # The node that it answers for, as a lower-case path.
        self.key = path.scope_key
        self._waiting: deque[bytes] = deque()
        # Replies are never settled by the Python SDK.
        link.settled_by_us = True
        for each in _reply_keys(self):
            connection.reply_nodes.setdefault(each, {})[self] = None

    def send(self, payload: bytes) -> None:
        """Send a reply now, or when the client has given credit."""
        try:
            self.connection.check_memory()
        except LimitExceeded as error:
            self._refuse(error)
            return
        self._waiting.append(payload)
        self.connection.reply_bytes += len(payload)
        self.on_flow()
        if len(self._waiting) > limits.REPLIES_WAITING_MAX:
            text = "The link has no credit for the replies on it."
            self._refuse(LimitExceeded(text))

    def _refuse(self, error: TwinbusError) -> None:
        self.link.detach(wire_error(error))
        self.connection.close_link(self.link)

    def on_flow(self) -> None:
        """Credit came."""
        if self.link.state is not LinkState.ATTACHED:
            return
        while self._waiting and self.link.credit > 0:
            if self.link.session.blocked:
                # The client's window is closed: replies wait here and are counted.
                self.link.session.on_unblocked[self.on_flow] = None
                return
            payload = self._waiting.popleft()
            self.connection.reply_bytes -= len(payload)
            self.link.send(payload, b"\0")
        if self.link.drain:
            self.link.drained()
        elif self.link.echo:
            self.link.write_flow()
        self.connection.flush_soon()

    def on_closed(self) -> None:
        """The link is gone."""
        self.connection.reply_bytes -= sum(map(len, self._waiting))
        self._waiting.clear()
        nodes = self.connection.reply_nodes
        for each in _reply_keys(self):
            if each in nodes:
                nodes[each].pop(self, None)
                if not nodes[each]:
                    del nodes[each]


def reply_node(
    connection: ServerConnection, session: Session, key: str, reply_to: str | None
) -> ReplyNode | None:
    """The link that a reply goes to: by target, by name, or the same session's."""
    asked: list[ReplyKey] = []
    if reply_to is not None:
        asked += [
            (key, form, reply_to, where)
            for form in ("address", "name")
            for where in (session, None)
        ]
    for each in (*asked, (key, "any", None, session)):
        nodes = connection.reply_nodes.get(each)
        if nodes:
            return next(iter(nodes))
    return None


def _target_address(link: Link) -> str | None:
    target = link.peer_attach.target
    return target.address if isinstance(target, Target) else None


def _reply_keys(node: ReplyNode) -> list[ReplyKey]:
    """All that a request may say to have its reply on that link."""
    link = node.link
    words = {"address": _target_address(link), "name": link.name}
    named: list[ReplyKey] = [
        (node.key, form, word, where)
        for form, word in words.items()
        for where in (link.session, None)
    ]
    return [*named, (node.key, "any", None, link.session)]
