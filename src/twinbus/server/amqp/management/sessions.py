"""Sessions through `$management`: locks, states and names.

Rule: state and lock of a session belong to the connection that holds the session; all
others are told that the lock is lost. Names may be listed with the right to listen.
"""

from __future__ import annotations

from twinbus import limits
from twinbus.errors import MessageTooLarge, SessionLockLost
from twinbus.server.amqp.management.call import (
    INT_MAX,
    Call,
    ManagementReply,
    done,
    nothing,
)
from twinbus.store.base import SessionGrant
from twinbus.wire.types import ARRAY_STRING, Array, Int, Timestamp


def _held(call: Call) -> SessionGrant:
    return call.grant(call.arguments.text("session-id"))


def renew(call: Call) -> ManagementReply:
    """Move the end of a session's lock."""
    grant = _held(call)
    until_ms = call.now.steady_ms + call.entity.lock_ms
    store = call.namespace.store
    if not store.renew_session(call.container, grant, until_ms, call.now):
        raise SessionLockLost
    renewed = (call.container, grant._replace(until_ms=until_ms))
    shown = Timestamp(call.now.shown(until_ms))
    return done({"expiration": shown})._replace(renewed=renewed)


def get_state(call: Call) -> ManagementReply:
    """What the session remembers; null if nothing."""
    grant = _held(call)
    state = call.namespace.store.session_state(call.container, grant.name)
    return done({"session-state": state})


def set_state(call: Call) -> ManagementReply:
    """Let the session remember something, or with null nothing."""
    state = call.arguments.optional_binary("session-state")
    grant = _held(call)
    if state is not None and len(state) > call.message_bytes_max:
        raise MessageTooLarge(
            f"The session state has {len(state)} bytes; '{call.entity.name}' takes at "
            f"most {call.message_bytes_max}."
        )
    store = call.namespace.store
    store.put_session_state(call.container, grant.name, state, call.now)
    return done()


def list_names(call: Call) -> ManagementReply:
    """Names of sessions: all that have something, or those with a newer state."""
    after_ms: int | None = call.arguments.time_ms("last-updated-time")
    if after_ms is not None and after_ms >= limits.TIME_MS_MAX:
        after_ms = None
    skip = call.arguments.integer("skip", 0, INT_MAX)
    top = call.arguments.integer("top", 1, INT_MAX)
    top = min(top, limits.SESSIONS_PER_REPLY_MAX)
    names = call.namespace.store.sessions(call.container, after_ms, skip, top)
    if not names:
        return nothing()
    return done({"skip": Int(skip), "sessions-ids": Array(ARRAY_STRING, names)})
