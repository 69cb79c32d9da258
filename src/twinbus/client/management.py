"""Management operations on one entity, through its `$management` node.

One method for each operation, with the keys and types that the service wants. All of
them may run at once: replies find their requests. A request that changes something and
is not answered raises `OutcomeUnknown`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from twinbus.client.live import LiveConnection
from twinbus.client.message import Message
from twinbus.client.requests import ClientReply, RequestPair
from twinbus.client.rules import request_of, rule_of
from twinbus.client.settlement import Settlement
from twinbus.client.transport.deadline import Deadline
from twinbus.client.transport.shared import Shared
from twinbus.core.rule import RuleDescription
from twinbus.errors import RemoteError
from twinbus.ledger.requests import meter
from twinbus.ledger.schema import CLIENT
from twinbus.wire.message import sections
from twinbus.wire.types import (
    ARRAY_LONG,
    ARRAY_UUID,
    Array,
    Int,
    Timestamp,
    UInt,
)

if TYPE_CHECKING:
    from twinbus.client.connection import Connection

_NO_CONTENT = 204
# What clients send for "whenever it was updated".
_ALL_SESSIONS_MS = 253_402_300_800_000
_CONDITIONS = {
    400: "com.microsoft:argument-error",
    401: "amqp:unauthorized-access",
    404: "amqp:not-found",
    408: "com.microsoft:timeout",
    409: "com.microsoft:entity-already-exists",
    410: "com.microsoft:message-lock-lost",
    501: "amqp:not-implemented",
    503: "com.microsoft:server-busy",
}


class Management:
    """Requests about one entity; made by `Connection.management`."""

    # What the ledger calls the source of its requests.
    counted_as = CLIENT

    def __init__(self, connection: Connection, path: str) -> None:
        self.path = path
        self._connection = connection
        self._pair: RequestPair | None = None
        self._opening = Shared(self._open)

    # -- messages ----------------------------------------------------------------------

    async def peek(
        self,
        count_max: int,
        from_sequence: int = 1,
        session_id: str | None = None,
        timeout_seconds: float | None = None,
    ) -> list[Message]:
        """Look at messages in any state from a number on, without locking them."""
        body = {
            "from-sequence-number": from_sequence,
            "message-count": Int(count_max),
            **_session(session_id),
        }
        reply = await self._ask("peek-message", body, timeout_seconds)
        return [Message(entry["message"]) for entry in reply.get("messages", ())]

    async def receive_deferred(
        self,
        sequence_numbers: Sequence[int],
        session_id: str | None = None,
        *,
        deletes: bool = False,
        timeout_seconds: float | None = None,
    ) -> list[Message]:
        """Lock deferred messages by their numbers, or remove them; all or none."""
        body = {
            "sequence-numbers": Array(ARRAY_LONG, sequence_numbers),
            "receiver-settle-mode": UInt(0 if deletes else 1),
            **_session(session_id),
        }
        reply = await self._ask("receive-by-sequence-number", body, timeout_seconds)
        return [
            Message(entry["message"], entry.get("lock-token"))
            for entry in reply.get("messages", ())
        ]

    async def settle(
        self,
        lock_tokens: Sequence[UUID],
        settlement: Settlement,
        session_id: str | None = None,
        timeout_seconds: float | None = None,
    ) -> None:
        """Settle locked messages by their tokens, all or none."""
        body = {
            **settlement.request(),
            "lock-tokens": Array(ARRAY_UUID, lock_tokens),
            **_session(session_id),
        }
        await self._ask("update-disposition", body, timeout_seconds)

    async def renew_locks(
        self, lock_tokens: Sequence[UUID], timeout_seconds: float | None = None
    ) -> list[int]:
        """Move the ends of locks; returns the new ones, in milliseconds."""
        body = {"lock-tokens": Array(ARRAY_UUID, lock_tokens)}
        reply = await self._ask("renew-lock", body, timeout_seconds)
        return [int(each) for each in reply.get("expirations", ())]

    async def schedule(
        self, messages: Sequence[bytes], timeout_seconds: float | None = None
    ) -> list[int]:
        """Send messages for later: each says when in `x-opt-scheduled-enqueue-time`.

        Returns their sequence numbers, by which they can be cancelled. All or none.
        """
        body = {"messages": [_scheduled(message) for message in messages]}
        reply = await self._ask("schedule-message", body, timeout_seconds)
        return [int(each) for each in reply.get("sequence-numbers", ())]

    async def cancel_scheduled(
        self, sequence_numbers: Sequence[int], timeout_seconds: float | None = None
    ) -> None:
        """Take scheduled messages back; all or none."""
        body = {"sequence-numbers": Array(ARRAY_LONG, sequence_numbers)}
        await self._ask("cancel-scheduled-message", body, timeout_seconds)

    async def delete(
        self,
        count_max: int,
        before_ms: int,
        session_id: str | None = None,
        timeout_seconds: float | None = None,
    ) -> int:
        """Remove the oldest ready messages that came before a time; returns how many.

        The server may remove fewer than it could: ask again until it was none.
        """
        body = {
            "message-count": Int(count_max),
            "enqueued-time-utc": Timestamp(before_ms),
            **_session(session_id),
        }
        reply = await self._ask("batch-delete-messages", body, timeout_seconds)
        return int(reply.get("message-count") or 0)

    # -- rules -------------------------------------------------------------------------

    async def add_rule(
        self, rule: RuleDescription, timeout_seconds: float | None = None
    ) -> None:
        """Add a rule to a subscription."""
        body = {"rule-name": rule.name, "rule-description": request_of(rule)}
        await self._ask("add-rule", body, timeout_seconds)

    async def remove_rule(
        self, name: str, timeout_seconds: float | None = None
    ) -> None:
        """Remove a rule of a subscription."""
        await self._ask("remove-rule", {"rule-name": name}, timeout_seconds)

    async def rules(
        self, skip: int = 0, top: int = 100, timeout_seconds: float | None = None
    ) -> list[RuleDescription]:
        """The rules of a subscription, in the order in which they were added."""
        body = {"skip": Int(skip), "top": Int(top)}
        reply = await self._ask("enumerate-rules", body, timeout_seconds)
        return [rule_of(each["rule-description"]) for each in reply.get("rules", ())]

    # -- sessions ----------------------------------------------------------------------

    async def renew_session(
        self, session_id: str, timeout_seconds: float | None = None
    ) -> int:
        """Move the end of a session's lock; returns the new one, in milliseconds."""
        body = _session(session_id)
        reply = await self._ask("renew-session-lock", body, timeout_seconds)
        return int(reply.get("expiration") or 0)

    async def session_state(
        self, session_id: str, timeout_seconds: float | None = None
    ) -> bytes | None:
        """What the session remembers."""
        body = _session(session_id)
        reply = await self._ask("get-session-state", body, timeout_seconds)
        state: bytes | None = reply.get("session-state")
        return state

    async def set_session_state(
        self,
        session_id: str,
        state: bytes | None,
        timeout_seconds: float | None = None,
    ) -> None:
        """Let the session remember something, or nothing."""
        body = {**_session(session_id), "session-state": state}
        await self._ask("set-session-state", body, timeout_seconds)

    async def sessions(
        self, skip: int = 0, top: int = 100, timeout_seconds: float | None = None
    ) -> list[str]:
        """Names of sessions that have messages or a state."""
        body = {
            "last-updated-time": Timestamp(_ALL_SESSIONS_MS),
            "skip": Int(skip),
            "top": Int(top),
        }
        reply = await self._ask("get-message-sessions", body, timeout_seconds)
        return [str(each) for each in reply.get("sessions-ids", ())]

    # -- requests ----------------------------------------------------------------------

    async def _ask(
        self, operation: str, body: dict[str, Any], timeout_seconds: float | None
    ) -> dict[str, Any]:
        deadline = self._connection.deadline(timeout_seconds)
        pair = self._pair
        if pair is None or pair.failure is not None:
            pair = await self._opening.get(deadline)
        properties = {
            "operation": f"com.microsoft:{operation}",
            "type": "entity-mgmt",
            "com.microsoft:server-timeout": UInt(_milliseconds(deadline)),
        }
        reply = await pair.request(properties, body, deadline)
        account = self._connection.account(self.path, self.counted_as)
        if account is not None:
            status, name = _status(reply), properties["operation"]
            meter(name, body, status, reply.body).count_in(account, 0, 0)
        return _read(reply)

    async def _open(self) -> RequestPair:
        return await self._connection.link(self.path, self._opening, self._open_on)

    async def _open_on(self, live: LiveConnection) -> RequestPair:
        pair = RequestPair(live, f"{self.path}/$management")
        await pair.open()
        self._pair = pair
        return pair


