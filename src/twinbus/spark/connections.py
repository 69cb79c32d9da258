"""Connections of a Python worker: one for each namespace and process, kept for reuse.

Spark starts a worker for many tasks one after the other; to connect for each would cost
more than a small task. A worker that was forked has no use for its parent's, so the
process is part of the key. Knows nothing about what a connection is used for.
"""

from __future__ import annotations

import hashlib
import os
import threading

from twinbus.client.sync.connection import Connection
from twinbus.spark.options import Access

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
    """Say goodbye to all namespaces; the next call connects again."""
    with _lock:
        kept = list(_kept.values())
        _kept.clear()
    for connection in kept:
        connection.close()
