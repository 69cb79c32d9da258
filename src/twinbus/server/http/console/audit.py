"""The log of changes: who did what to how many messages, when.

Owns its rows: settings of the shard in which the change was made, written in the same
transaction, so that the log and the messages agree after a crash. The last some hundred
of each shard are kept.
"""

from __future__ import annotations

import json
from typing import Any

from twinbus import limits
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn

_NEXT = "console audit next"


def _row(number: int) -> str:
    return f"console audit {number % limits.CONSOLE_AUDIT_MAX}"


class AuditEntry:
    """A change that is about to be made: who, what and where; `note` adds the rest."""

    __slots__ = ("_action", "_job", "_path", "_who")

    def __init__(self, who: str, action: str, path: str, job: str = "") -> None:
        self._who = who
        self._action = action
        self._path = path
        # Chunks of one job are one entry.
        self._job = job

    def note(self, namespace: Namespace, turn: Turn, count: int) -> None:
        """Write the entry, in the transaction of the change."""
        store = namespace.store
        number = int(store.setting(_NEXT) or 0)
        before: dict[str, Any] = {}
        if self._job and number:
            before = json.loads(store.setting(_row(number - 1)) or "{}")
        if before.get("job") == self._job and self._job:
            number -= 1
            count += before["count"]
        entry = {
            "at_ms": turn.now.wall_ms,
            "who": self._who,
            "action": self._action,
            "path": self._path,
            "count": count,
            "job": self._job,
        }
        store.put_setting(_row(number), json.dumps(entry))
        store.put_setting(_NEXT, str(number + 1))


def read_audit(namespace: Namespace, turn: Turn) -> list[dict[str, Any]]:
    """The entries of a shard, newest first (`turn.Command`)."""
    del turn
    store = namespace.store
    end = int(store.setting(_NEXT) or 0)
    found = []
    for number in range(end - 1, max(end - limits.CONSOLE_AUDIT_MAX, 0) - 1, -1):
        text = store.setting(_row(number))
        if text is not None:
            found.append(json.loads(text))
    return found
