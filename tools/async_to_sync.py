"""Write the sync twins of the async client and of the paired sender.

    python tools/async_to_sync.py          write the files
    python tools/async_to_sync.py --check  say whether they are as they should be

The async classes are the source. For each public one this writes a class with the same
methods, arguments and texts, which runs the async one in a thread (`loop_thread.py`).
What a method does is said once, in the async class; here are only the ways across:

| in the async class           | in its twin                                        |
|------------------------------|----------------------------------------------------|
| `async def` method           | a method that runs it and waits                    |
| method that makes a twinned  | a method that wraps what it makes                  |
| property, public attribute   | a property that reads it                           |
| `__aenter__`, `__aexit__`    | `__enter__`, `__exit__`                            |
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "twinbus"

# Module -> the class in it that has a twin; that is in `sync` of its part.
TWINS = {
    "client.connection": "Connection",
    "client.management": "Management",
    "client.receiver": "Receiver",
    "client.sender": "Sender",
    "pairing.shell.message_sender": "MessageSender",
}
# The class that owns the thread, and whose `close` ends it.
OWNER = "Connection"
# Public for other modules of the client alone.
INTERNAL = frozenset(
    {"account", "check_place", "count_in", "deadline", "link", "submit"}
)

STAMP = "# Made by tools/async_to_sync.py from {path}. DO NOT CHANGE."
HEADER = '''{stamp}
"""The sync twin of `{path}`, for any number of threads.

