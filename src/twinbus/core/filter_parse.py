"""Parsing of filters and actions, and the words for what went wrong.

Owns the parser. The grammar is in `sql_filter.lark`; building its tables takes a few
dozen milliseconds, so that happens once and only when a filter is SQL. The rule it
keeps: a text gives a tree or a `FilterError` that says where and what was expected.

Knows nothing about what the nodes mean.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, Literal

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from twinbus import limits
from twinbus.errors import FilterError

Node = Tree[Token]

# How a message to a person names what the grammar could have taken.
_EXPECTED = {
    "NAME": "a property",
    "DELIMITED": "a property",
    "QUOTED": "a property",
    "NUMBER": "a constant",
    "STRING": "a constant",
    "_TRUE": "a constant",
    "_FALSE": "a constant",
    "_NULL": "NULL",
    "PARAMETER": "a parameter",
    "EQUAL": "'='",
    "COMPARE": "a comparison",
    "PLUS": "an operator",
    "MINUS": "an operator",
    "STAR": "an operator",
    "SLASH": "an operator",
    "PERCENT": "an operator",
    "LPAR": "'('",
    "RPAR": "')'",
    "COMMA": "','",
    "DOT": "'.'",
    "SEMICOLON": "';'",
    "$END": "the end",
}


def parse(text: str, start: Literal["filter", "action"]) -> Node:
    """Parse a filter or an action."""
    if len(text) > limits.FILTER_CHARS_MAX:
        raise FilterError(
            f"the expression has {len(text)} characters, "
            f"at most {limits.FILTER_CHARS_MAX} are allowed"
        )
    try:
        return _parser().parse(text, start=start)
    except UnexpectedInput as error:
        raise FilterError(_explain(error, text)) from error


@cache
def _parser() -> Lark:
    grammar = resources.files("twinbus.core").joinpath("sql_filter.lark")
    return Lark(
        grammar.read_text(encoding="utf-8"),
        parser="lalr",
        start=["filter", "action"],
        maybe_placeholders=False,
        propagate_positions=True,
    )


def _explain(error: UnexpectedInput, text: str) -> str:
    """Say where the parser stopped, what it found and what it could have taken."""
    line, column = error.line, error.column
    if isinstance(error, UnexpectedCharacters):
        found = quote(error.char)
        if error.char in "'\"[":
            found = f"a {error.char} that is never closed"
    else:
        assert isinstance(error, UnexpectedToken)
        found = quote(error.token)
        if error.token.type == "$END":
            found = "the end"
            line = text.count("\n") + 1
            column = len(text) - text.rfind("\n")
    expected = ", ".join(sorted(_expected(error)))
    return f"line {line}, column {column}: found {found}, expected {expected}"


def _expected(error: UnexpectedInput) -> set[str]:
    parser: Any = error.interactive_parser
    names: set[str] = parser.accepts()
    if "STAR" not in names:
        # These are signs of a value here, and the value is in the list already.
        names -= {"PLUS", "MINUS"}
    return {_EXPECTED.get(name, name.lstrip("_")) for name in names}


def quote(text: str) -> str:
    """Quote a piece of an expression, as much of it as a person needs."""
    return f"'{text}'" if len(text) <= 32 else f"'{text[:32]}...'"


def subtrees(node: Node) -> list[Node]:
    return [child for child in node.children if isinstance(child, Tree)]


def tokens(node: Node) -> list[Token]:
    return [child for child in node.children if isinstance(child, Token)]


def refusal(node: Node, text: str) -> FilterError:
    """Make the error for a node that parses but means nothing."""
    return FilterError(f"line {node.meta.line}, column {node.meta.column}: {text}")


def plain_name(token: Token) -> str:
    """Give the name that a token stands for, without brackets or quotes."""
    if token.type == "DELIMITED":
        return token[1:-1].replace("]]", "]")
    if token.type == "QUOTED":
        return token[1:-1].replace('""', '"')
    return str(token)
