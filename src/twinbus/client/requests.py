"""Requests and replies: `$cbs` and `$management`.

A pair of links in one session: requests go out on one, replies come in on the other and
find their request by its id, in any order. A request that was sent and not answered has
an unknown outcome, like a message.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from twinbus import limits
from twinbus.client.link import LiveLink
from twinbus.client.live import LiveConnection
from twinbus.client.sending import DeliveryOutcome, SendLink
from twinbus.client.transport.deadline import Deadline, answer
from twinbus.errors import DeadlineExceeded, OutcomeUnknown, RemoteError, TwinbusError
from twinbus.wire.codec import decode
from twinbus.wire.events import Delivered
from twinbus.wire.message import sections
from twinbus.wire.performatives import (
    ACCEPTED,
    SND_SETTLED,
    SND_UNSETTLED,
    Attach,
    Source,
    Target,
)
from twinbus.wire.session import Session

_pairs = itertools.count(1)


class ClientReply:
    """An answer: what it answers, its properties and its body."""

    __slots__ = ("body", "correlation_id", "properties")

    def __init__(self, payload: bytes) -> None:
        self.correlation_id: Any = None
        self.properties: dict[str, Any] = {}
        self.body: Any = None
        budget = limits.SECTION_NODES_MAX
        for code, _begin, start, _end in sections.find_sections(payload):
            if code == sections.PROPERTIES:
                fields, _ = decode(payload, start)
                if len(fields) > sections.CORRELATION_ID:
                    self.correlation_id = fields[sections.CORRELATION_ID]
            elif code == sections.APPLICATION_PROPERTIES:
                self.properties, _ = decode(payload, start, budget=budget)
            elif code == sections.VALUE:
                self.body, _ = decode(payload, start, budget=budget)


class RequestPair:
    """The two links to one node that answers requests."""

    def __init__(self, live: LiveConnection, address: str) -> None:
        self.live = live
        self.address = address
        self._replies: _ReplyLink
        self._requests: SendLink
        self._numbers = itertools.count(1)
        self._name = ""

    @property
    def failure(self) -> RemoteError | None:
        """Why the pair is no longer there."""
        return self._requests.failure or self._replies.failure

    async def open(self) -> None:
        """Attach both links; if one is refused, neither stays."""
        live = self.live
        session = live.begin()
        self._replies = _ReplyLink(live, session)
        self._requests = SendLink(live, session)
        # Both the name and the address of the link: servers look for either.
        self._name = f"{live.engine.container_id}-replies-{next(_pairs)}"
        inward = Attach(
            snd_settle_mode=SND_SETTLED,
            source=Source(address=self.address),
            target=Target(address=self._name),
        )
        outward = Attach(
            snd_settle_mode=SND_UNSETTLED,
            source=Source(address=self._name),
            target=Target(address=self.address),
        )
        both = (
            asyncio.ensure_future(self._replies.attach(inward, self._name)),
            asyncio.ensure_future(self._requests.attach(outward)),
        )
        try:
            await asyncio.gather(*both)
        except BaseException:
            for each in both:
                each.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            live.give_up(session)
            raise
        self._replies.link.credit_window = limits.CLIENT_REPLIES_MAX
        self._replies.link.grant(limits.CLIENT_REPLIES_MAX)
        live.flush_soon()

    async def request(
        self, properties: dict[str, Any], body: Any, deadline: Deadline
    ) -> ClientReply:
        """Ask and wait for the answer, whatever it says."""
        key = f"{self._name}-{next(self._numbers)}"
        payload = sections.encode_request(self._name, properties, body, key)
        reply = self._replies.expect(key)
        sending = self._requests.submit(payload)
        sending.future.add_done_callback(lambda sent: _refuse(sent, reply))
        try:
            return await answer(reply, deadline, self.address)
        except asyncio.CancelledError:
            self.live.missed()
            raise
        except DeadlineExceeded as error:
            self.live.missed()
            raise _unanswered(sending, error) from error
        except RemoteError as error:
            if self.failure is None:
                raise
            raise _unanswered(sending, error) from error
        finally:
            self._replies.forget(key)
            sending.future.cancel()


def _unanswered(
    sending: DeliveryOutcome, error: RemoteError | DeadlineExceeded
) -> TwinbusError:
    if isinstance(error, OutcomeUnknown) or not sending.sent:
        return error
    return OutcomeUnknown(error)


def _refuse(sent: asyncio.Future[None], reply: asyncio.Future[ClientReply]) -> None:
    """A request that was refused will not be answered."""
    error = None if sent.cancelled() else sent.exception()
    if error is not None and not reply.done():
        reply.set_exception(error)


class _ReplyLink(LiveLink):
    """The link on which replies come."""

    def __init__(self, live: LiveConnection, session: Session) -> None:
        super().__init__(live, session)
        self._expected: dict[str, asyncio.Future[ClientReply]] = {}

    def expect(self, key: str) -> asyncio.Future[ClientReply]:
        """A future for the reply to a request."""
        future: asyncio.Future[ClientReply] = asyncio.get_running_loop().create_future()
        if self.failure is not None:
            future.set_exception(self.failure)
        self._expected[key] = future
        return future

    def forget(self, key: str) -> None:
        """No caller waits for that reply any more."""
        self._expected.pop(key, None)

    def on_delivered(self, delivery: Delivered) -> None:
        """A reply came; one without a waiting request is dropped."""
        if not delivery.settled:
            number = delivery.delivery_id
            self.link.session.answer(number, number, ACCEPTED)
        reply = ClientReply(delivery.payload)
        future = self._expected.get(str(reply.correlation_id))
        if future is not None and not future.done():
            future.set_result(reply)

    def on_ended(self, failure: RemoteError) -> None:
        """There will be no more replies."""
        super().on_ended(failure)
        for future in self._expected.values():
            if not future.done():
                future.set_exception(failure)
