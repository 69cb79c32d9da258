"""A child that uses the primary without a pair, to see what such an application sees.

Owns the attempts: to contact it, to send to a queue of its own, to receive from that
and to manage it, each again and again. An attempt is made once, without retries, and
ends in time. Without contact no other way is tried. The queue has a stock of messages,
so that there is something to receive where sends fail. Judges nothing; what was seen is
told to the parent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from azure.core.exceptions import AzureError

from twinbus import limits
from twinbus.client.receiver import ReceiveOptions
from twinbus.clock import SystemClock
from twinbus.drill.plan import WITNESS_QUEUE
from twinbus.drill.roles.stage import Line, Stage, act, plan_of, say
from twinbus.drill.sightings import BUSY, CONTACT, MANAGE, NO, OK, RECEIVE, SEND, SLOW
from twinbus.drill.site.access import NamespaceAccess
from twinbus.errors import DeadlineExceeded, TwinbusError
from twinbus.pairing.rules.classification import Failure, kind_of
from twinbus.wire.message.sections import encode_message

_MESSAGE = encode_message(b"witness")


class Witness:
    """One application without a pair."""

    def __init__(self, job: Line) -> None:
        self._access = NamespaceAccess(**job["primary"])
        self._queue = plan_of(job).real(WITNESS_QUEUE)
        seconds = limits.DRILL_WITNESS_SECONDS_MAX
        connection = self._access.connection(seconds)
        self._sender = connection.sender(self._queue)
        options = ReceiveOptions(deletes=True)
        self._receiver = connection.receiver(self._queue, options)
        self._admin = self._access.admin(
            retry_total=0, connection_timeout=seconds, read_timeout=seconds
        )
        self._clock = SystemClock()
        # Whether the last attempt made contact.
        self._contact = True
        # How many messages there should be in the queue, at least.
        self._stock = 0

    async def fill(self) -> None:
        """Send the stock."""
        count = limits.DRILL_WITNESS_STOCK
        await self._sender.send([_MESSAGE] * count)
        self._stock = count

    async def watch(self) -> None:
        """Try every way until cancelled."""
        attempts = (
            self._try_contact,
            self._try_send,
            self._try_receive,
            self._try_manage,
        )
        async with asyncio.TaskGroup() as group:
            for attempt in attempts:
                group.create_task(self._repeat(attempt))

    async def _repeat(self, attempt: Callable[[], Awaitable[None]]) -> None:
        while True:
            if self._contact or attempt == self._try_contact:
                await attempt()
            await asyncio.sleep(limits.DRILL_WITNESS_SECONDS)

    async def _try_contact(self) -> None:
        self._contact = await self._look(CONTACT, self._make_contact()) != NO

    async def _try_send(self) -> None:
        if await self._look(SEND, self._sender.send(_MESSAGE)) in (OK, SLOW):
            self._stock += 1

    async def _try_receive(self) -> None:
        if self._stock:
            self._stock -= 1
            await self._look(RECEIVE, self._receive())

    async def _try_manage(self) -> None:
        attempt = asyncio.to_thread(self._admin.get_queue, self._queue)
        await self._look(MANAGE, attempt)

    # -- attempts ----------------------------------------------------------------------

    async def _make_contact(self) -> None:
        """Open a connection, and close it again."""
        seconds = limits.DRILL_CONTACT_SECONDS_MAX
        async with self._access.connection(seconds) as connection:
            await connection.open()

    async def _receive(self) -> None:
        seconds = limits.DRILL_WITNESS_SECONDS_MAX
        if not await self._receiver.receive(1, seconds):
            raise DeadlineExceeded("receive", seconds)

    async def _look(self, way: str, attempt: Awaitable[object]) -> str:
        """Make an attempt and tell how it ended."""
        loop = asyncio.get_running_loop()
        at_ms, begun = self._clock.now_ms(), loop.time()
        answer, why = OK, ""
        try:
            async with asyncio.timeout(limits.DRILL_WITNESS_SECONDS_MAX):
                await attempt
        except (TwinbusError, AzureError, TimeoutError) as error:
            kind = kind_of(error)
            if kind is Failure.BUSY and way == MANAGE:
                # HTTP says the same of a store that has stopped.
                kind = Failure.SERVICE
            answer = BUSY if kind is Failure.BUSY else NO
            why = kind.value
        seconds = loop.time() - begun
        if answer == OK and seconds >= limits.DRILL_SLOW_SECONDS:
            answer = SLOW
        say(way=way, at_ms=at_ms, took=round(seconds, 3), answer=answer, why=why)
        return answer


async def play(stage: Stage, job: Line) -> None:
    """Watch until the parent has had enough."""
    witness = Witness(job)
    await witness.fill()
    watching = asyncio.create_task(witness.watch())
    over = asyncio.create_task(stage.over())
    say(ready=True)
    await asyncio.wait((watching, over), return_when=asyncio.FIRST_COMPLETED)
    if watching.done():
        watching.result()
    watching.cancel()


if __name__ == "__main__":
    act(play)
