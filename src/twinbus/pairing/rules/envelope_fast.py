"""Fast path for the usual message of a backlog queue.

`fast_restore` makes the bytes that `envelope.py` would make, or returns None; then
`envelope.py` restores the message, or says what is wrong with it. The bytes are read in
`wire/message/fast_delivery.py`; this file says which properties are aliases and what
becomes of the time to live.
"""

from __future__ import annotations

from twinbus.pairing.rules.envelope import (
    ALIASES,
    DIVERTED_AT,
    ESCAPE,
    PATH,
    SESSION_ID,
    TICKS_PER_MS,
    TIME_TO_LIVE,
)
from twinbus.wire.message.fast_delivery import join_moved, moved_reader, read_moved
from twinbus.wire.message.names import PING_CONTENT_TYPE

_PING = PING_CONTENT_TYPE.encode("ascii")


def _is_free(name: str) -> bool:
    """Whether a property's name is neither an alias nor escaped."""
    lower = name.lower()
    return lower not in ALIASES and not lower.startswith(ESCAPE)


_ALIASES = moved_reader(PATH, SESSION_ID, TIME_TO_LIVE, DIVERTED_AT, _is_free)


def fast_restore(
    payload: bytes, now_ms: int, restarts_ttl: bool
) -> tuple[str, bytes] | None:
    """Destination and restored message, or None if `envelope.py` has to do it.

    Expired messages, schedules, partition keys and pings are left to `envelope.py`.
    """
    moved = read_moved(payload, _ALIASES)
    if moved is None:
        return None
    path, ticks, diverted_ms, _, properties, _, _ = moved
    if _PING in properties:
        return None
    ttl_ms: int | None = None
    if ticks is not None:
        ttl_ms = ticks // TICKS_PER_MS
        if not restarts_ttl:
            ttl_ms -= max(now_ms - diverted_ms, 0)
    message = join_moved(moved, ttl_ms)
    return None if message is None else (path, message)
