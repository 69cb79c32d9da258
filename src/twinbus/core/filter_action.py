"""The SQL of actions: SET and REMOVE on the copy of a message.

Owns what a list of statements changes. They run in order and each sees what the ones
before it did; the message itself is never touched, the outcome is a `Changes`. SET
keeps a double a double when it is given an integer, as the real service's implicit
conversion does; system properties take only values of their own type (an id may also
be given as a uuid or an integer).

Knows nothing about how a message is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from uuid import UUID

from twinbus import limits
from twinbus.core.filter_parse import Node, parse, plain_name, refusal, subtrees, tokens
from twinbus.core.filter_sql import Compiler, Run, Value
from twinbus.core.filter_values import (
    MISSING,
    NUMBER,
    Budget,
    MessageView,
    SystemProperty,
    calculate,
    check_duration,
    fold,
    in_utc,
    text_of,
    type_name,
)
from twinbus.core.filters import Changes
from twinbus.errors import FilterError

Step = Callable[[Run, "Draft"], None]


class SqlAction:
    """A SQL action that is ready to run."""

    __slots__ = ("_nodes", "_steps")

    def __init__(
        self, text: str, parameters: Mapping[str, object], new_id: Callable[[], UUID]
    ) -> None:
        statements = subtrees(parse(text, "action"))
        if len(statements) > limits.FILTER_EXPRESSIONS_MAX:
            raise refusal(
                statements[limits.FILTER_EXPRESSIONS_MAX],
                f"more than {limits.FILTER_EXPRESSIONS_MAX} statements in one action",
            )
        compiler = Compiler(parameters, new_id)
        self._steps = [_compile(compiler, statement) for statement in statements]
        self._nodes = compiler.nodes

    def apply(self, view: MessageView, budget: Budget | None = None) -> Changes:
        budget = Budget() if budget is None else budget
        budget.spend(self._nodes)
        draft = Draft(view)
        run = Run(draft, budget)
        for step in self._steps:
            step(run, draft)
        return draft.changes()


class Draft:
    """A message with some changes on top; answers like a view of the changed one."""

    __slots__ = ("_changed", "_system", "_view")

    def __init__(self, view: MessageView) -> None:
        self._view = view
        self._system: dict[str, object] = {}
        # By folded name: the name as first written, and the value or MISSING.
        self._changed: dict[str, tuple[str, object]] = {}

    def system(self, name: str) -> object:
        return self._system[name] if name in self._system else self._view.system(name)

    def property(self, name: str) -> object:
        if name in self._changed:
            return self._changed[name][1]
        return self._view.property(name)

    def set_system(self, name: str, value: object) -> None:
        self._system[name] = value

    def set_property(self, name: str, value: object) -> None:
        """Set a user property; MISSING removes it."""
        spelling = self._changed.get(fold(name), (name,))[0]
        self._changed[fold(name)] = (spelling, value)

    def changes(self) -> Changes:
        changed = dict(self._changed.values())
        return Changes(
            self._system,
            {name: value for name, value in changed.items() if value is not MISSING},
            frozenset(name for name, value in changed.items() if value is MISSING),
        )


def _compile(compiler: Compiler, statement: Node) -> Step:
    place, *rest = subtrees(statement)
    target = compiler.target(place)
    value = compiler.value(rest[0], 0) if rest else None
    if isinstance(target, str):
        return _change_property(plain_name(tokens(place)[-1]), value)
    if not target.settable:
        raise refusal(place, f"'sys.{target.name}' can only be read")
    if value is None and target.required:
        raise refusal(place, f"'sys.{target.name}' cannot be removed")
    return _change_system(target, value)


def _change_property(name: str, value: Value | None) -> Step:
    folded = fold(name)

    def change(run: Run, draft: Draft) -> None:
        if value is None:
            draft.set_property(name, MISSING)
            return
        result = value(run)
        if type_name(result) == NUMBER and isinstance(draft.property(folded), float):
            result = calculate("+", 0.0, result, run.spend)
        # A parameter of the rule may be longer.
        if isinstance(result, timedelta):
            check_duration(result)
        draft.set_property(name, result)

    return change


def _change_system(target: SystemProperty, value: Value | None) -> Step:
    def change(run: Run, draft: Draft) -> None:
        result = None if value is None else value(run)
        draft.set_system(target.name, _fit(target, result))

    return change


def _fit(target: SystemProperty, value: object) -> object:
    """Check a value for a system property, and convert it where that is implicit."""
    if value is None:
        if target.required:
            raise FilterError(f"'sys.{target.name}' cannot be set to null")
        return None
    fitting = text_of(value) if target.kind is str else value
    if not isinstance(fitting, target.kind):
        raise FilterError(f"'sys.{target.name}' cannot be set to this type of value")
    if isinstance(fitting, datetime):
        return in_utc(fitting)
    if isinstance(fitting, timedelta):
        return check_duration(fitting)
    if isinstance(fitting, str) and len(fitting) > (target.chars_max or len(fitting)):
        raise FilterError(
            f"'sys.{target.name}' would be longer than {target.chars_max} characters"
        )
    return fitting
