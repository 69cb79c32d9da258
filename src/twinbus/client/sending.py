"""Sending on one link: a queue in front of the credit, and the outcomes behind it.

| a delivery is | and ends as                                                        |
|---------------|--------------------------------------------------------------------|
| waiting       | sent; cancelled or late without a trace; failed with its link      |
| sent          | accepted; refused; unknown (link gone, too late); forgotten if its |
|               | caller was cancelled: its outcome comes later and changes nothing  |

Deliveries leave in the order in which they were submitted, as many as there is credit
for, and never wait for each other's outcomes. A link has one timer for the deadlines of
all its deliveries, because almost none of them is ever reached.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from twinbus import limits
from twinbus.client.link import LiveLink
from twinbus.client.live import LiveConnection, remote_error
from twinbus.client.metering import outcome_of
from twinbus.client.outcome import Outcome
from twinbus.client.transport.deadline import Deadline
from twinbus.errors import DeadlineExceeded, OutcomeUnknown, RemoteError
from twinbus.ledger.counts import LedgerAccount
from twinbus.ledger.schema import ACCEPTED, FAILED, PING, SEND
from twinbus.wire.link import LinkState
from twinbus.wire.performatives import Accepted, Rejected
from twinbus.wire.session import Session


class DeliveryOutcome(Outcome):
    """One delivery on its way."""

    __slots__ = ("deadline", "form", "link", "payload", "sent", "sizes", "turn")

    def __init__(
        self, link: SendLink, payload: bytes, form: int, deadline: Deadline | None
    ) -> None:
        self.future = link.loop.create_future()
        self.late = None
        self.link = link
        self.payload = payload
        self.form = form
        self.deadline = deadline
        self.sent = False
        # Of its messages, for the ledger.
        self.sizes: Sequence[int] = (len(payload),)
        # How often the connection had written when this was added to its output.
        self.turn = 0

    @property
    def begun(self) -> bool:
        return self.sent

    @property
    def withdrawn(self) -> bool:
        """Whether the caller has cancelled it."""
        late = self.late
        return self.future.cancelled() or (late is not None and late.cancelled())

    def decide(self, state: Any) -> None:
        """The server has decided."""
        link = self.link
        link.pending.pop(self, None)
        if link.account is not None:
            self._count(link.account, state)
        if type(state) is not Accepted:
            self.end(_refusal(state))
        elif self.late is None and not self.future.done():
            # The usual case, in short.
            self.future.set_result(None)
        else:
            self.end(None)

    def fail(self, failure: RemoteError) -> None:
        """There will be no decision."""
        left = self.sent and self.link.live.writes > self.turn
        if left and self.link.account is not None:
            self._count(self.link.account, None)
        self.end(OutcomeUnknown(failure) if left else failure)

    def expire(self, deadline: Deadline) -> None:
        """Its time is over."""
        if not self.sent:
            self.end(DeadlineExceeded("credit", deadline.seconds))
            return
        if self.link.account is not None:
            self._count(self.link.account, None)
        late = DeadlineExceeded("outcome", deadline.seconds)
        unknown = OutcomeUnknown(late)
        unknown.__cause__ = late
        self.end(unknown)

    def _count(self, account: LedgerAccount, state: Any) -> None:
        """Count what was sent; without a state it is unknown what became of it."""
        outcome = ACCEPTED
        if type(state) is not Accepted:
            outcome = FAILED if state is None else outcome_of(_refusal(state))
        if self.link.operation == PING:
            account.calls(PING, outcome)
        else:
            account.messages_in(self.link.operation, outcome, self.sizes)


def _refusal(state: Any) -> RemoteError:
    if isinstance(state, Rejected) and state.error is not None:
        return remote_error(state.error, "the delivery")
    name = type(state).__name__.lower()
    return RemoteError(f"amqp:{name}", f"The server answered '{name}'.")


class SendLink(LiveLink):
    """A link on which messages are sent."""

    sends = True

    def __init__(self, live: LiveConnection, session: Session | None = None) -> None:
        super().__init__(live, session)
        self.loop = asyncio.get_running_loop()
        # What the ledger calls a delivery.
        self.operation = SEND
        # All that have no outcome yet, in the order of submission: they fail in order.
        self.pending: dict[DeliveryOutcome, None] = {}
        # Those that were not sent yet, in the order of submission; any may leave.
        self._waiting: OrderedDict[DeliveryOutcome, None] = OrderedDict()
        self._tag = 0
        self._timer: asyncio.TimerHandle | None = None
        # When the timer fires: no deadline is earlier.
        self._looks_at = math.inf

    def submit(
        self, payload: bytes, form: int = 0, deadline: Deadline | None = None
    ) -> DeliveryOutcome:
        """Put a message on its way. Without a deadline, its caller takes it back."""
        sending = DeliveryOutcome(self, payload, form, deadline)
        if self.failure is not None:
            sending.fail(self.failure)
            return sending
        self.pending[sending] = None
        if deadline is not None and deadline.at < self._looks_at:
            self._look_at(deadline.at)
        if self._waiting or self.link.credit <= 0 or self.live.full:
            self._waiting[sending] = None
            # No caller waits for it: if it was not sent it will not be.
            sending.future.add_done_callback(lambda _: self._withdraw(sending))
        else:
            self._transfer(sending)
        return sending

    def _withdraw(self, sending: DeliveryOutcome) -> None:
        if sending.future.cancelled() and not sending.sent:
            self._waiting.pop(sending, None)
            self.pending.pop(sending, None)

    def _transfer(self, sending: DeliveryOutcome) -> None:
        live = self.live
        self._tag = tag = (self._tag + 1) & 0xFFFFFFFF
        sending.sent = True
        sending.turn = live.writes
        payload = sending.payload
        self.link.send(payload, tag.to_bytes(4, "big"), sending, sending.form)
        live.unwritten_bytes += len(payload)
        # Its outcome may be long in coming, or the caller may have cancelled it.
        sending.payload = b""
        if live.unwritten_bytes >= limits.CLIENT_WRITE_BYTES and not live.full:
            # The server can begin with these while others are made.
            live.flush()
        else:
            live.flush_soon()

    # -- deadlines ---------------------------------------------------------------------

    def _look_at(self, time: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at = time
        self._timer = self.loop.call_at(time, self._look)

    def _look(self) -> None:
        """Some deadline may have passed: see to those that have, and to the next."""
        self._timer = None
        self._looks_at = math.inf
        now = self.loop.time()
        missed = False
        soonest = math.inf
        for sending in tuple(self.pending):
            deadline = sending.deadline
            if deadline is None:
                continue
            if deadline.at > now:
                soonest = min(soonest, deadline.at)
                continue
            self.pending.pop(sending, None)
            self._waiting.pop(sending, None)
            missed = missed or sending.sent or self.live.full
            sending.expire(deadline)
        if soonest < math.inf:
            # Many that end one after the other are not worth a look each.
            self._look_at(max(soonest, now + limits.CLIENT_LOOK_SECONDS_MIN))
        if missed:
            self.live.missed()

    # -- events ------------------------------------------------------------------------

    def on_flow(self) -> None:
        """There may be credit."""
        link = self.link
        if link.state is not LinkState.ATTACHED:
            return
        waiting = self._waiting
        while waiting and link.credit > 0 and not self.live.full:
            sending, _ = waiting.popitem(last=False)
            if sending.withdrawn:
                self.pending.pop(sending, None)
            else:
                self._transfer(sending)
        if link.drain:
            link.drained()
        elif link.echo:
            link.echo = False
            link.write_flow()
        self.live.flush_soon()

    def on_ended(self, failure: RemoteError) -> None:
        """Nothing more will be decided."""
        super().on_ended(failure)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self.pending = self.pending, {}
        self._waiting.clear()
        for sending in pending:
            sending.fail(failure)
