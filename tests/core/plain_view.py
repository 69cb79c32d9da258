"""A message for filter tests: two dictionaries, and a note of what was asked.

Owns nothing but that. It keeps the promise of `MessageView`: folded names find user
properties in any case.
"""

from __future__ import annotations

from collections.abc import Mapping

from twinbus.core.filters import (
    MISSING,
    SqlFilter,
    SqlRuleAction,
    compile_action,
    compile_filter,
    fold,
)


class PlainView:
    """A message made of plain values."""

    def __init__(
        self,
        properties: Mapping[str, object] | None = None,
        system: Mapping[str, object] | None = None,
    ) -> None:
        self._system = dict(system or {})
        self._properties = {fold(k): v for k, v in (properties or {}).items()}
        self.asked: list[str] = []

    def system(self, name: str) -> object:
        self.asked.append(f"sys.{name}")
        return self._system.get(name)

    def property(self, name: str) -> object:
        self.asked.append(name)
        return self._properties.get(name, MISSING)


def select(
    expression: str,
    properties: Mapping[str, object] | None = None,
    system: Mapping[str, object] | None = None,
    parameters: Mapping[str, object] | None = None,
) -> bool:
    """Run a SQL filter on one message."""
    condition = compile_filter(SqlFilter(expression, parameters or {}))
    return condition.matches(PlainView(properties, system))


def truth(
    expression: str,
    properties: Mapping[str, object] | None = None,
    parameters: Mapping[str, object] | None = None,
) -> bool | None:
    """Tell true, false and unknown (None) apart: only NOT false is selected."""
    if select(expression, properties, parameters=parameters):
        return True
    opposite = select(f"NOT ({expression})", properties, parameters=parameters)
    return False if opposite else None


def value_of(
    expression: str,
    properties: Mapping[str, object] | None = None,
    parameters: Mapping[str, object] | None = None,
) -> object:
    """Run an expression, by way of the action that stores it."""
    action = compile_action(
        SqlRuleAction(f"SET result = {expression}", parameters or {})
    )
    return action.apply(PlainView(properties)).properties["result"]
