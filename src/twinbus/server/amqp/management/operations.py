"""Requests of `$management`: which exist, and how a refusal is written.

Owns the table of operations. A request is carried out whole or refused before it
changed anything, inside the store's transaction; its reply must not leave before the
commit. Statuses of errors are in `broker/answers.py`. Knows nothing about links.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from twinbus import errors
from twinbus.core.names import EntityPath
from twinbus.core.rights import Operation
from twinbus.server.amqp.management import messages as management_messages
from twinbus.server.amqp.management import rules as management_rules
from twinbus.server.amqp.management import schedule as management_schedule
from twinbus.server.amqp.management import sessions as management_sessions
from twinbus.server.amqp.management.call import Arguments, Call, ManagementReply
from twinbus.server.broker.answers import status_of
from twinbus.server.broker.commands import SessionKey
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.store.base import SessionGrant
from twinbus.wire.message.sections import Request

__all__ = ["AskedWork", "ManagementReply", "find_operation", "perform", "refusal"]

_HANDLERS: dict[Operation, Callable[[Call], ManagementReply]] = {
    Operation.RENEW_LOCK: management_messages.renew_locks,
    Operation.PEEK: management_messages.peek,
    Operation.RECEIVE_BY_SEQUENCE: management_messages.receive_deferred,
    Operation.UPDATE_DISPOSITION: management_messages.settle,
    Operation.BATCH_DELETE: management_messages.delete_batch,
    Operation.SCHEDULE: management_schedule.schedule,
    Operation.CANCEL_SCHEDULED: management_schedule.cancel,
    Operation.RENEW_SESSION_LOCK: management_sessions.renew,
    Operation.GET_SESSION_STATE: management_sessions.get_state,
    Operation.SET_SESSION_STATE: management_sessions.set_state,
    Operation.LIST_SESSIONS: management_sessions.list_names,
    Operation.ADD_RULE: management_rules.add,
    Operation.REMOVE_RULE: management_rules.remove,
    Operation.LIST_RULES: management_rules.list_all,
}
_BY_NAME = {operation.value: operation for operation in _HANDLERS}
_SENDING = frozenset({Operation.SCHEDULE, Operation.CANCEL_SCHEDULED})


def find_operation(request: Request) -> Operation:
    """What a request asks for; the caller decides whether the client may."""
    name = request.application_properties.get("operation")
    operation = _BY_NAME.get(name) if isinstance(name, str) else None
    if operation is None:
        raise errors.NotImplementedByServer(f"The operation '{name}' is not known.")
    return operation


@dataclass(frozen=True, slots=True)
class AskedWork:
    """What a request asks for (`turn.Command`); raises a refusal, and changed nothing.

    It is about the entity at the path in the shard that carries it out.
    """

    operation: Operation
    path: EntityPath
    body: Any
    # The session locks that the asking connection holds, by session.
    grants: Mapping[SessionKey, SessionGrant]

    def __call__(self, namespace: Namespace, turn: Turn) -> ManagementReply:
        entity = namespace.entities.get(self.path)
        _check_status(entity, self.operation)
        arguments = Arguments(self.body)
        call = Call(namespace, entity, self.path, arguments, self.grants, turn)
        return _HANDLERS[self.operation](call)

    def but(self, values: Mapping[str, Any]) -> AskedWork:
        """The same with other arguments."""
        return replace(self, body={**self.body, **values})


def perform(
    namespace: Namespace,
    path: EntityPath,
    request: Request,
    grants: Mapping[SessionKey, SessionGrant],
    turn: Turn,
) -> ManagementReply:
    """Carry a request out. Raises `CallerError` or `BusyError`, and changed nothing."""
    return AskedWork(find_operation(request), path, request.body, grants)(
        namespace, turn
    )


def _check_status(entity: Entity, operation: Operation) -> None:
    status = entity.description.status
    sends = operation in _SENDING
    if not (status.can_send if sends else status.can_receive):
        direction = "sending" if sends else "receiving"
        raise errors.EntityDisabled(
            f"'{entity.name}' is disabled for {direction} ({status.value})."
        )


def refusal(error: errors.TwinbusError) -> ManagementReply:
    """The reply that tells a client why not."""
    return ManagementReply(status_of(error), error.text, {}, error.condition)
