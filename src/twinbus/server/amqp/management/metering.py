"""What a management request is in the ledger.

Owns which requests are operations on messages (and then how many, and their sizes) and
that all others count once as `manage`. Reads bodies with care: a request that is
refused may hold anything.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from twinbus.core.rights import Operation
from twinbus.ledger.counts import LedgerAccount
from twinbus.ledger.schema import (
    ACCEPTED,
    BUSY,
    CANCEL,
    FAILED,
    MANAGE,
    PEEK,
    RECEIVE,
    REFUSED,
    RENEW,
    SCHEDULE,
    SETTLE,
)
from twinbus.server.amqp.management.call import ManagementReply
from twinbus.wire.message.sections import Request

# The ledger's word, and the list in the body that says how many.
_WORDS: dict[str, tuple[str, str]] = {
    Operation.RENEW_LOCK.value: (RENEW, "lock-tokens"),
    Operation.RENEW_SESSION_LOCK.value: (RENEW, ""),
    Operation.UPDATE_DISPOSITION.value: (SETTLE, "lock-tokens"),
    Operation.CANCEL_SCHEDULED.value: (CANCEL, "sequence-numbers"),
    Operation.SCHEDULE.value: (SCHEDULE, "messages"),
    Operation.PEEK.value: (PEEK, ""),
    Operation.RECEIVE_BY_SEQUENCE.value: (RECEIVE, ""),
}
_OUTGOING = frozenset({PEEK, RECEIVE})


class Metered(NamedTuple):
    """What one request counts."""

    operation: str
    outcome: str
    operations: int
    # Of messages that crossed the wire, in or out.
    sizes: list[int]

    def count_in(
        self, account: LedgerAccount, request_bytes: int, reply_bytes: int
    ) -> None:
        """Count it; the bytes are for a request without messages."""
        if not self.sizes:
            sizes = request_bytes, reply_bytes
            account.calls(self.operation, self.outcome, self.operations, *sizes)
        elif self.operation in _OUTGOING:
            account.messages_out(self.operation, self.sizes)
        else:
            account.messages_in(self.operation, self.outcome, self.sizes)


def meter(request: Request, reply: ManagementReply) -> Metered:
    """What a request and its reply count."""
    name = request.application_properties.get("operation")
    word, key = _WORDS.get(name if isinstance(name, str) else "", (MANAGE, ""))
    outcome = _outcome(reply.status)
    if word == SCHEDULE:
        return Metered(word, outcome, 1, _sizes(request.body))
    if word in _OUTGOING:
        return Metered(word, outcome, 1, _sizes(reply.body))
    listed = request.body.get(key) if isinstance(request.body, dict) else None
    count = len(listed) if isinstance(listed, list | tuple) else 1
    return Metered(word, outcome, max(count, 1), [])


def _outcome(status: int) -> str:
    if status < 300:
        return ACCEPTED
    if status == 503:
        return BUSY
    # A request that the server does not know is the client's mistake.
    return REFUSED if status < 500 or status == 501 else FAILED


def _sizes(body: Any) -> list[int]:
    """The sizes of the messages in a request or a reply."""
    items = body.get("messages") if isinstance(body, dict) else None
    if not isinstance(items, list | tuple):
        return []
    found = [item.get("message") for item in items if isinstance(item, dict)]
    return [len(each) for each in found if isinstance(each, bytes)]


__all__ = ["Metered", "meter"]
