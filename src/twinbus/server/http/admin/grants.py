"""Authorization rules of queues and topics, as the administration API writes them.

Owns the elements of `AuthorizationRules`. A rule that comes without keys keeps those
it had, or gets random ones. This file writes keys for those who hold Manage on the
entity, and nowhere else. Knows nothing about claims.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twinbus.core.rights import AuthorizationRule, Right, format_rights, parse_rights
from twinbus.core.sas import Secret
from twinbus.errors import ArgumentError
from twinbus.server.broker.keys import new_key
from twinbus.server.http.admin.xml import (
    Element,
    content_of,
    escape,
    instance_type,
    local_name,
    moment,
    tag,
)

_KIND = "SharedAccessAuthorizationRule"


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


# -- writing -------------------------------------------------------------------------


def write_rules(rules: Sequence[AuthorizationRule], entity_ms: int) -> str:
    """What is in `AuthorizationRules`.

    `entity_ms` is for rules that an older version has stored without their times.
    """
    return "".join(_write_rule(rule, entity_ms) for rule in rules)


def _write_rule(rule: AuthorizationRule, entity_ms: int) -> str:
    rights = "".join(tag("AccessRights", name) for name in format_rights(rule.rights))
    secondary = rule.secondary_key.reveal() if rule.secondary_key else ""
    inner = (
        tag("ClaimType", "SharedAccessKey")
        + tag("ClaimValue", "None")
        + tag("Rights", rights)
        + tag("CreatedTime", moment(rule.created_at_ms or entity_ms))
        + tag("ModifiedTime", moment(rule.modified_at_ms or entity_ms))
        + tag("KeyName", escape(rule.name))
        + tag("PrimaryKey", escape(rule.primary_key.reveal()))
        + tag("SecondaryKey", escape(secondary))
    )
    return tag("AuthorizationRule", inner, f'i:type="{_KIND}"')


__all__ = [
    "GivenRule",
    "completed",
    "read_rules",
    "write_rules",
]
