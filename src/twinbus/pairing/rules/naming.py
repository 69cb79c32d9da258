"""Backlog queues: what they are called, how they are found, and how they are made.

Owns the path `<primary>/x-servicebus-transfer/<index>`, both ways, the search by index
where the queues of a namespace cannot be listed, and the properties that are set on a
queue that has to be made. A queue that exists is left as it is, and
one beyond the count is not an error: it is only not used for sending. Knows nothing
about which queues work; that is `rotation.py`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from twinbus import limits
from twinbus.core.durations import DURATION_MAX_TEXT

MIDDLE = "x-servicebus-transfer"

# As the administration client takes them. All else keeps its default.
BACKLOG_QUEUE_PROPERTIES: MappingProxyType[str, Any] = MappingProxyType(
    {
        "max_size_in_megabytes": limits.BACKLOG_QUEUE_MEGABYTES,
        "max_delivery_count": limits.DELIVERY_COUNT_MAX,
        "default_message_time_to_live": DURATION_MAX_TEXT,
        "auto_delete_on_idle": DURATION_MAX_TEXT,
        "lock_duration": timedelta(seconds=limits.BACKLOG_LOCK_SECONDS),
        "dead_lettering_on_message_expiration": True,
        "enable_batched_operations": True,
    }
)

# The queue for what clients report, and how long it keeps that.
_EVENTS = "x-twinbus-events"
EVENT_QUEUE_PROPERTIES: MappingProxyType[str, Any] = MappingProxyType(
    {"default_message_time_to_live": timedelta(days=limits.REPORT_DAYS)}
)

# An index as we write it: no sign, no leading zero, no digits of other scripts.
_INDEX = re.compile(r"0|[1-9][0-9]*")


def primary_label(host: str, port: int) -> str:
    """What stands for the primary in the paths of its backlog queues.

    The first label of the host name; for `localhost` and addresses, which many
    namespaces may share, the whole host and the port, with dashes.
    """
    host = host.strip("[]").lower()
    if host != "localhost" and not _is_address(host):
        return host.partition(".")[0]
    return f"{re.sub(r'[.:%]', '-', host)}-{port}".lstrip("-")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def backlog_path(primary: str, index: int) -> str:
    """The path of one backlog queue."""
    return f"{primary}/{MIDDLE}/{index}"


def events_path(primary: str) -> str:
    """The path of the queue to which clients report their events."""
    return f"{primary}/{_EVENTS}"


def backlog_index(path: str, primary: str) -> int | None:
    """The index of a backlog queue of this primary; None for any other queue."""
    prefix = f"{primary}/{MIDDLE}/".lower()
    if not path.lower().startswith(prefix):
        return None
    digits = path[len(prefix) :]
    return int(digits) if _INDEX.fullmatch(digits) else None


def found_indexes(paths: Iterable[str], primary: str) -> list[int]:
    """Every backlog queue among the queues of a secondary, in order."""
    indexes = (backlog_index(path, primary) for path in paths)
    return sorted({index for index in indexes if index is not None})


class IndexSearch:
    """Which indexes to ask for where queues cannot be listed, which needs Manage.

    From 0 on, group after group, until many in a row do not exist. Add what exists to
    `found` before the next group.
    """

    def __init__(self, known: Iterable[int] = ()) -> None:
        self.found: list[int] = []
        # The search does not end before these.
        self._known = max(known, default=-1)
        self._asked = 0

    def group(self) -> range:
        """What to ask for next; empty once the search is over."""
        highest = max([self._known, *self.found[-1:]])
        start, self._asked = self._asked, highest + 1 + limits.BACKLOG_GAP_MAX
        return range(start, self._asked)
