"""Descriptions of subscription rules, and their form in the store.

Owns what a rule is: a name, a filter and perhaps an action. A rule is checked by
compiling it, so one that is stored can always run.
Knows nothing about subscriptions, nor about how a filter works.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Self
from uuid import UUID

from twinbus import errors
from twinbus.core import names
from twinbus.core.filters import (
    CorrelationFilter,
    FalseFilter,
    FilterDescription,
    SqlFilter,
    SqlRuleAction,
    TrueFilter,
    compile_action,
    compile_filter,
)

Json = dict[str, Any]

# The rule that a subscription is born with, unless its creator brings another.
DEFAULT_RULE_NAME = "$Default"


@dataclass(frozen=True, slots=True)
class RuleDescription:
    """A rule of a subscription."""

    name: str
    filter: FilterDescription = field(default_factory=TrueFilter)
    action: SqlRuleAction | None = None
    # When it was made is no setting, so it does not make two rules differ.
    created_at_ms: int = field(default=0, compare=False)

    @property
    def key(self) -> str:
        """What finds the rule in its subscription."""
        return self.name.lower()

    def validate(self) -> None:
        """Refuse a bad name, and a filter or an action that cannot run."""
        names.check_rule_name(self.name)
        compile_filter(self.filter)
        if self.action is not None:
            compile_action(self.action)

    def to_json(self) -> Json:
        """A plain dictionary for the store."""
        return {
            "name": self.name,
            "filter": _filter_to_json(self.filter),
            "action": None if self.action is None else _sql_to_json(self.action),
            "created_at_ms": self.created_at_ms,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote; what is not known is left out."""
        action = data.get("action")
        return cls(
            name=data["name"],
            filter=_filter_from_json(data["filter"]),
            action=None if action is None else SqlRuleAction(**_sql_from_json(action)),
            created_at_ms=data.get("created_at_ms", 0),
        )


def default_rule(created_at_ms: int = 0) -> RuleDescription:
    """The rule that lets everything through."""
    return RuleDescription(DEFAULT_RULE_NAME, created_at_ms=created_at_ms)


def _filter_to_json(description: FilterDescription) -> Json:
    if isinstance(description, SqlFilter):
        return {"kind": "sql"} | _sql_to_json(description)
    if isinstance(description, CorrelationFilter):
        data: Json = {"kind": "correlation"}
        for item in dataclasses.fields(description):
            data[item.name] = getattr(description, item.name)
        data["properties"] = _values_to_json(description.properties)
        return data
    return {"kind": "true" if isinstance(description, TrueFilter) else "false"}


def _filter_from_json(data: Mapping[str, Any]) -> FilterDescription:
    kind = data["kind"]
    if kind == "sql":
        return SqlFilter(**_sql_from_json(data))
    if kind == "correlation":
        known = {item.name for item in dataclasses.fields(CorrelationFilter)}
        values = {name: value for name, value in data.items() if name in known}
        values["properties"] = _values_from_json(values.get("properties", {}))
        return CorrelationFilter(**values)
    if kind in ("true", "false"):
        return TrueFilter() if kind == "true" else FalseFilter()
    # To skip a filter would deliver what it was there to hold back.
    raise errors.StoreFault(
        f"The store holds a filter of the kind '{kind}', which this version does not "
        "know. Start the newer version again."
    )


def _sql_to_json(sql: SqlFilter | SqlRuleAction) -> Json:
    parameters = _values_to_json(sql.parameters)
    return {"expression": sql.expression, "parameters": parameters}


def _sql_from_json(data: Mapping[str, Any]) -> Json:
    parameters = _values_from_json(data.get("parameters", {}))
    return {"expression": data["expression"], "parameters": parameters}


# -- values that JSON has no form for -----------------------------------------------

_MICROSECOND = timedelta(microseconds=1)

# Order matters where one type derives from another; none of these does.
_TAGS: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "binary": (
        bytes,
        lambda value: base64.b64encode(value).decode("ascii"),
        base64.b64decode,
    ),
    "uuid": (UUID, str, UUID),
    "datetime": (datetime, datetime.isoformat, datetime.fromisoformat),
    "microseconds": (
        timedelta,
        lambda value: value // _MICROSECOND,
        lambda count: count * _MICROSECOND,
    ),
}


def _values_to_json(values: Mapping[str, object]) -> Json:
    return {name: _value_to_json(name, value) for name, value in values.items()}


def _value_to_json(name: str, value: object) -> object:
    # Subclasses of the wire (a typed integer, a symbol) become what they derive from.
    for plain in (bool, int, float, str):
        if isinstance(value, plain):
            return plain(value)
    for tag, (kind, write, _) in _TAGS.items():
        if isinstance(value, kind):
            return {tag: write(value)}
    if value is None:
        return None
    raise errors.ArgumentError(
        f"The value of '{name}' has the type {type(value).__name__}, which a rule "
        "cannot hold. Use text, a number, a boolean, a time, a uuid or bytes."
    )


def _values_from_json(data: Mapping[str, Any]) -> dict[str, object]:
    return {name: _value_from_json(value) for name, value in data.items()}


def _value_from_json(value: Any) -> object:
    if not isinstance(value, dict):
        return value
    ((tag, inner),) = value.items()
    return _TAGS[tag][2](inner)
