"""The life of a worker process: orders in, ready line out, until standard input ends.

Run as `python -m tests.soak.worker ORDERS`. Owns the pair of factories and the recorder
that sender and receiver share.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from random import Random

from azure.servicebus.aio.management import ServiceBusAdministrationClient

from tests.soak import plan, receiving, sending
from tests.soak.plan import Orders
from twinbus.aio import MessagingFactory, SendAvailabilityPairedNamespaceOptions
from twinbus.testing.events import Recorder
from twinbus.testing.history_evidence import record_pairing


@asynccontextmanager
async def _paired(
    orders: Orders, recorder: Recorder
) -> AsyncIterator[MessagingFactory]:
    make = MessagingFactory.from_connection_string
    async with (
        make(orders.primary, try_timeout=plan.ATTEMPT_SECONDS) as primary,
        make(orders.secondary, try_timeout=plan.ATTEMPT_SECONDS) as secondary,
        ServiceBusAdministrationClient.from_connection_string(
            orders.admin, connection_verify=orders.ca_file
        ) as manager,
    ):
        options = SendAvailabilityPairedNamespaceOptions(
            manager,
            secondary,
            plan.BACKLOG_QUEUES,
            plan.FAILOVER_SECONDS,
            orders.syphon,
            ping_primary_interval=plan.PING_SECONDS,
            primary_name=plan.PRIMARY_NAME,
            on_event=partial(record_pairing, recorder, orders.process),
        )
        await primary.pair_namespace(options)
        yield primary


async def _until_told(work: list[Awaitable[None]], stopped: asyncio.Event) -> None:
    """Work until standard input ends; an error of one worker ends all."""

    async def listen() -> None:
        # A pipe, not a thread that reads: a thread could not be cancelled.
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        await reader.read()
        stopped.set()

    print("ready", flush=True)
    await asyncio.gather(listen(), *work)


async def run(orders: Orders) -> None:
    """Do what the orders say."""
    stopped = asyncio.Event()
    random = Random(f"{orders.seed}/{orders.process}")
    async with AsyncExitStack() as stack:
        recorder = stack.enter_context(Recorder(orders.history))
        work: list[Awaitable[None]] = []
        if orders.sources:
            if orders.syphon:
                await stack.enter_async_context(_paired(orders, recorder))
            connection = await stack.enter_async_context(receiving.connect(orders))
            for source in orders.sources:
                actor = receiving.Receiving(orders.process, source, recorder, random)
                work.append(actor.run(connection, stopped))
        else:
            factory = await stack.enter_async_context(_paired(orders, recorder))
            for path in sending.PATHS:
                sender = sending.Sending(orders.process, path, recorder, random)
                work.append(sender.run(factory, stopped))
        await _until_told(work, stopped)


def main(entry: Callable[[Orders], Awaitable[None]] = run) -> None:
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")

    async def begin() -> None:
        await entry(Orders.from_json(sys.argv[1]))

    asyncio.run(begin())


if __name__ == "__main__":
    main()
