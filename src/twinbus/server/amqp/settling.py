"""Settlement: what clients decide about deliveries, and the answers they get.

All dispositions of a link between two turns form one run. The answer repeats the kind
of outcome that the client sent, as the SDKs expect, or rejects with the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twinbus.errors import LockLost, SessionLockLost, StoreFault, TwinbusError
from twinbus.server.amqp.replies import rejected
from twinbus.server.broker.routing import DESCRIPTION, REASON
from twinbus.store.base import Lock, SessionGrant, Stored
from twinbus.wire.events import Disposed
from twinbus.wire.link import LinkState
from twinbus.wire.performatives import (
    Accepted,
    Modified,
    Rejected,
    Released,
    TransactionalState,
)

if TYPE_CHECKING:
    from twinbus.server.amqp.receiving import ReceiveNode
    from twinbus.server.broker.namespace import Namespace

_ACCEPTED = Accepted()
_RELEASED = Released()
_REJECTED = Rejected()


def settle_one(namespace: Namespace, lock: Lock, state: Any, now_ms: int) -> Any:
    """Apply one outcome other than accepted; returns the state to answer with."""
    kind = type(state)
    if kind is Modified:
        changes = _properties(state.message_annotations)
        if state.undeliverable_here:
            namespace.defer(lock, changes, now_ms)
        else:
            namespace.abandon(lock, changes, now_ms)
        return Modified(
            delivery_failed=state.delivery_failed,
            undeliverable_here=state.undeliverable_here,
        )
    if kind is Rejected:
        namespace.dead_letter(lock, _marks(state), now_ms)
        return _REJECTED
    if kind is Accepted:
        if not namespace.complete([lock], now_ms)[0]:
            raise LockLost
        return _ACCEPTED
    namespace.release([lock], now_ms)
    return _RELEASED


def check_outcome(namespace: Namespace, stored: Stored, state: Any) -> None:
    """Refuse an outcome that could not be applied to a message that is held."""
    if type(state) is Modified:
        namespace.changed(stored, _properties(state.message_annotations))
    elif type(state) is Rejected:
        namespace.changed(stored, _marks(state))


def _properties(annotations: dict[Any, Any] | None) -> dict[str, Any]:
    return {str(key): value for key, value in (annotations or {}).items()}


def _marks(state: Rejected) -> dict[str, Any]:
    """Properties to set on a message that a client dead-letters."""
    error = state.error
    if error is None:
        return {}
    marks = {str(key): value for key, value in (error.info or {}).items()}
    if not marks and error.condition != "com.microsoft:dead-letter":
        marks = {REASON: str(error.condition), DESCRIPTION: error.description or ""}
    return {key: value for key, value in marks.items() if value is not None}


class SettleRun:
    """Dispositions of one link that are decided together (`host.Command`)."""

    __slots__ = ("_answers", "_events", "_node", "size_bytes", "taken")

    def __init__(self, node: ReceiveNode) -> None:
        self._node = node
        self._events: list[Disposed] = []
        # (first, last, state) in the order of the dispositions.
        self._answers: list[tuple[int, int, Any]] = []
        self.size_bytes = 0
        self.taken = False

    def add(self, event: Disposed) -> None:
        """Take a disposition in."""
        self._events.append(event)

    def apply(self, namespace: Namespace, now_ms: int) -> None:
        """Settle one after the other, completions in one go."""
        self.taken = True
        completing: list[Disposed] = []
        for event in self._events:
            if type(event.state) is Accepted:
                completing.append(event)
                continue
            self._complete(namespace, completing, now_ms)
            completing = []
            self._settle(namespace, event, now_ms)
        self._complete(namespace, completing, now_ms)

    def _complete(
        self, namespace: Namespace, events: list[Disposed], now_ms: int
    ) -> None:
        deliveries = [each for event in events for each in event.deliveries]
        if not deliveries:
            return
        locks = [each.cookie for each in deliveries]
        results = namespace.complete(locks, now_ms)
        silent = {id(e) for event in events if event.settled for e in event.deliveries}
        for delivery, ok in zip(deliveries, results, strict=True):
            if not silent or id(delivery) not in silent:
                state = _ACCEPTED if ok else rejected(self._lost(namespace, now_ms))
                self._answer(delivery.delivery_id, state)

    def _settle(self, namespace: Namespace, event: Disposed, now_ms: int) -> None:
        for delivery in event.deliveries:
            state: Any
            try:
                state = settle_one(namespace, delivery.cookie, event.state, now_ms)
            except StoreFault:
                raise
            except LockLost:
                state = rejected(self._lost(namespace, now_ms))
            except TwinbusError as error:
                state = rejected(error)
            if not event.settled:
                self._answer(delivery.delivery_id, state)

    def _lost(self, namespace: Namespace, now_ms: int) -> TwinbusError:
        """What was lost: the session with all its messages, or this lock alone."""
        node = self._node
        if not node.entity.requires_session or node.container & 3:
            return LockLost()
        grant = node.grant
        store = namespace.store
        held = grant is not None and store.session_held(node.container, grant, now_ms)
        return LockLost() if held else SessionLockLost()

    def _answer(self, delivery_id: int, state: Any) -> None:
        """Add an answer; neighbours with the same state share one."""
        answers = self._answers
        if answers:
            first, last, before = answers[-1]
            if before is state and last + 1 == delivery_id:
                answers[-1] = (first, delivery_id, state)
                return
        answers.append((delivery_id, delivery_id, state))

    def release(self) -> None:
        """Tell the client."""
        node = self._node
        if node.link.state is not LinkState.ATTACHED:
            return
        session = node.link.session
        for first, last, state in self._answers:
            session.settle(first, last, state)
        node.connection.flush_soon()
        if node.link.credit > 0:
            node.connection.host.hungry(node.container)

    def fail(self, error: TwinbusError) -> None:
        """Nothing of it happened; the client may settle again through management."""
        self.taken = True
        self._answers = []
        state = rejected(error)
        for event in self._events:
            if not event.settled:
                for delivery in event.deliveries:
                    self._answer(delivery.delivery_id, state)
        self.release()


class Release:
    """Locks that never reached their client go back uncounted (`host.Command`)."""

    size_bytes = 0

    def __init__(self, locks: list[Lock]) -> None:
        self._locks = locks

    def apply(self, namespace: Namespace, now_ms: int) -> None:
        """Give them back."""
        namespace.release(self._locks, now_ms)

    def release(self) -> None:
        """Nobody waits for this."""

    def fail(self, error: TwinbusError) -> None:
        """The locks end by themselves."""


class ReleaseSession:
    """A session's receiver is gone (`host.Command`)."""

    size_bytes = 0

    def __init__(self, container: int, grant: SessionGrant) -> None:
        self._container = container
        self._grant = grant

    def apply(self, namespace: Namespace, now_ms: int) -> None:
        """End the lock; what was held is ready again."""
        namespace.release_session(self._container, self._grant, now_ms)

    def release(self) -> None:
        """Nobody waits for this."""

    def fail(self, error: TwinbusError) -> None:
        """The lock ends by itself."""


def transaction_of(state: Any) -> bytes | None:
    """The transaction that a state belongs to."""
    return state.txn_id if type(state) is TransactionalState else None
