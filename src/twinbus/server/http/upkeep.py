"""Upkeep of a running namespace over HTTP: its keys, purge and reset.

Owns the order of things: the path is read, the caller is admitted, the body is taken
in, bounded, and the work runs as a command of the host. So no answer leaves before its
change is on disk, and a key that was replaced has ended when the answer comes.
Bodies are JSON, shaped as Azure's Resource Manager has it for a namespace's rules.
Everything needs Manage, on the namespace or, for a purge, on the entity; `listKeys` and
`regenerateKeys` are the only answers with keys in them.
What is a path of this is in `upkeep_paths.py`; what a purge is, in `maintenance.py`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from twinbus.core.names import EntityPath
from twinbus.core.rights import (
    AuthorizationRule,
    Claim,
    Right,
    format_rights,
    parse_rights,
)
from twinbus.errors import (
    ArgumentError,
    EntityExists,
    StoreFault,
    TwinbusError,
)
from twinbus.server.access.port import INSTANCE_HEADER, NamespacePort
from twinbus.server.broker import answers, keys, maintenance
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.server.http import route
from twinbus.server.http.auth import Asked
from twinbus.server.http.route import (
    Exchange,
    MethodNotAllowed,
    PreconditionFailed,
    SurfaceRoute,
)
from twinbus.server.http.upkeep_paths import Chore, Task, find_task

log = logging.getLogger("twinbus.upkeep")

# Nothing was changed, and the store may recover by itself.
STATUSES = route.STATUSES | {StoreFault: 503}
_KEY_TYPES = {"PrimaryKey": False, "SecondaryKey": True}


def upkeep_route(port: NamespacePort) -> SurfaceRoute:
    """Takes the requests whose paths are those of `upkeep_paths.py`."""
    return SurfaceRoute(port, find_task, UpkeepExchange)


class UpkeepExchange(Exchange):
    """One request for upkeep."""

    def __init__(self, port: NamespacePort, request: Request) -> None:
        super().__init__(port, request)
        self._task: Task = self.found
        self._answers: dict[Chore, Callable[[], Awaitable[Any]]] = {
            Chore.PURGE: self._purge,
            Chore.RESET: self._reset,
            Chore.LIST_RULES: self._list_rules,
            Chore.PUT_RULE: self._put_rule,
            Chore.DELETE_RULE: self._delete_rule,
            Chore.LIST_KEYS: self._list_keys,
            Chore.REGENERATE: self._regenerate,
        }

    def asked(self) -> Asked:
        """What the path says, if the request is for this server."""
        self._check_instance()
        task = self._task
        return Asked(task.operation, task.path, task.spelled, self.authority)

    async def answer(self, claim: Claim) -> Response:
        """Carry the request out; refusals are raised."""
        del claim
        task = self._task
        work = self._answers.get(task.chore)
        if work is None:
            method = self.request.method
            raise MethodNotAllowed(f"{method} is not known for /{task.spelled}.")
        return JSONResponse(await work(), headers={"Cache-Control": "no-store"})

    def refusal(self, error: TwinbusError) -> Response:
        """The answer that an error becomes."""
        status = answers.status_of(error, STATUSES)
        message = answers.text_of(error)
        body = {"error": {"code": type(error).__name__, "message": message}}
        # A body that was not read is not worth a connection.
        return JSONResponse(body, status, {"Connection": "close"})

    def _check_instance(self) -> None:
        """Refuse what was meant for another server, behind a forwarded port say."""
        meant = self.request.headers.get(INSTANCE_HEADER)
        if meant is not None and meant != self.host.instance:
            raise PreconditionFailed(
                f"The server at {self.authority} is another one than the request is "
                f"for: {INSTANCE_HEADER} is not its own."
            )

    # -- messages and entities ---------------------------------------------------------

    async def _purge(self) -> dict[str, Any]:
        purged = await self.host.run(partial(_purged, self._task.path))
        log.info("purged %r: %d messages", self._task.path.text, purged)
        return {"purged": purged}

    async def _reset(self) -> dict[str, Any]:
        namespace = self.host.namespace
        deleted = await self.host.run(_reset)
        log.info("reset: %d entities deleted", deleted)
        return {"deleted": deleted, "made": len(namespace.entities)}

    # -- authorization rules -----------------------------------------------------------

    async def _list_rules(self) -> dict[str, Any]:
        return {"value": [_described(rule) for rule in self.host.namespace.rules]}

    async def _put_rule(self) -> dict[str, Any]:
        properties = (await self._json("properties")).get("properties", {})
        if not isinstance(properties, dict) or properties.keys() != {"rights"}:
            raise ArgumentError(
                'The body must be {"properties": {"rights": [...]}} with Send, Listen '
                "or Manage in the list."
            )
        rights = _rights(properties["rights"])
        only_new = self.request.headers.get("if-none-match") == "*"
        name = self._task.rule

        def change(namespace: Namespace, turn: Turn) -> AuthorizationRule:
            _check_not_configured(namespace, name)
            if only_new and name in {one.name for one in namespace.rules}:
                raise EntityExists(f"The authorization rule '{name}' already exists.")
            return namespace.change_rules(
                lambda store: keys.put_rule(store, name, rights, turn.now_ms), turn
            )

        rule = await self.host.run(change)
        log.info("the authorization rule %r gives %s", rule.name, rule.rights)
        return _described(rule)

    async def _delete_rule(self) -> dict[str, Any]:
        name = self._task.rule

        def change(namespace: Namespace, turn: Turn) -> None:
            _check_not_configured(namespace, name)
            namespace.change_rules(
                lambda store: keys.delete_rule(store, name, turn.now_ms), turn
            )

        await self.host.run(change)
        log.info("the authorization rule %r is deleted", self._task.rule)
        return {"deleted": self._task.rule}

    async def _list_keys(self) -> dict[str, Any]:
        return _keys(keys.find_rule(self.host.namespace.rules, self._task.rule))

    async def _regenerate(self) -> dict[str, Any]:
        body = await self._json("keyType")
        secondary = _KEY_TYPES.get(str(body.get("keyType")))
        if secondary is None:
            raise ArgumentError("keyType must be PrimaryKey or SecondaryKey.")

        name = self._task.rule

        def change(namespace: Namespace, turn: Turn) -> AuthorizationRule:
            _check_not_configured(namespace, name)
            return namespace.change_rules(
                lambda store: keys.regenerate_key(
                    store, name, turn.now_ms, secondary=secondary
                ),
                turn,
            )

        rule = await self.host.run(change)
        log.info("the authorization rule %r has another %s", rule.name, body["keyType"])
        return _keys(rule)

    async def _json(self, field: str) -> dict[str, Any]:
        """The body, which has no other field than that."""
        body = await self.body()
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            raise ArgumentError("The body is not JSON.") from None
        if not isinstance(value, dict) or value.keys() - {field}:
            raise ArgumentError(f"The body must be an object with '{field}' alone.")
        return value


def _purged(path: EntityPath, namespace: Namespace, turn: Turn) -> int:
    return maintenance.purge(namespace, path, turn)


def _reset(namespace: Namespace, turn: Turn) -> int:
    return maintenance.reset(namespace, namespace.config, turn)


def _check_not_configured(namespace: Namespace, name: str) -> None:
    """A key of the file would come back, leaked or not, with the next start."""
    if name in {rule.name for rule in namespace.config.authorization_rules}:
        raise ArgumentError(
            f"The authorization rule '{name}' is in the configuration file. Change it "
            "there, and start the server again."
        )


def _rights(given: object) -> Right:
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise ArgumentError("The rights must be a list of Send, Listen or Manage.")
    return parse_rights(given)


def _described(rule: AuthorizationRule) -> dict[str, Any]:
    properties = {"rights": list(format_rights(rule.rights))}
    return {"name": rule.name, "properties": properties}


def _keys(rule: AuthorizationRule) -> dict[str, Any]:
    secondary = rule.secondary_key
    return {
        "keyName": rule.name,
        "primaryKey": rule.primary_key.reveal(),
        "secondaryKey": secondary.reveal() if secondary else None,
        "rights": list(format_rights(rule.rights)),
    }
