"""Sends from a pool of threads, with one sender that they share."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

from azure.servicebus import ServiceBusClient, ServiceBusMessage

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STR"]


def main() -> None:
    with ExitStack() as stack:
        client = stack.enter_context(
            closing(ServiceBusClient.from_connection_string(CONNECTION))
        )
        # The pair is made here.
        shared = stack.enter_context(client.get_queue_sender("orders"))
        # A sender of the official client is not safe for several threads at once.
        turn = threading.Lock()

        def work(number: int) -> str:
            with turn:
                shared.send_messages(ServiceBusMessage(f"shared {number}"))
            with client.get_queue_sender("orders") as own:
                own.send_messages(ServiceBusMessage(f"own {number}"))
            return threading.current_thread().name.rpartition("_")[0]

        with ThreadPoolExecutor(4, "worker") as pool:
            print(set(pool.map(work, range(8))))
        found: set[str] = set()
        with client.get_queue_receiver("orders", max_wait_time=5) as receiver:
            for message in receiver:
                found.add(str(message))
                receiver.complete_message(message)
                if len(found) == 16:
                    break
        print(sorted(found))
