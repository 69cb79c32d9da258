"""Health: a message was sent and received within the last second.

Owns the probe, a command like any other: it stores a message, locks it and completes
it, and is answered after the commit. So a disk that is full or nearly so, a stopped
store and a commit that hangs are all reported. At most one probe waits at a time, and
its answer serves all requests of a second. Faults that are rehearsed are named in every
answer, and so is the load that makes the server deny sends: it is well, and busy.
Knows nothing about what else the namespace holds.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from twinbus import limits
from twinbus.errors import Bug, StorageFull, TwinbusError
from twinbus.server.broker.directory.placement import hosts_of
from twinbus.server.broker.faults import faults_on
from twinbus.server.broker.host import Host
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.server.http.cached import Cached
from twinbus.store.base import (
    PROBE,
    Lock,
)
from twinbus.store.records import Record

# What Microsoft's emulator answers, word for word.
_HEALTHY = {"status": "healthy", "message": "Service is healthy."}


def _probe(namespace: Namespace, turn: Turn) -> None:
    """Send, receive and complete a message (`turn.Command`)."""
    store = namespace.store
    if store.is_nearly_full():
        raise StorageFull
    now = turn.now
    store.append(PROBE, [Record(b"", b"probe")], now)
    until_ms = now.steady_ms + limits.HEALTH_LOCK_MS
    nonce, messages = store.lock(PROBE, 2, until_ms, now)
    completed = store.complete([Lock(m.id, nonce) for m in messages], now)
    if [message.bare for message in messages] != [b"probe"] or not all(completed):
        raise Bug("A message that was sent could not be received.")


class HealthProbe:
    """The health of one namespace."""

    def __init__(
        self,
        host: Host,
        deadline_seconds: float = limits.HEALTH_SECONDS_MAX,
        cached_seconds: float = limits.HEALTH_CACHED_SECONDS,
    ) -> None:
        self._host = host
        self._deadline_seconds = deadline_seconds
        # The result of a probe is the problem.
        self._probe = Cached(self._run, cached_seconds)

    async def problem(self) -> str | None:
        """Why messages cannot be sent and received; None if they can."""
        if self._host.fault is not None:
            return self._host.fault.text
        done = self._probe.task()
        # The probe goes on when this wait is over.
        await asyncio.wait([done], timeout=self._deadline_seconds)
        if not done.done():
            seconds = self._deadline_seconds
            return f"A message could not be stored within {seconds:g} seconds."
        return done.result()

    async def _run(self) -> str | None:
        """Why the probe failed; None if it did not."""
        try:
            await self._host.run(_probe)
        except TwinbusError as error:
            return error.text
        return None


def _throttled(first: Host) -> list[str]:
    """Why shards deny sends."""
    hosts = hosts_of(first)
    return [
        text if len(hosts) == 1 else f"{text} in shard {shard}"
        for shard, host in enumerate(hosts)
        if host.fault is None
        for text in host.load.throttled_by()
    ]


def _kept(host: Host) -> list[dict[str, Any]]:
    """What other shards keep for shards that are, or were, sick."""
    found = []
    for each in hosts_of(host):
        spool = each.spool
        if spool is not None and spool.rows:
            age = round(spool.age_seconds)
            shard = each.namespace.shard
            found.append({"shard": shard, "rows": spool.rows, "age_seconds": age})
    return found


def health_route(host: Host) -> Route:
    """`GET /health`: 200 if messages can be sent and received, else 503 and why.

    With several shards, one that fails makes it degraded; unhealthy is if all fail. A
    server that denies sends because of load is throttled, and well. What is kept for a
    shard that was sick is named until it has all of it.
    """
    probes = [HealthProbe(each) for each in hosts_of(host)]

    async def answer(request: Request) -> Response:
        del request
        problems = await asyncio.gather(*(probe.problem() for probe in probes))
        found = {k: text for k, text in enumerate(problems) if text is not None}
        body: dict[str, Any] = {**_HEALTHY}
        throttled = _throttled(host)
        if len(found) == len(problems):
            body = {"status": "unhealthy", "message": found[0]}
        elif throttled and not found:
            text = f"Sends are denied: {throttled[0]}."
            body = {"status": "throttled", "message": text}
        elif found:
            which = " and ".join(map(str, found))
            is_one = len(found) == 1
            words = ("Shard", "is") if is_one else ("Shards", "are")
            text = f"{words[0]} {which} of {len(problems)} {words[1]} not healthy."
            body = {"status": "degraded", "message": text}
        if len(problems) > 1:
            body["shards"] = [text or "healthy" for text in problems]
        body.update(host.namespace.store.about())
        if throttled:
            body["throttled"] = throttled
        if kept := _kept(host):
            body["spools"] = kept
        if rehearsed := faults_on(host.faults):
            body["faults"] = rehearsed
        is_down = len(found) == len(problems)
        return JSONResponse(body, status_code=503 if is_down else 200)

    return Route("/health", answer, methods=["GET"])
