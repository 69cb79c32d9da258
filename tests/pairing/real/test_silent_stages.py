"""A primary that falls silent at any stage: each send ends in time or is diverted.

Every stage has a proxy of its own and they all run at once, because each of them takes
as long as an attempt does.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from time import monotonic
from typing import Any

import pytest
from azure.servicebus.exceptions import OperationTimeoutError

from tests.pairing.real.site import ATTEMPT_SECONDS, Leftovers, RealPair, message
from twinbus.aio import EventKind
from twinbus.testing.proxy import Fault, FaultyProxy

STAGES = {
    "TCP accepted and silence": Fault(),
    "requests swallowed": Fault(towards="server"),
    "before SASL": Fault(towards="client"),
    "in the SASL header": Fault(towards="client", after_bytes=4),
    "after the SASL header": Fault(towards="client", after_frame="sasl header"),
    "after the SASL mechanisms": Fault(towards="client", after_frame="sasl mechanisms"),
    "inside the SASL outcome": Fault(
        towards="client", after_frame="sasl outcome", inside=True
    ),
    "after the SASL outcome": Fault(towards="client", after_frame="sasl outcome"),
    "inside open": Fault(towards="client", after_frame="open", inside=True),
    "after open": Fault(towards="client", after_frame="open"),
    "after begin": Fault(towards="client", after_frame="begin"),
    "after the attach of $cbs": Fault(towards="client", after_frame="attach"),
    "inside the token's answer": Fault(
        towards="client", after_frame="transfer", inside=True
    ),
    "after attach": Fault(towards="client", after_frame="attach", count=3),
    "inside attach": Fault(
        towards="client", after_frame="attach", count=3, inside=True
    ),
    "the transfer is swallowed": Fault(
        towards="server", after_frame="transfer", count=2, inside=True
    ),
    "inside the outcome": Fault(
        towards="client", after_frame="disposition", count=2, inside=True
    ),
}
TLS_STAGES = {
    "in TLS": Fault(towards="client", after_bytes=5),
    "in the middle of the server's certificate": Fault(
        towards="client", after_bytes=700
    ),
}


async def _divert(pair: RealPair, queue: str, text: str, name: str) -> None:
    """A send without a timeout goes to the backlog in the same call."""
    async with pair.pair(text, arguments=_tls(pair, text)) as paired:
        await paired.sender(queue).send_messages(message(name))

        assert EventKind.FAILED_OVER in paired.kinds(queue), name
        status = paired.factory.pairing.status()
        assert [each.diverted for each in status.entities] == [1], name


async def _end_in_time(pair: RealPair, queue: str, text: str, name: str) -> None:
    """A send with a timeout, on an entity that has not failed over, ends by then."""
    async with pair.pair(
        text, arguments=_tls(pair, text), failover_interval=60
    ) as paired:
        began = monotonic()
        with pytest.raises(OperationTimeoutError):
            await paired.sender(queue).send_messages(message(name), timeout=1.5)

        assert monotonic() - began < 1.5 + ATTEMPT_SECONDS, name
        assert EventKind.FAILED_OVER not in paired.kinds(queue), name


def _tls(pair: RealPair, text: str) -> dict[str, Any]:
    if "UseDevelopmentEmulator" in text:
        return {}
    return {"connection_verify": pair.primary.server.ca_file}


@pytest.mark.parametrize("work", [_divert, _end_in_time])
async def test_a_send_ends_whatever_stage_is_silent(pair: RealPair, work: Any) -> None:
    queue = pair.queue()
    server = pair.primary.server
    async with Leftovers(), AsyncExitStack() as stack:
        jobs, proxies = [], []
        for name, fault in {**STAGES, **TLS_STAGES}.items():
            is_tls = name in TLS_STAGES
            port = server.ports["amqps" if is_tls else "amqp"]
            proxy = stack.enter_context(FaultyProxy("127.0.0.1", port))
            proxies.append(proxy)
            proxy.inject(fault)
            text = server.connection_string_through(proxy.port)
            if is_tls:
                text = text.replace("UseDevelopmentEmulator=true;", "")
            jobs.append(work(pair, queue, text, name))
        async with asyncio.timeout(60):
            await asyncio.gather(*jobs)
        for proxy in proxies:
            assert proxy.strikes, "the fault never struck"
            proxy.wait_until(lambda proxy: not proxy.open_connections)
