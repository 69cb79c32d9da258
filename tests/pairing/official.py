"""What the official client puts on the wire, and when two messages are the same there.

Owns a listener: the scripted peer of the client's tests in a thread, with the official
client in front of it, by its public methods alone. `sections_of` is the form in which
messages are compared: every section with the types of its values, whatever their width.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.client.peer import Peer, PeerConnection, peering
from twinbus.client.transport.loop_thread import LoopThread
from twinbus.wire.codec import decode, encode
from twinbus.wire.events import Delivered
from twinbus.wire.message import sections
from twinbus.wire.performatives import Error, Rejected
from twinbus.wire.types import Symbol

# Before the condition that a message is to be refused with, in its subject.
_REFUSE = "refuse with "
_EXPIRY = 8
_CREATION = 9


class Listener:
    """Hears all that the official client sends."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        peer.on_message = _answer
        self._client = self._new_client()
        self._sender = self._client.get_queue_sender("orders")

    def heard(self, message: Any) -> bytes:
        """Send something with the official client, and return its bytes."""
        self._sender.send_messages(message)
        return self._peer.connections[0].messages[-1].payload

    def raised(self, condition: str) -> ServiceBusError:
        """What the official client raises if a message is refused like this."""
        with (
            self._new_client() as client,
            client.get_queue_sender("orders") as sender,
            pytest.raises(ServiceBusError) as raised,
        ):
            sender.send_messages(ServiceBusMessage("a", subject=_REFUSE + condition))
        return raised.value

    def close(self) -> None:
        self._sender.close()
        self._client.close()

    def _new_client(self) -> ServiceBusClient:
        text = (
            f"Endpoint=sb://127.0.0.1:{self._peer.port}/;SharedAccessKeyName=any;"
            "SharedAccessKey=any;UseDevelopmentEmulator=true"
        )
        return ServiceBusClient.from_connection_string(text, retry_total=0)


def _answer(_connection: PeerConnection, delivery: Delivered) -> bool:
    """Refuse what asks for it, and leave the rest to be accepted."""
    subject = sections.read_properties(delivery.payload)[sections.SUBJECT]
    if not isinstance(subject, str) or not subject.startswith(_REFUSE):
        return True
    error = Error(Symbol(subject.removeprefix(_REFUSE)), "refused")
    number = delivery.delivery_id
    delivery.link.session.answer(number, number, Rejected(error))
    return False


@contextmanager
def listening() -> Iterator[Listener]:
    """A listener for as long as the block runs."""
    thread = LoopThread()
    context = peering()
    listener = Listener(thread.run(context.__aenter__))
    try:
        yield listener
    finally:
        listener.close()
        thread.run(lambda: context.__aexit__(None, None, None))
        thread.stop()


def sections_of(payload: bytes) -> list[tuple[int, Any]]:
    """The sections of a message in their usual order, each with its typed values.

    Creation and expiry time become the time between them: they are of the moment.
    """
    found: list[tuple[int, Any]] = []
    for code, _begin, start, _end in sections.find_sections(payload):
        value = decode(payload, start, budget=10_000)[0]
        if code == sections.HEADER:
            value = value + [None] * (5 - len(value))
        elif code == sections.PROPERTIES:
            value = value + [None] * (13 - len(value))
            if value[_CREATION] is not None and value[_EXPIRY] is not None:
                value[_EXPIRY] = type(value[_EXPIRY])(value[_EXPIRY] - value[_CREATION])
                value[_CREATION] = None
        found.append((code, encode(value)))
    return sorted(found, key=lambda section: section[0])
