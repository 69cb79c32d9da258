"""The SQL of filters: from a parsed text to a condition that runs.

Owns what the nodes of the grammar mean. Each becomes a closure, so nothing is looked
up while a filter runs. Everything is bounded, here and in `filter_parse.py`: the
characters, the tests, the depth, and the steps (`limits.FILTER_STEPS_MAX`).

The rule it keeps: any text either compiles or raises `FilterError`, and any condition
either answers or raises `FilterError`.

Knows nothing about rules and subscriptions, nor what a message looks like.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from uuid import UUID

from twinbus import limits
from twinbus.core.filter_like import LikePattern
from twinbus.core.filter_parse import (
    Node,
    parse,
    plain_name,
    quote,
    refusal,
    subtrees,
    tokens,
)
from twinbus.core.filter_values import (
    COMPARISONS,
    INTEGER_MAX,
    MISSING,
    Budget,
    MessageView,
    SystemProperty,
    calculate,
    check_constant,
    compare,
    equal,
    fold,
    negative,
    read_system,
    system_property,
)
from twinbus.errors import FilterError


class Run:
    """One evaluation: the message, and what takes the steps from the budget."""

    __slots__ = ("spend", "view")

    def __init__(self, view: MessageView, budget: Budget) -> None:
        self.view = view
        self.spend = budget.spend


# A value is None where it is unknown or null.
Value = Callable[[Run], object]
Condition = Callable[[Run], bool | None]


class Constant:
    """A value that is the same for every message."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __call__(self, run: Run) -> object:
        del run
        return self.value


class SqlCondition:
    """A SQL filter that is ready to run."""

    __slots__ = ("_condition", "_nodes")

    def __init__(
        self, text: str, parameters: Mapping[str, object], new_id: Callable[[], UUID]
    ) -> None:
        compiler = Compiler(parameters, new_id)
        (tree,) = subtrees(parse(text, "filter"))
        self._condition = compiler.condition(tree, 0)
        self._nodes = compiler.nodes

    def matches(self, view: MessageView, budget: Budget | None = None) -> bool:
        budget = Budget() if budget is None else budget
        budget.spend(self._nodes)
        return self._condition(Run(view, budget)) is True


# -- compiling ---------------------------------------------------------------------


