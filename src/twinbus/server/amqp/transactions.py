"""Transactions: sends and settlements that happen together or not at all.

A client declares a transaction on a coordinator link, names it in transfers and
dispositions, and discharges it. Until then everything is only noted, in memory; the
discharge is one command, checked whole before anything changes, so a crash before its
commit leaves nothing behind and one after it leaves all.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twinbus import limits
from twinbus.errors import (
    CallerError,
    DecodeError,
    EntityNotFound,
    LimitExceeded,
    LockLost,
    TransactionUnknown,
    TwinbusError,
)
from twinbus.ledger.schema import ACCEPTED, REFUSED, SETTLE
from twinbus.server.amqp.replies import rejected
from twinbus.server.amqp.settling import check_outcome, settle_one
from twinbus.server.broker.accounting import count_sent, outcome_of
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.host import Host
from twinbus.server.broker.turn import Turn
from twinbus.store.base import Lock
from twinbus.wire.events import Delivered, Disposed
from twinbus.wire.link import Link
from twinbus.wire.message.sections import VALUE, Incoming, find_sections
from twinbus.wire.performatives import (
    Accepted,
    Declare,
    Declared,
    Discharge,
    TransactionalState,
)
from twinbus.wire.performatives_codec import decode_composite

if TYPE_CHECKING:
    from twinbus.server.amqp.connection import ServerConnection
    from twinbus.server.amqp.receiving import ReceiveNode
    from twinbus.server.amqp.sending import SendNode
    from twinbus.server.broker.namespace import Namespace


class TransactionFailed(CallerError):
    """The transaction was rolled back."""

    condition = "amqp:transaction:rollback"


class Transaction:
    """What one transaction has collected."""

    def __init__(self) -> None:
        self.sends: list[tuple[Entity, list[Incoming]]] = []
        # Locks with the outcomes that they are settled with, and their hosts.
        self.settles: list[tuple[Lock, Any]] = []
        self.settled_at: set[Host] = set()
        # What the ledger counts when the outcome is known.
        self._counted: list[Callable[[str], None]] = []
        self.messages = 0
        self.size_bytes = 0
        # Why a part of it was refused: then it cannot be committed.
        self.refused: TwinbusError | None = None
        # Ends it if the client does not discharge it.
        self.timer: asyncio.TimerHandle | None = None

    def note_send(self, node: SendNode, messages: list[Incoming], size: int) -> None:
        """Let the ledger count a send of so many bytes."""
        if node.account is not None:
            account = node.account
            self._counted.append(
                lambda outcome: count_sent(account, outcome, messages, size)
            )

    def note_settle(self, node: ReceiveNode, count: int) -> None:
        """Let the ledger count settlements."""
        if node.account is not None:
            account = node.account
            self._counted.append(lambda outcome: account.calls(SETTLE, outcome, count))

    def count(self, outcome: str) -> None:
        """Count all of it: it ends together."""
        for call in self._counted:
            call(outcome)

    def grow(self, count: int) -> None:
        """Take so many messages more in, within the bound."""
        self.messages += count
        if self.messages > limits.TRANSACTION_MESSAGES_MAX:
            raise LimitExceeded(
                f"A transaction has at most {limits.TRANSACTION_MESSAGES_MAX} messages."
            )


class Transactions:
    """The transactions of one connection."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._open: dict[bytes, Transaction] = {}
        # What the open ones hold.
        self.held_bytes = 0
        self._numbers = itertools.count(1)

    # -- the coordinator ---------------------------------------------------------------

    def on_request(self, link: Link, delivery: Delivered) -> None:
        """Declare or discharge."""
        try:
            request = _read_request(delivery.payload)
            if isinstance(request, Declare):
                self.answer(link, delivery, Declared(txn_id=self._declare()))
            else:
                self._discharge(link, delivery, request)
        except TwinbusError as error:
            self.answer(link, delivery, rejected(error))

    def _declare(self) -> bytes:
        if len(self._open) >= limits.TRANSACTIONS_OPEN_MAX:
            raise LimitExceeded(
                f"A connection has at most {limits.TRANSACTIONS_OPEN_MAX} open "
                "transactions. Discharge one first."
            )
        key = next(self._numbers).to_bytes(8, "big")
        transaction = self._open[key] = Transaction()
        loop = asyncio.get_running_loop()
        seconds = limits.TRANSACTION_SECONDS_MAX
        transaction.timer = loop.call_later(seconds, self._forget, key)
        return key

    def _forget(self, key: bytes) -> Transaction | None:
        transaction = self._open.pop(key, None)
        if transaction is not None:
            self.held_bytes -= transaction.size_bytes
            if transaction.timer is not None:
                transaction.timer.cancel()
        return transaction

    def forget_all(self) -> None:
        """The connection is gone, and its transactions with it."""
        for key in list(self._open):
            self._forget(key)

    def _discharge(self, link: Link, delivery: Delivered, request: Discharge) -> None:
        transaction = self._forget(bytes(request.txn_id or b""))
        if transaction is None:
            raise TransactionUnknown
        if request.fail:
            transaction.count(REFUSED)
            self.answer(link, delivery, Accepted())
            return
        reply = DischargeReply(self, link, delivery, transaction)
        if transaction.refused is not None:
            reason = transaction.refused.text
            reply.failed(TransactionFailed(f"A part of it was refused: {reason}"))
            return
        try:
            host = self._host(transaction)
        except TransactionFailed as error:
            reply.failed(error)
            return
        host.submit(Discharged(transaction), reply, owner=self._connection)

    def _host(self, transaction: Transaction) -> Host:
        """Where a transaction is carried out; its other sends leave from there."""
        first = self._connection.host
        if len(transaction.settled_at) > 1:
            raise TransactionFailed(
                "The transaction settles messages of several shards of the namespace, "
                "which cannot happen together. Settle messages of one entity in it; "
                "it may send to any."
            )
        for host in transaction.settled_at:
            return host
        for entity, _messages in transaction.sends:
            return first.hosts[entity.shard]
        return first

    def answer(self, link: Link, delivery: Delivered, state: Any) -> None:
        """Tell how a request ended."""
        if not delivery.settled:
            link.session.answer(delivery.delivery_id, delivery.delivery_id, state)
            self._connection.flush_soon()

    # -- what belongs to a transaction -------------------------------------------------

    def _find(self, state: TransactionalState) -> Transaction:
        transaction = self._open.get(bytes(state.txn_id or b""))
        if transaction is None:
            raise TransactionUnknown
        return transaction

    def refused(self, state: TransactionalState, error: TwinbusError) -> None:
        """Note that a part was refused, which clients may overlook (Java's does)."""
        transaction = self._open.get(bytes(state.txn_id or b""))
        if transaction is not None:
            transaction.refused = error

    def add_send(
        self, node: SendNode, delivery: Delivered, messages: list[Incoming]
    ) -> None:
        """Note a send; its outcome is provisional until the discharge."""
        state = delivery.state
        outcome: Any
        try:
            transaction = self._find(state)
            self._check_room(len(delivery.payload))
            transaction.grow(len(messages))
            transaction.size_bytes += len(delivery.payload)
            self.held_bytes += len(delivery.payload)
            transaction.sends.append((node.entity, messages))
            transaction.note_send(node, messages, len(delivery.payload))
            outcome = TransactionalState(txn_id=state.txn_id, outcome=Accepted())
        except TwinbusError as error:
            node.refuse(delivery, error)
            return
        node.answer(delivery.delivery_id, delivery.settled, outcome)

    def _check_room(self, size_bytes: int) -> None:
        self._connection.check_memory()
        if self.held_bytes + size_bytes > limits.TRANSACTION_BYTES_MAX:
            raise LimitExceeded(
                "The open transactions of a connection hold at most "
                f"{limits.TRANSACTION_BYTES_MAX} bytes. Discharge one first."
            )

    def add_settle(self, node: ReceiveNode, event: Disposed) -> None:
        """Note settlements; the locks are held until the discharge."""
        state = event.state
        outcome: Any
        try:
            transaction = self._find(state)
            transaction.grow(len(event.deliveries))
            transaction.note_settle(node, len(event.deliveries))
            decided = state.outcome or Accepted()
            transaction.settles += [(each.cookie, decided) for each in event.deliveries]
            for part, _deliveries in node.parts_of(event.deliveries):
                transaction.settled_at.add(part.host)
            outcome = TransactionalState(txn_id=state.txn_id, outcome=state.outcome)
        except TwinbusError as error:
            self.refused(state, error)
            outcome = rejected(error)
        for delivery in event.deliveries:
            if not event.settled:
                node.link.session.settle(
                    delivery.delivery_id, delivery.delivery_id, outcome
                )
        node.want()
        self._connection.flush_soon()


