"""Rules of subscriptions as `$management` writes them.

Owns both forms: the maps of a request, and the described lists of a reply, whose codes
are the published ones (those of filters have a digit fewer than the others). What a
rule means, and whether it can be used, is the server's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twinbus.core.filters import (
    CorrelationFilter,
    FalseFilter,
    FilterDescription,
    SqlFilter,
    SqlRuleAction,
    TrueFilter,
)
from twinbus.core.rule import RuleDescription
from twinbus.errors import ArgumentError, RemoteError
from twinbus.wire.message.names import TIMESPAN
from twinbus.wire.message.times import (
    EPOCH,
    MICROSECOND,
    MILLISECOND,
    TICKS_PER_MICROSECOND,
    to_wire,
)
from twinbus.wire.types import Described, Timestamp

_RULE = 0x13700000004
_SQL_ACTION = 0x13700000006
_SQL_FILTER = 0x1370000006
_TRUE_FILTER = 0x1370000007
_FALSE_FILTER = 0x1370000008
_CORRELATION_FILTER = 0x1370000009
# In the order of a reply; the properties come ninth.
_FIELDS = (
    "correlation_id",
    "message_id",
    "to",
    "reply_to",
    "label",
    "session_id",
    "reply_to_session_id",
    "content_type",
)


# -- requests ------------------------------------------------------------------------


def request_of(rule: RuleDescription) -> dict[str, Any]:
    """A rule as a request describes it."""
    body = _filter_request(rule.filter)
    if rule.action is not None:
        body["sql-rule-action"] = {"expression": _text(rule.action)}
    return body


def _filter_request(wanted: FilterDescription) -> dict[str, Any]:
    if isinstance(wanted, CorrelationFilter):
        found = {name: getattr(wanted, name) for name in _FIELDS}
        given: dict[str, Any] = {
            name.replace("_", "-"): value
            for name, value in found.items()
            if value is not None
        }
        if wanted.properties:
            given["properties"] = _written(wanted.properties)
        return {"correlation-filter": given}
    if isinstance(wanted, SqlFilter):
        return {"sql-filter": {"expression": _text(wanted)}}
    # Requests have no words for these two; the SDKs write them so.
    text = "1=1" if isinstance(wanted, TrueFilter) else "1=0"
    return {"sql-filter": {"expression": text}}


def _text(sql: SqlFilter | SqlRuleAction) -> str:
    if sql.parameters:
        raise ArgumentError(
            "'$management' takes no parameters of a filter or an action. Write the "
            "values into the expression, or use the administration client."
        )
    return sql.expression


def _written(values: Mapping[str, object]) -> dict[str, Any]:
    return {name: to_wire(value) for name, value in values.items()}


# -- replies -------------------------------------------------------------------------


def rule_of(described: Any) -> RuleDescription:
    """A rule as a reply describes it."""
    try:
        if described.descriptor != _RULE:
            raise _unreadable(described)
        wanted, action, name, *rest = described.value
        created_ms = int(rest[0]) if rest else 0
        return RuleDescription(
            str(name), _filter_of(wanted), _action_of(action), created_ms
        )
    except (AttributeError, IndexError, TypeError, ValueError):
        raise _unreadable(described) from None


def _filter_of(described: Any) -> FilterDescription:
    code, fields = described.descriptor, described.value
    if code == _SQL_FILTER:
        return SqlFilter(str(fields[0]))
    if code == _TRUE_FILTER:
        return TrueFilter()
    if code == _FALSE_FILTER:
        return FalseFilter()
    if code != _CORRELATION_FILTER:
        raise _unreadable(described)
    padded = [*fields, *[None] * (len(_FIELDS) + 1 - len(fields))]
    properties = padded[len(_FIELDS)] or {}
    values = dict(zip(_FIELDS, padded, strict=False))
    read = {str(name): _read(value) for name, value in properties.items()}
    return CorrelationFilter(**values, properties=read)


def _action_of(described: Any) -> SqlRuleAction | None:
    if described is None or described.descriptor != _SQL_ACTION:
        return None
    return SqlRuleAction(str(described.value[0]))


def _read(value: Any) -> object:
    if isinstance(value, Timestamp):
        return EPOCH + int(value) * MILLISECOND
    if isinstance(value, Described) and value.descriptor == TIMESPAN:
        return int(value.value) // TICKS_PER_MICROSECOND * MICROSECOND
    return value


def _unreadable(found: Any) -> RemoteError:
    return RemoteError("amqp:decode-error", f"The server sent no rule: {found!r:.200}")
