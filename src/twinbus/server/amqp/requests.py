"""`$management` links: requests are carried out in a turn and answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus import limits
from twinbus.core.names import EntityPath
from twinbus.core.rights import Operation
from twinbus.errors import BusyError, StoreFault, TwinbusError
from twinbus.server.amqp.management.operations import Reply, perform, refusal
from twinbus.server.amqp.receiving import ReceiveNode
from twinbus.server.amqp.replies import reply_node
from twinbus.store.base import SessionGrant
from twinbus.wire.events import Delivered
from twinbus.wire.message.sections import Request
from twinbus.wire.performatives import Accepted
from twinbus.wire.session import Session

if TYPE_CHECKING:
    from twinbus.server.amqp.connection import ServerConnection
    from twinbus.server.broker.namespace import Namespace

_ACCEPTED = Accepted()
_UNREAD = "Read the replies that are there, then ask again."


class ManagementNode:
    """Our end of a link on which a client sends requests about an entity."""

    def __init__(self, connection: ServerConnection, path: EntityPath) -> None:
        self.connection = connection
        # The right that the link needs; its claim may end.
        self.needed: tuple[Operation, EntityPath] | None = None
        self.path = path

    def on_delivery(self, delivery: Delivered) -> None:
        """A request came."""
        session = delivery.link.session
        if not delivery.settled:
            session.answer(delivery.delivery_id, delivery.delivery_id, _ACCEPTED)
        request = Request(delivery.payload)
        command = ManagementCommand(self, request, session)
        command.size_bytes = len(delivery.payload)
        self.connection.host.submit(command)
        if self.connection.host.crowded:
            self.connection.wait_for_room()
        self.connection.flush_soon()

    def on_closed(self) -> None:
        """Requests that are under way are carried out all the same."""

    # -- management.Context ------------------------------------------------------------

    def authorize(self, operation: Operation, path: EntityPath) -> None:
        """Refuse what no claim of the connection allows."""
        self.connection.claims.allow(operation, path)

    def session_grant(self, container: int, session_id: str) -> SessionGrant | None:
        """The session's lock, if a link of this connection holds it."""
        node = self._holder(container, session_id)
        return None if node is None else node.grant

    def session_renewed(self, container: int, grant: SessionGrant) -> None:
        """A session's lock has another end now."""
        node = self._holder(container, grant.name)
        if node is not None:
            node.grant = grant

    def _holder(self, container: int, session_id: str) -> ReceiveNode | None:
        for session in self.connection.engine.sessions.values():
            for link in session.links.values():
                node = link.owner
                if (
                    isinstance(node, ReceiveNode)
                    and node.container == container
                    and node.grant is not None
                    and node.grant.name == session_id
                ):
                    return node
        return None


class ManagementCommand:
    """One request (`host.Command`)."""

    def __init__(
        self, node: ManagementNode, request: Request, session: Session
    ) -> None:
        self._node = node
        self._request = request
        self._session = session
        self._reply = b""
        self.size_bytes = 0

    def apply(self, namespace: Namespace, now_ms: int) -> None:
        """Carry it out; a refusal is an answer like any other."""
        node = self._node
        try:
            if node.connection.unread_bytes > limits.REPLY_BYTES_MAX:
                raise BusyError(_UNREAD)
            reply = perform(namespace, node.path, self._request, node, now_ms)
        except StoreFault:
            raise
        except TwinbusError as error:
            reply = refusal(error)
        self._keep(reply)

    def _keep(self, reply: Reply) -> None:
        """Hold the answer until it may leave; a small request may have a large one."""
        connection = self._node.connection
        connection.reply_bytes -= len(self._reply)
        self._reply = reply.encode(self._request.message_id)
        connection.reply_bytes += len(self._reply)

    def release(self) -> None:
        """Answer."""
        connection = self._node.connection
        reply, self._reply = self._reply, b""
        connection.reply_bytes -= len(reply)
        target = reply_node(
            connection, self._session, self._node.path.scope_key, self._request.reply_to
        )
        if target is not None:
            target.send(reply)

    def fail(self, error: TwinbusError) -> None:
        """It did not happen."""
        self._keep(refusal(error))
        self.release()
