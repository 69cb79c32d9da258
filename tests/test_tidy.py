"""Style that a script can check.

Owns the numbers of CONTRIBUTING.md and the table of exceptions to them. What ruff and
mypy check is not repeated here. Reads every Python file of the project once.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import LONG_FILES, SPARK_FILES
from twinbus.testing.events import without_collector

ROOT = Path(__file__).resolve().parent.parent

LINE_CHARS_MAX = 88
FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 600
NESTING_MAX = 4
ARGUMENTS_MAX = 5

# Names of bounds, which live in limits.py; numbers of a format or a type are none.
BOUND = re.compile(r"_?[A-Z][A-Z0-9_]*_(MAX|MIN|SECONDS|MS|BYTES)")

BANNED_NAMES = frozenset({"utils", "common", "helpers", "manager"})

# Spelled in halves, so that this file does not find itself.
MARKERS = re.compile("|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")))
# Words that hide the subject of a sentence: name the client, the server, the sender.
WORDS = re.compile(
    "|".join(("no" + "body", "some" + "body", "any" + "body", "every" + "body"))
    + "|who"
    + "ever|what is "
    + "due",
    re.IGNORECASE,
)
SLEEP = re.compile(r"\btime\.sl" + r"eep\(|^\s*from time import .*\bsleep\b")

# How a section of a message starts, and the codes of AMQP types (0x40 to 0xfe).
MESSAGE_BYTES = re.compile(
    r"\\x00(?:\\x53|S[p-x])|\b0x0*53[0-9A-Fa-f]{2,}|\b0x00, 0x53"
    r"|\b0x(?:[4-9A-Ea-e][0-9A-Fa-f]|[Ff][0-9A-Ea-e])\b"
)
# Shifts and masks of ids; a number that stands for a state.
ID_ARITHMETIC = re.compile(
    r"(?:<<|>>) ?(?:40\b|SEQUENCE_BITS)|\bSEQUENCE_MASK\b|& ?~?3\b"
    r"|\.state [!=]= \d"
)
# The database behind the store, by the name of its engine or of its file.
DATABASE = re.compile(r"sqlite|messages\.db", re.IGNORECASE)
# Folders whose files may do what others may not, by rule, and why.
OWNERS: dict[str, dict[str, str]] = {
    "bytes": {"src/twinbus/wire/": "Messages are made and read here."},
    "ids": {"src/twinbus/store/": "Ids are made here."},
    "database": {
        "src/twinbus/store/": "The store is kept in it.",
        "bench/": "Measures what the database costs.",
    },
}

# (path, rule) -> why the code is better with the exception. An entry that is no
# longer needed fails, so the table cannot rot.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("src/twinbus/wire/frames.py", "arguments"): (
        "The hot path: an object for the arguments would cost more than the frame."
    ),
    ("src/twinbus/testing/proxy_stream.py", "bytes"): (
        "The codes of performatives, by which a proxy names the frames it passes on."
    ),
    ("src/twinbus/server/access/switchboard.py", "sleep"): (
        "A stalled process is what is rehearsed."
    ),
    ("src/twinbus/store/sqlite/file.py", "sleep"): "A slow disk is rehearsed.",
    ("tests/wire/test_frames.py", "arguments"): (
        "A test takes the arguments of what it tests."
    ),
    ("src/twinbus/limits.py", "file"): (
        "One list of every bound; a second file would be a second place to look."
    ),
    ("src/twinbus/server/setup/diagnostics.py", "database"): (
        "A version for the bundle: the supervisor imports no store."
    ),
    ("src/twinbus/limits.py", "database"): "The bounds of the file are named for it.",
    ("src/twinbus/pairing/rules/envelope.py", "bounds"): "Times and ticks of .NET.",
    ("src/twinbus/pairing/rules/packing.py", "bounds"): "Computed from the encoding.",
    ("src/twinbus/pairing/sdk/batch.py", "bounds"): "The sizes of a section.",
    ("src/twinbus/pairing/sdk/messages.py", "bounds"): "Times of .NET and of a header.",
    ("src/twinbus/pairing/sdk/values.py", "bounds"): "The ranges of AMQP's numbers.",
    ("src/twinbus/server/amqp/management/call.py", "bounds"): (
        "The ranges of AMQP's integers."
    ),
    ("src/twinbus/server/http/admin/xml.py", "bounds"): "The ranges of integers.",
    ("src/twinbus/server/http/rest/messages.py", "bounds"): (
        "The ranges of a header's time to live and of a long."
    ),
    ("src/twinbus/spark/environment.py", "bounds"): "Versions that Spark works with.",
    ("src/twinbus/spark/sink/encoding.py", "bounds"): (
        "The range of a header's time to live."
    ),
    ("src/twinbus/spark/syphon_job/journal.py", "bounds"): "The bytes of a schema.",
    ("src/twinbus/wire/message/fast_delivery.py", "bounds"): (
        "The range of a header's time to live."
    ),
    ("src/twinbus/wire/message/fast_sections.py", "bounds"): "Counts of fields.",
    ("src/twinbus/wire/message/writing.py", "bounds"): "The sizes of a section.",
    ("src/twinbus/client/management.py", "bounds"): (
        "The time that clients send to list every session."
    ),
    ("src/twinbus/client/receiver.py", "bounds"): "The ticks of .NET in a millisecond.",
    ("src/twinbus/client/receiving.py", "bounds"): "The size of a UUID.",
    ("src/twinbus/core/durations.py", "bounds"): (
        "Units of time, and the longest duration of .NET."
    ),
    ("src/twinbus/core/filter_values.py", "bounds"): "The range of a 64-bit integer.",
    ("src/twinbus/server/access/jwt.py", "bounds"): "The size of an ES256 signature.",
    ("src/twinbus/server/setup/listener.py", "bounds"): "The range of a TCP port.",
    ("src/twinbus/store/base.py", "bounds"): "A time after all times.",
    ("src/twinbus/store/tables/entities.py", "bounds"): "The bits of a message's key.",
    ("src/twinbus/store/sqlite/file.py", "bounds"): "The oldest SQLite that will do.",
    ("src/twinbus/store/tables/messages.py", "bounds"): "The bits of a nonce.",
    ("src/twinbus/store/postgres/database.py", "bounds"): "The oldest PostgreSQL.",
    ("src/twinbus/testing/proxy_stream.py", "bounds"): "The size of a frame header.",
    ("src/twinbus/wire/frames.py", "bounds"): "The sizes of headers and frames.",
    ("src/twinbus/wire/performatives.py", "bounds"): "The range of a 32-bit integer.",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Blocks = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.With,
    ast.AsyncWith,
    ast.Try,
    ast.TryStar,
    ast.Match,
)


@dataclass(frozen=True, slots=True)
class Source:
    """One Python file: its path from the root, its text, its tree and its functions."""

    path: str
    text: str
    tree: ast.Module
    functions: tuple[Function, ...]

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def parse(path: str, text: str) -> Source:
    tree = ast.parse(text)
    found = tuple(node for node in ast.walk(tree) if isinstance(node, Function))
    return Source(path, text, tree, found)


@cache
def sources() -> tuple[Source, ...]:
    """Read every Python file below src, tests and bench."""
    paths = (
        path
        for folder in ("src", "tests", "bench")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "node_modules" not in path.parts
    )
    with without_collector():
        return tuple(
            parse(path.relative_to(ROOT).as_posix(), path.read_text()) for path in paths
        )


def long_lines(source: Source) -> Iterator[str]:
    for number, line in enumerate(source.lines, 1):
        if len(line) > LINE_CHARS_MAX:
            yield f"{number}: {len(line)} characters"


def long_file(source: Source) -> Iterator[str]:
    if len(source.lines) > FILE_LINES_MAX:
        yield f"1: {len(source.lines)} lines"


def long_functions(source: Source) -> Iterator[str]:
    for function in source.functions:
        count = (function.end_lineno or 0) - function.lineno + 1
        if count > FUNCTION_LINES_MAX:
            yield f"{function.lineno}: {function.name} has {count} lines"


def deep_nesting(source: Source) -> Iterator[str]:
    for function in source.functions:
        depth = nesting(function.body)
        if depth > NESTING_MAX:
            yield f"{function.lineno}: {function.name} nests {depth} deep"


def nesting(body: list[ast.stmt]) -> int:
    """Count the blocks around the deepest statement; inner functions start anew."""
    return max((_depth(statement) for statement in body), default=0)


def _depth(statement: ast.stmt) -> int:
    if not isinstance(statement, Blocks):
        return 0
    deepest = 0
    for body in _bodies(statement):
        # An `elif` is an `if` in the else branch, in the same column.
        flat = (
            isinstance(statement, ast.If)
            and body is statement.orelse
            and len(body) == 1
            and isinstance(body[0], ast.If)
            and body[0].col_offset == statement.col_offset
        )
        deepest = max(deepest, nesting(body) - flat)
    return deepest + 1


def _bodies(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        yield getattr(statement, field, [])
    for part in (*getattr(statement, "handlers", []), *getattr(statement, "cases", [])):
        yield part.body


def many_arguments(source: Source) -> Iterator[str]:
    for function in source.functions:
        if _is_command(function):
            continue
        arguments = function.args
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        count = len([name for name in named if name.arg not in ("self", "cls")])
        if count > ARGUMENTS_MAX:
            yield f"{function.lineno}: {function.name} takes {count} arguments"


def _is_command(function: Function) -> bool:
    """Tell whether the function is a command, whose arguments are its options."""
    return any(
        isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Attribute)
        and decorator.func.attr in ("command", "callback")
        for decorator in function.decorator_list
    )


def missing_header(source: Source) -> Iterator[str]:
    empty = source.path.endswith("__init__.py") and not source.text.strip()
    if not empty and not ast.get_docstring(source.tree):
        yield "1: the module has no docstring"


def missing_return_types(source: Source) -> Iterator[str]:
    for function in source.functions:
        if function.returns is None:
            yield f"{function.lineno}: {function.name} has no return type"


def leftover_markers(source: Source) -> Iterator[str]:
    for number, line in enumerate(source.lines, 1):
        if found := MARKERS.search(line):
            yield f"{number}: {found.group()}"


def vague_words(source: Source) -> Iterator[str]:
    for number, line in enumerate(source.lines, 1):
        if found := WORDS.search(line):
            yield f"{number}: '{found.group()}': name the subject"


def sleeping(source: Source) -> Iterator[str]:
    if source.path.startswith("bench/"):
        return
    for number, line in enumerate(source.lines, 1):
        if SLEEP.search(line):
            yield f"{number}: wait for an event, or move a clock"


def banned_names(source: Source) -> Iterator[str]:
    for name in Path(source.path).with_suffix("").parts:
        if name in BANNED_NAMES:
            yield f"1: '{name}' says nothing about what belongs in it"


def message_bytes(source: Source) -> Iterator[str]:
    for number, found in _in_product(source, "bytes", MESSAGE_BYTES):
        yield f"{number}: {found} belongs into wire/message"


def id_arithmetic(source: Source) -> Iterator[str]:
    for number, found in _in_product(source, "ids", ID_ARITHMETIC):
        yield f"{number}: '{found}': use the names in store/base.py"


def named_database(source: Source) -> Iterator[str]:
    for number, found in _in_product(source, "database", DATABASE):
        yield f"{number}: '{found}': use store/opening.py and store/base.py"


def _in_product(
    source: Source, rule: str, pattern: re.Pattern[str]
) -> Iterator[tuple[int, str]]:
    """Lines of the product and its benchmarks with the pattern, outside its owners."""
    if source.path.startswith(("tests/", *OWNERS[rule])):
        return
    for number, line in enumerate(source.lines, 1):
        if found := pattern.search(line):
            yield number, found.group()


def scattered_bounds(source: Source) -> Iterator[str]:
    """Find bounds that a module has of its own."""
    if not source.path.startswith("src/") or source.path == "src/twinbus/limits.py":
        return
    for statement in source.tree.body:
        if isinstance(statement, ast.AnnAssign):
            targets: list[ast.expr] = [statement.target]
        else:
            targets = statement.targets if isinstance(statement, ast.Assign) else []
        for target in targets:
            if isinstance(target, ast.Name) and BOUND.fullmatch(target.id):
                yield f"{statement.lineno}: {target.id} belongs in limits.py"


Rule = Callable[[Source], Iterator[str]]

RULES: dict[str, Rule] = {
    "line": long_lines,
    "file": long_file,
    "function": long_functions,
    "nesting": deep_nesting,
    "arguments": many_arguments,
    "header": missing_header,
    "returns": missing_return_types,
    "markers": leftover_markers,
    "words": vague_words,
    "sleep": sleeping,
    "names": banned_names,
    "bytes": message_bytes,
    "ids": id_arithmetic,
    "database": named_database,
    "bounds": scattered_bounds,
}


@pytest.mark.parametrize("rule", RULES)
def test_the_sources_are_tidy(rule: str) -> None:
    found = [
        f"{source.path}:{violation}"
        for source in sources()
        if (source.path, rule) not in EXCEPTIONS
        for violation in RULES[rule](source)
    ]

    assert not found, "\n" + "\n".join(found)


def test_every_exception_is_still_needed() -> None:
    by_path = {source.path: source for source in sources()}

    stale = [
        f"{path}: {rule}"
        for path, rule in EXCEPTIONS
        if path not in by_path or not any(RULES[rule](by_path[path]))
    ]

    assert not stale, stale


def test_every_long_file_is_still_there() -> None:
    assert [name for name in LONG_FILES if not (ROOT / "tests" / name).exists()] == []


def test_every_file_on_the_spark_session_is_in_the_list() -> None:
    found = {
        source.path.removeprefix("tests/")
        for source in sources()
        if Path(source.path).name.startswith("test_")
        and any(
            arg.arg == "spark" for each in source.functions for arg in each.args.args
        )
    }

    assert found == set(SPARK_FILES)


_DEEP = """def f() -> None:
    for a in b:
        if a:
            while c:
                with d:
                    try:
                        e()
                    finally:
                        pass
