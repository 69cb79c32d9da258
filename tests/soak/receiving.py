"""A receiver of the soak: takes what there is, completes it, and writes all of it down.

It may be killed at any moment, so a settlement is announced before it is sent. A link
that breaks is a loss, and the next receive makes another.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import Any

from tests.soak import plan
from tests.soak.plan import Orders
from twinbus.client.connection import Connection
from twinbus.client.message import Message
from twinbus.client.receiver import ReceiveOptions, Receiver
from twinbus.errors import TwinbusError
from twinbus.testing.events import Event, Recorder
from twinbus.testing.traces import body_of, delivered, token_of
from twinbus.wire.message.sections import SUBJECT

_CHUNK = 20
_WAIT_SECONDS = 0.5
_PAUSE_SECONDS = 0.2
# What our client says of a session whose link has ended.
_LINK_GONE = "link is gone"


def connect(orders: Orders) -> Connection:
    """The worker's own connection to the primary."""
    return Connection.from_connection_string(
        orders.primary, timeout_seconds=plan.ATTEMPT_SECONDS
    )


class Receiving:
    """Receives from one entity until it is told to stop."""

    def __init__(
        self, process: str, path: str, recorder: Recorder, random: Random
    ) -> None:
        self._process = process
        self._path = path
        self._recorder = recorder
        self._random = Random(random.random())
        self._links = 0

    @property
    def _link(self) -> str:
        return f"{self._process}/{self._path}/{self._links}"

    def _start(self, op: str, **known: Any) -> Event:
        return self._recorder.start(
            self._process, op, queue=self._path, link=self._link, **known
        )

    async def run(self, connection: Connection, stopped: asyncio.Event) -> None:
        by_session = self._path == plan.GROUPED
        while not stopped.is_set():
            options = ReceiveOptions(
                next_session=by_session, session_seconds=_WAIT_SECONDS
            )
            try:
                async with connection.receiver(self._path, options) as receiver:
                    if by_session:
                        await self._accept(receiver)
                    await self._consume(receiver, stopped, by_session)
            except TwinbusError:
                # Away, cut off, or no session with messages.
                with suppress(TimeoutError):
                    await asyncio.wait_for(stopped.wait(), _PAUSE_SECONDS)
            finally:
                self._recorder.finish(self._start("detach"))
                self._links += 1

    async def _accept(self, receiver: Receiver) -> None:
        event = self._start("accept")
        try:
            await receiver.open()
        except TwinbusError:
            self._recorder.finish(event, "unknown")
            raise
        self._recorder.finish(
            event,
            session=receiver.session_id,
            lock_until=receiver.session_locked_until_ms or 0,
        )

    async def _consume(
        self, receiver: Receiver, stopped: asyncio.Event, once: bool
    ) -> None:
        while not stopped.is_set():
            begun = self._start("receive")
            try:
                found = await receiver.receive(_CHUNK, _WAIT_SECONDS)
            except TwinbusError:
                self._recorder.finish(begun, "unknown", credit=_CHUNK)
                raise
            for message in found:
                held_ms = receiver.session_locked_until_ms
                known = facts(delivered(message, held_ms), message)
                self._recorder.finish(begun, **known)
            settled = await asyncio.gather(
                *(self._settle(receiver, message) for message in found),
                return_exceptions=True,
            )
            for error in settled:
                if error is not None:
                    raise error
            if once and not found:
                return

    async def _settle(self, receiver: Receiver, message: Message) -> None:
        op = "abandon" if self._random.random() < 0.02 else "complete"
        event = self._start(op, key=str(message.message_id))
        event.token = token_of(message)
        self._recorder.announce(event)
        try:
            await getattr(receiver, op)(message)
        except TwinbusError as error:
            lost = error.condition.endswith("lock-lost")
            if lost and _LINK_GONE in error.text:
                # Said by the client: the connection broke, and a session's lock ends
                # with its link. The server was not even asked.
                lost = False
            text = "lock-lost" if lost else type(error).__name__
            self._recorder.finish(event, "fail" if lost else "unknown", error=text)
            if not lost:
                raise
        else:
            self._recorder.finish(event)


def facts(seen: dict[str, Any], message: Message) -> dict[str, Any]:
    """What is known of a message, with a digest over more than its body."""
    subject = str(message.properties[SUBJECT] or "")
    digest = plan.digest(body_of(message), subject, message.application_properties)
    return {**seen, "digest": digest}
