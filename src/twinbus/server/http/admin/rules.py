"""Rules of subscriptions as the administration API writes them.

Owns the elements of `RuleDescription`, in their documented order, both ways. A filter
that is not given lets everything through, an action that is not given does nothing.
Knows nothing about how a filter works; the entities check and keep a rule.
"""

from __future__ import annotations

from twinbus.core.filters import (
    CorrelationFilter,
    FalseFilter,
    FilterDescription,
    SqlFilter,
    SqlRuleAction,
    TrueFilter,
)
from twinbus.core.rule import DEFAULT_RULE_NAME, RuleDescription
from twinbus.errors import ArgumentError
from twinbus.server.http.admin.xml import (
    Element,
    content_of,
    escape,
    instance_type,
    local_name,
    moment,
    read_properties,
    shown,
    tag,
    write_description,
    write_properties,
)

NAME = "RuleDescription"

# The only dialect of filters that there is.
_COMPATIBILITY = tag("CompatibilityLevel", "20")
_CORRELATION = {
    "CorrelationId": "correlation_id",
    "MessageId": "message_id",
    "To": "to",
    "ReplyTo": "reply_to",
    "Label": "label",
    "SessionId": "session_id",
    "ReplyToSessionId": "reply_to_session_id",
    "ContentType": "content_type",
}


# -- reading -------------------------------------------------------------------------


def read_rule(element: Element, name: str | None, now_ms: int) -> RuleDescription:
    """A rule; without a name it has the one in the description, or the default."""
    parts = {local_name(part): part for part in element}
    if name is None:
        name = content_of(parts["Name"]) if "Name" in parts else DEFAULT_RULE_NAME
    wanted = _read_filter(parts["Filter"]) if "Filter" in parts else TrueFilter()
    action = _read_action(parts["Action"]) if "Action" in parts else None
    return RuleDescription(name, wanted, action, now_ms)


def _read_filter(element: Element) -> FilterDescription:
    kind = instance_type(element)
    if kind == "TrueFilter":
        return TrueFilter()
    if kind == "FalseFilter":
        return FalseFilter()
    if kind == "SqlFilter":
        return SqlFilter(*_read_sql(element, kind))
    if kind == "CorrelationFilter":
        return _read_correlation(element)
    raise ArgumentError(
        f"The filter type '{shown(kind)}' is not known. Use SqlFilter, TrueFilter, "
        "FalseFilter or CorrelationFilter."
    )


def _read_correlation(element: Element) -> CorrelationFilter:
    fields: dict[str, str] = {}
    properties: dict[str, object] = {}
    for part in element:
        name = local_name(part) or ""
        if name == "Properties":
            properties = read_properties(part)
        elif name in _CORRELATION and part.text:
            fields[_CORRELATION[name]] = part.text
    return CorrelationFilter(**fields, properties=properties)


def _read_action(element: Element) -> SqlRuleAction | None:
    kind = instance_type(element)
    if kind == "SqlRuleAction":
        return SqlRuleAction(*_read_sql(element, kind))
    if kind in ("EmptyRuleAction", ""):
        return None
    raise ArgumentError(
        f"The action type '{shown(kind)}' is not known. Use SqlRuleAction or "
        "EmptyRuleAction."
    )


def _read_sql(element: Element, kind: str) -> tuple[str, dict[str, object]]:
    parts = {local_name(part): part for part in element}
    expression = content_of(parts["SqlExpression"]) if "SqlExpression" in parts else ""
    if not expression:
        raise ArgumentError(f"A {kind} needs a SqlExpression.")
    parameters = read_properties(parts["Parameters"]) if "Parameters" in parts else {}
    return expression, parameters


# -- writing -------------------------------------------------------------------------


def write_rule(rule: RuleDescription) -> str:
    """A whole description."""
    inner = (
        _write_filter(rule.filter)
        + _write_action(rule.action)
        + tag("CreatedAt", moment(rule.created_at_ms))
        + tag("Name", escape(rule.name))
    )
    return write_description(NAME, inner)


def counts_as_sql(filter: FilterDescription) -> bool:
    """Whether a topic counts it among its SQL filters; the default rule is one."""
    return not isinstance(filter, CorrelationFilter)


def _write_filter(filter: FilterDescription) -> str:
    kind = f'i:type="{type(filter).__name__}"'
    if isinstance(filter, CorrelationFilter):
        fields = (
            (name, getattr(filter, field)) for name, field in _CORRELATION.items()
        )
        inner = "".join(tag(name, escape(text)) for name, text in fields if text)
        return tag(
            "Filter", inner + write_properties("Properties", filter.properties), kind
        )
    if isinstance(filter, SqlFilter):
        inner = _write_sql(filter)
    else:
        expression = "1=1" if isinstance(filter, TrueFilter) else "1=0"
        inner = tag("SqlExpression", expression) + _COMPATIBILITY
    return tag("Filter", inner, kind)


def _write_action(action: SqlRuleAction | None) -> str:
    if action is None:
        return tag("Action", "", 'i:type="EmptyRuleAction"')
    inner = _write_sql(action) + tag("RequiresPreprocessing", "true")
    return tag("Action", inner, 'i:type="SqlRuleAction"')


def _write_sql(sql: SqlFilter | SqlRuleAction) -> str:
    return (
        tag("SqlExpression", escape(sql.expression))
        + _COMPATIBILITY
        + write_properties("Parameters", sql.parameters)
    )