def _milliseconds(deadline: Deadline) -> int:
    return min(int(deadline.left_seconds() * 1000), 0xFFFFFFFF)


def _session(session_id: str | None) -> dict[str, Any]:
    return {} if session_id is None else {"session-id": session_id}


def _scheduled(message: bytes) -> dict[str, Any]:
    parsed = sections.parse(message)
    entry: dict[str, Any] = {"message": message}
    if parsed.message_id is not None:
        entry["message-id"] = parsed.message_id
    if parsed.session_id is not None:
        entry["session-id"] = parsed.session_id
    if parsed.partition_key is not None:
        entry["partition-key"] = parsed.partition_key
    return entry


def _status(reply: ClientReply) -> int:
    status = reply.properties.get("statusCode")
    return status if isinstance(status, int) else 500


def _read(reply: ClientReply) -> dict[str, Any]:
    """The body of a good answer; a bad one is raised with its condition."""
    status = _status(reply)
    if status == _NO_CONTENT:
        return {}
    if not 200 <= status < 300:
        condition = reply.properties.get("errorCondition")
        text = str(reply.properties.get("statusDescription") or "")
        usual = _CONDITIONS.get(status, "amqp:internal-error")
        raise RemoteError(str(condition or usual), text)
    return reply.body if isinstance(reply.body, dict) else {}
