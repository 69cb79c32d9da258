"""Links to partitioned entities: one link, a node for each fragment behind it.

Owns how a client's link is divided: a delivery goes to the fragment of its key, and a
receiver takes from all fragments with one credit. Each fragment has an ordinary node
with the host of its shard; the node that owns the link hands on what is for it. A
session lives in one fragment, so a link that has got one is an ordinary link.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from twinbus import limits
from twinbus.core.names import SubQueue
from twinbus.errors import CallerError, InvalidField, TwinbusError
from twinbus.server.amqp.node import Node
from twinbus.server.amqp.receiving import ReceiveNode
from twinbus.server.amqp.sending import SendNode
from twinbus.server.amqp.sessions import SessionWait
from twinbus.server.broker.commands import MessageWant, SharedCredit, TakenMessages
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.load.admission import would_deny
from twinbus.server.broker.sending.naming import fragment_key
from twinbus.store.base import Lock, shard_of_nonce
from twinbus.wire.events import Delivered, Disposed, Unsettled
from twinbus.wire.link import Link
from twinbus.wire.message.sections import Incoming
from twinbus.wire.performatives import TransactionalState

if TYPE_CHECKING:
    from twinbus.server.amqp.connection import ServerConnection


class PartitionedSendNode(SendNode):
    """A link on which a client sends to a partitioned entity."""

    def __init__(
        self, connection: ServerConnection, link: Link, entity: Entity
    ) -> None:
        super().__init__(connection, link, entity)
        self._fragments: dict[int, SendNode] = {}
        self._turns = itertools.count()

    def on_delivery(self, delivery: Delivered) -> None:
        """A message came in; which shard may deny it depends on its key."""
        self.read_in(delivery)

    def take_in(self, delivery: Delivered, read: list[list[Incoming]]) -> None:
        """Hand the messages to the fragment that they belong to, unless it denies."""
        try:
            fragment = self._choose(delivery, read[0])
        except TwinbusError as error:
            self.refuse(delivery, error)
            return
        node = self._fragments.get(fragment.shard)
        if node is None or node.entity is not fragment:
            node = SendNode(self.connection, self.link, fragment)
            node.account = self.account
            self._fragments[fragment.shard] = node
        if not (node.host.load.level and node.denied(delivery)):
            node.take_in(delivery, read)

    def _choose(self, delivery: Delivered, messages: list[Incoming]) -> Entity:
        keys = {fragment_key(self.entity, message) for message in messages}
        if len(keys) > 1:
            raise InvalidField(
                f"'{self.entity.name}' is partitioned: all messages of a batch must "
                "have the same session id or partition key."
            )
        (key,) = keys
        if key is None and type(delivery.state) is TransactionalState:
            raise CallerError(
                f"'{self.entity.name}' is partitioned: a message that is sent in a "
                "transaction must have a session id or a partition key."
            )
        shards = self.host.namespace.shards
        return shards.fragment_for(
            self.entity, key, next(self._turns), self._is_throttled
        )

    def _is_throttled(self, fragment: Entity) -> bool:
        host = self.host.hosts[fragment.shard]
        return host.load.level > 0 and would_deny(host, fragment)


class PartitionedReceiveNode(ReceiveNode):
    """A link on which a client receives from all fragments of an entity."""

    def __init__(
        self,
        connection: ServerConnection,
        link: Link,
        fragments: Sequence[Entity],
        sub_queue: SubQueue,
    ) -> None:
        home = fragments[0]
        super().__init__(connection, link, home, home.container(sub_queue))
        # The credit that all fragments have together.
        self.credit = SharedCredit()
        self._parts = [_Fragment(self, each, sub_queue) for each in fragments]
        self._by_shard = {each.entity.shard: each for each in self._parts}
        self._first = 0

    def open(self) -> None:
        """The attach has been answered: take part in all fragments."""
        for part in self._parts:
            part.join()
        if self.link.credit > 0 or self.link.drain:
            self.on_flow()

    def want(self) -> None:
        """Say what the client can take now; a different fragment comes first."""
        room = min(self.link.credit, limits.UNSETTLED_PER_LINK_MAX - self.unsettled)
        self.credit.set(room)
        self._first += 1
        place = self._first % len(self._parts)
        for part in (*self._parts[place:], *self._parts[:place]):
            part.want()

    def check_drained(self) -> None:
        """A drain is answered when all fragments have nothing more for it.

        Those of a sick shard have nothing now.
        """
        parts = [each for each in self._parts if each.host.fault is None]
        if self.link.drain and all(each.is_drained for each in parts):
            self.link.drained()
            self.polls.ended()

    def part_failed(self, error: TwinbusError) -> None:
        """The shard of a fragment has stopped: the others have the credit it held."""
        well = [each for each in self._parts if each.host.fault is None]
        for part in well:
            part.want()
        self.check_drained()
        if not well:
            self.store_failed(error)

    def on_disposed(self, event: Disposed) -> None:
        """Each fragment settles its own."""
        for node, deliveries in self.parts_of(event.deliveries):
            node.on_disposed(event._replace(deliveries=deliveries))

    def parts_of(
        self, deliveries: list[Unsettled]
    ) -> list[tuple[ReceiveNode, list[Unsettled]]]:
        """The nodes that deliveries belong to."""
        found: dict[int, list[Unsettled]] = {}
        for delivery in deliveries:
            found.setdefault(shard_of_nonce(delivery.cookie.nonce), []).append(delivery)
        return [(self._by_shard[shard], each) for shard, each in found.items()]

    def on_closed(self) -> None:
        """The link is gone. Locks stay until they end."""
        self.polls.ended()
        for part in self._parts:
            part.leave()
        self.count(-self.unsettled)


class _Fragment(ReceiveNode):
    """One fragment behind a receiver's link (`host.Consumer`)."""

    def __init__(
        self, whole: PartitionedReceiveNode, entity: Entity, sub_queue: SubQueue
    ) -> None:
        container = entity.container(sub_queue)
        super().__init__(whole.connection, whole.link, entity, container)
        self._whole = whole
        self.shared_credit = whole.credit
        # Whether it has said that nothing more comes for the drain in hand.
        self.is_drained = False

    def join(self) -> None:
        """Take part."""
        self.account, self.polls = self._whole.account, self._whole.polls
        self._key = self.host.add_consumer(self.container, self)

    def want(self) -> None:
        """Say what the client can take of this fragment."""
        self.is_drained = self.is_drained and self.link.drain
        self.unsettled = self._whole.unsettled
        super().want()

    def count(self, more: int) -> None:
        """The whole counts what is not settled."""
        self._whole.count(more)

    def store_failed(self, error: TwinbusError) -> None:
        """The shard has stopped; those of the others may go on."""
        self._whole.part_failed(error)

    def _locks(self) -> Sequence[Lock]:
        shard = self.entity.shard
        locks = super()._locks()
        return [each for each in locks if shard_of_nonce(each.nonce) == shard]

    def sent(self, want: MessageWant, taken: TakenMessages) -> None:
        """What was taken is on its way; the credit of all has changed."""
        whole = self._whole
        whole.credit.delivered(len(taken.messages))
        if want is self._want and want.answer_empty and not taken.more:
            self.is_drained = True
            whole.check_drained()
        if taken.messages or taken.lost or taken.missed:
            whole.want()


class SessionWaits(Node):
    """A link that waits for the next session of a partitioned entity."""

    def __init__(
        self, connection: ServerConnection, link: Link, nodes: Sequence[ReceiveNode]
    ) -> None:
        super().__init__(connection, link, nodes[0].host)
        self._node = nodes[0]
        self._waits = [SessionWait(node, None, self) for node in nodes]
        self._refused = 0

    def open(self) -> None:
        """Start to wait in all fragments."""
        for wait in self._waits:
            wait.open()
        self.link.owner = self

    def stop_others(self, winner: SessionWait) -> None:
        """A session was found, or none will be: the others wait no longer."""
        for wait in self._waits:
            if wait is not winner:
                wait.on_closed()

    def is_last(self) -> bool:
        """Whether all fragments have refused, with this one."""
        self._refused += 1
        return self._refused >= len(self._waits)

    def on_closed(self) -> None:
        """The client went away while it waited."""
        if any(wait.waits for wait in self._waits):
            self._node.polls.count()
        for wait in self._waits:
            wait.on_closed()
