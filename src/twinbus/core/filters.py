"""Rule filters and actions of subscriptions: descriptions, and what they compile to.

Owns the four kinds of filter and the one kind of action. `compile_filter` and
`compile_action` raise `FilterError` for a text that cannot be used, with the line, the
column and what was expected there. `Filter.matches` and `Action.apply` raise it for a
message on which the expression fails, so that the broker can dead-letter the message.
No other error leaves these four.

The rules that the documentation of the real service gives:

* Names of properties, keywords and scopes are compared without regard to case; values
  that are text with regard to it. An action keeps the spelling a property already has.
* A missing user property is unknown; a system property that does not exist is an
  error, and found when the rule is made.
* A correlation filter matches when all its conditions do.

And where the documentation is silent: a null is unknown too, so `a = NULL` never
matches; a text and a number never equal each other; `IN` ignores members that are
unknown; `SET` of an unknown value stores a null; a filter has at most
`FILTER_EXPRESSIONS_MAX` tests (comparisons, LIKE, IN, IS NULL, EXISTS) and an action
as many statements; a correlation filter without conditions matches everything.

Importing this module costs nothing: the SQL parser is loaded and built when the first
SQL filter or action is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID, uuid4

from twinbus.core.filter_values import (
    MISSING,
    SYSTEM_PROPERTIES,
    Budget,
    MessageView,
    SystemProperty,
    check_constant,
    equal,
    fold,
    read_system,
    system_property,
)

__all__ = [
    "MISSING",
    "SYSTEM_PROPERTIES",
    "Action",
    "Budget",
    "Changes",
    "CorrelationFilter",
    "FalseFilter",
    "Filter",
    "FilterDescription",
    "MessageView",
    "SqlFilter",
    "SqlRuleAction",
    "TrueFilter",
    "compile_action",
    "compile_filter",
    "fold",
]

NewId = Callable[[], UUID]


# -- descriptions ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TrueFilter:
    """Selects every message."""


@dataclass(frozen=True, slots=True)
class FalseFilter:
    """Selects no message."""


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """Selects by a condition; `parameters` give values to its @names."""

    expression: str
    parameters: Mapping[str, object] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class CorrelationFilter:
    """Selects by equality; a field that is None is no condition."""

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    label: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: Mapping[str, object] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class SqlRuleAction:
    """Changes the selected copy with SET and REMOVE statements."""

    expression: str
    parameters: Mapping[str, object] = field(default_factory=dict, hash=False)


FilterDescription = TrueFilter | FalseFilter | SqlFilter | CorrelationFilter


# -- what they compile to ------------------------------------------------------------


class Filter(Protocol):
    """A filter that is ready to run; it keeps no state between messages."""

    def matches(self, view: MessageView, budget: Budget | None = None) -> bool:
        """Tell whether the message is selected; unknown counts as no.

        The budget is for all rules that look at the message; without one each has its
        own.
        """


class Action(Protocol):
    """An action that is ready to run; it keeps no state between messages."""

    def apply(self, view: MessageView, budget: Budget | None = None) -> Changes:
        """Say what the action changes; the message itself is left alone."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What an action does to one message.

    A system property whose value is None is to be cleared. No name is in both
    `properties` and `removed`, nor twice in different case.
    """

    system: dict[str, object] = field(default_factory=dict)
    properties: dict[str, object] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()

    def merged(self, properties: Mapping[str, object]) -> dict[str, object]:
        """Give the user properties after the change, in the spelling they had."""
        gone = {fold(name) for name in self.removed}
        fresh = {fold(name): value for name, value in self.properties.items()}
        kept = {
            name: fresh.get(fold(name), value)
            for name, value in properties.items()
            if fold(name) not in gone
        }
        known = {fold(name) for name in kept}
        added = {
            name: value
            for name, value in self.properties.items()
            if fold(name) not in known
        }
        return kept | added


def compile_filter(description: FilterDescription, new_id: NewId = uuid4) -> Filter:
    """Make a description ready to run; `new_id` serves the function newid()."""
    if isinstance(description, CorrelationFilter):
        return _Correlation(description)
    if isinstance(description, SqlFilter):
        from twinbus.core.filter_sql import SqlCondition

        return SqlCondition(description.expression, description.parameters, new_id)
    return _Constant(isinstance(description, TrueFilter))


def compile_action(description: SqlRuleAction, new_id: NewId = uuid4) -> Action:
    """Make an action ready to run; `new_id` serves the function newid()."""
    from twinbus.core.filter_action import SqlAction

    return SqlAction(description.expression, description.parameters, new_id)


class _Constant:
    __slots__ = ("_answer",)

    def __init__(self, answer: bool) -> None:
        self._answer = answer

    def matches(self, view: MessageView, budget: Budget | None = None) -> bool:
        del view
        if budget is not None:
            budget.spend(1)
        return self._answer


class _Correlation:
    """Equality of some system properties, and only then of user properties.

    The order matters: a view decodes the user properties when first asked for one, so
    a filter on system properties, or one that fails on them, never pays for that.
    """

    __slots__ = ("_properties", "_system")

    def __init__(self, wanted: CorrelationFilter) -> None:
        conditions = {
            "CorrelationId": wanted.correlation_id,
            "MessageId": wanted.message_id,
            "To": wanted.to,
            "ReplyTo": wanted.reply_to,
            "Label": wanted.label,
            "SessionId": wanted.session_id,
            "ReplyToSessionId": wanted.reply_to_session_id,
            "ContentType": wanted.content_type,
        }
        self._system: list[tuple[SystemProperty, str]] = [
            (system_property(name), value)
            for name, value in conditions.items()
            if value is not None
        ]
        self._properties: list[tuple[str, object]] = [
            (fold(name), check_constant(name, value))
            for name, value in wanted.properties.items()
        ]

    def matches(self, view: MessageView, budget: Budget | None = None) -> bool:
        if budget is not None:
            budget.spend(1 + len(self._system) + len(self._properties))
        for known, text in self._system:
            if read_system(view, known) != text:
                return False
        for name, value in self._properties:
            if not equal(view.property(name), value):
                return False
        return True
