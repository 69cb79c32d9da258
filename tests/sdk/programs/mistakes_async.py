"""Makes mistakes in an event loop, and handles them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    ServiceBusError,
)

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STR"]
UNREACHABLE = os.environ["SERVICEBUS_UNREACHABLE"]


async def handled(what: str, work: Awaitable[object]) -> None:
    try:
        await work
        print(what, "no error")
    except MessagingEntityNotFoundError:
        print(what, "create the entity")
    except MessagingEntityDisabledError:
        print(what, "enable the entity")
    except MessageSizeExceededError:
        print(what, "make it smaller")
    except ServiceBusAuthenticationError:
        print(what, "check the key")
    except ServiceBusConnectionError:
        print(what, "check the network")
    except ServiceBusError as error:
        print(what, type(error).__name__)
    except (TypeError, ValueError) as error:
        print(what, type(error).__name__)


async def send(text: str, queue: str, size: int = 1) -> None:
    client = ServiceBusClient.from_connection_string(text, retry_total=0)
    # The pair is made here.
    async with client, client.get_queue_sender(queue) as sender:
        await sender.send_messages(ServiceBusMessage("x" * size), timeout=5)


async def main() -> None:
    await handled("missing", send(CONNECTION, "nowhere"))
    await handled("disabled", send(CONNECTION, "disabled"))
    await handled("large", send(CONNECTION, "orders", 300 * 1024))
    wrong = CONNECTION.replace("SharedAccessKey=", "SharedAccessKey=wrong")
    await handled("key", send(wrong, "orders"))
    await handled("unreachable", send(UNREACHABLE, "orders"))
    async with ServiceBusClient.from_connection_string(CONNECTION) as client:
        # The pair is made here.
        sender = client.get_queue_sender("orders")
        await handled("number", sender.send_messages(7))  # type: ignore[arg-type]
        await handled(
            "timeout", sender.send_messages(ServiceBusMessage("x"), timeout=-1)
        )
        task = asyncio.create_task(sender.send_messages(ServiceBusMessage("taken")))
        await task
        await sender.close()
        await handled("closed", sender.send_messages(ServiceBusMessage("x")))
        async with client.get_queue_receiver("orders", max_wait_time=5) as receiver:
            message = await anext(receiver)
            print(message)
            await receiver.complete_message(message)
