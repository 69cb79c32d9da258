"""`$management` links: requests are carried out in a turn and answered.

Those about a partitioned entity take turns of several hosts. They are carried out one
after the other, so that replies keep the order of the requests.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from twinbus import limits
from twinbus.core.names import EntityPath
from twinbus.errors import BusyError, NotImplementedByServer, StoreFault, TwinbusError
from twinbus.ledger.requests import Metered, meter
from twinbus.server.amqp.management.operations import (
    AskedWork,
    ManagementReply,
    find_operation,
    perform,
    refusal,
)
from twinbus.server.amqp.management.partitioned import Division
from twinbus.server.amqp.node import Node
from twinbus.server.amqp.receiving import ReceiveNode
from twinbus.server.amqp.replies import UnreadBytes, reply_node
from twinbus.server.broker.commands import SessionKey
from twinbus.server.broker.directory.placement import get_entity, host_of
from twinbus.server.broker.turn import Turn, answerable
from twinbus.store.base import SessionGrant, shard_of_nonce
from twinbus.wire.events import Delivered
from twinbus.wire.link import Link
from twinbus.wire.message.sections import Request
from twinbus.wire.performatives import Accepted, TransactionalState
from twinbus.wire.session import Session

if TYPE_CHECKING:
    from twinbus.server.amqp.connection import ServerConnection
    from twinbus.server.broker.namespace import Namespace

_ACCEPTED = Accepted()
# Which fragment is next for what has no key, for all links.
_TURNS = itertools.count()
_TRANSACTION = (
    "Requests to $management cannot be part of a transaction. To schedule in one, send "
    "a message with its scheduled time; deferred messages are settled without one."
)
_UNREAD = "Read the replies that are there, then ask again."


class ManagementNode(Node):
    """Our end of a link on which a client sends requests about an entity."""

    def __init__(
        self, connection: ServerConnection, link: Link, path: EntityPath
    ) -> None:
        super().__init__(connection, link, host_of(connection.host, path))
        self.path = path
        # Requests about a partitioned entity that wait or are carried out.
        self._line: RequestLine | None = None

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
            if type(delivery.state) is TransactionalState:
                raise NotImplementedByServer(_TRANSACTION)
        except TwinbusError as error:
            # Refused in its turn, so that replies keep the order of the requests.
            command.refused = error
        size_bytes = len(delivery.payload)
        reply = RequestReply(self, request, session, unread, size_bytes)
        if len(self.host.hosts) > 1 and self._is_divided():
            assert self._line is not None
            self._line.add(request, reply, command.refused, size_bytes)
            return
        self.host.submit(command, reply, size_bytes, self.connection)
        if self.host.crowded:
            connection.wait_for_room(self.host)
        connection.flush_soon()

    def _is_divided(self) -> bool:
        """Whether a request goes to several hosts, or behind one that does."""
        entity = self.host.namespace.entities.find(self.path.key)
        if self._line is None and entity is not None and len(entity.fragments) > 1:
            self._line = RequestLine(self)
        return self._line is not None

    def on_closed(self) -> None:
        """The link is gone."""
        if self._line is not None:
            self._line.close()


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
        return Encoded(payload, reply.renewed, _metered(self._request, reply))


def _metered(request: Request, reply: ManagementReply) -> Metered:
    """What a request counts in the ledger."""
    name = request.application_properties.get("operation")
    return meter(name, request.body, reply.status, reply.body)


class Encoded(NamedTuple):
    """A reply as it goes out."""

    payload: bytes
    # A session's lock that has another end now, with its container.
    renewed: tuple[int, SessionGrant] | None
    # What it counts in the ledger.
    metered: Metered


class RequestReply:
    """Sends the answer to a request (`host.Reply`)."""

    def __init__(
        self,
        node: ManagementNode,
        request: Request,
        session: Session,
        unread: UnreadBytes,
        size_bytes: int,
    ) -> None:
        self._node = node
        self._request = request
        self._session = session
        self._unread = unread
        # Of the request.
        self._size_bytes = size_bytes

    def done(self, encoded: Encoded) -> None:
        """Answer."""
        self._unread.made -= len(encoded.payload)
        if encoded.renewed is not None:
            self._hold(*encoded.renewed)
        self._send(encoded.payload, encoded.metered)

    def _hold(self, container: int, grant: SessionGrant) -> None:
        """Let the link that holds a session know the new end of its lock."""
        host = self._node.host.hosts[shard_of_nonce(grant.nonce)]
        holder = host.session_holders.get((container, grant.nonce))
        if isinstance(holder, ReceiveNode):
            holder.hold(grant)

    def answer(self, reply: ManagementReply) -> None:
        """Answer with a reply that no turn has encoded."""
        if reply.renewed is not None:
            self._hold(*reply.renewed)
        payload = reply.encode(self._request.message_id)
        self._send(payload, _metered(self._request, reply))

    def failed(self, error: TwinbusError) -> None:
        """It did not happen."""
        # Replies of a turn that failed are gone.
        self._unread.made = 0
        self.answer(refusal(error))

    def _send(self, payload: bytes, metered: Metered) -> None:
        node = self._node
        if node.account is not None:
            metered.count_in(node.account, self._size_bytes, len(payload))
        key = node.path.scope_key
        target = reply_node(node.connection, self._session, key, self._request.reply_to)
        if target is not None:
            target.send(payload)


class _Waiting(NamedTuple):
    """A request about a partitioned entity."""

    request: Request
    reply: RequestReply
    # Why the client may not ask that.
    refused: TwinbusError | None
    size_bytes: int


class RequestLine:
    """Requests of one link about a partitioned entity, one after the other."""

    def __init__(self, node: ManagementNode) -> None:
        self._node = node
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._task: asyncio.Task[None] | None = None
        # Called when the last of too many requests is gone.
        self.on_room: list[Callable[[], None]] = []

    def add(
        self,
        request: Request,
        reply: RequestReply,
        refused: TwinbusError | None,
        size_bytes: int,
    ) -> None:
        """Take a request in; its reply leaves after those of the ones before."""
        self._waiting.append(_Waiting(request, reply, refused, size_bytes))
        self._waiting_bytes += size_bytes
        if self._task is None:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._work_off())
        if self._is_crowded:
            self._node.connection.wait_for_room(self)

    def close(self) -> None:
        """The link is gone; what a turn is doing is done."""
        if self._task is not None:
            self._task.cancel()
        self._waiting.clear()
        self._waiting_bytes = 0
        self._tell_room()

    @property
    def _is_crowded(self) -> bool:
        return (
            len(self._waiting) > limits.REPLIES_WAITING_MAX
            or self._waiting_bytes > limits.REQUEST_BYTES_MAX
        )

    def _tell_room(self) -> None:
        if self.on_room and not self._is_crowded:
            waiting, self.on_room = self.on_room, []
            for resume in waiting:
                resume()

    async def _work_off(self) -> None:
        try:
            while self._waiting:
                waiting = self._waiting.popleft()
                reply = await self._carry_out(waiting)
                waiting.reply.answer(reply)
                self._waiting_bytes -= waiting.size_bytes
                self._tell_room()
        finally:
            self._task = None

    async def _carry_out(self, waiting: _Waiting) -> ManagementReply:
        try:
            return await self._perform(waiting)
        except Exception as error:  # noqa: BLE001
            return refusal(answerable(error, self._node.host.namespace))

    async def _perform(self, waiting: _Waiting) -> ManagementReply:
        connection = self._node.connection
        if waiting.refused is not None:
            raise waiting.refused
        if connection.note_unread().total > limits.REPLY_BYTES_MAX:
            raise BusyError(_UNREAD)
        request = waiting.request
        path = self._node.path
        entity = get_entity(connection.host, path)
        operation = find_operation(request)
        asked = AskedWork(operation, path, request.body, connection.grants)
        host = connection.host.hosts[entity.shard]
        if len(entity.fragments) > 1:
            return await Division(host, entity, asked, next(_TURNS)).carry_out()
        # It was deleted, and another one has its name.
        return await host.run(asked)
