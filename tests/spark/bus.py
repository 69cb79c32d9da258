"""A namespace as the tests of the pipeline use it: fill, look, take, count.

What fills and empties queues here is the project's own client, which is fast. Where the
content of messages is judged, the official client does it (`sdk`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from azure.servicebus import ServiceBusClient

from twinbus.client.message import Message
from twinbus.client.receiver import ReceiveOptions
from twinbus.client.sync.connection import Connection
from twinbus.core.names import parse_address
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.spark.connections import connection_for
from twinbus.spark.options import ACCESS, Options
from twinbus.testing.namespace import ServedNamespace
from twinbus.wire.codec import decode
from twinbus.wire.message.sections import (
    DATA,
    GROUP_ID,
    MESSAGE_ID,
    encode_message,
    find_sections,
)


@dataclass(frozen=True)
class Bus:
    """A served namespace, and the options that name it."""

    namespace: ServedNamespace
    access: dict[str, str]

    def options(self, entity: str, **others: object) -> dict[str, str]:
        """Options of a source or a sink."""
        return {
            **self.access,
            "entity": entity,
            **{key: str(value) for key, value in others.items()},
        }

    @property
    def connection(self) -> Connection:
        """The connection that readers in this process use too."""
        return connection_for(Options(self.access, ACCESS).access())

    def sdk(self) -> ServiceBusClient:
        """The official client."""
        return self.namespace.client()

    def send(self, entity: str, messages: Sequence[bytes]) -> None:
        """Put encoded messages into a queue or topic."""
        with self.connection.sender(entity) as sender:
            sender.send(messages)

    def fill(self, entity: str, count: int, size_bytes: int = 10) -> list[str]:
        """So many messages; returns their ids."""
        ids = [f"{entity}-{number}" for number in range(count)]
        self.send(entity, [message(each, b"x" * size_bytes) for each in ids])
        return ids

    def take(self, entity: str, count: int) -> list[str]:
        """Remove messages that are ready now and return their ids."""
        options = ReceiveOptions(deletes=True)
        with self.connection.receiver(entity, options) as receiver:
            found: list[Message] = []
            while len(found) < count and (
                some := receiver.receive(count - len(found), 0.0)
            ):
                found += some
            return [str(each.message_id) for each in found]

    def held(self, path: str) -> int:
        """How many messages there are, locked ones included."""
        address = parse_address(path)

        def count(namespace: Namespace, turn: Turn) -> int:
            del turn
            entity = namespace.entities.get(address)
            container = entity.container(address.sub_queue)
            return namespace.store.counts(container).active

        return self.namespace.run(count)


def message(message_id: str, body: bytes, session_id: str | None = None) -> bytes:
    """An encoded message."""
    fields: dict[int, Any] = {MESSAGE_ID: message_id}
    if session_id is not None:
        fields[GROUP_ID] = session_id
    return encode_message(body, fields)


def body_of(received: Message) -> bytes:
    """The data of a message."""
    payload = received.payload
    [start] = [start for code, _, start, _ in find_sections(payload) if code == DATA]
    body: bytes = decode(payload, start)[0]
    return body
