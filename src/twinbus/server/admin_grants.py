"""Authorization rules of queues and topics, as the administration API writes them.

Owns the elements of `AuthorizationRules` and the times of the rules, which are kept in
a setting of the store beside the entities. A rule that comes without keys keeps those
it had, or gets random ones. This file writes keys for those who hold Manage on the
entity, and nowhere else. Knows nothing about claims.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from twinbus.core.rights import AuthorizationRule, Right, format_rights, parse_rights
from twinbus.core.sas import Secret
from twinbus.errors import ArgumentError
from twinbus.server.admin_xml import (
    Element,
    content_of,
    escape,
    instance_type,
    local_name,
    moment,
    tag,
)
from twinbus.server.entities import Entities, Entity
from twinbus.server.keys import new_key
from twinbus.store.base import Store

SETTING = "authorization_rule_times"

_KIND = "SharedAccessAuthorizationRule"

# When a rule was made and changed, by its name.
Times = dict[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class GivenRule:
    """A rule as a request has it."""

    name: str
    rights: Right
    primary_key: Secret | None
    secondary_key: Secret | None


# -- reading -------------------------------------------------------------------------


def read_rules(element: Element) -> tuple[GivenRule, ...]:
    """The rules below `AuthorizationRules`."""
    return tuple(
        _read_rule(child)
        for child in element
        if local_name(child) == "AuthorizationRule"
    )


def _read_rule(element: Element) -> GivenRule:
    if instance_type(element) not in (_KIND, ""):
        raise ArgumentError(f"An AuthorizationRule must be of the type {_KIND}.")
    parts = {local_name(part): part for part in element}
    if "KeyName" not in parts or "Rights" not in parts:
        raise ArgumentError("An AuthorizationRule needs a KeyName and Rights.")
    rights = [
        content_of(right)
        for right in parts["Rights"]
        if local_name(right) == "AccessRights"
    ]
    keys = [
        Secret(content_of(parts[name]))
        if name in parts and content_of(parts[name])
        else None
        for name in ("PrimaryKey", "SecondaryKey")
    ]
    return GivenRule(content_of(parts["KeyName"]), parse_rights(rights), *keys)


def completed(
    given: Sequence[GivenRule], old: Sequence[AuthorizationRule]
) -> tuple[AuthorizationRule, ...]:
    """The rules with the keys that the request left out."""
    by_name = {rule.name: rule for rule in old}
    rules = []
    for rule in given:
        known = by_name.get(rule.name)
        primary = rule.primary_key or (known.primary_key if known else new_key())
        secondary = rule.secondary_key or (known.secondary_key if known else new_key())
        rules.append(AuthorizationRule(rule.name, rule.rights, primary, secondary))
    return tuple(rules)


# -- times ---------------------------------------------------------------------------


def times_of(store: Store, entity: Entity) -> Times:
    """When the rules of an entity were made and changed."""
    kept = json.loads(store.setting(SETTING) or "{}").get(str(entity.id), {})
    found: Times = {}
    for name, (created_ms, modified_ms) in kept.items():
        found[name] = (created_ms, modified_ms)
    return found


def note_times(
    store: Store,
    entities: Entities,
    entity: Entity,
    old: Sequence[AuthorizationRule],
    now_ms: int,
) -> None:
    """Remember when the rules of an entity changed; forget entities that are gone."""
    rules = getattr(entity.description, "authorization_rules", ())
    if not rules and not old:
        return
    before = {rule.name: rule for rule in old}
    times = times_of(store, entity) if old else {}
    noted: Times = {}
    for rule in rules:
        created_ms, modified_ms = times.get(
            rule.name, (entity.created_ms, entity.updated_ms)
        )
        if rule.name not in before:
            created_ms = modified_ms = now_ms
        elif rule != before[rule.name]:
            modified_ms = now_ms
        noted[rule.name] = (created_ms, modified_ms)
    alive = {str(other.id) for other in entities}
    kept = json.loads(store.setting(SETTING) or "{}")
    kept = {number: value for number, value in kept.items() if number in alive}
    store.put_setting(SETTING, json.dumps({**kept, str(entity.id): noted}))


# -- writing -------------------------------------------------------------------------


def write_rules(
    rules: Sequence[AuthorizationRule], times: Mapping[str, tuple[int, int]], ms: int
) -> str:
    """What is in `AuthorizationRules`; `ms` is for rules of a configuration file."""
    return "".join(_write_rule(rule, *times.get(rule.name, (ms, ms))) for rule in rules)


def _write_rule(rule: AuthorizationRule, created_ms: int, modified_ms: int) -> str:
    rights = "".join(tag("AccessRights", name) for name in format_rights(rule.rights))
    secondary = rule.secondary_key.reveal() if rule.secondary_key else ""
    inner = (
        tag("ClaimType", "SharedAccessKey")
        + tag("ClaimValue", "None")
        + tag("Rights", rights)
        + tag("CreatedTime", moment(created_ms))
        + tag("ModifiedTime", moment(modified_ms))
        + tag("KeyName", escape(rule.name))
        + tag("PrimaryKey", escape(rule.primary_key.reveal()))
        + tag("SecondaryKey", escape(secondary))
    )
    return tag("AuthorizationRule", inner, f'i:type="{_KIND}"')


__all__ = [
    "GivenRule",
    "completed",
    "note_times",
    "read_rules",
    "times_of",
    "write_rules",
]
