"""The rules have no clock, no chance and no I/O: those come in as arguments."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.test_imports import IO_MODULES, imported

FOLDER = Path(__file__).resolve().parents[3] / "src" / "twinbus" / "pairing"
PURE = [
    *sorted((FOLDER / "rules").glob("*.py")),
    *(FOLDER / f"{name}.py" for name in ("errors", "events", "options", "status")),
]
# Time and chance must come in; threads and sockets belong to the shells. The official
# client is only known by name.
BANNED = IO_MODULES | {"azure", "logging", "os", "secrets"}
BANNED_PARTS = frozenset({"twinbus.client", "twinbus.clock", "twinbus.store"})
BANNED_CALLS = frozenset({"now", "utcnow", "today", "uuid1", "uuid4"})


@pytest.mark.parametrize("path", PURE, ids=lambda path: path.stem)
def test_a_rule_depends_on_its_arguments_alone(path: Path) -> None:
    tree = ast.parse(path.read_text())
    names = list(imported(tree, ("twinbus", "pairing")))
    calls = [
        node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]

    assert [each for each in names if each.split(".")[0] in BANNED] == []
    assert [each for each in names if each.startswith(tuple(BANNED_PARTS))] == []
    assert [each for each in calls if each in BANNED_CALLS] == []
