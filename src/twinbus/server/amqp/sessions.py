"""Attaching to a session: by name, or to the next one that has messages.

A client that waits for a session is a consumer of the container without credit: each
turn in which something becomes ready it tries to lock a session, until it has one, its
time is over or it goes away. Only then is its attach answered.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from twinbus import limits
from twinbus.errors import (
    EntityNotFound,
    InvalidField,
    OperationTimeout,
    SessionCannotBeLocked,
    TwinbusError,
    Unauthorized,
)
from twinbus.server.amqp.replies import wire_error
from twinbus.server.amqp.settling import ReleaseSession
from twinbus.store.base import SessionGrant
from twinbus.wire.link import LinkState
from twinbus.wire.types import Described, Symbol

if TYPE_CHECKING:
    from twinbus.server.amqp.receiving import ReceiveNode
    from twinbus.server.broker.namespace import Namespace

SESSION_FILTER = "com.microsoft:session-filter"
_TIMEOUT = "com.microsoft:timeout"
_LOCKED_UNTIL = "com.microsoft:locked-until-utc"
# .NET ticks at the Unix epoch.
_EPOCH_TICKS = 621_355_968_000_000_000


def wants_session(filters: dict[Any, Any] | None) -> bool:
    """Whether an attach asks for a session at all."""
    return SESSION_FILTER in (filters or {})


def session_name(filters: dict[Any, Any]) -> str | None:
    """The session that an attach asks for; None is the next available."""
    value = filters[SESSION_FILTER]
    if isinstance(value, Described):
        value = value.value
    if value is None:
        return None
    if isinstance(value, str) and not isinstance(value, Symbol):
        if len(value) > limits.SESSION_ID_CHARS_MAX:
            raise InvalidField(
                f"A session id has at most {limits.SESSION_ID_CHARS_MAX} characters."
            )
        return value
    raise InvalidField("The session filter must be a string or null.")


def ticks(milliseconds: int) -> int:
    """A time as .NET counts it."""
    return milliseconds * 10_000 + _EPOCH_TICKS


class SessionWait:
    """A link that waits for a session's lock (`host.Consumer`)."""

    def __init__(self, node: ReceiveNode, name: str | None) -> None:
        self._node = node
        self._name = name
        self._grant: SessionGrant | None = None
        self._refused: TwinbusError | None = None
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Start to wait."""
        node = self._node
        node.link.owner = self
        host = node.connection.host
        host.add_consumer(node.container, self)
        if self._name is None:
            properties = node.link.peer_attach.properties or {}
            wait_ms = properties.get(_TIMEOUT)
            if not isinstance(wait_ms, int) or isinstance(wait_ms, bool):
                wait_ms = limits.SESSION_WAIT_MS
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(wait_ms / 1000, self._give_up)
        host.hungry(node.container)

    def stage(self, namespace: Namespace, now_ms: int, share: int) -> bool:
        """Try to lock the session."""
        del share
        node = self._node
        if node.link.state is not LinkState.ASKED:
            return False
        if namespace.entities.find(node.entity.key) is not node.entity:
            self._refused = EntityNotFound(node.entity.name)
            return True
        assert node.needed is not None
        try:
            # The claim may have ended while the client waited.
            node.connection.claims.allow(*node.needed)
        except Unauthorized as error:
            self._refused = error
            return True
        # A holder whose time is over must be told, before another takes its place.
        namespace.end_sessions(now_ms)
        until_ms = now_ms + node.entity.lock_ms
        self._grant = namespace.store.accept_session(
            node.container, self._name, until_ms, now_ms
        )
        if self._grant is None and self._name is not None:
            self._refused = SessionCannotBeLocked(
                f"The session '{self._name}' is held by another receiver."
            )
        if self._grant is not None:
            namespace.store.touch(node.container, now_ms)
        return self._grant is not None or self._refused is not None

    def release(self) -> None:
        """Answer the attach."""
        node = self._node
        grant = self._grant
        self._stop()
        if node.link.state is not LinkState.ASKED:
            if grant is not None:
                node.connection.host.submit(ReleaseSession(node.container, grant))
            return
        if grant is None:
            assert self._refused is not None
            self._refuse(self._refused)
            return
        node.grant = grant
        node.link.owner = node
        host = node.connection.host
        host.session_holders[node.container, grant.nonce] = node
        answer = node.connection.answer_attach(node.link)
        assert answer.source is not None
        answer.source.filter = {Symbol(SESSION_FILTER): grant.name}
        answer.properties = (answer.properties or {}) | {
            Symbol(_LOCKED_UNTIL): ticks(grant.until_ms)
        }
        node.link.accept(answer)
        node.open()
        node.connection.flush_soon()

    def fail(self, error: TwinbusError) -> None:
        """The turn did not happen."""
        self._grant = None
        self._stop()
        if self._node.link.state is LinkState.ASKED:
            self._refuse(error)

    def on_flow(self) -> None:
        """Credit that comes early is looked at when the session is there."""

    def on_closed(self) -> None:
        """The client went away while it waited."""
        self._stop()

    def _give_up(self) -> None:
        if self._node.link.state is LinkState.ASKED and self._grant is None:
            self._stop()
            self._refuse(
                OperationTimeout("No session with messages became available in time.")
            )

    def _refuse(self, error: TwinbusError) -> None:
        self._node.link.refuse(wire_error(error))
        self._node.connection.flush_soon()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._node.connection.host.remove_consumer(self._node.container, self)
