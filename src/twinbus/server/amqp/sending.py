"""Links on which a client sends messages to an entity.

Owns the way of a delivery from its frame to the broker and of the outcome back. All
deliveries of a link that arrive between two turns of the host form one command, and are
answered with ranges of ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from twinbus import limits
from twinbus.errors import DecodeError, MessageTooLarge, TwinbusError
from twinbus.ledger.counts import LedgerAccount
from twinbus.ledger.schema import ACCEPTED, SEND
from twinbus.server.amqp.node import Node
from twinbus.server.amqp.replies import rejected
from twinbus.server.broker.accounting import count_sent, is_ping, outcome_of
from twinbus.server.broker.commands import Given, Send
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.load.admission import send_denial
from twinbus.server.broker.submissions import Submission
from twinbus.wire.events import Delivered
from twinbus.wire.link import Link, LinkState
from twinbus.wire.message.bundle import Bundle, bundled
from twinbus.wire.message.sections import BATCH_FORMAT, Incoming, parse, split_batch
from twinbus.wire.performatives import Accepted, TransactionalState

if TYPE_CHECKING:
    from twinbus.server.amqp.connection import ServerConnection

_ACCEPTED = Accepted()

Run = tuple[int, int, bool]


def read_messages(message_format: int, payload: bytes) -> list[Incoming]:
    """The messages of one delivery: one, or those of a batch envelope."""
    if message_format == BATCH_FORMAT:
        messages = [parse(inner) for inner in split_batch(payload)]
        if not messages:
            raise DecodeError("A batch without messages.")
        return messages
    return [parse(payload)]


class SendNode(Node):
    """The entity's end of a link on which a client sends."""

    delivery_steps = 1

    def __init__(
        self, connection: ServerConnection, link: Link, entity: Entity
    ) -> None:
        super().__init__(connection, link, connection.host.hosts[entity.shard])
        self.entity = entity
        # The command that deliveries join until the host takes it, and its reply.
        self._send = Send(entity)
        self._reply = _SendReply(self, self._send)
        self._submission: Submission | None = None

    def on_delivery(self, delivery: Delivered) -> None:
        """Messages came in; while the shard is throttled each may be denied unread."""
        if not self.host.load.level:
            self.read_in(delivery)
            return
        for each in delivery.apart():
            if not self.denied(each):
                self.read_in(each)

    def denied(self, delivery: Delivered) -> bool:
        """Whether a delivery is denied because of load; then it is answered."""
        error = send_denial(self.host, self.entity, len(delivery.payload))
        if error is not None:
            self.refuse(delivery, error)
        return error is not None

    def refuse(self, delivery: Delivered, error: TwinbusError) -> None:
        """Tell why a delivery goes no further; how many messages it has is unknown."""
        self.answer(delivery.delivery_id, delivery.settled, rejected(error))
        if type(delivery.state) is TransactionalState:
            self.connection.transactions.refused(delivery.state, error)
        if self.account is not None:
            sizes = [len(delivery.payload)]
            self.account.messages_in(SEND, outcome_of(error), sizes)

    def read_in(self, delivery: Delivered) -> None:
        """Split a delivery, with those of its run, into messages."""
        try:
            if delivery.oversize:
                raise MessageTooLarge(
                    f"The message is larger than {self.link.max_message_bytes} bytes, "
                    f"the most that '{self.entity.name}' takes."
                )
            kind, payloads = delivery.message_format, delivery.run or ()
            read = [read_messages(kind, each) for each in (delivery.payload, *payloads)]
        except TwinbusError as error:
            if delivery.run is None:
                self.refuse(delivery, error)
                return
            for each in delivery.apart():
                self.read_in(each)
            return
        self.connection.engine.steps += sum(map(len, read)) - 1
        self.take_in(delivery, read)

    def take_in(self, delivery: Delivered, read: list[list[Incoming]]) -> None:
        """Let the next turn have the messages of a delivery and of its run."""
        if type(delivery.state) is TransactionalState:
            # It has no run: deliveries with a state are read one by one.
            self.connection.transactions.add_send(self, delivery, read[0])
            return
        host = self.host
        submission = self._submission
        is_over = self._send.deliveries >= limits.SEND_DELIVERIES_MAX
        if submission is None or submission.taken or is_over:
            self._send = Send(self.entity)
            self._reply = _SendReply(self, self._send)
            size_bytes = self._add(delivery, read)
            self._submission = host.submit(
                self._send, self._reply, size_bytes, self.connection
            )
        else:
            host.grow(submission, self._add(delivery, read))
        assert self._submission is not None
        waits_at = self._submission.host or host
        if waits_at.crowded:
            self.connection.wait_for_room(waits_at)

    def _add(self, delivery: Delivered, read: list[list[Incoming]]) -> int:
        """Have more in the command; returns their bytes."""
        reply = self._reply
        sizes = [len(delivery.payload), *map(len, delivery.run or ())]
        reply.runs.append((delivery.delivery_id, len(read), delivery.settled))
        if self.account is not None:
            reply.sizes += sizes
        is_batch = delivery.message_format == BATCH_FORMAT
        for given in self._joined(read, is_batch):
            self._send.add(given)
            if type(given) is not Bundle and is_ping(given):
                reply.has_ping = True
        return sum(sizes)

    def _joined(self, read: list[list[Incoming]], is_batch: bool) -> Iterable[Given]:
        """The messages of deliveries, in bundles where that is possible."""
        entity = self.entity
        if not entity.keeps_bundles or self.host.namespace.limits_rate(entity):
            return read
        if is_batch:
            return [self._bundled(each, is_batch) or each for each in read]
        bundle = self._bundled([messages[0] for messages in read], is_batch)
        return read if bundle is None else [bundle]

    def _bundled(self, messages: list[Incoming], is_batch: bool) -> Bundle | None:
        if len(messages) < limits.PACK_MESSAGES_MIN:
            return None
        self.host.namespace.give_ids(messages)
        return bundled(messages, is_batch)

    def answer(self, delivery_id: int, settled: bool, state: Any) -> None:
        """Tell the outcome of one delivery."""
        self.answer_range(delivery_id, delivery_id, settled, state)

    def answer_range(self, first: int, last: int, settled: bool, state: Any) -> None:
        """Tell the outcome of deliveries that the client has not settled itself."""
        if not settled and self.link.state is not LinkState.DETACHED:
            self.link.session.answer(first, last, state)
            self.connection.flush_soon()


