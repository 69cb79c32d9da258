"""Whether a job can work at all, asked before Spark starts it.

Turns what a namespace answers to the first request into one sentence that names the
option to change. Rule: nothing is received, sent or changed by asking.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

from twinbus import limits
from twinbus.client.receiver import ReceiveOptions
from twinbus.client.sync.connection import Connection
from twinbus.core.names import parse_address
from twinbus.errors import ArgumentError, RemoteError, TwinbusError
from twinbus.pairing.rules.classification import Failure, kind_of
from twinbus.spark.connections import ask_until_answered, connection_for
from twinbus.spark.options import Access

_checked: set[tuple[object, ...]] = set()


def check_browse(access: Access, path: str) -> None:
    """That messages of an entity can be looked at."""
    _ask(access, path, "Listen", lambda made: made.management(path).peek(1))
    # A topic can be looked at too, and has nothing but its schedule to show.
    connection = connection_for(access)
    if parse_address(path).subscription is None and _is_topic(connection, path):
        raise ArgumentError(
            f"'{path}' of '{connection.endpoint.authority}' is a topic, and its "
            "messages are in its subscriptions. Name one with option 'subscription'."
        )


def _is_topic(connection: Connection, path: str) -> bool:
    """Whether an entity refuses receivers, both without and with a session.

    A namespace does not tell the kind of an entity over AMQP. The session is one that
    no message has, so no other receiver waits for it.
    """
    for options in (ReceiveOptions(), ReceiveOptions(session_id=str(uuid4()))):
        try:
            with connection.receiver(path, options) as receiver:
                receiver.open()
        except RemoteError as error:
            if kind_of(error) is Failure.REFUSED:
                continue
        return False
    return True


def check_receive(access: Access, path: str, *, sessions: bool) -> None:
    """That messages of an entity can be received."""
    _ask(access, path, "Listen", lambda made: _link(made, path, sessions))


def check_send(access: Access, path: str | None, wait_seconds: float = 0.0) -> None:
    """That an entity can be sent to; without one, that the namespace is there.

    Spark makes the writer of a stream anew for every batch, and again to commit it. So
    a process asks once, and a stream waits for a namespace that is away just then.
    """
    key = (access.option, access.text(), path)
    if key in _checked:
        return

    def open_link(connection: Connection) -> None:
        ask_until_answered(lambda: _open(connection, path), wait_seconds)

    _ask(access, path or "", "Send", open_link)
    _checked.add(key)


def _open(connection: Connection, path: str | None) -> None:
    if path is None:
        connection.open()
        return
    with connection.sender(path) as sender:
        sender.open()


def _link(connection: Connection, path: str, sessions: bool) -> None:
    options = ReceiveOptions(
        next_session=sessions, session_seconds=limits.SOURCE_SESSION_SECONDS
    )
    with connection.receiver(path, options) as receiver:
        try:
            receiver.open()
        except RemoteError as error:
            # No session has messages now: that was an answer.
            if not (sessions and kind_of(error) is Failure.TIMEOUT):
                raise


def _ask(
    access: Access, path: str, right: str, question: Callable[[Connection], object]
) -> None:
    try:
        question(connection_for(access))
    except RemoteError as error:
        raise explained(error, access, path, right) from None


def explained(
    error: RemoteError, access: Access, path: str, right: str
) -> TwinbusError:
    """What a person has to change; errors without such a thing stay as they are."""
    kind = kind_of(error)
    host = connection_for(access).endpoint.authority
    if kind in (Failure.CONNECTION, Failure.TIMEOUT):
        return ArgumentError(
            f"The namespace '{host}' of option '{access.option}' does not answer: "
            f"{error.text}"
        )
    if kind is Failure.ACCESS:
        return ArgumentError(
            f"The key of option '{access.option}' gives no right to '{path}' of "
            f"'{host}'; {right} is needed: {error.text}"
        )
    if kind is Failure.MISSING:
        return ArgumentError(f"Option 'entity': '{host}' has no '{path}'. {error.text}")
    if kind is Failure.REFUSED:
        return ArgumentError(f"'{path}' of '{host}' cannot be used so: {error.text}")
    return error
