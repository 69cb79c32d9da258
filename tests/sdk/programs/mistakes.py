"""Makes every mistake that a sender can see, and prints how it is told."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STR"]
UNREACHABLE = os.environ["SERVICEBUS_UNREACHABLE"]
LISTENER = os.environ["SERVICEBUS_LISTENER_STR"]


def attempt(what: str, call: Callable[[], Any]) -> None:
    try:
        call()
    except ServiceBusError as error:
        print(f"{what}: {type(error).__name__}, of the service bus")
    except (TypeError, ValueError) as error:
        print(f"{what}: {type(error).__name__}")
    else:
        print(f"{what}: no error")


def send(text: str, queue: str, **options: Any) -> None:
    client = ServiceBusClient.from_connection_string(text, retry_total=0)
    # The pair is made here.
    with client, client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("mistake"), **options)


def main() -> None:
    attempt("no such queue", lambda: send(CONNECTION, "nowhere"))
    attempt("disabled", lambda: send(CONNECTION, "disabled"))
    attempt("full", lambda: fill(CONNECTION))
    wrong = CONNECTION.replace("SharedAccessKey=", "SharedAccessKey=wrong")
    attempt("wrong key", lambda: send(wrong, "orders"))
    attempt("no right", lambda: send(LISTENER, "disabled"))
    attempt("unreachable", lambda: send(UNREACHABLE, "orders", timeout=5))
    attempt("no session", lambda: send(CONNECTION, "sessions"))
    arguments()
    strings()


def fill(text: str) -> None:
    client = ServiceBusClient.from_connection_string(text, retry_total=0)
    # The pair is made here.
    with client, client.get_queue_sender("tiny") as sender:
        for _ in range(30):
            sender.send_messages(ServiceBusMessage("x" * 100_000))


def arguments() -> None:
    with ServiceBusClient.from_connection_string(CONNECTION) as client:
        # The pair is made here.
        sender = client.get_queue_sender("orders")
        message = ServiceBusMessage("mistake")
        attempt("timeout 0", lambda: sender.send_messages(message, timeout=0))
        attempt("timeout -1", lambda: sender.send_messages(message, timeout=-1))
        attempt("a number", lambda: sender.send_messages(7))  # type: ignore[arg-type]
        attempt("a text", lambda: sender.send_messages("hi"))  # type: ignore[arg-type]
        attempt("None", lambda: sender.send_messages(None))  # type: ignore[arg-type]
        attempt(
            "a list of numbers",
            lambda: sender.send_messages([7]),  # type: ignore[arg-type]
        )
        attempt("an odd dict", lambda: sender.send_messages({"bodi": "x"}))
        attempt(
            "cancel a text",
            lambda: sender.cancel_scheduled_messages("7"),  # type: ignore[arg-type]
        )
        sender.close()
        sender.close()
        attempt("closed", lambda: sender.send_messages(message))
        attempt("closed, batch", sender.create_message_batch)
        attempt("closed, schedule", lambda: sender.cancel_scheduled_messages([1]))
        attempt("closed, enter", sender.__enter__)


def strings() -> None:
    made = ServiceBusClient.from_connection_string
    attempt("empty", lambda: made(""))
    attempt("no endpoint", lambda: made("SharedAccessKeyName=a;SharedAccessKey=b"))
    attempt("no key", lambda: made("Endpoint=sb://localhost/;SharedAccessKeyName=a"))
    text = f"{CONNECTION};EntityPath=orders".replace(";;", ";")
    with made(text) as client:
        attempt("path", lambda: client.get_queue_sender("orders"))
        attempt("other path", lambda: client.get_queue_sender("others"))
        attempt("other topic", lambda: client.get_topic_sender("events"))
        attempt("other receiver", lambda: client.get_queue_receiver("others"))