"""


def test_a_class_name_stands_for_one_thing() -> None:
    """Sync twins have the names of their async originals."""
    names = [
        node.name
        for source in sources()
        if source.path.startswith("src/") and "/sync/" not in source.path
        for node in source.tree.body
        if isinstance(node, ast.ClassDef)
    ]

    assert sorted({name for name in names if names.count(name) > 1}) == []


_ELIF = """def f() -> None:
    if a:
        pass
    elif b:
        pass
    elif c:
        pass
    elif d:
        pass
    elif e:
        pass
    else:
        pass
"""


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("line", "x = '" + "a" * 84 + "'"),
        ("file", "x = 1\n" * 601),
        ("function", "def f() -> None:\n" + "    x = 1\n" * 60),
        ("nesting", _DEEP),
        ("arguments", "def f(a, b, c, *, d, e, g) -> None: ..."),
        ("header", "x = 1"),
        ("returns", "class A:\n    def __init__(self): ..."),
        ("markers", "x = 1  # " + "TO" + "DO: more"),
        ("words", "# No" + "body waits for it."),
        ("words", "def test_what_some" + "body_sent() -> None: ..."),
        ("sleep", "time.sl" + "eep(1)"),
        ("sleep", "from time import monotonic, sl" + "eep"),
        ("bytes", r'start = b"\x00\x53\x75"'),
        ("bytes", r'start = b"\x00Su"'),
        ("bytes", "start = bytes((0x00, 0x53, code))"),
        ("bytes", "start = 0x005375A0"),
        ("bytes", "is_text = payload[at] in (0xA1, 0xB1)"),
        ("ids", "container = lock.id >> 40"),
        ("ids", "number = lock.id & ((1 << SEQUENCE_BITS) - 1)"),
        ("ids", "number = lock.id & SEQUENCE_MASK"),
        ("ids", "dead = stored.container & 3"),
        ("ids", "entity = container & ~3"),
        ("ids", "scheduled = stored.state == 2"),
        ("database", "from twinbus.store.sqlite.file import FILE_NAME"),
        ("database", 'files = data.glob("*/messages.db")'),
        ("bounds", "_WAIT_SECONDS = 1"),
        ("bounds", "QUEUES_MAX: Final = 1"),
    ],
)
def test_a_breach_is_seen(rule: str, text: str) -> None:
    assert list(RULES[rule](parse("src/example.py", text)))


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("line", "x = '" + "a" * 82 + "'"),
        ("function", "def f() -> None:\n" + "    x = 1\n" * 59),
        ("nesting", _ELIF),
        ("arguments", "class A:\n    def f(self, a, b, c, d, e) -> None: ..."),
        ("arguments", "@app.command()\ndef f(a, b, c, d, e, g) -> None: ..."),
        ("header", '"""Owns x."""\nx = 1'),
        ("bytes", "mask = 0xFFFFFFFF"),
        ("bytes", r'text = b"\x00body"'),
        ("ids", "done = event.state == 'dead'"),
        ("bounds", "QUEUES = 1\ndef f() -> None:\n    WAIT_SECONDS = 1"),
    ],
)
def test_tidy_code_is_let_through(rule: str, text: str) -> None:
    assert not list(RULES[rule](parse("src/example.py", text)))


def test_an_empty_package_file_needs_no_header() -> None:
    assert not list(missing_header(parse("src/a/__init__.py", "")))


@pytest.mark.parametrize("path", ["src/a/utils.py", "src/helpers/x.py"])
def test_a_name_that_says_nothing_is_banned(path: str) -> None:
    assert list(banned_names(parse(path, "")))
