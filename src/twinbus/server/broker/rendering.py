"""Kept messages as clients see them.

Owns which facts of a stored message are shown, and under which condition. The bytes are
made by `wire/message/rendering.py`.
"""

from __future__ import annotations

from twinbus.store.base import State, Stored
from twinbus.wire.message.rendering import BrokerFields, render
from twinbus.wire.message.sections import WAS_SCHEDULED


def render_stored(
    stored: Stored, token: bytes | None, until_ms: int | None, number_base: int = 0
) -> bytes:
    """A kept message with all that the broker adds.

    The token is empty for a delivery without a lock, and None for a look. The base is
    that of the entity (`Entity.number_base`).
    """
    sequence = number_base | stored.sequence
    out = BrokerFields(sequence, stored.enqueued_ms, stored.deliveries)
    out.origin = stored.origin or None
    out.source = stored.source
    out.token = token
    out.locked_until_ms = until_ms
    # As Azure does: a look always says it, a delivery only what is not simply active.
    out.state = stored.state
    if token is not None and stored.state == State.ACTIVE:
        scheduled = stored.head[:1] and stored.head[0] & WAS_SCHEDULED
        out.state = State.SCHEDULED if scheduled else None
    # The entity's time to live may be shorter than the sender's. Before a scheduled
    # message is due its life has not begun.
    if stored.expires_ms is not None and stored.due_ms is None:
        out.ttl_ms = stored.expires_ms - stored.enqueued_ms
    return render(out, stored.head, stored.bare)
