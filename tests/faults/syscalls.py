"""What a process did to its disk, in order: recorded with strace.

Owns running a command under strace and reading what it wrote, synced, created, renamed
and removed below one folder. The rule it keeps: a call that it cannot replay exactly
is an error, never left out. Knows nothing about databases or power.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

# Only the calls below change files in a way that we know how to replay.
_REPLAYED = (
    "openat,pwrite64,write,lseek,fdatasync,fsync,ftruncate,mkdir,rename,unlink,rmdir"
)
# If one of these touches the folder, the replay would be wrong without it.
_REFUSED = (
    "open,creat,pwritev,pwritev2,writev,fallocate,truncate,link,linkat,symlink,"
    "symlinkat,renameat,renameat2,unlinkat,mkdirat,copy_file_range,sendfile,"
    "sync_file_range,syncfs,sync"
)
# More than any single write of SQLite; a longer one is noticed and refused.
_WRITE_BYTES_MAX = 1 << 20

_LINE = re.compile(r"^(\d+) +(\w+)\((.*)\) += (-?\d+)(.*)$", re.DOTALL)
_UNFINISHED = re.compile(r"^(\d+) +(\w+)\((.*) <unfinished \.\.\.>$", re.DOTALL)
_RESUMED = re.compile(r"^(\d+) +<\.\.\. (\w+) resumed>(.*)$", re.DOTALL)
_FD = re.compile(r"^(\d+)<((?:\\x[0-9a-f]{2})*)>(\(deleted\))?")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')


class NotReplayable(Exception):
    """The process changed its files in a way that the replay does not know."""


@dataclass(frozen=True, slots=True)
class Write:
    path: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    path: str
    size: int


@dataclass(frozen=True, slots=True)
class Sync:
    """A file's contents, or a folder's names, as they were when the call began."""

    path: str
    began: int


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    folder: bool = False


@dataclass(frozen=True, slots=True)
class Rename:
    path: str
    target: str


@dataclass(frozen=True, slots=True)
class Remove:
    path: str


@dataclass(frozen=True, slots=True)
class Note:
    """A line that the process wrote into its notes, at this point of the order."""

    text: str


Call = Write | Truncate | Sync | Create | Rename | Remove | Note


def record(
    command: list[str],
    root: Path,
    notes: Path,
    ignore: Callable[[str], bool] = lambda path: path.endswith("-shm"),
) -> list[Call]:
    """Run a command to its end and return what it did below an empty folder.

    Paths are relative to the folder. Each `write` to the notes becomes a `Note`, so
    the process says there what it acknowledged, and the order is known. SQLite's
    shared memory is no file that survives, so it is ignored.
    """
    root, notes = root.resolve(), notes.resolve()
    assert not any(root.iterdir()), "the replay starts from an empty folder"
    trace = notes.with_name(notes.name + ".trace")
    notes.touch()
    done = subprocess.run(
        [
            *("strace", "-f", "-y", "-xx", "-o", str(trace)),
            *("-s", str(_WRITE_BYTES_MAX), "-e", "signal=none"),
            *("-e", f"trace={_REPLAYED},{_REFUSED}", "--", *command),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}:\n{done.stderr}")
    with trace.open() as lines:
        return Reader(root, notes, ignore).read(lines)


class Reader:
    """Turns the lines of strace into calls, in the order in which they ended."""

    def __init__(self, root: Path, notes: Path, ignore: Callable[[str], bool]) -> None:
        self._root = PurePosixPath(root)
        self._notes = str(notes)
        self._ignore = ignore
        self._calls: list[Call] = []
        self._existing: set[str] = set()
        # Where a plain `write` goes: by the process' descriptor number and path.
        self._offsets: dict[tuple[str, str], int] = {}
        self._sizes: dict[str, int] = {}

    def read(self, lines: Iterable[str]) -> list[Call]:
        for name, arguments, result, began in _whole_calls(lines, self._calls):
            if result >= 0:
                self._call(name, arguments, result, began)
        return self._calls

    def _call(self, name: str, arguments: str, result: int, began: int) -> None:
        if name in _REFUSED.split(","):
            if self._mentions(arguments):
                raise NotReplayable(f"{name}({arguments[:200]})")
        elif name == "openat":
            self._open(arguments)
        elif name in ("mkdir", "rename", "unlink", "rmdir"):
            self._names(name, arguments)
        else:
            self._on_descriptor(name, arguments, result, began)

    def _inside(self, path: str) -> str | None:
        """The path below the root, or None if it does not concern us."""
        pure = PurePosixPath(path)
        if not pure.is_relative_to(self._root) or self._ignore(path):
            return None
        inside = str(pure.relative_to(self._root))
        return "" if inside == "." else inside

    def _mentions(self, arguments: str) -> bool:
        found = [_decode(text) for text, _ in _TEXT.findall(arguments)]
        found += [_decode(text) for text in re.findall(r"<((?:\\x\w\w)*)>", arguments)]
        paths = [os.fsdecode(text) for text in found]
        return any(self._inside(path) is not None for path in paths)

    def _open(self, arguments: str) -> None:
        # The descriptor that was returned carries the resolved path.
        before, _, after = arguments.rpartition("\n")
        descriptor, _, text = after.partition("<")
        path = os.fsdecode(_decode(text.partition(">")[0]))
        inside = self._inside(path)
        if inside is None:
            return
        if "O_TMPFILE" in before:
            raise NotReplayable("a file without a name")
        if "O_CREAT" in before and inside not in self._existing:
            self._existing.add(inside)
            self._sizes[inside] = 0
            self._calls.append(Create(inside))
        elif "O_TRUNC" in before:
            self._sizes[inside] = 0
            self._calls.append(Truncate(inside, 0))
        append = "O_APPEND" in before
        self._offsets[descriptor, inside] = -1 if append else 0

    def _names(self, name: str, arguments: str) -> None:
        texts = [os.fsdecode(_decode(text)) for text, _ in _TEXT.findall(arguments)]
        paths = [self._inside(text) for text in texts]
        if paths[0] is None:
            if len(paths) > 1 and paths[1] is not None:
                raise NotReplayable(f"{name} into the folder: {texts}")
            return
        if name == "mkdir":
            self._existing.add(paths[0])
            self._calls.append(Create(paths[0], folder=True))
        elif name == "rename":
            if paths[1] is None:
                raise NotReplayable(f"{name} out of the folder: {texts}")
            self._existing.discard(paths[0])
            self._existing.add(paths[1])
            self._sizes[paths[1]] = self._sizes.get(paths[0], 0)
            self._calls.append(Rename(paths[0], paths[1]))
        else:
            self._existing.discard(paths[0])
            self._calls.append(Remove(paths[0]))

    def _on_descriptor(
        self, name: str, arguments: str, result: int, began: int
    ) -> None:
        match = _FD.match(arguments)
        if match is None or match[3]:
            # Not a file, or one without a name: it cannot be found again.
            return
        path = os.fsdecode(_decode(match[2]))
        if path == self._notes and name == "write":
            self._calls.append(Note(_data(arguments, result).decode()))
            return
        inside = self._inside(path)
        if inside is None:
            return
        rest = arguments[match.end() :]
        if name in ("fsync", "fdatasync"):
            self._calls.append(Sync(inside, began))
        elif name == "ftruncate":
            size = int(rest.rpartition(" ")[2])
            self._sizes[inside] = size
            self._calls.append(Truncate(inside, size))
        elif name == "lseek":
            self._offsets[match[1], inside] = result
        elif result:
            self._write(name, (match[1], inside), rest, result)

    def _write(self, name: str, file: tuple[str, str], rest: str, count: int) -> None:
        size = self._sizes.get(file[1], 0)
        if name == "pwrite64":
            offset = int(rest.rpartition(" ")[2])
        else:
            offset = self._offsets.get(file, 0)
            if offset < 0:
                offset = size
            else:
                self._offsets[file] = offset + count
        self._sizes[file[1]] = max(size, offset + count)
        self._calls.append(Write(file[1], offset, _data(rest, count)))


def _decode(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _data(arguments: str, count: int) -> bytes:
    match = _TEXT.search(arguments)
    if match is None or match[2]:
        raise NotReplayable("a write that is too long to be recorded")
    return _decode(match[1])[:count]


def _whole_calls(
    lines: Iterable[str], done: list[Call]
) -> Iterator[tuple[str, str, int, int]]:
    """Yield name, arguments, result, and how many calls had ended when it began.

    With several threads strace prints the beginning and the end of a call apart.
    """
    begun: dict[tuple[str, str], tuple[str, int]] = {}
    for line in lines:
        text = line.rstrip("\n")
        began = len(done)
        if unfinished := _UNFINISHED.match(text):
            pid, name, start = unfinished.groups()
            begun[pid, name] = (start, began)
            continue
        if resumed := _RESUMED.match(text):
            pid, name, end = resumed.groups()
            start, began = begun.pop((pid, name))
            text = f"{pid} {name}({start}{end}"
        if match := _LINE.match(text):
            _, name, arguments, result, tail = match.groups()
            if name == "openat":
                arguments += f"\n{result}{tail}"
            yield name, arguments, int(result), began
