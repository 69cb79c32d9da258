"""Settings of an entity, and the rules of a subscription: shown and changed.

Owns the forms. What a setting may be is decided by the description itself, and what
cannot be changed by `entity.changed`; so the same is refused as everywhere.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from starlette.responses import Response

from twinbus.core.durations import DURATION_MAX_MS, format_duration, parse_duration
from twinbus.core.entity import ActiveStatus, Description
from twinbus.core.filters import (
    CorrelationFilter,
    FilterDescription,
    SqlFilter,
    SqlRuleAction,
    TrueFilter,
)
from twinbus.core.names import parse_address
from twinbus.core.rights import Operation
from twinbus.core.rule import RuleDescription
from twinbus.errors import ArgumentError, CallerError
from twinbus.server.broker.directory.entity import Entity, Rule
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.server.http.console.audit import AuditEntry
from twinbus.server.http.console.forms import ConsoleForm
from twinbus.server.http.console.page import url
from twinbus.server.http.console.pages.entity import about, found
from twinbus.server.http.console.visit import Visit

# Not settings, or changed elsewhere.
_HIDDEN = {
    "name",
    "topic_name",
    "authorization_rules",
    "created_at_ms",
    "updated_at_ms",
}
_FIXED = {"requires_session", "requires_duplicate_detection", "enable_partitioning"}
# Kept and given back, and of no effect.
_FIXED |= {"enable_batched_operations", "support_ordering", "enable_express"}
_FIXED |= {"filtering_messages_before_publishing", "enable_subscription_partitioning"}
# Durations that need not end.
_ENDLESS = {"default_message_time_to_live_ms", "auto_delete_on_idle_ms"}
_FORWARDS = ("forward_to", "forward_dead_lettered_messages_to")


async def show(visit: Visit) -> Response:
    """The settings of an entity."""
    path, entity = found(visit)
    visit.demand(Operation.READ_ENTITY, path)
    data = {
        **await about(visit, path, entity),
        "settings": _fields(entity.description),
        "statuses": [each.value for each in ActiveStatus],
    }
    return visit.page("settings.html", data)


def _fields(description: Description) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "label": name.removesuffix("_ms").replace("_", " "),
            "kind": kind,
            "value": _shown(name, value),
            "is_fixed": name in _FIXED,
            "is_endless": name in _ENDLESS,
        }
        for name, value, kind in _settings(description)
    ]


def _settings(description: Description) -> list[tuple[str, Any, str]]:
    """Each setting with its value and the kind of its field."""
    listed = []
    for item in dataclasses.fields(description):
        if item.name in _HIDDEN:
            continue
        value = getattr(description, item.name)
        kind = "text"
        if isinstance(value, ActiveStatus):
            kind, value = "status", value.value
        elif isinstance(value, bool):
            kind = "flag"
        elif item.name.endswith("_ms"):
            kind = "duration"
        elif "int" in str(item.type):
            kind = "number"
        listed.append((item.name, value, kind))
    return listed


def _shown(name: str, value: Any) -> Any:
    if name.endswith("_ms") and isinstance(value, int):
        return "" if value >= DURATION_MAX_MS else format_duration(value)
    return "" if value is None else value


async def change(visit: Visit) -> Response:
    """Give an entity other settings."""
    path, entity = found(visit)
    visit.demand(Operation.UPDATE_ENTITY, path)
    form = await visit.form()
    described = _changed(entity.description, form)
    for field in _FORWARDS:
        target = getattr(described, field, None)
        if target and target != getattr(entity.description, field):
            visit.demand(Operation.SEND_LINK, parse_address(target))
    audit = AuditEntry(visit.who, "change settings", entity.name)

    def work(namespace: Namespace, turn: Turn) -> None:
        namespace.entities.update(described, turn)
        audit.note(namespace, turn, 1)

    await visit.host.hosts[entity.shard].run(work)
    back = url("settings", path=entity.name)
    return visit.done("The settings are changed.", back, {"changed": True})


def _changed(old: Description, form: ConsoleForm) -> Description:
    given: dict[str, Any] = {}
    for name, value, kind in _settings(old):
        if name in _FIXED or (kind != "flag" and not form.all(name)):
            continue
        if kind == "flag" and not form.all(f"{name}_shown"):
            continue
        given[name] = _read(name, kind, form, value)
    return dataclasses.replace(old, **given)


def _read(name: str, kind: str, form: ConsoleForm, old: Any) -> Any:
    text = form.text(name).strip()
    if kind == "flag":
        return form.flag(name)
    if kind == "status":
        try:
            return ActiveStatus(text)
        except ValueError:
            raise ArgumentError(f"There is no status '{text}'.") from None
    if kind == "duration":
        return parse_duration(text) if text else DURATION_MAX_MS
    if kind == "number":
        if not text:
            return None if name.startswith(("message_rate", "max_message")) else old
        if not text.isascii() or not text.isdigit():
            raise ArgumentError(f"{name} must be a whole number.")
        return int(text)
    return text or None


# -- rules -----------------------------------------------------------------------------


async def rules(visit: Visit) -> Response:
    """The rules of a subscription."""
    path, entity = _subscription(visit, Operation.LIST_RULES)
    data = {
        **await about(visit, path, entity),
        "rules": [_rule(each) for each in entity.rules_by_name],
        "may_add": visit.may(Operation.ADD_RULE, path),
        "may_remove": visit.may(Operation.REMOVE_RULE, path),
    }
    return visit.page("rules.html", data)


def _rule(rule: Rule) -> dict[str, Any]:
    described = rule.description
    kind, text = "true", ""
    if isinstance(described.filter, SqlFilter):
        kind, text = "sql", described.filter.expression
    elif isinstance(described.filter, CorrelationFilter):
        kind, text = "correlation", json.dumps(_conditions(described.filter))
    elif not isinstance(described.filter, TrueFilter):
        kind = "false"
    action = described.action
    return {
        "name": described.name,
        "kind": kind,
        "filter": text,
        "action": "" if action is None else action.expression,
    }


def _conditions(described: CorrelationFilter) -> dict[str, Any]:
    found: dict[str, Any] = {
        item.name: getattr(described, item.name)
        for item in dataclasses.fields(described)
        if item.name != "properties"
    }
    found.update({k: str(v) for k, v in described.properties.items()})
    return {name: value for name, value in found.items() if value is not None}


async def put_rule(visit: Visit) -> Response:
    """Add a rule, or give one another filter and action."""
    path, entity = _subscription(visit, Operation.ADD_RULE)
    form = await visit.form()
    name = form.needed("name", "The name of the rule")
    action = form.line("action")
    is_there = name.lower() in entity.rules
    described = RuleDescription(
        name, _filter(form), None if action is None else SqlRuleAction(action)
    )
    described.validate()
    audit = AuditEntry(visit.who, "put rule", f"{entity.name} {name}")

    def work(namespace: Namespace, turn: Turn) -> None:
        own = namespace.entities.get(path)
        wall_ms = turn.now.wall_ms
        dated = dataclasses.replace(described, created_at_ms=wall_ms)
        if is_there:
            namespace.entities.replace_rule(own, dated, wall_ms)
        else:
            namespace.entities.add_rule(own, dated, wall_ms)
        audit.note(namespace, turn, 1)

    await visit.host.hosts[entity.shard].run(work)
    text = f"The rule {name} is {'changed' if is_there else 'added'}."
    return visit.done(text, url("rules", path=entity.name), {"put": name})


def _filter(form: ConsoleForm) -> FilterDescription:
    kind, text = form.text("kind") or "sql", form.text("filter").strip()
    if kind == "true":
        return TrueFilter()
    if kind == "sql":
        return SqlFilter(text)
    if kind != "correlation":
        raise ArgumentError("A filter is sql, correlation or true.")
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(k, str) for k in found):
        raise ArgumentError('Conditions are a JSON object, such as {"label": "red"}.')
    own = {item.name for item in dataclasses.fields(CorrelationFilter)} - {"properties"}
    fields = {name: str(value) for name, value in found.items() if name in own}
    properties = {name: value for name, value in found.items() if name not in own}
    return CorrelationFilter(**fields, properties=properties)


async def delete_rule(visit: Visit) -> Response:
    """Remove a rule."""
    path, entity = _subscription(visit, Operation.REMOVE_RULE)
    name = (await visit.form()).needed("name", "The name of the rule")
    audit = AuditEntry(visit.who, "delete rule", f"{entity.name} {name}")

    def work(namespace: Namespace, turn: Turn) -> None:
        own = namespace.entities.get(path)
        namespace.entities.remove_rule(own, name, turn.now.wall_ms)
        audit.note(namespace, turn, 1)

    await visit.host.hosts[entity.shard].run(work)
    text = f"The rule {name} is deleted."
    return visit.done(text, url("rules", path=entity.name), {"deleted": name})


def _subscription(visit: Visit, operation: Operation) -> tuple[Any, Entity]:
    path, entity = found(visit)
    visit.demand(operation, path)
    if entity.kind != "subscription":
        raise CallerError(f"'{entity.name}' is a {entity.kind} and has no rules.")
    return path, entity
