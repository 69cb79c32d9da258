"""`$management` links: requests are carried out in a turn and answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from twinbus import limits
from twinbus.core.names import EntityPath
from twinbus.errors import BusyError, StoreFault, TwinbusError
from twinbus.server.amqp.management.operations import (
    find_operation,
    perform,
    refusal,
)
from twinbus.server.amqp.node import Node
from twinbus.server.amqp.receiving import ReceiveNode
from twinbus.server.amqp.replies import UnreadBytes, reply_node
from twinbus.server.broker.commands import SessionKey
from twinbus.server.broker.directory.placement import host_of
from twinbus.server.broker.turn import Turn
from twinbus.store.base import SessionGrant
from twinbus.wire.events import Delivered
from twinbus.wire.link import Link
from twinbus.wire.message.sections import Request
from twinbus.wire.performatives import Accepted
from twinbus.wire.session import Session

if TYPE_CHECKING:
    from twinbus.server.amqp.connection import ServerConnection
    from twinbus.server.broker.namespace import Namespace

_ACCEPTED = Accepted()
_UNREAD = "Read the replies that are there, then ask again."


class ManagementNode(Node):
    """Our end of a link on which a client sends requests about an entity."""

    def __init__(
        self, connection: ServerConnection, link: Link, path: EntityPath
    ) -> None:
        super().__init__(connection, link, host_of(connection.host, path))
        self.path = path

    def on_delivery(self, delivery: Delivered) -> None:
        """A request came."""
        connection = self.connection
        session = delivery.link.session
        if not delivery.settled:
            session.answer(delivery.delivery_id, delivery.delivery_id, _ACCEPTED)
        request = Request(delivery.payload)
        unread = connection.note_unread()
        command = ManagementCommand(self.path, request, connection.grants, unread)
        try:
            operation = find_operation(request)
            connection.claims.allow(operation, self.path)
        except TwinbusError as error:
            # Refused in its turn, so that replies keep the order of the requests.
            command.refused = error
        reply = RequestReply(self, request, session, unread)
        self.host.submit(command, reply, len(delivery.payload), self.connection)
        if self.host.crowded:
            connection.wait_for_room(self.host)
        connection.flush_soon()


class ManagementCommand:
    """One request (`turn.Command`); the result is its encoded reply."""

    __slots__ = ("_grants", "_path", "_request", "_unread", "refused")

    def __init__(
        self,
        path: EntityPath,
        request: Request,
        grants: Mapping[SessionKey, SessionGrant],
        unread: UnreadBytes,
    ) -> None:
        self._path = path
        self._request = request
        # The session locks that the connection holds.
        self._grants = grants
        self._unread = unread
        # Why the client may not ask that.
        self.refused: TwinbusError | None = None

    def __call__(self, namespace: Namespace, turn: Turn) -> Encoded:
        """Carry it out; a refusal is an answer like any other."""
        try:
            if self.refused is not None:
                raise self.refused
            if self._unread.total > limits.REPLY_BYTES_MAX:
                raise BusyError(_UNREAD)
            reply = perform(namespace, self._path, self._request, self._grants, turn)
        except StoreFault:
            raise
        except TwinbusError as error:
            reply = refusal(error)
        # A small request may have a large reply, which is held until it may leave.
        payload = reply.encode(self._request.message_id)
        self._unread.made += len(payload)
        return Encoded(payload, reply.renewed)


class Encoded(NamedTuple):
    """A reply as it goes out."""

    payload: bytes
    # A session's lock that has another end now, with its container.
    renewed: tuple[int, SessionGrant] | None


class RequestReply:
    """Sends the answer to a request (`host.Reply`)."""

    def __init__(
        self,
        node: ManagementNode,
        request: Request,
        session: Session,
        unread: UnreadBytes,
    ) -> None:
        self._node = node
        self._request = request
        self._session = session
        self._unread = unread

    def done(self, encoded: Encoded) -> None:
        """Answer."""
        self._unread.made -= len(encoded.payload)
        if encoded.renewed is not None:
            container, grant = encoded.renewed
            holders = self._node.host.session_holders
            holder = holders.get((container, grant.nonce))
            if isinstance(holder, ReceiveNode):
                holder.hold(grant)
        self._send(encoded.payload)

    def failed(self, error: TwinbusError) -> None:
        """It did not happen."""
        # Replies of a turn that failed are gone.
        self._unread.made = 0
        self._send(refusal(error).encode(self._request.message_id))

    def _send(self, payload: bytes) -> None:
        node = self._node
        key = node.path.scope_key
        target = reply_node(node.connection, self._session, key, self._request.reply_to)
        if target is not None:
            target.send(payload)
