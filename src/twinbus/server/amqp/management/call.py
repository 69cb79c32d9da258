"""One management request, taken apart: what was asked, of what, by whom.

Owns how a request's body is read. Every value is checked for its AMQP type before it is
used, and what is wrong or missing is an `ArgumentError` that names the key. Clients
differ in the width of integers and in lists against arrays, so those are all accepted.
Knows nothing about what an operation does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from twinbus import limits
from twinbus.clock import Now
from twinbus.core.names import EntityPath, SubQueue
from twinbus.errors import ArgumentError, ArgumentOutOfRange, SessionLockLost
from twinbus.server.broker.commands import SessionKey
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.lock_tokens import lock_of
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.store.base import Lock, SessionGrant
from twinbus.wire.message import sections
from twinbus.wire.types import Int, Symbol, Timestamp

INT_MAX = (1 << 31) - 1
LONG_MIN = -(1 << 63)
LONG_MAX = (1 << 63) - 1


class ManagementReply(NamedTuple):
    """The answer to a request."""

    status: int
    description: str
    body: Any
    condition: str | None
    # A session's lock that has another end now, with its container.
    renewed: tuple[int, SessionGrant] | None = None

    def encode(self, correlation_id: Any) -> bytes:
        """The answer as a message; `correlation_id` is the request's message id."""
        properties: dict[str, Any] = {
            "statusCode": Int(self.status),
            "statusDescription": self.description,
        }
        if self.condition is not None:
            properties["errorCondition"] = Symbol(self.condition)
        return sections.encode_reply(correlation_id, properties, self.body)


def done(body: dict[str, Any] | None = None) -> ManagementReply:
    """It was carried out."""
    return ManagementReply(200, "OK", body or {}, None)


def nothing() -> ManagementReply:
    """There was nothing to be had."""
    return ManagementReply(204, "No Content", {}, None)


class Arguments:
    """The map of a request, or a map inside it; `where` says which."""

    __slots__ = ("_values", "_where")

    def __init__(self, values: Any, where: str = "the body") -> None:
        if not isinstance(values, dict):
            raise ArgumentError(f"{where} must be a map, not {_kind(values)}.")
        self._values: Mapping[Any, Any] = values
        self._where = where

    def has(self, key: str) -> bool:
        """Whether the key is there with a value."""
        return self._values.get(key) is not None

    def text(self, key: str) -> str:
        """A string."""
        found = self.optional_text(key)
        if found is None:
            raise self._missing(key)
        return found

    def optional_text(self, key: str) -> str | None:
        """A string, or None if there is none."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, str):
            raise self._wrong(key, "a string")
        return None if value is None else str(value)

    def integer(self, key: str, low: int, high: int) -> int:
        """An integer of any width, within bounds."""
        value = self._values.get(key)
        if value is None:
            raise self._missing(key)
        if not _is_integer(value):
            raise self._wrong(key, "an integer")
        if not low <= value <= high:
            raise ArgumentOutOfRange(
                f"'{key}' must be between {low} and {high}, not {value}."
            )
        return int(value)

    def time_ms(self, key: str) -> int:
        """A timestamp, in milliseconds since the epoch."""
        value = self._values.get(key)
        if value is None:
            raise self._missing(key)
        if not isinstance(value, Timestamp):
            raise self._wrong(key, "a timestamp")
        return int(value)

    def flag(self, key: str) -> bool:
        """A boolean; False if there is none."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, bool):
            raise self._wrong(key, "a boolean")
        return bool(value)

    def binary(self, key: str) -> bytes:
        """Bytes."""
        value = self._values.get(key)
        if value is None:
            raise self._missing(key)
        if type(value) is not bytes:
            raise self._wrong(key, "binary")
        return value

    def optional_binary(self, key: str) -> bytes | None:
        """Bytes or null; the key must be there."""
        if key not in self._values:
            raise self._missing(key)
        return self.binary(key) if self.has(key) else None

    def inner(self, key: str) -> Arguments:
        """A map inside."""
        if not self.has(key):
            raise self._missing(key)
        return Arguments(self._values[key], f"'{key}'")

    def properties(self, key: str) -> dict[str, Any]:
        """A map of names to single values; empty if there is none."""
        value = self._values.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._wrong(key, "a map")
        for name, item in value.items():
            if not isinstance(name, str):
                raise ArgumentError(f"The names in '{key}' must be strings.")
            if isinstance(item, list | dict):
                raise ArgumentError(
                    f"'{name}' in '{key}' must be a single value, not {_kind(item)}."
                )
        return {str(name): item for name, item in value.items()}

    def items(self, key: str) -> list[Any]:
        """A list or an array, with one element at least."""
        value = self._values.get(key)
        if value is None:
            raise self._missing(key)
        if not isinstance(value, list):
            raise self._wrong(key, "a list or an array")
        if not value:
            raise ArgumentError(f"'{key}' is empty. Name one element at least.")
        if len(value) > limits.BATCH_MESSAGES_MAX:
            raise ArgumentOutOfRange(
                f"'{key}' has {len(value)} elements; at most "
                f"{limits.BATCH_MESSAGES_MAX} are allowed."
            )
        return value

    def sequences(self, key: str = "sequence-numbers") -> list[int]:
        """Sequence numbers, each once, in the order given."""
        values = self.items(key)
        if not all(map(_is_integer, values)):
            raise self._wrong(key, "an array of longs")
        return list(dict.fromkeys(map(int, values)))

    def locks(self, key: str = "lock-tokens") -> list[Lock]:
        """The locks that tokens name, as many as there are tokens."""
        values = self.items(key)
        if not all(isinstance(value, UUID) for value in values):
            raise self._wrong(key, "an array of uuids")
        return [lock_of(value) for value in values]

    def _missing(self, key: str) -> ArgumentError:
        return ArgumentError(f"'{key}' is missing in {self._where}.")

    def _wrong(self, key: str, wanted: str) -> ArgumentError:
        given = _kind(self._values.get(key))
        return ArgumentError(f"'{key}' must be {wanted}, not {given}.")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool | Timestamp)


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__.lower()


@dataclass(frozen=True, slots=True)
class Call:
    """A request that may be carried out: the entity is there and lets it happen."""

    namespace: Namespace
    entity: Entity
    path: EntityPath
    arguments: Arguments
    # The session locks that the asking connection holds, by session.
    grants: Mapping[SessionKey, SessionGrant]
    turn: Turn

    @property
    def now(self) -> Now:
        return self.turn.now

    @property
    def container(self) -> int:
        """The container that the request is about."""
        return self.entity.container(self.path.sub_queue)

    @property
    def has_sessions(self) -> bool:
        """Whether the container hands messages out by session; sub-queues never do."""
        return self.entity.requires_session and self.path.sub_queue is SubQueue.NONE

    @property
    def message_bytes_max(self) -> int:
        """The largest message that can be here; a subscription takes its topic's."""
        return (self.entity.topic or self.entity).message_bytes_max

    def shown(self, sequence: int) -> int:
        """A sequence number as clients see it: with the number of the fragment."""
        return self.entity.number_base | sequence

    def grant(self, session_id: str) -> SessionGrant:
        """The lock of a session that the asking connection still holds."""
        key = SessionKey(self.namespace.shard, self.container, session_id)
        grant = self.grants.get(key)
        store = self.namespace.store
        if grant is None or not store.session_held(self.container, grant, self.now):
            raise SessionLockLost
        return grant