class Discharged:
    """Everything that a transaction has collected, as one command (`turn.Command`)."""

    __slots__ = ("_sends", "_settles")

    def __init__(self, transaction: Transaction) -> None:
        self._sends: dict[Entity, list[Incoming]] = {}
        for entity, messages in transaction.sends:
            self._sends.setdefault(entity, []).extend(messages)
        self._settles = transaction.settles

    def __call__(self, namespace: Namespace, turn: Turn) -> None:
        """Check everything, then do everything."""
        for entity, messages in self._sends.items():
            self._check_send(namespace, entity, messages, turn)
        locks = set()
        for lock, outcome in self._settles:
            stored = namespace.store.held(lock, turn.now)
            if lock in locks or stored is None:
                raise TransactionFailed(LockLost().text)
            check_outcome(namespace, stored, outcome)
            locks.add(lock)
        source_key = self._source_key(namespace)
        for entity, messages in self._sends.items():
            if entity.shard == namespace.shard:
                namespace.send(entity, messages, turn, checked=True)
            else:
                namespace.post(source_key, entity, messages, turn)
        for lock, outcome in self._settles:
            settle_one(namespace, lock, outcome, turn)

    @staticmethod
    def _check_send(
        namespace: Namespace, entity: Entity, messages: list[Incoming], turn: Turn
    ) -> None:
        its = namespace.shards[entity.shard]
        if its.entities.find(entity.key) is not entity:
            raise EntityNotFound(entity.name)
        if its is namespace:
            namespace.check_send(entity, messages, turn)
        else:
            its.check_messages(entity, messages, Turn(turn.now))

    def _source_key(self, namespace: Namespace) -> str:
        """The entity where sends to other shards are set aside if they fail later."""
        for lock, _outcome in self._settles:
            settled = namespace.entities.of_container(lock.container)
            if settled is not None:
                return settled.key
        here = [each.key for each in self._sends if each.shard == namespace.shard]
        return here[0] if here else ""


class DischargeReply:
    """The answer to a discharge (`host.Reply`)."""

    def __init__(
        self,
        owner: Transactions,
        link: Link,
        delivery: Delivered,
        transaction: Transaction,
    ) -> None:
        self._owner = owner
        self._link = link
        self._delivery = delivery
        self._transaction = transaction

    def done(self, result: None) -> None:
        """It happened, all of it."""
        del result
        self._transaction.count(ACCEPTED)
        self._owner.answer(self._link, self._delivery, Accepted())

    def failed(self, error: TwinbusError) -> None:
        """Nothing of it happened."""
        self._transaction.count(outcome_of(error))
        self._owner.answer(self._link, self._delivery, rejected(error))


def _read_request(payload: bytes) -> Declare | Discharge:
    for code, _begin, start, _end in find_sections(payload):
        if code == VALUE:
            value = decode_composite(payload, start)[0]
            if isinstance(value, (Declare, Discharge)):
                return value
    raise DecodeError("A coordinator takes declare and discharge.")
