"""An official client at work: what the tests of this folder hold in their hands.

A `Bus` is the synchronous client or the asynchronous one, with short words for what
nearly every test does. Everything else is the client's own interface, typed as the
synchronous one. It never retries, so a test sees the first answer of the server.

Opening and closing is where the official clients spend their time: they poll. So what
a bus opens stays open until the test is over, and is then closed in the background.
A test that is about closing uses a `with`.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor, Future
from typing import Any, Protocol, TypeVar, cast

from azure.servicebus import (
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSender,
    aio,
)
from azure.servicebus.aio import AutoLockRenewer as AsyncAutoLockRenewer

from tests.sdk.blocking import LoopThread
from tests.sdk.servers import Endpoint

# Long enough for a busy machine; what is expected comes much sooner.
ARRIVES_SECONDS = 30.0
# What should not come would come at once: the server is idle and near.
NOTHING_SECONDS = 0.5


class Closable(Protocol):
    """What a client opens."""

    def close(self) -> None:
        """Close it; a second time does nothing."""


Opened = TypeVar("Opened", bound=Closable)


class Bus:
    """One official client, connected to a namespace of its own."""

    def __init__(
        self, endpoint: Endpoint, ca_file: str, loop: LoopThread | None = None
    ) -> None:
        self.endpoint = endpoint
        self.ca_file = ca_file
        # Another namespace with the same entities, if the server has one.
        self.throttled = endpoint
        self._loop = loop
        self._kept: list[Closable] = []
        self._senders: dict[str, ServiceBusSender] = {}
        self.client = self.connect(endpoint.connection_string)

    def connect(self, connection_string: str, **options: Any) -> ServiceBusClient:
        """Another client of the same kind."""
        options = {"retry_total": 0, **options}
        if self._loop is None:
            return ServiceBusClient.from_connection_string(connection_string, **options)
        connect = aio.ServiceBusClient.from_connection_string
        made = self._loop.call(connect, connection_string, **options)
        return cast("ServiceBusClient", made)

    def renewer(self) -> AutoLockRenewer:
        """Something that renews locks in the background; use it in a `with`."""
        if self._loop is None:
            return AutoLockRenewer()
        return cast("AutoLockRenewer", self._loop.call(AsyncAutoLockRenewer))

    def keep(self, opened: Opened) -> Opened:
        """Close something when the test is over."""
        self._kept.append(opened)
        return opened

    def close(self, background: Executor) -> list[Future[None]]:
        """Close everything that is still open."""
        return [background.submit(opened.close) for opened in self._kept]

    # -- short words -------------------------------------------------------------------

    def sender(self, queue: str) -> ServiceBusSender:
        """The sender to a queue."""
        if queue not in self._senders:
            self._senders[queue] = self.keep(self.client.get_queue_sender(queue))
        return self._senders[queue]

    def publisher(self, topic: str) -> ServiceBusSender:
        """The sender to a topic."""
        if topic not in self._senders:
            self._senders[topic] = self.keep(self.client.get_topic_sender(topic))
        return self._senders[topic]

    def receiver(self, queue: str, **options: Any) -> ServiceBusReceiver:
        """A new receiver of a queue."""
        return self.keep(self.client.get_queue_receiver(queue, **options))

    def subscriber(
        self, topic: str, subscription: str, **options: Any
    ) -> ServiceBusReceiver:
        """A new receiver of a subscription."""
        return self.keep(
            self.client.get_subscription_receiver(topic, subscription, **options)
        )

    def send(self, queue: str, *messages: str | ServiceBusMessage) -> None:
        """Send messages to a queue, all at once."""
        self.sender(queue).send_messages(outgoing(*messages))

    def publish(self, topic: str, *messages: str | ServiceBusMessage) -> None:
        """Send messages to a topic, all at once."""
        self.publisher(topic).send_messages(outgoing(*messages))

    def drained(self, queue: str, count: int, **options: Any) -> list[str]:
        """Take so many messages out of a queue, and say their bodies."""
        receiver = self.receiver(queue, receive_mode="receiveanddelete", **options)
        return texts(take(receiver, count))

    def collected(self, topic: str, subscription: str, count: int) -> list[str]:
        """Take so many messages out of a subscription, and say their bodies."""
        mode = "receiveanddelete"
        return texts(
            take(self.subscriber(topic, subscription, receive_mode=mode), count)
        )

    def left(self, queue: str, **options: Any) -> list[str]:
        """Say the bodies of all messages in a queue, whatever their state."""
        return left(self.receiver(queue, **options))


def outgoing(*messages: str | ServiceBusMessage) -> list[ServiceBusMessage]:
    """Messages, where a text stands for a message with that body."""
    return [
        ServiceBusMessage(message) if isinstance(message, str) else message
        for message in messages
    ]


def take(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """Receive exactly so many messages; a receive alone may return fewer."""
    messages: list[ServiceBusReceivedMessage] = []
    while len(messages) < count:
        more = receiver.receive_messages(count - len(messages), ARRIVES_SECONDS)
        assert more, f"only {texts(messages)} of {count} messages came"
        messages += more
    return messages


def take_one(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
    """Receive a message."""
    return take(receiver, 1)[0]


def nothing_comes(receiver: ServiceBusReceiver) -> bool:
    """Whether the receiver waits in vain."""
    # Opened first, so that the time is spent waiting for messages.
    receiver.__enter__()
    return not receiver.receive_messages(1, NOTHING_SECONDS)


def left(receiver: ServiceBusReceiver) -> list[str]:
    """The bodies of all messages that a receiver can see, whatever their state."""
    return texts(receiver.peek_messages(100, sequence_number=1))


def number(message: ServiceBusReceivedMessage) -> int:
    """The sequence number of a message."""
    assert message.sequence_number is not None
    return message.sequence_number


def texts(messages: Iterable[ServiceBusMessage]) -> list[str]:
    """The bodies of messages."""
    return [str(message) for message in messages]
