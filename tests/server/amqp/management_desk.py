"""A namespace in memory with a desk at which requests are handed in.

Owns what the tests of management share: entities, a connection's knowledge, requests
as clients encode them and replies as clients read them. Time is a number.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from twinbus.clock import Now
from twinbus.core.entity import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.core.names import EntityPath, parse_address
from twinbus.core.rights import Operation
from twinbus.errors import TwinbusError, Unauthorized
from twinbus.server.amqp.management.operations import (
    ManagementReply,
    find_operation,
    perform,
    refusal,
)
from twinbus.server.broker.commands import SessionKey
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.lock_tokens import uuid_of
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.store.base import Lock, SessionGrant, Stored
from twinbus.store.opening import open_store
from twinbus.wire.codec import decode, encode
from twinbus.wire.message import sections
from twinbus.wire.types import (
    ARRAY_LONG,
    ARRAY_UUID,
    Array,
    Described,
    Int,
    Symbol,
    Timestamp,
    ULong,
)

NOW = 1_000_000
LOCK_MS = 30_000
MESSAGE_ID = UUID(int=77)


class Asker:
    """What a connection knows about the client that asks."""

    def __init__(self) -> None:
        self.refused = False
        self.asked: list[tuple[Operation, str]] = []
        self.grants: dict[SessionKey, SessionGrant] = {}

    def authorize(self, operation: Operation, path: EntityPath) -> None:
        self.asked.append((operation, path.text))
        if self.refused:
            raise Unauthorized


def request(operation: Any, body: Any) -> sections.Request:
    """A request as it comes over the wire."""
    parts = (
        (sections.PROPERTIES, [MESSAGE_ID, None, None, None, "answers"]),
        (sections.APPLICATION_PROPERTIES, {"operation": operation}),
        (sections.VALUE, body),
    )
    return sections.Request(
        b"".join(encode(Described(ULong(code), value)) for code, value in parts)
    )


def message(
    text: str,
    *,
    session: str | None = None,
    due_ms: int | None = None,
    ttl_ms: int | None = None,
) -> bytes:
    """A message as a client encodes it."""
    fields: dict[int, Any] = {sections.MESSAGE_ID: text[:16]}
    if session is not None:
        fields[sections.GROUP_ID] = session
    payload = sections.encode_message(text.encode(), fields, ttl_ms)
    if due_ms is None:
        return payload
    annotations = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(due_ms)}
    return payload + encode(Described(ULong(sections.MESSAGE_ANNOTATIONS), annotations))


def longs(*values: int) -> Array:
    return Array(ARRAY_LONG, values)


def uuids(*values: UUID) -> Array:
    return Array(ARRAY_UUID, values)


def take_apart(payload: bytes) -> dict[int, Any]:
    """The sections of a message, decoded, by their codes."""
    return {
        code: decode(payload, start)[0]
        for code, _begin, start, _end in sections.find_sections(payload)
    }


def annotations_of(payload: bytes) -> dict[str, Any]:
    found: dict[str, Any] = take_apart(payload)[sections.MESSAGE_ANNOTATIONS]
    return found


def body_of(payload: bytes) -> str:
    found: bytes = take_apart(payload)[sections.DATA]
    return found.decode()


class Desk:
    """Where requests are handed in."""

    def __init__(self) -> None:
        self.store = open_store(None)
        self.store.begin()
        self.namespace = Namespace("contoso", self.store)
        self.asker = Asker()
        self.now_ms = NOW
        # The turn of the last request.
        self.turn = Turn(Now.at(NOW))
        self.queue = self.make(QueueDescription("orders", lock_duration_ms=LOCK_MS))
        self.sessions = self.make(
            QueueDescription(
                "sessions", lock_duration_ms=LOCK_MS, requires_session=True
            )
        )
        self.topic = self.make(TopicDescription("events"))
        self.subscription = self.make(SubscriptionDescription("events", "all"))

    def close(self) -> None:
        self.store.rollback()
        self.store.close()

    def make(
        self, description: QueueDescription | TopicDescription | SubscriptionDescription
    ) -> Entity:
        return self.namespace.entities.create(description, self.now_ms)

    # -- requests ----------------------------------------------------------------------

    def ask(self, operation: Any, body: Any, path: str = "orders") -> ManagementReply:
        """Perform a request, or give the refusal, as the connection does."""
        if isinstance(operation, str) and ":" not in operation:
            operation = f"com.microsoft:{operation}"
        address = parse_address(f"{path}/$management")
        asked = request(operation, body)
        try:
            self.asker.authorize(find_operation(asked), address)
            self.turn = Turn(Now.at(self.now_ms))
            reply = perform(
                self.namespace, address, asked, self.asker.grants, self.turn
            )
        except TwinbusError as error:
            return refusal(error)
        if reply.renewed is not None:
            container, grant = reply.renewed
            self.asker.grants[SessionKey(0, container, grant.name)] = grant
        return reply

    def get(self, operation: str, body: Any, path: str = "orders") -> Any:
        """The body of a reply that must be 200, as a client decodes it."""
        reply = self.ask(operation, body, path)
        assert reply.status == 200, reply
        return take_apart(reply.encode(MESSAGE_ID))[sections.VALUE]

    # -- messages ----------------------------------------------------------------------

    def send(self, *texts: str, to: Entity | None = None, **fields: Any) -> list[int]:
        incoming = [sections.parse(message(text, **fields)) for text in texts]
        return list(
            self.namespace.send(to or self.queue, incoming, Turn(Now.at(self.now_ms)))
        )

    def receive(
        self, count: int = 10, container: int | None = None
    ) -> list[tuple[UUID, Stored]]:
        """Lock messages; gives their tokens."""
        until_ms = self.now_ms + LOCK_MS
        nonce, found = self.store.lock(
            self.queue.id if container is None else container,
            count,
            until_ms,
            Now.at(self.now_ms),
        )
        return [(uuid_of(Lock(stored.id, nonce)), stored) for stored in found]

    def defer(self, *texts: str, **fields: Any) -> list[int]:
        """Send messages and set them aside; gives their numbers."""
        numbers = self.send(*texts, **fields)
        for token, _stored in self.receive(len(texts)):
            self.get("update-disposition", disposition("defered", token))
        return numbers

    def accept(self, name: str) -> SessionGrant:
        """Lock a session for the asking connection."""
        container = self.sessions.id
        until_ms = self.now_ms + LOCK_MS
        grant = self.store.accept_session(
            container, name, until_ms, Now.at(self.now_ms)
        )
        assert grant is not None
        self.asker.grants[SessionKey(0, container, name)] = grant
        return grant

    def receive_session(self, grant: SessionGrant) -> list[tuple[UUID, Stored]]:
        container = self.sessions.id
        nonce, found = self.store.lock(container, 10, 0, Now.at(self.now_ms), grant)
        return [(uuid_of(Lock(stored.id, nonce)), stored) for stored in found]

    def active(self, container: int | None = None) -> int:
        return self.store.counts(container or self.queue.id).active


def disposition(status: str, *tokens: UUID, **more: Any) -> dict[str, Any]:
    """The body of an update-disposition request."""
    body: dict[str, Any] = {
        "disposition-status": status,
        "lock-tokens": uuids(*tokens),
    }
    return body | {name.replace("_", "-"): value for name, value in more.items()}


def peeking(start: int = 0, count: int = 10, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"from-sequence-number": start, "message-count": Int(count)}
    return body | {name.replace("_", "-"): value for name, value in more.items()}


def shown(body: Any) -> list[str]:
    """The texts of the messages in a reply."""
    return [body_of(entry["message"]) for entry in body["messages"]]
