"""The server's end of a link: what all nodes have in common.

Owns what a connection and the host need of a node: which right its link needs, and how
the link ends when its entity is deleted. Knows nothing about what a node does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus import limits
from twinbus.core.names import EntityPath
from twinbus.core.rights import Operation
from twinbus.ledger.counts import LedgerAccount
from twinbus.server.broker.host import Host
from twinbus.wire.events import Delivered
from twinbus.wire.link import Link, LinkState
from twinbus.wire.performatives import Error

if TYPE_CHECKING:
    from twinbus.server.amqp.connection import ServerConnection


# What a link is used for, and at which address.
Needed = tuple[Operation, EntityPath]


class Node:
    """What stands behind a link (`Link.owner`)."""

    # What a delivery costs, in the unit of `limits.READ_WORK_MAX`.
    delivery_steps = limits.READ_WORK_OF_EVENT

    def __init__(
        self,
        connection: ServerConnection,
        link: Link,
        host: Host | None = None,
    ) -> None:
        self.connection = connection
        self.link = link
        # The host of its entity's shard; the namespace's first without one.
        self.host = host or connection.host
        # The right that the link needs; its claim may end.
        self.needed: Needed | None = None
        # Where its operations are counted; None without a ledger.
        self.account: LedgerAccount | None = None
        # The entity that it belongs to.
        self._entity_id: int | None = None

    def needs(self, operation: Operation, path: EntityPath) -> None:
        """Detach the link when no live claim gives that right any more."""
        self.needed = (operation, path)
        self.connection.needs.setdefault(self.needed, {})[self] = None

    def belongs_to(self, entity: int) -> None:
        """Detach the link when that entity is deleted."""
        self._entity_id = entity
        self.host.links.know(entity, self)

    def forget(self) -> None:
        """The link is gone: neither its entity nor its claim matters any more."""
        if self._entity_id is not None:
            self.host.links.forget(self._entity_id, self)
        needs = self.connection.needs
        if self.needed in needs:
            needs[self.needed].pop(self, None)
            if not needs[self.needed]:
                del needs[self.needed]

    def on_delivery(self, delivery: Delivered) -> None:
        """A message came."""

    def on_flow(self) -> None:
        """The client changed its credit."""

    def on_closed(self) -> None:
        """The link is gone."""

    def entity_deleted(self) -> None:
        """The entity is gone, and so is the link."""
        error = Error(
            condition="amqp:not-found", description="The messaging entity was deleted."
        )
        if self.link.state is LinkState.ASKED:
            self.link.refuse(error)
        self.link.detach(error)
        self.connection.close_link(self.link)
