"""Upkeep of a running namespace over HTTP: its shards and keys, purge and reset.

Owns these paths, which no entity can have, since names hold no dollar sign:

    /$purge, /{entity}/$purge                       messages
    /$reset                                         the namespace
    /$shards                                        its shards and fragments
    /$authorizationRules                            its authorization rules
    /$authorizationRules/{name}                     one of them
    /$authorizationRules/{name}/listKeys            its keys
    /$authorizationRules/{name}/regenerateKeys      replace one of them

Words are known in any case, names of rules are not.
Work runs as a command of the host, so no answer leaves before its change is on disk,
and a key that was replaced has ended when the answer comes.
Bodies are JSON, shaped as Azure's Resource Manager has it for a namespace's rules.
Everything needs Manage, on the namespace or, for a purge, on the entity; `listKeys` and
`regenerateKeys` are the only answers with keys in them.
What a purge is, is in `broker/directory/maintenance.py`.
"""

from __future__ import annotations

import enum
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from twinbus.core.names import EntityPath
from twinbus.core.rights import (
    AuthorizationRule,
    Claim,
    Operation,
    Right,
    format_rights,
    parse_rights,
)
from twinbus.errors import (
    ArgumentError,
    EntityExists,
    ShardAway,
    TwinbusError,
)
from twinbus.server.access.port import INSTANCE_HEADER, NamespacePort
from twinbus.server.broker import answers
from twinbus.server.broker.directory import keys, maintenance
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.broker.directory.overview import running_overview
from twinbus.server.broker.directory.placement import hosts_at, hosts_of
from twinbus.server.broker.directory.provision import bring_up, create_missing, plan
from twinbus.server.broker.host import Host
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.server.http import route
from twinbus.server.http.auth import Asked
from twinbus.server.http.route import (
    Exchange,
    MethodNotAllowed,
    PreconditionFailed,
    SurfaceRoute,
    entity_at,
    split_path,
)

log = logging.getLogger("twinbus.upkeep")

# -- paths -----------------------------------------------------------------------------

_PURGE = "$purge"
_RESET = "$reset"
_SHARDS = "$shards"
_RULES = "$authorizationrules"
_LIST_KEYS = "listkeys"
_REGENERATE_KEYS = "regeneratekeys"
_RULE = "{name}"

_NAMESPACE = EntityPath("")


class UpkeepAction(enum.Enum):
    """What can be asked for: the end of its path, its method, and its operation."""

    PURGE = _PURGE, "POST", Operation.PURGE
    RESET = _RESET, "POST", Operation.RESET_NAMESPACE
    SHARDS = _SHARDS, "GET", Operation.READ_NAMESPACE
    LIST_RULES = _RULES, "GET", Operation.READ_RULES
    PUT_RULE = _RULE, "PUT", Operation.CHANGE_RULES
    DELETE_RULE = _RULE, "DELETE", Operation.CHANGE_RULES
    LIST_KEYS = _LIST_KEYS, "POST", Operation.READ_RULES
    REGENERATE_KEYS = _REGENERATE_KEYS, "POST", Operation.CHANGE_RULES
    # One of these paths with a method that it does not have.
    UNKNOWN = "", "", Operation.CHANGE_RULES

    @property
    def operation(self) -> Operation:
        """What `rights.allowed` calls it."""
        return self.value[2]


_BY_PATH = {action.value[:2]: action for action in UpkeepAction}


@dataclass(frozen=True, slots=True)
class UpkeepRequest:
    """A request for upkeep."""

    action: UpkeepAction
    # The path as the client wrote it, without outer slashes: this may be signed.
    spelled: str
    # What it is about: an entity, or the namespace.
    path: EntityPath = _NAMESPACE
    # The name of an authorization rule.
    rule: str = ""


