"""Receives from an event loop: sessions, a lock renewer, dead letters."""

from __future__ import annotations

import os

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from azure.servicebus.aio import AutoLockRenewer, ServiceBusClient

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STR"]


async def main() -> None:
    async with ServiceBusClient.from_connection_string(CONNECTION) as client:
        # The pair is made here.
        async with client.get_queue_sender("sessions") as sender:
            await sender.send_messages(
                [ServiceBusMessage(f"{i}", session_id="one") for i in range(3)]
            )
        async with (
            AutoLockRenewer() as renewer,
            client.get_queue_receiver(
                "sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1
            ) as receiver,
        ):
            session = receiver.session
            renewer.register(receiver, session, max_lock_renewal_duration=30)
            await session.set_state(b"state")
            async for message in receiver:
                print(session.session_id, message)
                if str(message) == "1":
                    await receiver.dead_letter_message(message, reason="odd")
                else:
                    await receiver.complete_message(message)
            print(await session.get_state())
        async with client.get_queue_receiver(
            "sessions", sub_queue="deadletter", max_wait_time=5
        ) as dead:
            message = await anext(dead)
            print("dead", message, message.dead_letter_reason)
            await dead.complete_message(message)
