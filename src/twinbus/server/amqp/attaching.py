"""Attach: which node an address leads to, and which claim it needs.

Owns the rules for links: the address must exist, a live claim must give the right, the
direction and the session filter must fit the entity.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from twinbus import limits
from twinbus.core.names import EntityPath, SubQueue, parse_address
from twinbus.core.rights import Operation
from twinbus.errors import (
    CallerError,
    EntityDisabled,
    EntityNotFound,
    InvalidField,
    PeerError,
    TwinbusError,
)
from twinbus.ledger.counts import LedgerAccount
from twinbus.ledger.schema import POLL
from twinbus.server.amqp.claims import CbsNode
from twinbus.server.amqp.node import Node
from twinbus.server.amqp.partitioned import (
    PartitionedReceiveNode,
    PartitionedSendNode,
    SessionWaits,
)
from twinbus.server.amqp.receiving import ReceiveNode
from twinbus.server.amqp.replies import ReplyNode, wire_error
from twinbus.server.amqp.requests import ManagementNode
from twinbus.server.amqp.sending import SendNode
from twinbus.server.amqp.sessions import SessionWait, session_name, wants_session
from twinbus.server.broker.accounting import account_of, outcome_of
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.directory.placement import get_entity
from twinbus.server.broker.load.admission import check_receiver
from twinbus.server.broker.nodes import look_again
from twinbus.wire.events import Delivered
from twinbus.wire.link import Link, LinkState
from twinbus.wire.performatives import Attach, Coordinator, Source, Target

if TYPE_CHECKING:
    from twinbus.server.amqp.connection import ServerConnection


def answer_attach(link: Link) -> Attach:
    """The usual answer: what the client said, source and target never null."""
    asked = link.peer_attach
    return Attach(
        snd_settle_mode=asked.snd_settle_mode,
        rcv_settle_mode=asked.rcv_settle_mode,
        source=asked.source if asked.source is not None else Source(),
        target=asked.target if asked.target is not None else Target(),
        max_message_size=link.max_message_bytes or limits.MESSAGE_BYTES_MAX,
    )


def attach_or_refuse(
    connection: ServerConnection, link: Link, *, is_last: bool = False
) -> None:
    """Answer a client's attach; at once, or after a look at what other nodes made."""
    try:
        attach(connection, link)
    except PeerError:
        raise
    except TwinbusError as error:
        if isinstance(error, EntityNotFound):
            again = partial(_attach_again, connection, link)
            if not is_last and look_again(connection.host, again):
                return
            connection.tell_missing(error.path)
            hostname = connection.engine.peer_open.hostname
            error = EntityNotFound(error.path, hostname)
        link.owner = None
        link.refuse(wire_error(error))


def _attach_again(connection: ServerConnection, link: Link) -> None:
    if link.state is LinkState.ASKED:
        attach_or_refuse(connection, link, is_last=True)
        connection.flush_soon()


def attach(connection: ServerConnection, link: Link) -> None:
    """Answer a client's attach; raises what it is refused with."""
    asked = link.peer_attach
    if isinstance(asked.target, Coordinator):
        _attach_coordinator(connection, link)
        return
    terminus = asked.source if link.sends else asked.target
    address = terminus.address if terminus is not None else None
    if not isinstance(address, str):
        raise InvalidField("The link has no address.")
    path = parse_address(address)
    if path.is_cbs:
        if link.sends:
            link.owner = ReplyNode(connection, link, path)
        else:
            link.owner = CbsNode(connection, link)
        _accept_request_link(link)
        return
    if path.management:
        claim = connection.claims.allow(Operation.MANAGEMENT_LINK, path)
        entity = get_entity(connection.host, path)
        node: Node
        if link.sends:
            node = ReplyNode(connection, link, path)
        else:
            node = ManagementNode(connection, link, path)
        link.owner = node
        node.account = account_of(connection.host, path, claim, connection.kind)
        _remember(node, Operation.MANAGEMENT_LINK, path, entity)
        _accept_request_link(link)
    elif link.sends:
        _attach_receiver(connection, link, path)
    else:
        _attach_sender(connection, link, path)


def _remember(
    node: Node, operation: Operation, path: EntityPath, entity: Entity
) -> None:
    """Note what the link needs, for when the claim ends or the entity goes."""
    node.needs(operation, path)
    node.belongs_to(entity.id)


def _accept_request_link(link: Link) -> None:
    link.max_message_bytes = limits.REQUEST_BYTES_MAX
    link.accept(answer_attach(link))
    if not link.sends:
        link.credit_window = 100
        link.grant(100)


