"""Attaching to a session: by name, or to the next one that has messages.

A client that waits for a session is a consumer of the container: in each turn in which
something becomes ready it is given a session, if one can be locked, until its time is
over or it goes away. Only then is its attach answered.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from twinbus import limits
from twinbus.errors import (
    InvalidField,
    OperationTimeout,
    TwinbusError,
    Unauthorized,
)
from twinbus.ledger.schema import ACCEPTED
from twinbus.server.amqp.node import Node
from twinbus.server.amqp.replies import wire_error
from twinbus.server.broker.accounting import outcome_of
from twinbus.server.broker.commands import SessionWant, TakenSession
from twinbus.wire.link import LinkState
from twinbus.wire.types import Described, Symbol

if TYPE_CHECKING:
    from twinbus.server.amqp.partitioned import SessionWaits
    from twinbus.server.amqp.receiving import ReceiveNode

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


class SessionWait(Node):
    """A link that waits for a session's lock (`host.Consumer`)."""

    def __init__(
        self, node: ReceiveNode, name: str | None, group: SessionWaits | None = None
    ) -> None:
        super().__init__(node.connection, node.link, node.host)
        self._node = node
        self._name = name
        # Those that wait in other fragments of the entity for the same link.
        self._group = group
        self._key: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Start to wait."""
        node = self._node
        self.link.owner = self
        if self._name is None:
            properties = self.link.peer_attach.properties or {}
            wait_ms = properties.get(_TIMEOUT)
            if not isinstance(wait_ms, int) or isinstance(wait_ms, bool):
                wait_ms = limits.SESSION_WAIT_MS
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(wait_ms / 1000, self._give_up)
        self._key = key = self.host.add_consumer(node.container, self)
        self.host.want(SessionWant(key, node.container, node.entity, self._name))

    @property
    def waits(self) -> bool:
        """Whether no session was found yet."""
        return self._key is not None

    def deliver(self, want: SessionWant, taken: TakenSession) -> None:
        """Answer the attach."""
        del want
        node = self._node
        self.stop()
        error = taken.error
        if self.link.state is LinkState.ASKED and error is None:
            error = self._unauthorized()
        if self._group is not None and taken.error is None:
            self._group.stop_others(self)
        if self.link.state is not LinkState.ASKED or error is not None:
            self.host.give_back(taken)
            self._refuse(error)
            return
        grant = taken.grant
        assert grant is not None
        self.link.owner = node
        node.hold(grant)
        answer = self.connection.answer_attach(self.link)
        assert answer.source is not None
        answer.source.filter = {Symbol(SESSION_FILTER): self._granted(grant.name)}
        answer.properties = (answer.properties or {}) | {
            Symbol(_LOCKED_UNTIL): ticks(taken.until_ms)
        }
        self.link.accept(answer)
        node.open()
        self.connection.flush_soon()

    def _granted(self, name: str) -> str | Described:
        """The session's name in the form that the client asked in: it reads no other.

        The Go client describes its filter; those for Python, JavaScript and Java do
        not.
        """
        source = self.link.peer_attach.source
        assert source is not None
        asked = (source.filter or {})[SESSION_FILTER]
        if isinstance(asked, Described):
            return Described(asked.descriptor, name)
        return name

    def _unauthorized(self) -> TwinbusError | None:
        """Why the client may not receive; its claim may have ended while it waited."""
        assert self._node.needed is not None
        try:
            self.connection.claims.allow(*self._node.needed)
        except Unauthorized as error:
            return error
        return None

    def store_failed(self, error: TwinbusError) -> None:
        """The store has stopped: the client has to ask again."""
        self.stop()
        if self._group is None or self._group.is_last():
            self._refuse(error)

    def on_closed(self) -> None:
        """The client went away while it waited."""
        if self.waits and self._group is None:
            self._node.polls.count()
        self.stop()
        self._node.forget()

    def _give_up(self) -> None:
        if self._group is not None:
            self._group.stop_others(self)
        self.stop()
        self._refuse(
            OperationTimeout("No session with messages became available in time.")
        )

    def _refuse(self, error: TwinbusError | None) -> None:
        if error is not None and self.link.state is LinkState.ASKED:
            # That no session came in time is an empty poll, and no mistake.
            is_empty = isinstance(error, OperationTimeout)
            self._node.polls.count(ACCEPTED if is_empty else outcome_of(error))
            self.link.refuse(wire_error(error))
            self.connection.flush_soon()

    def stop(self) -> None:
        """Wait no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        key, self._key = self._key, None
        if key is not None:
            self.host.remove_consumer(self._node.container, key)
