"""Official administration clients, and official clients to see their effects with.

An `Admins` makes clients of one kind, synchronous or asynchronous, typed as the
synchronous ones, and closes them. None retries, so a test sees the server's first
answer. Knows nothing about what a test does with them.
"""

from __future__ import annotations

from typing import Any, cast

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    aio,
)
from azure.servicebus.aio.management import (
    ServiceBusAdministrationClient as AsyncAdministrationClient,
)
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.sdk.blocking import LoopThread
from tests.sdk.servers import Endpoint

# Long enough for a busy machine; what is expected comes much sooner.
ARRIVES_SECONDS = 30.0


class Admins:
    """Makes clients of one kind, for administration and for messages."""

    def __init__(
        self, endpoint: Endpoint, ca_file: str, loop: LoopThread | None
    ) -> None:
        self.endpoint = endpoint
        self.authority = f"localhost:{endpoint.https_port}"
        self._ca_file = ca_file
        self._loop = loop
        self._made: list[ServiceBusAdministrationClient | ServiceBusClient] = []
        self.messages = self.connect(endpoint.connection_string)

    def connect(self, connection_string: str) -> ServiceBusClient:
        """A client for messages."""
        options: dict[str, Any] = {"retry_total": 0}
        if self._loop is None:
            client = ServiceBusClient.from_connection_string(
                connection_string, **options
            )
        else:
            connect = aio.ServiceBusClient.from_connection_string
            made = self._loop.call(connect, connection_string, **options)
            client = cast("ServiceBusClient", made)
        self._made.append(client)
        return client

    def make(
        self, connection_string: str | None = None, **options: Any
    ) -> ServiceBusAdministrationClient:
        """A client for administration; it trusts the server's authority."""
        given = connection_string or self.endpoint.secured(self.authority)
        options = {"connection_verify": self._ca_file, "retry_total": 0, **options}
        if self._loop is None:
            client = ServiceBusAdministrationClient.from_connection_string(
                given, **options
            )
        else:
            connect = AsyncAdministrationClient.from_connection_string
            made = self._loop.call(connect, given, **options)
            client = cast("ServiceBusAdministrationClient", made)
        self._made.append(client)
        return client

    def signed(self, key_name: str, key: str) -> ServiceBusAdministrationClient:
        """A client with another key."""
        return self.make(
            f"Endpoint=sb://{self.authority}/;SharedAccessKeyName={key_name};"
            f"SharedAccessKey={key}"
        )

    def close(self) -> None:
        """Close all clients."""
        for client in self._made:
            client.close()

    # -- messages ----------------------------------------------------------------------

    def send(self, queue: str, *bodies: str) -> None:
        """Send messages to a queue."""
        with self.messages.get_queue_sender(queue) as sender:
            sender.send_messages([ServiceBusMessage(body) for body in bodies])

    def publish(self, topic: str, *messages: ServiceBusMessage) -> None:
        """Send messages to a topic."""
        with self.messages.get_topic_sender(topic) as sender:
            sender.send_messages(list(messages))

    def drained(self, queue: str, count: int) -> list[str]:
        """Take so many messages out of a queue."""
        mode = "receiveanddelete"
        with self.messages.get_queue_receiver(queue, receive_mode=mode) as receiver:
            return [str(message) for message in take(receiver, count)]


def take(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """Receive exactly so many messages; a receive alone may return fewer."""
    messages: list[ServiceBusReceivedMessage] = []
    while len(messages) < count:
        more = receiver.receive_messages(count - len(messages), ARRIVES_SECONDS)
        assert more, f"only {len(messages)} of {count} messages came"
        messages += more
    return messages