class Compiler:
    """Turns the nodes of one text into closures, and counts them."""

    def __init__(
        self, parameters: Mapping[str, object], new_id: Callable[[], UUID]
    ) -> None:
        self._new_id = new_id
        self._parameters = {
            fold(name.removeprefix("@")): check_constant(name, value)
            for name, value in parameters.items()
        }
        self._tests = 0
        self.nodes = 0

    def condition(self, node: Node, depth: int) -> Condition:
        """Compile a node that must be true, false or unknown."""
        depth = self._enter(node, depth)
        kind = node.data
        if kind in ("disjunction", "conjunction"):
            parts = [self.condition(part, depth) for part in subtrees(node)]
            return _any(parts) if kind == "disjunction" else _all(parts)
        if kind == "negate":
            return _not(self.condition(subtrees(node)[0], depth))
        build = _TESTS.get(kind)
        if build is None:
            raise refusal(
                node, "expected a condition, such as name = 'value', found a value"
            )
        self._tests += 1
        if self._tests > limits.FILTER_EXPRESSIONS_MAX:
            raise refusal(
                node, f"more than {limits.FILTER_EXPRESSIONS_MAX} tests in one filter"
            )
        return build(self, node, depth)

    def value(self, node: Node, depth: int) -> Value:
        """Compile a node that must be a value."""
        depth = self._enter(node, depth)
        build = _VALUES.get(node.data)
        if build is None:
            raise refusal(node, "expected a value, found a condition")
        return build(self, node, depth)

    def _enter(self, node: Node, depth: int) -> int:
        self.nodes += 1
        if depth >= limits.FILTER_DEPTH_MAX:
            raise refusal(node, f"nested deeper than {limits.FILTER_DEPTH_MAX} levels")
        return depth + 1

    # -- tests

    def _compare(self, node: Node, depth: int) -> Condition:
        left, right = (self.value(part, depth) for part in subtrees(node))
        comparison = COMPARISONS[str(tokens(node)[0])]
        return lambda run: compare(comparison, left(run), right(run))

    def _is_null(self, node: Node, depth: int) -> Condition:
        (operand,) = subtrees(node)
        if operand.data != "property":
            raise refusal(operand, "only a property can be tested with IS NULL")
        value = self.value(operand, depth)
        return lambda run: value(run) is None

    def _is_not_null(self, node: Node, depth: int) -> Condition:
        return _not(self._is_null(node, depth))

    def _is_in(self, node: Node, depth: int) -> Condition:
        subject, items = subtrees(node)
        value = self.value(subject, depth)
        members = [self.value(item, depth) for item in subtrees(items)]

        def is_in(run: Run) -> bool | None:
            wanted = value(run)
            if wanted is None:
                return None
            return any(equal(wanted, member(run)) for member in members)

        return is_in

    def _is_not_in(self, node: Node, depth: int) -> Condition:
        return _not(self._is_in(node, depth))

    def _like(self, node: Node, depth: int) -> Condition:
        subject, *rest = subtrees(node)
        value = self.value(subject, depth)
        pattern = self._pattern(rest, depth)

        def like(run: Run) -> bool | None:
            text, ready = value(run), pattern(run)
            if ready is None or not isinstance(text, str):
                return None
            return ready.matches(text, run.spend)

        return like

    def _not_like(self, node: Node, depth: int) -> Condition:
        return _not(self._like(node, depth))

    def _pattern(
        self, parts: list[Node], depth: int
    ) -> Callable[[Run], LikePattern | None]:
        """Compile a pattern and its escape; at once, if both are constants."""
        values = [self.value(part, depth) for part in parts]
        constants = [value for value in values if isinstance(value, Constant)]
        if len(constants) == len(values):
            texts = [constant.value for constant in constants]
            if not all(isinstance(text, str) for text in texts):
                raise refusal(
                    parts[0], "the pattern and the escape of LIKE must be texts"
                )
            try:
                ready = LikePattern(*map(str, texts))
            except FilterError as error:
                raise refusal(parts[0], error.text) from error
            return lambda _: ready

        def pattern(run: Run) -> LikePattern | None:
            texts = [value(run) for value in values]
            if not all(isinstance(text, str) for text in texts):
                return None
            run.spend(len(str(texts[0])))
            return LikePattern(*map(str, texts))

        return pattern

    def _exists(self, node: Node, _: int) -> Condition:
        target = self.target(subtrees(node)[0])
        if isinstance(target, str):
            return lambda run: run.view.property(target) is not MISSING
        return lambda run: run.view.system(target.name) is not None

    # -- values

    def _chain(self, node: Node, depth: int) -> Value:
        """Compile a sum or a product, from left to right."""
        first, *rest = (self.value(part, depth) for part in subtrees(node))
        steps = list(zip(map(str, tokens(node)), rest, strict=True))

        def chain(run: Run) -> object:
            result = first(run)
            for sign, operand in steps:
                result = calculate(sign, result, operand(run), run.spend)
            return result

        return chain

    def _signed(self, node: Node, depth: int) -> Value:
        operand = self.value(subtrees(node)[0], depth)
        if tokens(node)[0] == "-":
            return lambda run: negative(operand(run))
        # A plus sign changes no number, but what is no number has no sign.
        return lambda run: calculate("+", 0, operand(run), run.spend)

    def _number(self, node: Node, _: int) -> Value:
        (text,) = tokens(node)
        number = int(text) if text.isdigit() else float(text)
        too_large = number > INTEGER_MAX if text.isdigit() else math.isinf(number)
        if too_large:
            raise refusal(node, f"the number {quote(text)} is out of range")
        return Constant(number)

    def _string(self, node: Node, _: int) -> Value:
        return Constant(tokens(node)[0][1:-1].replace("''", "'"))

    def _constant(self, node: Node, _: int) -> Value:
        return Constant({"true": True, "false": False, "null": None}[node.data])

    def _parameter(self, node: Node, _: int) -> Value:
        (name,) = tokens(node)
        folded = fold(name[1:])
        if folded not in self._parameters:
            raise refusal(node, f"the parameter {quote(name)} has no value")
        return Constant(self._parameters[folded])

    def _property(self, node: Node, _: int) -> Value:
        target = self.target(node)
        if isinstance(target, str):
            return _user_value(target)
        return lambda run: read_system(run.view, target)

    def target(self, node: Node) -> str | SystemProperty:
        """Resolve a property: the folded name of a user property, or a system one."""
        *scopes, name = [plain_name(token) for token in tokens(node)]
        scope = fold(scopes[0]) if scopes else "user"
        if scope == "user":
            return fold(name)
        if scope == "sys":
            try:
                return system_property(name)
            except FilterError as error:
                raise refusal(node, error.text) from error
        raise refusal(
            node, f"'{scopes[0]}' is no scope; write [{scopes[0]}.{name}] for a name"
        )

    def _call(self, node: Node, depth: int) -> Value:
        name = fold(tokens(node)[0])
        arguments = [
            self.value(argument, depth)
            for items in subtrees(node)
            for argument in subtrees(items)
        ]
        if name == "newid" and not arguments:
            new_id = self._new_id
            return lambda _: new_id()
        if name in ("property", "p") and len(arguments) == 1:
            return _named_value(arguments[0])
        raise refusal(node, "the functions are newid(), property(name) and p(name)")