def find_upkeep(method: str, raw_path: str) -> UpkeepRequest | None:
    """Read the path of a request, as it stands in the request line."""
    split = split_path(raw_path)
    if split is None:
        return None
    spelled, segments = split

    def action(end: str) -> UpkeepAction:
        return _BY_PATH.get((end, method), UpkeepAction.UNKNOWN)

    match [segment.lower() for segment in segments]:
        case [word] if word in (_RESET, _SHARDS, _RULES):
            return UpkeepRequest(action(word), spelled)
        case [*_, word] if word == _PURGE:
            return _purge(action(word), segments[:-1], spelled)
        case [word, _] if word == _RULES:
            return UpkeepRequest(action(_RULE), spelled, rule=segments[1])
        case [word, _, end] if word == _RULES and end in (_LIST_KEYS, _REGENERATE_KEYS):
            return UpkeepRequest(action(end), spelled, rule=segments[1])
    return None


def _purge(
    action: UpkeepAction, entity: list[str], spelled: str
) -> UpkeepRequest | None:
    if not entity:
        return UpkeepRequest(action, spelled)
    path = entity_at(entity)
    if path is None or path.is_namespace:
        return None
    return UpkeepRequest(action, spelled, path)


# -- requests --------------------------------------------------------------------------

_KEY_TYPES = {"PrimaryKey": False, "SecondaryKey": True}


def upkeep_route(port: NamespacePort) -> SurfaceRoute:
    """Takes the requests whose paths are those of this file."""
    return SurfaceRoute(port, find_upkeep, UpkeepExchange)


class UpkeepExchange(Exchange):
    """One request for upkeep."""

    def __init__(self, port: NamespacePort, request: Request) -> None:
        super().__init__(port, request)
        self._wanted: UpkeepRequest = self.found

    def asked(self) -> Asked:
        """What the path says, if the request is for this server."""
        self._check_instance()
        wanted = self._wanted
        operation = wanted.action.operation
        return Asked(operation, wanted.path, wanted.spelled, self.authority)

    async def answer(self, claim: Claim) -> Response:
        """Carry the request out; refusals are raised."""
        del claim
        if self.host.faults is not None:
            self.host.faults.check_manage()
        work = _ANSWERS.get(self._wanted.action)
        if work is None:
            method = self.request.method
            raise MethodNotAllowed(
                f"{method} is not known for /{self._wanted.spelled}."
            )
        return JSONResponse(await work(self), headers={"Cache-Control": "no-store"})

    def refusal(self, error: TwinbusError) -> Response:
        """The answer that an error becomes."""
        status = answers.status_of(error, route.STATUSES)
        message = answers.text_of(error)
        body = {"error": {"code": type(error).__name__, "message": message}}
        # The body may not have been read, so the connection cannot be used again.
        return JSONResponse(body, status, {"Connection": "close"})

    def _check_instance(self) -> None:
        """Refuse a request for another server, for example behind a forwarded port."""
        meant = self.request.headers.get(INSTANCE_HEADER)
        if meant is not None and meant != self.host.instance:
            raise PreconditionFailed(
                f"The server at {self.authority} is another one than the request is "
                f"for: {INSTANCE_HEADER} is not its own."
            )

    # -- messages and entities ---------------------------------------------------------

    async def _purge(self) -> dict[str, Any]:
        path = self._wanted.path
        hosts = hosts_of(self.host)
        if not path.is_namespace:
            hosts = hosts_at(self.host, path)
            for host in hosts:
                if host.fault is not None:
                    raise host.fault
        purged = sum([await self._purge_all(host, path) for host in hosts])
        log.info("purged %r: %d messages", path.text, purged)
        return {"purged": purged}

    async def _purge_all(self, host: Host, path: EntityPath) -> int:
        """Purge in as many turns as it takes; others have theirs between."""
        purged = 0
        left: dict[int, int] | None = None
        while left is None or left:
            some = partial(maintenance.purge_some, path, left)
            found, left = await host.run(some)
            purged += found
        return purged

    async def _reset(self) -> dict[str, Any]:
        hosts = hosts_of(self.host)
        if len(hosts) == 1:
            deleted = await self.host.run(_reset)
        else:
            deleted = await self._reset_shards(hosts)
        log.info("reset: %d entities deleted", deleted)
        made = sum(1 for _ in self.host.namespace.shards.entities())
        return {"deleted": deleted, "made": made}

    async def _reset_shards(self, hosts: Sequence[Host]) -> int:
        """Reset one shard after the other; all of them must be there."""
        for host in hosts:
            if host.fault is not None:
                raise ShardAway(host.namespace.shard)
        deleted = sum([await host.run(maintenance.delete_all) for host in hosts])
        if self.host.mover is not None:
            # What shards tell each other of the old entities must not meet new ones.
            await self.host.mover.settle()
        first = self.host.namespace
        parts = list(zip(hosts, plan(first.shards, first.config), strict=True))
        made = [await host.run(partial(_create_missing, part)) for host, part in parts]
        for (host, part), keys_made in zip(parts, made, strict=True):
            await host.run(partial(_bring_up, part, keys_made))
        return deleted

    async def _shards(self) -> dict[str, Any]:
        return running_overview(self.host)

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
        name = self._wanted.rule
        rule = await self.host.run(PutRule(name, rights, only_new=only_new))
        log.info("the authorization rule %r gives %s", rule.name, rule.rights)
        return _described(rule)

    async def _delete_rule(self) -> dict[str, Any]:
        await self.host.run(DeleteRule(self._wanted.rule))
        log.info("the authorization rule %r is deleted", self._wanted.rule)
        return {"deleted": self._wanted.rule}

    async def _list_keys(self) -> dict[str, Any]:
        return _keys(keys.find_rule(self.host.namespace.rules, self._wanted.rule))

    async def _regenerate_keys(self) -> dict[str, Any]:
        body = await self._json("keyType")
        secondary = _KEY_TYPES.get(str(body.get("keyType")))
        if secondary is None:
            raise ArgumentError("keyType must be PrimaryKey or SecondaryKey.")

        rule = await self.host.run(
            RegenerateKey(self._wanted.rule, secondary=secondary)
        )
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


