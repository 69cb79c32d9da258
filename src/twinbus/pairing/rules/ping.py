"""Pings: what one is, when the next is due, and how to ask where pings are unsafe.

Owns the ping message and its times. A ping only tells whether an entity takes sends
again. A twinbus server never stores one and says so in `open`; where a service does not
say so, a waiting receiver could see it, so there a link that opens is proof enough.
Knows nothing about states (`policy.py`), nor about connections. Session and message ids
come in, because chance is not made here.
"""

from __future__ import annotations

import enum
from collections.abc import Collection

from twinbus import limits
from twinbus.pairing.rules.retry import Backoff
from twinbus.wire.message.names import PING_CAPABILITY, PING_CONTENT_TYPE
from twinbus.wire.message.sections import (
    CONTENT_TYPE,
    GROUP_ID,
    MESSAGE_ID,
    encode_message,
)
from twinbus.wire.types import Symbol


class Probe(enum.Enum):
    """How to find out whether an entity takes sends."""

    # Open a sender's link and close it again, without a message.
    LINK = "link"
    PING = "ping"


PROBES = tuple(probe.value for probe in Probe)


def ping_message(session_id: str, message_id: str) -> bytes:
    """An empty message that session entities take as well, and that soon expires.

    The message id keeps duplicate detection from taking two pings for one.
    """
    fields = {
        MESSAGE_ID: message_id,
        CONTENT_TYPE: Symbol(PING_CONTENT_TYPE),
        GROUP_ID: session_id,
    }
    return encode_message(b"", fields, limits.PING_TTL_MS)


def next_ping_ms(started_ms: int, interval_ms: int, now_ms: int) -> int:
    """When the ping after one that started then is due: from start to start."""
    return max(now_ms, started_ms + interval_ms)


def relapse_pause_ms(relapses: int, interval_ms: int) -> int:
    """How long after this many relapses in a row the next ping waits: it doubles."""
    longest_ms = max(interval_ms, limits.RELAPSE_PAUSE_MS_MAX)
    return Backoff(interval_ms, longest_ms).pause_ms(relapses)


def ping_timeout_ms(interval_ms: int, slow_send_ms: int = 0) -> int:
    """How long a ping may take: always less than the interval, so one at a time.

    Where a send counts as failed after `slow_send`, so does a ping.
    """
    timeout_ms = min(limits.ATTEMPT_MS_MAX, interval_ms * 9 // 10)
    return min(timeout_ms, slow_send_ms) if slow_send_ms else timeout_ms


def choose_probe(wanted: str | None, offered: Collection[str]) -> Probe:
    """How to probe a service that offers these capabilities."""
    if wanted is not None:
        return Probe(wanted)
    return Probe.PING if PING_CAPABILITY in offered else Probe.LINK