The same methods with the same meaning, run in the client's own thread. Each returns
when its async original would, and raises what that would raise.
"""

from __future__ import annotations

'''

Function = ast.FunctionDef | ast.AsyncFunctionDef


def target(name: str) -> Path:
    """Where the twin of a module is written."""
    part, *_, module = name.split(".")
    return SOURCES / part / "sync" / f"{module}.py"


def generate(name: str) -> str:
    """The text of one twin, as the formatter would leave it."""
    path = name.replace(".", "/") + ".py"
    source = (SOURCES / path).read_text()
    tree = ast.parse(source)
    twin = _Twin(name, tree)
    head = HEADER.format(stamp=STAMP.format(path=path), path=path)
    text = head + twin.imports() + "\n\n" + twin.body()
    command = [sys.executable, "-m", "ruff", "format", "-", "--stdin-filename", "x.py"]
    done = subprocess.run(  # noqa: S603
        command, input=text, capture_output=True, text=True, check=True, cwd=ROOT
    )
    return done.stdout


class _Twin:
    """The twin of one class."""

    def __init__(self, module: str, tree: ast.Module) -> None:
        self.package, _, self.module = module.rpartition(".")
        self.name = TWINS[module]
        self.tree = tree
        self.cls = next(
            node
            for node in tree.body
            if isinstance(node, ast.ClassDef) and node.name == self.name
        )
        self._methods = list(self._written())

    # -- imports -----------------------------------------------------------------------

    def imports(self) -> str:
        """The imports that the twin's signatures need, and its own."""
        used = set()
        for method in self._methods:
            for node in ast.walk(ast.parse(textwrap.dedent(method))):
                if isinstance(node, ast.Name):
                    used.add(node.id)
        wanted: dict[str, set[str]] = {
            f"twinbus.{self.package}": {f"{self.module} as aio"},
            "twinbus.client.transport.loop_thread": {"LoopThread"},
        }
        for module, name in self._known():
            if name not in used or name == self.name:
                continue
            source = module.removeprefix("twinbus.")
            found = module
            if TWINS.get(source) == name:
                part, *_, last = source.split(".")
                found = f"twinbus.{part}.sync.{last}"
            wanted.setdefault(found, set()).add(name)
        lines = [
            f"from {module} import {', '.join(sorted(names))}"
            for module, names in sorted(wanted.items())
        ]
        own = [line for line in lines if line.startswith("from twinbus")]
        standard = [line for line in lines if line not in own]
        return "\n".join([*standard, "", *own]) + "\n"

    def _known(self) -> Iterator[tuple[str, str]]:
        """Names of the source module: what it imports and what it defines."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module != "__future__":
                yield from ((node.module or "", alias.name) for alias in node.names)
        for node in self.tree.body:
            module = f"twinbus.{self.package}.{self.module}"
            if isinstance(node, ast.ClassDef):
                yield module, node.name
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    yield module, ast.unparse(target)

    # -- the class ---------------------------------------------------------------------

    def body(self) -> str:
        """The class."""
        doc = _doc(self.cls, "    ")
        return f"class {self.name}:\n{doc}\n" + "\n".join(self._methods)

    def _written(self) -> Iterator[str]:
        functions = [node for node in self.cls.body if isinstance(node, Function)]
        init = next(node for node in functions if node.name == "__init__")
        yield self._init(init)
        yield from self._attributes(init)
        for node in functions:
            if node.name == "__str__":
                yield "    def __str__(self) -> str:\n        return str(self._inner)\n"
            if node.name.startswith("_") or node.name in INTERNAL:
                continue
            yield self._method(node)
        yield self._context(functions)

    def _context(self, functions: list[Function]) -> str:
        """What makes it a context: it is closed at the end."""
        named = {node.name: node for node in functions}
        if "close" not in named:
            return ""
        enter = "    def __enter__(self) -> Self:\n"
        if len(named["__aenter__"].body) > 1:
            # It refuses something.
            enter += "        self._thread.run(self._inner.__aenter__)\n"
        return (
            enter + "        return self\n\n"
            "    def __exit__(self, *_: object) -> None:\n        self.close()\n"
        )

    def _init(self, init: Function) -> str:
        if self.name != OWNER:
            return (
                f"    def __init__(self, inner: aio.{self.name}, thread: LoopThread)"
                " -> None:\n"
                "        self._inner = inner\n"
                "        self._thread = thread\n"
            )
        return (
            f"    def __init__({ast.unparse(init.args)}) -> None:\n"
            f"        self._inner = aio.{self.name}({_passed(init)})\n"
            "        self._thread = LoopThread()\n"
        )

    def _attributes(self, init: Function) -> Iterator[str]:
        """Public attributes that the async class sets when it is made."""
        given = {arg.arg: arg.annotation for arg in _arguments(init)}
        for node in init.body:
            target: ast.expr
            kind: ast.expr | None
            if isinstance(node, ast.AnnAssign):
                target, kind = node.target, node.annotation
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
                target, kind = node.targets[0], given.get(node.value.id)
            else:
                continue
            if not isinstance(target, ast.Attribute) or target.attr.startswith("_"):
                continue
            assert kind is not None
            yield (
                f"    @property\n    def {target.attr}(self) -> {ast.unparse(kind)}:\n"
                f"        return self._inner.{target.attr}\n"
            )

    def _method(self, node: Function) -> str:
        decorators = {ast.unparse(each) for each in node.decorator_list}
        returns = ast.unparse(node.returns) if node.returns is not None else "None"
        head = "".join(f"    @{each}\n" for each in sorted(decorators))
        head += f"    def {node.name}({ast.unparse(node.args)}) -> {returns}:\n"
        head += _doc(node, "        ")
        if "property" in decorators:
            return head + f"        return self._inner.{node.name}\n"
        if "classmethod" in decorators:
            return head + self._maker(node)
        call = f"self._inner.{node.name}({_passed(node)})"
        if not isinstance(node, ast.AsyncFunctionDef):
            assert returns in TWINS.values(), f"{node.name} needs a way across"
            return head + f"        return {returns}({call}, self._thread)\n"
        work = f"lambda: {call}" if _passed(node) else call.removesuffix("()")
        run = f"self._thread.run({work})\n"
        if node.name == "close":
            # What has lost its thread is closed already.
            head += "        if not self._thread.usable:\n            return\n"
        if self.name == OWNER and node.name == "close":
            return head + (
                f"        try:\n            {run}"
                "        finally:\n            self._thread.stop()\n"
            )
        return head + ("        " if returns == "None" else "        return ") + run

    def _maker(self, node: Function) -> str:
        return (
            "        made = cls.__new__(cls)\n"
            f"        made._inner = aio.{self.name}.{node.name}({_passed(node)})\n"
            "        made._thread = LoopThread()\n"
            "        return made\n"
        )


def _arguments(node: Function) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def _passed(node: Function) -> str:
    """The arguments of a method, handed on as they came."""
    given = [arg.arg for arg in node.args.args if arg.arg not in ("self", "cls")]
    given += [f"{arg.arg}={arg.arg}" for arg in node.args.kwonlyargs]
    if node.args.kwarg is not None:
        given.append(f"**{node.args.kwarg.arg}")
    return ", ".join(given)


def _doc(node: Function | ast.ClassDef, indent: str) -> str:
    text = ast.get_docstring(node)
    if text is None:
        return ""
    closing = "\n" if "\n" in text else ""
    return textwrap.indent(f'"""{text}{closing}"""', indent) + "\n"


def main() -> int:
    """Write the twins, or check them."""
    parser = argparse.ArgumentParser(description="Write the sync twin of the client.")
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    stale = []
    for name in TWINS:
        text = generate(name)
        file = target(name)
        if check and (not file.exists() or file.read_text() != text):
            stale.append(f"{name} ({file.name})")
        elif not check:
            file.write_text(text)
    if stale:
        sys.stderr.write(f"Run tools/async_to_sync.py: {', '.join(stale)} differ.\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
