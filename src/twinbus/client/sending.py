"""Sending on one link: a queue in front of the credit, and the outcomes behind it.

| a delivery is | and ends as                                                        |
|---------------|--------------------------------------------------------------------|
| waiting       | sent; cancelled or late without a trace; failed with its link      |
| sent          | accepted; refused; unknown (link gone, too late); forgotten if its |
|               | caller was cancelled: its outcome comes later and changes nothing  |

Deliveries leave in the order in which they were submitted, as many as there is credit
for, and never wait for each other's outcomes.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any

from twinbus.client.deadline import Deadline, answer
from twinbus.client.engine import send
from twinbus.client.link import LiveLink
from twinbus.client.live import LiveConnection, remote_error
from twinbus.errors import DeadlineExceeded, OutcomeUnknown, RemoteError
from twinbus.wire.link import LinkState
from twinbus.wire.performatives import Accepted, Rejected
from twinbus.wire.session import Session


class Sending:
    """One delivery on its way; its future is its outcome."""

    __slots__ = ("form", "future", "link", "payload", "sent", "turn")

    def __init__(self, link: SendLink, payload: bytes, form: int) -> None:
        self.link = link
        self.payload = payload
        self.form = form
        self.future: asyncio.Future[None] = link.loop.create_future()
        self.sent = False
        # How often the connection had written when this was added to its output.
        self.turn = 0

    def decide(self, state: Any) -> None:
        """The server has decided."""
        self.link.unsettled.discard(self)
        future = self.future
        if future.done():
            return
        if type(state) is Accepted:
            future.set_result(None)
        else:
            future.set_exception(_refusal(state))

    def fail(self, failure: RemoteError) -> None:
        """There will be no decision."""
        if not self.future.done():
            left = self.sent and self.link.live.writes > self.turn
            self.future.set_exception(OutcomeUnknown(failure) if left else failure)


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
        self.unsettled: set[Sending] = set()
        # In the order of submission; a set, because any of them may leave.
        self._waiting: OrderedDict[Sending, None] = OrderedDict()
        self._tag = 0

    def submit(self, payload: bytes, form: int = 0) -> Sending:
        """Put a message on its way; `outcome` waits for what becomes of it."""
        sending = Sending(self, payload, form)
        if self.failure is not None:
            sending.fail(self.failure)
        elif self._waiting or self.link.credit <= 0 or self.live.full:
            self._waiting[sending] = None
        else:
            self._transfer(sending)
        return sending

    async def outcome(self, sending: Sending, deadline: Deadline) -> None:
        """Wait for the outcome; returns if it was accepted, else raises."""
        try:
            await answer(sending.future, deadline, "outcome")
        except DeadlineExceeded as error:
            if sending.sent or self.live.full:
                self.live.missed()
            if not sending.sent:
                raise DeadlineExceeded("credit", deadline.seconds) from None
            raise OutcomeUnknown(error) from error
        finally:
            self.forget(sending)

    def forget(self, sending: Sending) -> None:
        """Nobody waits for it: if it was not sent it will not be."""
        if not sending.sent:
            self._waiting.pop(sending, None)
        future = sending.future
        if not future.cancel() and not future.cancelled():
            # Looked at, so that nobody complains that it was not.
            future.exception()

    def _transfer(self, sending: Sending) -> None:
        self._tag = (self._tag + 1) & 0xFFFFFFFF
        self.unsettled.add(sending)
        sending.sent = True
        sending.turn = self.live.writes
        tag = self._tag.to_bytes(4, "big")
        send(self.link, sending.payload, tag, sending, sending.form)
        self.live.unwritten_bytes += len(sending.payload)
        # Its outcome may be long in coming, or nobody may wait for it any more.
        sending.payload = b""
        self.live.flush_soon()

    # -- events ------------------------------------------------------------------------

    def on_flow(self) -> None:
        """There may be credit."""
        link = self.link
        if link.state is not LinkState.ATTACHED:
            return
        waiting = self._waiting
        while waiting and link.credit > 0 and not self.live.full:
            sending, _ = waiting.popitem(last=False)
            if not sending.future.done():
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
        unsettled, self.unsettled = self.unsettled, set()
        for sending in (*unsettled, *self._waiting):
            sending.fail(failure)
        self._waiting.clear()
