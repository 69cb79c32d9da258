"""Links on which a client sends messages to an entity.

Owns the way of a delivery from its frame to the namespace and of the outcome back. All
deliveries of a link that arrive between two turns of the host form one run: one
command, one append, and ranges of ids in the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from twinbus.core.names import EntityPath
from twinbus.core.rights import Operation
from twinbus.errors import (
    DecodeError,
    EntityNotFound,
    MessageTooLarge,
    StoreFault,
    TwinbusError,
)
from twinbus.server.amqp.replies import rejected
from twinbus.server.broker.entities import Entity
from twinbus.wire.events import Delivered
from twinbus.wire.link import Link, LinkState
from twinbus.wire.message.sections import BATCH_FORMAT, Incoming, parse, split_batch
from twinbus.wire.performatives import Accepted, TransactionalState

if TYPE_CHECKING:
    from twinbus.server.amqp.connection import ServerConnection
    from twinbus.server.broker.namespace import Namespace

_ACCEPTED = Accepted()


def read_messages(delivery: Delivered) -> list[Incoming]:
    """The messages of one delivery: one, or those of a batch envelope."""
    if delivery.message_format == BATCH_FORMAT:
        messages = [parse(inner) for inner in split_batch(delivery.payload)]
        if not messages:
            raise DecodeError("A batch without messages.")
        return messages
    return [parse(delivery.payload)]


class SendNode:
    """The entity's end of a link on which a client sends."""

    def __init__(
        self, connection: ServerConnection, link: Link, entity: Entity
    ) -> None:
        self.connection = connection
        self.link = link
        self.entity = entity
        # The right that the link needs; its claim may end.
        self.needed: tuple[Operation, EntityPath] | None = None
        self._run: SendRun | None = None

    def on_delivery(self, delivery: Delivered) -> None:
        """A message came in."""
        try:
            if delivery.oversize:
                raise MessageTooLarge(
                    f"The message is larger than {self.link.max_message_bytes} bytes, "
                    f"the most that '{self.entity.name}' takes."
                )
            messages = read_messages(delivery)
        except TwinbusError as error:
            self.answer(delivery.delivery_id, delivery.settled, rejected(error))
            return
        if type(delivery.state) is TransactionalState:
            self.connection.transactions.add_send(self, delivery, messages)
            return
        run = self._run
        host = self.connection.host
        size = len(delivery.payload)
        if run is None or run.taken:
            run = self._run = SendRun(self)
            run.add(delivery, messages)
            run.size_bytes = size
            host.submit(run)
        else:
            run.add(delivery, messages)
            host.grow(size)
        if host.crowded:
            self.connection.wait_for_room()

    def on_closed(self) -> None:
        """The link is gone; what was sent before still counts."""

    def answer(self, delivery_id: int, settled: bool, state: Any) -> None:
        """Tell the outcome of one delivery."""
        self.answer_range(delivery_id, delivery_id, settled, state)

    def answer_range(self, first: int, last: int, settled: bool, state: Any) -> None:
        """Tell the outcome of deliveries that the client has not settled itself."""
        if not settled and self.link.state is not LinkState.DETACHED:
            self.link.session.answer(first, last, state)
            self.connection.flush_soon()


class SendRun:
    """Deliveries of one link that are decided together (`host.Command`)."""

    __slots__ = (
        "_failures",
        "_ids",
        "_messages",
        "_node",
        "_settled",
        "size_bytes",
        "taken",
    )

    def __init__(self, node: SendNode) -> None:
        self._node = node
        self._ids: list[int] = []
        self._settled: list[bool] = []
        self._messages: list[list[Incoming]] = []
        self._failures: dict[int, TwinbusError] = {}
        self.size_bytes = 0
        # Applied or failed: no more deliveries may join.
        self.taken = False

    def add(self, delivery: Delivered, messages: list[Incoming]) -> None:
        """Take a delivery in."""
        self._ids.append(delivery.delivery_id)
        self._settled.append(delivery.settled)
        self._messages.append(messages)

    def apply(self, namespace: Namespace, now_ms: int) -> None:
        """Send all in one go; if that is refused, each on its own."""
        self.taken = True
        entity = self._node.entity
        if namespace.entities.find(entity.key) is not entity:
            raise EntityNotFound(entity.name)
        if len(self._messages) > 1 and namespace.limits_rate(entity):
            # What happened to arrive together is no batch: each has to find room.
            self._apply_each(namespace, now_ms)
            return
        try:
            namespace.send(entity, [m for each in self._messages for m in each], now_ms)
        except StoreFault:
            raise
        except TwinbusError as error:
            if len(self._messages) == 1:
                raise
            del error
            self._apply_each(namespace, now_ms)

    def _apply_each(self, namespace: Namespace, now_ms: int) -> None:
        for delivery_id, messages in zip(self._ids, self._messages, strict=True):
            try:
                namespace.send(self._node.entity, messages, now_ms)
            except StoreFault:
                raise
            except TwinbusError as error:
                self._failures[delivery_id] = error

    def release(self) -> None:
        """Accept ranges; reject single ones."""
        node = self._node
        for first, last, settled in _ranges(self._ids, self._settled, self._failures):
            node.answer_range(first, last, settled, _ACCEPTED)
        for delivery_id, error in self._failures.items():
            settled = self._settled[self._ids.index(delivery_id)]
            node.answer(delivery_id, settled, rejected(error))

    def fail(self, error: TwinbusError) -> None:
        """Reject everything."""
        self.taken = True
        state = rejected(error)
        for first, last, settled in _ranges(self._ids, self._settled, {}):
            self._node.answer_range(first, last, settled, state)


def _ranges(
    ids: Sequence[int], settled: Sequence[bool], leave_out: dict[int, TwinbusError]
) -> list[tuple[int, int, bool]]:
    """Runs of neighbouring ids of one kind, as (first, last, settled)."""
    found: list[tuple[int, int, bool]] = []
    for key, done in zip(ids, settled, strict=True):
        if key in leave_out:
            continue
        if found and found[-1][1] + 1 == key and found[-1][2] == done:
            found[-1] = (found[-1][0], key, done)
        else:
            found.append((key, key, done))
    return found