class _SendReply:
    """The deliveries of one `Send`, to be answered (`host.Reply`)."""

    __slots__ = ("_node", "_send", "has_ping", "runs", "sizes")

    def __init__(self, node: SendNode, send: Send) -> None:
        self._node = node
        self._send = send
        # Bytes of each, and whether one is a ping, for the ledger.
        self.sizes: list[int] = []
        self.has_ping = False
        # Deliveries whose ids count on: the first id, how many, and whether settled.
        self.runs: list[Run] = []

    def done(self, refused: dict[int, TwinbusError]) -> None:
        """Accept ranges; reject single ones."""
        node = self._node
        runs = list(_apart(self.runs)) if refused else self.runs
        accepted = [run for place, run in enumerate(runs) if place not in refused]
        for first, count, settled in _joined(accepted):
            node.answer_range(first, first + count - 1, settled, _ACCEPTED)
        for place, error in refused.items():
            delivery_id, _, settled = runs[place]
            node.answer(delivery_id, settled, rejected(error))
        if node.account is not None:
            self._count(node.account, refused)

    def failed(self, error: TwinbusError) -> None:
        """Reject everything."""
        state = rejected(error)
        for first, count, settled in _joined(self.runs):
            self._node.answer_range(first, first + count - 1, settled, state)
        if self._node.account is not None:
            refused = dict.fromkeys(range(len(self.sizes)), error)
            self._count(self._node.account, refused)

    def _count(
        self, account: LedgerAccount, refused: Mapping[int, TwinbusError]
    ) -> None:
        """Count all in one go, if they are alike."""
        sizes, send = self.sizes, self._send
        is_small = max(sizes) <= limits.LEDGER_UNIT_BYTES
        if is_small and not refused and not self.has_ping:
            account.run_in(SEND, ACCEPTED, send.messages, sum(sizes))
            return
        for place, (messages, size_bytes) in enumerate(
            zip(send.each(), sizes, strict=True)
        ):
            error = refused.get(place)
            outcome = ACCEPTED if error is None else outcome_of(error)
            count_sent(account, outcome, messages, size_bytes)


def _apart(runs: Iterable[Run]) -> Iterator[Run]:
    """Each delivery as a run of its own."""
    for first, count, settled in runs:
        for delivery_id in range(first, first + count):
            yield delivery_id, 1, settled


def _joined(runs: Iterable[Run]) -> list[Run]:
    """Neighbours of one kind as one run."""
    found: list[Run] = []
    for first, count, settled in runs:
        if found:
            start, length, before = found[-1]
            if start + length == first and before == settled:
                found[-1] = (start, length + count, settled)
                continue
        found.append((first, count, settled))
    return found
