"""What a request to `$management` is in the ledger, for a server and for a client.

Owns which requests are operations on messages (and then how many, and their sizes) and
that all others count once as `manage`. Reads bodies with care: a request that is
refused may hold anything.
"""

from __future__ import annotations

from typing import Any, NamedTuple

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

# The ledger's word, and the list in the body that says how many.
_WORDS: dict[str, tuple[str, str]] = {
    "com.microsoft:renew-lock": (RENEW, "lock-tokens"),
    "com.microsoft:renew-session-lock": (RENEW, ""),
    "com.microsoft:update-disposition": (SETTLE, "lock-tokens"),
    "com.microsoft:cancel-scheduled-message": (CANCEL, "sequence-numbers"),
    "com.microsoft:schedule-message": (SCHEDULE, "messages"),
    "com.microsoft:peek-message": (PEEK, ""),
    "com.microsoft:receive-by-sequence-number": (RECEIVE, ""),
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


def meter(name: Any, body: Any, status: int, answer: Any) -> Metered:
    """What a request of that name counts, by its body, its status and its answer."""
    word, key = _WORDS.get(name if isinstance(name, str) else "", (MANAGE, ""))
    outcome = _outcome(status)
    if word == SCHEDULE:
        return Metered(word, outcome, 1, _sizes(body))
    if word in _OUTGOING:
        return Metered(word, outcome, 1, _sizes(answer))
    listed = body.get(key) if isinstance(body, dict) else None
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