_Build = Callable[[Compiler, Node, int], Value]
_TESTS: dict[str, Callable[[Compiler, Node, int], Condition]] = {
    "compare": Compiler._compare,
    "is_null": Compiler._is_null,
    "is_not_null": Compiler._is_not_null,
    "is_in": Compiler._is_in,
    "is_not_in": Compiler._is_not_in,
    "like": Compiler._like,
    "not_like": Compiler._not_like,
    "exists": Compiler._exists,
}
_VALUES: dict[str, _Build] = {
    "sum": Compiler._chain,
    "product": Compiler._chain,
    "signed": Compiler._signed,
    "number": Compiler._number,
    "string": Compiler._string,
    "true": Compiler._constant,
    "false": Compiler._constant,
    "null": Compiler._constant,
    "parameter": Compiler._parameter,
    "property": Compiler._property,
    "call": Compiler._call,
}


def _user_value(name: str) -> Value:
    def read(run: Run) -> object:
        value = run.view.property(name)
        return None if value is MISSING else value

    return read


def _named_value(name: Value) -> Value:
    def read(run: Run) -> object:
        text = name(run)
        if not isinstance(text, str):
            return None
        run.spend(len(text) // limits.FILTER_CHARS_PER_STEP)
        return _user_value(fold(text))(run)

    return read


# -- three-valued logic --------------------------------------------------------------


def _any(parts: list[Condition]) -> Condition:
    """OR: true if any is, else unknown if any is. Stops at the first true one."""

    def either(run: Run) -> bool | None:
        answer: bool | None = False
        for part in parts:
            known = part(run)
            if known:
                return True
            if known is None:
                answer = None
        return answer

    return either


def _all(parts: list[Condition]) -> Condition:
    """AND: false if any is, else unknown if any is. Stops at the first false one."""

    def both(run: Run) -> bool | None:
        answer: bool | None = True
        for part in parts:
            known = part(run)
            if known is False:
                return False
            if known is None:
                answer = None
        return answer

    return both


def _not(part: Condition) -> Condition:
    def opposite(run: Run) -> bool | None:
        known = part(run)
        return None if known is None else not known

    return opposite
