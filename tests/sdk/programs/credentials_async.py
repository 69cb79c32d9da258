"""Comes with an asynchronous credential, over a WebSocket."""

from __future__ import annotations

import os
import time
from typing import Any, Self

from azure.core.credentials import AccessToken, AzureNamedKeyCredential
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient

NAMESPACE = os.environ["SERVICEBUS_NAMESPACE"]
KEY = (os.environ["SERVICEBUS_KEY_NAME"], os.environ["SERVICEBUS_KEY"])
TOKEN = os.environ["SERVICEBUS_TOKEN"]
GATEWAY = os.environ["SERVICEBUS_WEBSOCKET_ENDPOINT"]
CA_FILE = os.environ["SERVICEBUS_CA_FILE"]


class AsyncTokenCredential:
    """Gives the token of an identity, as azure-identity does."""

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        print("asked for", scopes, sorted(options))
        return AccessToken(TOKEN, int(time.time()) + 3600)

    async def close(self) -> None:
        """Nothing to close."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing to close."""


async def run(credential: Any) -> None:
    client = ServiceBusClient(
        NAMESPACE,
        credential,
        transport_type=TransportType.AmqpOverWebsocket,
        custom_endpoint_address=GATEWAY,
        connection_verify=CA_FILE,
    )
    async with client:
        # The pair is made here.
        async with client.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage(type(credential).__name__))
        async with client.get_queue_receiver("orders", max_wait_time=5) as receiver:
            message = await anext(receiver)
            print(message)
            await receiver.complete_message(message)


async def main() -> None:
    async with AsyncTokenCredential() as credential:
        await run(credential)
    await run(AzureNamedKeyCredential(*KEY))
