"""Claims: tokens put to `$cbs`, one for each entity, renewed before they end.

A claim belongs to a connection. It is put when a link needs it, once however many links
do, and renewed in the background while the connection lives. A renewal that fails is
tried again, ever closer to the end, and then left: the next link puts it anew.
"""

from __future__ import annotations

import asyncio
import logging

from twinbus import limits
from twinbus.client.credentials import Token, TokenSource
from twinbus.client.live import LiveConnection
from twinbus.client.requests import ClientReply, RequestPair
from twinbus.client.transport.deadline import Deadline, limit
from twinbus.client.transport.shared import Shared
from twinbus.clock import Clock
from twinbus.errors import ClaimRefused, OutcomeUnknown, TwinbusError
from twinbus.wire.types import Timestamp

log = logging.getLogger("twinbus.client")

_CBS = "$cbs"
# Part of a token's life after which it is renewed; the Python SDK waits for 0.9.
_USED_PART = 0.8
_CONDITIONS = {
    400: "amqp:invalid-field",
    401: "amqp:unauthorized-access",
    403: "amqp:unauthorized-access",
    404: "amqp:not-found",
    503: "com.microsoft:server-busy",
}


class ClientClaims:
    """What a connection has shown to its server."""

    def __init__(self, live: LiveConnection, source: TokenSource, clock: Clock) -> None:
        self._live = live
        self._source = source
        self._clock = clock
        self._pair: RequestPair | None = None
        self._opening = Shared(self._open)
        self._putting: dict[str, Shared[None]] = {}
        # When each claim ends, by audience and the wall clock.
        self._ends_ms: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._renewing: set[asyncio.Task[None]] = set()

    async def need(self, audience: str) -> bool:
        """Return when the server has a claim for an entity; True if it is new."""
        if self._ends_ms.get(audience, 0) > self._wall_ms():
            return False
        putting = self._putting.get(audience)
        if putting is None:
            putting = Shared(lambda: self._put(audience))
            self._putting[audience] = putting
        await putting.get()
        return True

    def forget(self, audience: str) -> None:
        """The server does not honour the claim: put it anew next time."""
        self._ends_ms.pop(audience, None)

    def stop(self) -> None:
        """The connection is gone."""
        for timer in self._timers.values():
            timer.cancel()
        for task in self._renewing:
            task.cancel()

    def _wall_ms(self) -> int:
        """The time that tokens are made and judged by."""
        return self._clock.now().wall_ms

    async def _put(self, audience: str) -> None:
        now_ms = self._wall_ms()
        token = await self._source.token(audience, now_ms)
        pair = self._pair
        if pair is None or pair.failure is not None:
            pair = await self._opening.get()
        properties = {
            "operation": "put-token",
            "type": token.kind,
            "name": audience,
            "expiration": Timestamp(token.expires_ms),
        }
        deadline = Deadline(limits.CLIENT_TIMEOUT_SECONDS)
        try:
            reply = await pair.request(properties, token.text, deadline)
        except OutcomeUnknown as error:
            raise error.reason from error
        _check(reply)
        self._ends_ms[audience] = token.expires_ms
        self._renew_later(audience, token, now_ms)

    async def _open(self) -> RequestPair:
        pair = RequestPair(self._live, _CBS)
        await pair.open()
        self._pair = pair
        return pair

    # -- renewal -----------------------------------------------------------------------

    def _renew_later(self, audience: str, token: Token, now_ms: int) -> None:
        life_seconds = (token.expires_ms - now_ms) / 1000
        self._schedule(audience, life_seconds * _USED_PART)

    def _schedule(self, audience: str, pause_seconds: float) -> None:
        old = self._timers.pop(audience, None)
        if old is not None:
            old.cancel()
        if self._live.failure is None:
            loop = asyncio.get_running_loop()
            # A day ahead is far enough for a timer: then it is simply renewed.
            pause_seconds = min(pause_seconds, 86_400)
            timer = loop.call_later(pause_seconds, self._start_renewal, audience)
            self._timers[audience] = timer

    def _start_renewal(self, audience: str) -> None:
        task = asyncio.get_running_loop().create_task(self._renew(audience))
        self._renewing.add(task)
        task.add_done_callback(self._renewing.discard)

    async def _renew(self, audience: str) -> None:
        try:
            async with limit(Deadline(limits.CLIENT_TIMEOUT_SECONDS), "put-token"):
                await self._put(audience)
        except TwinbusError as error:
            log.warning("the claim for %s was not renewed: %s", audience, error)
            left_ms = self._ends_ms.get(audience, 0) - self._wall_ms()
            pause_seconds = left_ms / 2000
            if pause_seconds >= limits.CLIENT_RENEW_SECONDS_MIN:
                self._schedule(audience, pause_seconds)


def _check(reply: ClientReply) -> None:
    status = reply.properties.get("status-code")
    if not isinstance(status, int):
        status = 500
    if not 200 <= status < 300:
        text = str(reply.properties.get("status-description") or "")
        condition = _CONDITIONS.get(status, "amqp:internal-error")
        raise ClaimRefused(int(status), condition, text)
