"""HTTP and AMQP at one queue: what one puts in or locks, the other takes or settles."""

from __future__ import annotations

import json
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPConnection
from typing import Any

from azure.servicebus import ServiceBusMessage

from tests.sdk import declared
from tests.sdk.buses import Bus, take_one
from twinbus.core.sas import DEV_KEY_NAME, DEV_KEY_TEXT, Secret, make_token


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Message
    body: bytes


def ask(bus: Bus, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
    """One request of the REST data plane."""
    connection = HTTPConnection("127.0.0.1", bus.endpoint.http_port)
    token = make_token("http://x", DEV_KEY_NAME, Secret(DEV_KEY_TEXT), 1 << 33)
    # Capital letters of a name stay as they are.
    connection.request(method, f"/{path}", body, {"Authorization": token, **headers})
    answer = connection.getresponse()
    found = Answer(answer.status, answer.headers, answer.read())
    connection.close()
    return found


@declared.with_queue()
def test_what_http_sends_a_client_receives(bus: Bus, queue: str) -> None:
    broker = {"MessageId": "m", "Label": "news", "CorrelationId": "c", "TimeToLive": 60}
    headers = {
        "BrokerProperties": json.dumps(broker),
        "Content-Type": "application/json",
        "Priority": '"High"',
        "NumberOfThings": "3",
        "Is-Good": "true",
    }

    ask(bus, "POST", f"{queue}/messages", b'{"a": 1}', **headers)
    receiver = bus.receiver(queue)
    message = take_one(receiver)
    receiver.complete_message(message)

    assert str(message) == '{"a": 1}'
    assert (message.message_id, message.subject) == ("m", "news")
    assert (message.correlation_id, message.content_type) == ("c", "application/json")
    assert message.time_to_live is not None
    assert message.time_to_live.total_seconds() == 60
    properties: Any = message.application_properties
    assert properties == {b"Priority": b"High", b"NumberOfThings": 3, b"Is-Good": True}


@declared.with_queue()
def test_what_a_client_sends_http_receives(bus: Bus, queue: str) -> None:
    message = ServiceBusMessage(
        "text",
        subject="news",
        message_id="m",
        application_properties={"Priority": "High", "Count": 3},
    )
    bus.send(queue, message)

    answer = ask(bus, "DELETE", f"{queue}/messages/head?timeout=10")

    assert answer.body == b"text"
    assert answer.headers["Priority"] == '"High"'
    assert answer.headers["Count"] == "3"
    broker = json.loads(answer.headers["BrokerProperties"])
    assert (broker["MessageId"], broker["Label"]) == ("m", "news")


@declared.with_queue()
def test_a_lock_of_a_client_is_settled_over_http(bus: Bus, queue: str) -> None:
    bus.send(queue, "a")
    message = take_one(bus.receiver(queue))

    path = f"{queue}/messages/{message.sequence_number}/{message.lock_token}"
    answers = [ask(bus, method, path).status for method in ("POST", "DELETE")]

    assert answers == [200, 200]
    assert bus.left(queue) == []
