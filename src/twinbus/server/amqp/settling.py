"""Settlement: what clients decide about deliveries, and the answers they get.

Dispositions of a link between two turns form one command, or several if they are very
many. The answer repeats the kind of outcome that the client sent, as the SDKs expect,
or rejects with the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twinbus import limits
from twinbus.errors import LockLost, SessionLockLost, StoreFault, TwinbusError
from twinbus.ledger.schema import ACCEPTED, REFUSED, SETTLE
from twinbus.server.amqp.replies import rejected
from twinbus.server.broker.accounting import outcome_of
from twinbus.server.broker.turn import Turn, answerable
from twinbus.store.base import Lock, SessionGrant, Stored
from twinbus.wire.events import Unsettled
from twinbus.wire.link import LinkState
from twinbus.wire.message.names import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON
from twinbus.wire.performatives import (
    Accepted,
    Modified,
    Rejected,
    Released,
)

if TYPE_CHECKING:
    from twinbus.server.amqp.receiving import ReceiveNode
    from twinbus.server.broker.namespace import Namespace

_ACCEPTED = Accepted()
_RELEASED = Released()
_REJECTED = Rejected()


def settle_one(namespace: Namespace, lock: Lock, state: Any, turn: Turn) -> Any:
    """Apply one outcome other than accepted; returns the state to answer with."""
    kind = type(state)
    if kind is Modified:
        changes = _properties(state.message_annotations)
        if state.undeliverable_here:
            namespace.defer(lock, changes, turn)
        else:
            namespace.abandon(lock, changes, turn)
        return Modified(
            delivery_failed=state.delivery_failed,
            undeliverable_here=state.undeliverable_here,
        )
    if kind is Rejected:
        namespace.dead_letter(lock, _marks(state), turn)
        return _REJECTED
    if kind is Accepted:
        if not namespace.complete([lock], turn)[0]:
            raise LockLost
        return _ACCEPTED
    namespace.unlock([lock], turn)
    return _RELEASED


def check_outcome(namespace: Namespace, stored: Stored, state: Any) -> None:
    """Refuse an outcome that could not be applied to a message that is held."""
    if type(state) is Modified:
        namespace.changed(stored, _properties(state.message_annotations))
    elif type(state) is Rejected:
        namespace.check_dead_letter(stored)
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
        marks = {
            DEAD_LETTER_REASON: str(error.condition),
            DEAD_LETTER_DESCRIPTION: error.description or "",
        }
    return {key: value for key, value in marks.items() if value is not None}


class Settle:
    """Dispositions of one link that are decided together (`turn.Command`).

    More may be added until the host takes it. The result has a state for each lock, in
    the order of the dispositions.
    """

    __slots__ = ("_by_session", "_container", "_grant", "items")
    # Each lock can fail alone.
    divides = True

    def __init__(
        self, container: int, by_session: bool, grant: SessionGrant | None
    ) -> None:
        self._container = container
        self._by_session = by_session
        self._grant = grant
        # Outcomes with the locks that they are for.
        self.items: list[tuple[Any, list[Lock]]] = []

    def __call__(self, namespace: Namespace, turn: Turn) -> list[Any]:
        """Settle all in one go; if that fails unexpectedly, each lock on its own."""
        try:
            with namespace.part():
                return self._settle_all(namespace, turn)
        except StoreFault:
            raise
        except Exception:  # noqa: BLE001
            return [
                self._settle_alone(namespace, turn, lock, outcome)
                for outcome, locks in self.items
                for lock in locks
            ]

    def _settle_alone(
        self, namespace: Namespace, turn: Turn, lock: Lock, outcome: Any
    ) -> Any:
        try:
            with namespace.part():
                return self._settle(namespace, turn, lock, outcome)
        except StoreFault:
            raise
        except Exception as error:  # noqa: BLE001
            return rejected(answerable(error, namespace))

    def _settle_all(self, namespace: Namespace, turn: Turn) -> list[Any]:
        """Settle one after the other, neighbouring completions in one go."""
        states: list[Any] = []
        completing: list[Lock] = []
        for outcome, locks in self.items:
            if type(outcome) is Accepted:
                completing += locks
                continue
            self._complete(namespace, turn, completing, states)
            completing = []
            states += [self._settle(namespace, turn, lock, outcome) for lock in locks]
        self._complete(namespace, turn, completing, states)
        return states

    def _complete(
        self, namespace: Namespace, turn: Turn, locks: list[Lock], states: list[Any]
    ) -> None:
        if not locks:
            return
        results = namespace.complete(locks, turn)
        # Each refusal is a state of its own, and so gets an answer of its own.
        states += [
            _ACCEPTED if done else self._lost(namespace, turn) for done in results
        ]

    def _settle(
        self, namespace: Namespace, turn: Turn, lock: Lock, outcome: Any
    ) -> Any:
        turn.left -= limits.ROWS_OF_OUTCOME
        try:
            return settle_one(namespace, lock, outcome, turn)
        except StoreFault:
            raise
        except LockLost:
            return self._lost(namespace, turn)
        except TwinbusError as error:
            return rejected(error)

    def _lost(self, namespace: Namespace, turn: Turn) -> Rejected:
        """What was lost: the session with all its messages, or this lock alone."""
        if not self._by_session:
            return rejected(LockLost())
        store = namespace.store
        grant = self._grant
        held = grant is not None and store.session_held(
            self._container, grant, turn.now
        )
        return rejected(LockLost() if held else SessionLockLost())


class SettleReply:
    """The deliveries of one `Settle`, to be answered (`host.Reply`)."""

    __slots__ = ("_node", "ids")

    def __init__(self, node: ReceiveNode) -> None:
        self._node = node
        # None for one that the client has settled itself: it gets no answer.
        self.ids: list[int | None] = []

    def add(self, deliveries: list[Unsettled], settled: bool) -> None:
        """Take deliveries of a disposition in."""
        if settled:
            self.ids += [None] * len(deliveries)
        else:
            self.ids += [delivery.delivery_id for delivery in deliveries]

    def done(self, states: list[Any]) -> None:
        """Answer, and count what was done and what was refused."""
        account = self._node.account
        if account is not None:
            refused = 0
            if states.count(_ACCEPTED) != len(states):
                refused = sum(_is_refusal(state) for state in states)
            if refused:
                account.calls(SETTLE, REFUSED, refused)
            if refused < len(states):
                account.calls(SETTLE, ACCEPTED, len(states) - refused)
        self._answer(states)

    def _answer(self, states: list[Any]) -> None:
        """Answer ranges of deliveries that have the same state."""
        node = self._node
        if node.link.state is not LinkState.ATTACHED:
            return
        session = node.link.session
        for first, last, state in self._ranges(states):
            session.settle(first, last, state)
        node.connection.flush_soon()
        if node.link.credit > 0:
            node.want()

    def _ranges(self, states: list[Any]) -> list[tuple[int, int, Any]]:
        found: list[tuple[int, int, Any]] = []
        first, last, before = 0, -1, None
        for delivery_id, state in zip(self.ids, states, strict=True):
            if delivery_id is None:
                continue
            if before is state and last + 1 == delivery_id:
                last = delivery_id
                continue
            if before is not None:
                found.append((first, last, before))
            first, last, before = delivery_id, delivery_id, state
        if before is not None:
            found.append((first, last, before))
        return found

    def failed(self, error: TwinbusError) -> None:
        """Nothing of it happened; the client may settle again through management."""
        account = self._node.account
        if account is not None:
            account.calls(SETTLE, outcome_of(error), len(self.ids))
        state = rejected(error)
        self._answer([state for _ in self.ids])


def _is_refusal(state: Any) -> bool:
    """Whether a settlement was refused; one that dead-letters has no error."""
    return type(state) is Rejected and state.error is not None
