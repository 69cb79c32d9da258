"""Takes orders over HTTP and passes them on, also while the primary is down.

    pip install /path/to/twinbus fastapi uvicorn aiohttp
    PRIMARY=... SECONDARY=... uvicorn fastapi_orders:app

Servers of your own also need SECONDARY_ADMIN and CA_FILE, as in `docs/pairing.md`.

One pair for the whole process, made when the application starts and closed when it
ends. `worker.py` receives the orders.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import OperationTimeoutError
from fastapi import FastAPI, HTTPException, Request

from twinbus.aio import MessagingFactory, SendAvailabilityPairedNamespaceOptions


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    primary_text, secondary_text = os.environ["PRIMARY"], os.environ["SECONDARY"]
    async with (
        # On Azure the administration has the same connection string. On a server of
        # your own it may have a port and a certificate of its own.
        ServiceBusAdministrationClient.from_connection_string(
            os.environ.get("SECONDARY_ADMIN", secondary_text),
            connection_verify=os.environ.get("CA_FILE") or True,
        ) as manager,
        MessagingFactory.from_connection_string(secondary_text) as secondary,
        MessagingFactory.from_connection_string(primary_text) as primary,
    ):
        await primary.pair_namespace(
            SendAvailabilityPairedNamespaceOptions(
                manager, secondary, failover_interval=1, ping_primary_interval=5
            )
        )
        app.state.primary = primary
        # Any number of requests may use it at once.
        app.state.orders = primary.get_queue_sender("orders")
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
async def order(request: Request) -> dict[str, str]:
    """Accept an order: it is durable when this returns."""
    message = ServiceBusMessage(await request.body())
    try:
        await request.app.state.orders.send_messages(message, timeout=30)
    except OperationTimeoutError as error:
        # Neither namespace took it in time.
        raise HTTPException(503, "Please try again.") from error
    return {"id": str(message.message_id)}


@app.get("/status")
async def status(request: Request) -> dict[str, Any]:
    """How the pair is doing, for a dashboard."""
    found: dict[str, Any] = request.app.state.primary.pairing.status().as_dict()
    return found
