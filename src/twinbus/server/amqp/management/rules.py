"""Rules of a subscription through `$management`.

Owns how a rule is written in a request (maps) and in a reply (described lists, whose
codes are the published ones: those of filters have a digit fewer than the others).
Knows nothing about how a filter works; the entities check and keep a rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from twinbus.core.filters import (
    CorrelationFilter,
    FalseFilter,
    FilterDescription,
    SqlFilter,
    SqlRuleAction,
    TrueFilter,
)
from twinbus.core.names import SubQueue
from twinbus.core.rule import RuleDescription
from twinbus.errors import ArgumentError, CallerError
from twinbus.server.amqp.management.call import (
    INT_MAX,
    Arguments,
    Call,
    ManagementReply,
    done,
    nothing,
)
from twinbus.server.broker.directory.entity import Entity
from twinbus.wire.message.times import EPOCH, MILLISECOND, to_wire
from twinbus.wire.types import Decimal, Described, Int, Timestamp, ULong

RULE = 0x13700000004
EMPTY_ACTION = 0x13700000005
SQL_ACTION = 0x13700000006
SQL_FILTER = 0x1370000006
TRUE_FILTER = 0x1370000007
FALSE_FILTER = 0x1370000008
CORRELATION_FILTER = 0x1370000009

# The only dialect of filters that there is.
_COMPATIBILITY = Int(20)
# In the order of the list that a reply holds; the properties come ninth.
_CORRELATION_KEYS = {
    "correlation-id": "correlation_id",
    "message-id": "message_id",
    "to": "to",
    "reply-to": "reply_to",
    "label": "label",
    "session-id": "session_id",
    "reply-to-session-id": "reply_to_session_id",
    "content-type": "content_type",
}


def add(call: Call) -> ManagementReply:
    """Add a rule."""
    subscription = _subscription(call)
    name = call.arguments.text("rule-name")
    description = call.arguments.inner("rule-description")
    rule = read_rule(name, description, call.now.wall_ms)
    call.namespace.entities.add_rule(subscription, rule, call.now.wall_ms)
    return done()


def remove(call: Call) -> ManagementReply:
    """Remove a rule."""
    subscription = _subscription(call)
    name = call.arguments.text("rule-name")
    call.namespace.entities.remove_rule(subscription, name, call.now.wall_ms)
    return done()


def list_all(call: Call) -> ManagementReply:
    """The rules, by name."""
    subscription = _subscription(call)
    skip = call.arguments.integer("skip", 0, INT_MAX)
    top = call.arguments.integer("top", 1, INT_MAX)
    rules = [
        {"rule-description": write_rule(rule.description)}
        for rule in subscription.rules_by_name[skip : skip + top]
    ]
    return done({"rules": rules}) if rules else nothing()


def _subscription(call: Call) -> Entity:
    if call.entity.kind != "subscription" or call.path.sub_queue is not SubQueue.NONE:
        raise CallerError(f"'{call.path.text}' has no rules: it is no subscription.")
    return call.entity


# -- requests ------------------------------------------------------------------------


def read_rule(name: str, description: Arguments, now_ms: int) -> RuleDescription:
    """A rule as a request describes it."""
    action = None
    if description.has("sql-rule-action"):
        expression = description.inner("sql-rule-action").text("expression")
        action = SqlRuleAction(expression)
    return RuleDescription(name, _read_filter(description), action, now_ms)


def _read_filter(description: Arguments) -> FilterDescription:
    has_sql = description.has("sql-filter")
    if has_sql == description.has("correlation-filter"):
        raise ArgumentError(
            "'rule-description' must hold either 'sql-filter' or 'correlation-filter'."
        )
    if has_sql:
        return SqlFilter(description.inner("sql-filter").text("expression"))
    wanted = description.inner("correlation-filter")
    fields = {
        field: wanted.optional_text(key) for key, field in _CORRELATION_KEYS.items()
    }
    properties = {
        name: _read_value(name, value)
        for name, value in wanted.properties("properties").items()
    }
    return CorrelationFilter(**fields, properties=properties)


def _read_value(name: str, value: Any) -> object:
    """A value without its AMQP type, as filters compare and the store keeps it."""
    if isinstance(value, Timestamp):
        try:
            return EPOCH + int(value) * MILLISECOND
        except OverflowError:
            raise ArgumentError(
                f"'{name}' is no time between years 1 and 9999."
            ) from None
    for plain in (bool, int, float, str):
        if isinstance(value, plain):
            return plain(value)
    if isinstance(value, UUID) or (
        isinstance(value, bytes) and not isinstance(value, Decimal)
    ):
        return value
    raise ArgumentError(
        f"'{name}' in 'properties' has a type that a filter cannot compare. "
        "Use text, a number, a boolean, a time, a uuid or bytes."
    )


# -- replies -------------------------------------------------------------------------


def write_rule(rule: RuleDescription) -> Described:
    """A rule as a reply describes it."""
    action = _described(EMPTY_ACTION, [])
    if rule.action is not None:
        action = _described(SQL_ACTION, [rule.action.expression, _COMPATIBILITY])
    created = Timestamp(rule.created_at_ms)
    return _described(RULE, [_write_filter(rule.filter), action, rule.name, created])


def _write_filter(description: FilterDescription) -> Described:
    if isinstance(description, SqlFilter):
        return _described(SQL_FILTER, [description.expression, _COMPATIBILITY])
    if isinstance(description, CorrelationFilter):
        fields: list[Any] = [
            getattr(description, field) for field in _CORRELATION_KEYS.values()
        ]
        return _described(
            CORRELATION_FILTER, [*fields, _write_values(description.properties)]
        )
    is_true = isinstance(description, TrueFilter)
    assert is_true or isinstance(description, FalseFilter)
    return _described(TRUE_FILTER if is_true else FALSE_FILTER, [])


def _write_values(values: Mapping[str, object]) -> dict[str, Any]:
    return {name: to_wire(value) for name, value in values.items()}


def _described(code: int, fields: list[Any]) -> Described:
    return Described(ULong(code), fields)