def _attach_sender(connection: ServerConnection, link: Link, path: EntityPath) -> None:
    claim = connection.claims.allow(Operation.SEND_LINK, path)
    entity = get_entity(connection.host, path)
    if path.sub_queue is not SubQueue.NONE or entity.kind == "subscription":
        raise CallerError(
            f"'{path.text}' cannot be sent to. Send to the queue or topic itself."
        )
    if not entity.description.status.can_send:
        raise EntityDisabled(f"'{entity.name}' is disabled for sending.")
    node = SendNode(connection, link, entity)
    if len(entity.fragments) > 1:
        node = PartitionedSendNode(connection, link, entity)
    else:
        link.takes_runs = True
    link.owner = node
    node.account = account_of(connection.host, path, claim, connection.kind)
    _remember(node, Operation.SEND_LINK, path, entity)
    link.max_message_bytes = entity.message_bytes_max
    link.accept(answer_attach(link))
    link.credit_window = limits.CREDIT_WINDOW
    link.grant(limits.CREDIT_WINDOW)


def _attach_receiver(
    connection: ServerConnection, link: Link, path: EntityPath
) -> None:
    claim = connection.claims.allow(Operation.RECEIVE_LINK, path)
    account = account_of(connection.host, path, claim, connection.kind)
    try:
        _open_receiver(connection, link, path, account)
    except TwinbusError as error:
        if account is not None:
            account.calls(POLL, outcome_of(error))
        raise


def _open_receiver(
    connection: ServerConnection,
    link: Link,
    path: EntityPath,
    account: LedgerAccount | None,
) -> None:
    entity = get_entity(connection.host, path)
    if not entity.gives_messages(path.sub_queue):
        raise CallerError(
            f"'{path.text}' is a topic. Receive from one of its subscriptions."
        )
    if not entity.description.status.can_receive:
        raise EntityDisabled(f"'{entity.name}' is disabled for receiving.")
    fragments = connection.host.namespace.shards.fragments(entity)
    check_receiver(connection.host.hosts[each.shard] for each in fragments)
    source = link.peer_attach.source
    assert source is not None
    by_session = wants_session(source.filter)
    _check_session_fits(entity, path, by_session)
    link.max_message_bytes = entity.message_bytes_max
    if by_session:
        assert source.filter is not None
        name = session_name(source.filter)
        _wait_for_session(connection, link, path, name, account)
        return
    node = ReceiveNode(connection, link, entity, entity.container(path.sub_queue))
    if len(fragments) > 1:
        node = PartitionedReceiveNode(connection, link, fragments, path.sub_queue)
    node.account = account
    _remember(node, Operation.RECEIVE_LINK, path, entity)
    link.owner = node
    link.accept(answer_attach(link))
    node.open()


def _wait_for_session(
    connection: ServerConnection,
    link: Link,
    path: EntityPath,
    name: str | None,
    account: LedgerAccount | None,
) -> None:
    """Answer when the session, or the next one, could be locked."""
    shards = connection.host.namespace.shards
    entity = shards.get(path)
    fragments = shards.fragments(entity)
    if name is not None and entity.fragments:
        fragments = [shards.fragment_for(entity, name)]
    nodes = []
    for each in fragments:
        node = ReceiveNode(connection, link, each, each.container(path.sub_queue))
        node.account = account
        _remember(node, Operation.RECEIVE_LINK, path, each)
        nodes.append(node)
    if len(nodes) == 1:
        SessionWait(nodes[0], name).open()
    else:
        SessionWaits(connection, link, nodes).open()


def _check_session_fits(entity: Entity, path: EntityPath, by_session: bool) -> None:
    needs = entity.requires_session and path.sub_queue is SubQueue.NONE
    if needs and not by_session:
        raise CallerError(
            f"'{path.text}' requires sessions: receive with a session receiver."
        )
    if by_session and not needs:
        raise CallerError(
            f"'{path.text}' has no sessions: receive without a session id."
        )


class CoordinatorNode(Node):
    """Our end of the link on which transactions are declared.

    It needs no claim, and the official Java client has none yet: what is sent or
    settled in a transaction goes over links that have theirs. Transactions that are not
    discharged when it closes end by themselves.
    """

    def on_delivery(self, delivery: Delivered) -> None:
        """Declare or discharge."""
        self.connection.transactions.on_request(delivery.link, delivery)


def _attach_coordinator(connection: ServerConnection, link: Link) -> None:
    if link.sends:
        raise InvalidField("A coordinator sends nothing: attach as a sender.")
    link.owner = CoordinatorNode(connection, link)
    _accept_request_link(link)