_ANSWERS: dict[UpkeepAction, Callable[[UpkeepExchange], Awaitable[Any]]] = {
    UpkeepAction.PURGE: UpkeepExchange._purge,
    UpkeepAction.RESET: UpkeepExchange._reset,
    UpkeepAction.SHARDS: UpkeepExchange._shards,
    UpkeepAction.LIST_RULES: UpkeepExchange._list_rules,
    UpkeepAction.PUT_RULE: UpkeepExchange._put_rule,
    UpkeepAction.DELETE_RULE: UpkeepExchange._delete_rule,
    UpkeepAction.LIST_KEYS: UpkeepExchange._list_keys,
    UpkeepAction.REGENERATE_KEYS: UpkeepExchange._regenerate_keys,
}


@dataclass(frozen=True, slots=True)
class PutRule:
    """Make an authorization rule, or give one other rights (`turn.Command`)."""

    name: str
    rights: Right
    only_new: bool = False

    def __call__(self, namespace: Namespace, turn: Turn) -> AuthorizationRule:
        _check_not_configured(namespace, self.name)
        if self.only_new and self.name in {one.name for one in namespace.rules}:
            raise EntityExists(f"The authorization rule '{self.name}' already exists.")
        wall_ms = turn.now.wall_ms
        return namespace.change_rules(
            lambda store: keys.put_rule(store, self.name, self.rights, wall_ms), turn
        )


@dataclass(frozen=True, slots=True)
class DeleteRule:
    """Remove an authorization rule (`turn.Command`)."""

    name: str

    def __call__(self, namespace: Namespace, turn: Turn) -> None:
        _check_not_configured(namespace, self.name)
        wall_ms = turn.now.wall_ms
        namespace.change_rules(
            lambda store: keys.delete_rule(store, self.name, wall_ms), turn
        )


@dataclass(frozen=True, slots=True)
class RegenerateKey:
    """Give an authorization rule another key (`turn.Command`)."""

    name: str
    secondary: bool

    def __call__(self, namespace: Namespace, turn: Turn) -> AuthorizationRule:
        _check_not_configured(namespace, self.name)
        wall_ms, secondary = turn.now.wall_ms, self.secondary
        return namespace.change_rules(
            lambda store: keys.regenerate_key(
                store, self.name, wall_ms, secondary=secondary
            ),
            turn,
        )


def _create_missing(
    part: NamespaceConfig, namespace: Namespace, turn: Turn
) -> set[str]:
    return create_missing(namespace, part, turn)


def _bring_up(
    part: NamespaceConfig, made: set[str], namespace: Namespace, turn: Turn
) -> None:
    bring_up(namespace, part, made, turn)


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
