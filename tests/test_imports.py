"""Imports go one way.

Owns the table of which part of the package may import which. It reads the sources and
imports none of them, so a breach is reported even where it would not run.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import twinbus

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "twinbus"

# These know nothing of the package, so all parts may import them.
FREE = frozenset({"charts", "clock", "errors", "limits"})

_BELOW_CLIENT = frozenset({"core", "ledger", "wire", "store"})
_BELOW_PAIRING = _BELOW_CLIENT | {"client"}
_BELOW_SPARK = _BELOW_PAIRING | {"pairing"}
_BELOW_HOSTING = _BELOW_PAIRING | {"server"}

# What each part may import beside itself and the free modules. A part that is missing
# here fails the test: a new part needs a decision about where it stands.
MAY_IMPORT: dict[str, frozenset[str]] = {
    "core": frozenset(),
    "ledger": frozenset(),
    "wire": frozenset({"core"}),
    "store": frozenset({"core"}),
    "client": _BELOW_CLIENT,
    # A pair with an outbox starts a server, which it knows as a folder that is served.
    "pairing": _BELOW_PAIRING | {"hosting"},
    "spark": _BELOW_SPARK | {"cost"},
    # The console says what a backlog costs.
    "server": _BELOW_CLIENT | {"config_node", "cost"},
    # Values of a configuration file, for the server's and for price books.
    "config_node": frozenset({"core"}),
    "cost": frozenset({"core", "ledger", "config_node"}),
    # For the checker of types alone; `test_importing_the_package_costs_nothing`.
    "twinbus": frozenset({"aio", "embedding", "pairing"}),
    # A namespace inside the process of an application is on top of pairing.
    "embedding": _BELOW_SPARK | {"hosting"},
    "hosting": _BELOW_HOSTING,
}
# The same inside the server: the broker knows no surface, and no surface another.
INSIDE_SERVER: dict[str, frozenset[str]] = {
    "broker": frozenset(),
    "access": frozenset({"broker"}),
    "amqp": frozenset({"broker", "access"}),
    "http": frozenset({"broker", "access"}),
    "setup": frozenset({"broker", "access", "amqp", "http"}),
}
# The outermost parts may import everything; so may a list of public names.
OUTERMOST = frozenset({"aio", "cli", "console", "drill", "testing", "__main__"})

# Rules without I/O: bytes, time and chance come in as arguments.
WITHOUT_IO = frozenset({"core", "wire"})
IO_MODULES = frozenset(
    {
        "asyncio",
        "http",
        "multiprocessing",
        "random",
        "select",
        "selectors",
        "socket",
        "sqlite3",
        "ssl",
        "subprocess",
        "threading",
        "time",
        "uvloop",
    }
)


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    """Name the part that a source file belongs to; `twinbus` for the top level."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return "twinbus" if parts == ("__init__",) else parts[0]


def imported(tree: ast.Module, module: tuple[str, ...]) -> Iterator[str]:
    """Yield the dotted name of every import, wherever it stands.

    `module` is the package that relative imports start from.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = module[: len(module) - node.level + 1] if node.level else ()
            base = [*start, *([node.module] if node.module else [])]
            yield from (".".join([*base, alias.name]) for alias in node.names)


def breaches(path: Path, text: str) -> list[str]:
    """List what is wrong with the imports of one source file."""
    part = part_of(path)
    if part in OUTERMOST:
        return []
    if part not in MAY_IMPORT and part not in FREE:
        return [f"{part}: not in the table of tests/test_imports.py"]
    allowed = MAY_IMPORT.get(part, frozenset()) | {part}
    if part in MAY_IMPORT:
        allowed |= FREE
    inside = ("twinbus", *path.relative_to(PACKAGE).parent.parts)
    found = []
    for name in imported(ast.parse(text), inside):
        first, _, rest = name.partition(".")
        if first == "twinbus" and rest.split(".")[0] not in allowed:
            found.append(f"{part} must not import {name}")
        if part == "server" and not _inside_server(path, name):
            found.append(f"{path.parent.name} must not import {name}")
        if part in WITHOUT_IO and first in IO_MODULES:
            found.append(f"{part} does no I/O and must not import {first}")
    return found


def _inside_server(path: Path, name: str) -> bool:
    """Whether a file of the server may import that."""
    folder = path.relative_to(PACKAGE / "server").parts[0]
    words = name.split(".")
    if words[:2] != ["twinbus", "server"] or len(words) < 3:
        return True
    return words[2] in INSIDE_SERVER.get(folder, frozenset()) | {folder}


def test_the_package_imports_one_way() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}: {breach}"
        for path in sources()
        for breach in breaches(path, path.read_text())
    ]

    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("core/names.py", "from twinbus.wire import codec"),
        ("core/names.py", "from ..wire.codec import decode"),
        ("core/names.py", "import socket"),
        ("core/names.py", "import twinbus"),
        ("wire/codec.py", "def f():\n    from twinbus import store"),
        ("wire/codec.py", "import twinbus.server.broker.host"),
        ("wire/link.py", "from time import monotonic"),
        ("store/sqlite/store.py", "from twinbus.wire.message.sections import split"),
        ("client/sender.py", "from twinbus import pairing"),
        ("server/broker/host.py", "from twinbus.client import sender"),
        ("server/broker/host.py", "from twinbus.pairing import factory"),
        ("server/broker/host.py", "from twinbus.server.amqp import connection"),
        ("server/http/server.py", "from twinbus.server.amqp.replies import rejected"),
        ("server/access/port.py", "from twinbus.server.setup.config import x"),
        ("embedding.py", "from twinbus.spark import syphon"),
        ("hosting.py", "from twinbus.pairing.shell import factory"),
        ("pairing/shell/factory.py", "from twinbus.server import embedded"),
        ("errors.py", "from twinbus import limits"),
        ("__init__.py", "from .core import names"),
        ("novelty/thing.py", ""),
    ],
)
def test_a_breach_is_seen(file: str, text: str) -> None:
    assert breaches(PACKAGE / file, text)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("core/names.py", "import re\nfrom twinbus import errors, limits"),
        ("wire/codec.py", "from . import types\nfrom .types import Symbol"),
        ("wire/message/sections.py", "from twinbus.core.names import check"),
        ("server/broker/host.py", "import asyncio\nfrom ...store import base"),
        ("pairing/sender.py", "from twinbus.client.sender import Sender"),
        ("embedding.py", "from twinbus.pairing.shell.factory import MessagingFactory"),
        ("cli/main.py", "from twinbus.server import host"),
    ],
)
def test_an_honest_import_is_allowed(file: str, text: str) -> None:
    assert breaches(PACKAGE / file, text) == []


def test_the_guide_names_files_that_exist() -> None:
    guide = (PACKAGE.parents[1] / "ARCHITECTURE.md").read_text()
    parts = "|".join([*MAY_IMPORT, *OUTERMOST])
    named = set(re.findall(rf"`((?:{parts})/[a-z_/]*(?:\.py)?)`", guide))

    assert len(named) > 50
    assert [name for name in sorted(named) if not (PACKAGE / name).exists()] == []


def test_importing_the_package_costs_nothing() -> None:
    """The public names are looked up when they are used, not before."""
    script = "import sys, twinbus; print([n for n in sys.modules if 'twinbus.' in n])"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", twinbus.__all__)
def test_every_public_name_can_be_had(name: str) -> None:
    assert getattr(twinbus, name) is not None
    assert name in dir(twinbus)
