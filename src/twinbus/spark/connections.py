"""Connections of a Python worker: one for each namespace and process, kept for reuse.

Spark starts a worker for many tasks one after the other; to connect for each would cost
more than a small task. A worker that was forked has no use for its parent's, so the
process is part of the key. Also owns asking a namespace until it answers, by the rules
of `pairing/rules/retry.py`. Knows nothing about what is asked.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Callable
from typing import TypeVar

from twinbus.client.sync.connection import Connection
from twinbus.errors import RemoteError
from twinbus.pairing.rules.retry import SPARK_BACKOFF, is_transient
from twinbus.spark.options import Access

_T = TypeVar("_T")

_log = logging.getLogger(__name__)
_lock = threading.Lock()
_kept: dict[tuple[int, str], Connection] = {}


def connection_for(access: Access) -> Connection:
    """The connection of this process to a namespace; opened when it is first used.

    It ends with the process, and is replaced when it breaks.
    """
    access.parsed()
    text = access.text().reveal()
    # A rotated key is another text, and so another connection.
    key = (os.getpid(), hashlib.sha256(text.encode()).hexdigest())
    with _lock:
        found = _kept.get(key)
        if found is None:
            found = _kept[key] = Connection.from_connection_string(text)
        return found


def close_connections() -> None:
    """Close all connections; the next call connects again."""
    with _lock:
        kept = list(_kept.values())
        _kept.clear()
    for connection in kept:
        connection.close()


def ask_until_answered(
    ask: Callable[[], _T], within_seconds: float | None = None
) -> _T:
    """Ask again after transient errors, so long in all; None: without an end.

    Any other error is raised at once.
    """
    failures = 0
    left_seconds = within_seconds
    while True:
        try:
            return ask()
        except RemoteError as error:
            failures += 1
            pause_seconds = SPARK_BACKOFF.pause_ms(failures) / 1000
            is_over = left_seconds is not None and left_seconds < pause_seconds
            if is_over or not is_transient(error):
                raise
            _log.warning("The namespace is asked again: %s", error)
        threading.Event().wait(pause_seconds)
        if left_seconds is not None:
            left_seconds -= pause_seconds
