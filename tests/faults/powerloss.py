"""What a disk may hold after the power fails, and whether that is good enough.

Owns the model of a disk that keeps a promise only after a sync, and the replay: for
many points of a recorded run it builds what might be found after a power loss there,
opens it, and compares it with what had been acknowledged by then.

The rule: contents not covered by a later sync of their file may be dropped, kept, torn
at sectors or reordered; names not covered by a sync of their folder may be missing.
Knows nothing about the program: the caller gives its calls and an `inspect` function.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tests.faults.syscalls import (
    Call,
    Create,
    Note,
    Remove,
    Rename,
    Sync,
    Truncate,
    Write,
)

# What a disk writes whole or not at all.
SECTOR_BYTES = 512

# How an image treats what was not synced.
MODES = ("none", "all", "random", "torn", "reordered", "names")

# Opens what is left and says which ids are present; any exception means "broken".
Inspect = Callable[[Path], set[str]]


# -- what was acknowledged -------------------------------------------------------


@dataclass(slots=True)
class Acknowledged:
    """What the program said about its ids, in its notes, up to some point.

    A line `? +5 -3` says that it is about to add 5 and remove 3; `! +5 -3` that both
    are acknowledged. Several lines may come in one note.
    """

    tried: set[str] = field(default_factory=set)
    added: set[str] = field(default_factory=set)
    doomed: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)

    def note(self, text: str) -> None:
        for line in text.splitlines():
            mark, *changes = line.split()
            for change in changes:
                sign, name = change[0], change[1:]
                if mark == "?":
                    (self.tried if sign == "+" else self.doomed).add(name)
                else:
                    assert mark == "!", f"not a note: {line!r}"
                    (self.added if sign == "+" else self.removed).add(name)

    def compare(self, present: set[str]) -> str:
        """Say what is wrong with the ids that were found; empty if nothing is."""
        wrong = []
        for what, names in (
            ("lost", self.added - self.doomed - present),
            ("back again", self.removed & present),
            ("never sent", present - self.tried),
        ):
            if names:
                some = " ".join(sorted(names)[:3])
                wrong.append(f"{len(names)} {what} ({some})")
        return ", ".join(wrong)


# -- the disk --------------------------------------------------------------------


class File:
    """Contents that are safe, and changes that are not yet."""

    def __init__(self) -> None:
        self.safe = bytearray()
        self.pending: list[tuple[int, Write | Truncate]] = []

    def sync(self, began: int) -> None:
        while self.pending and self.pending[0][0] < began:
            _apply(self.safe, self.pending.pop(0)[1])

    def contents(self, mode: str, chance: random.Random) -> bytes | bytearray:
        """What may be found, given how this image treats unsynced changes."""
        if not self.pending or mode == "none":
            return self.safe
        changes = [change for _, change in self.pending]
        if mode in ("random", "torn", "reordered"):
            keep = chance.choice((0.1, 0.5, 0.9))
            if mode == "torn":
                changes = [part for change in changes for part in _sectors(change)]
            changes = [change for change in changes if chance.random() < keep]
        if mode == "reordered":
            changes = _shuffled(changes, chance)
        found = bytearray(self.safe)
        for change in changes:
            _apply(found, change)
        return found


class Folder:
    """Names that are safe, and changes of names that are not yet."""

    def __init__(self) -> None:
        self.safe: dict[str, Node] = {}
        # Each change happens whole or not at all: a rename has two parts.
        self.pending: list[tuple[int, dict[str, Node | None]]] = []

    def sync(self, began: int) -> None:
        while self.pending and self.pending[0][0] < began:
            _rebind(self.safe, self.pending.pop(0)[1])

    def names(self, mode: str, chance: random.Random) -> dict[str, Node]:
        found = dict(self.safe)
        keep = {"none": 0.0, "names": chance.choice((0.1, 0.5, 0.9))}.get(mode, 1.0)
        if mode in ("random", "torn", "reordered"):
            keep = chance.choice((0.5, 1.0))
        for _, change in self.pending:
            if chance.random() < keep:
                _rebind(found, change)
        return found

    def current(self) -> dict[str, Node]:
        return self.names("all", random.Random(0))


Node = File | Folder


def _rebind(names: dict[str, Node], change: dict[str, Node | None]) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _apply(contents: bytearray, change: Write | Truncate) -> None:
    if isinstance(change, Truncate):
        del contents[change.size :]
        contents.extend(bytes(change.size - len(contents)))
        return
    end = change.offset + len(change.data)
    if len(contents) < change.offset:
        contents.extend(bytes(change.offset - len(contents)))
    contents[change.offset : end] = change.data


def _sectors(change: Write | Truncate) -> Iterator[Write | Truncate]:
    """The pieces of a change that reach the disk one by one."""
    if isinstance(change, Truncate):
        yield change
        return
    start, end = change.offset, change.offset + len(change.data)
    while start < end:
        stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        piece = change.data[start - change.offset : stop - change.offset]
        yield Write(change.path, start, piece)
        start = stop


def _shuffled(
    changes: list[Write | Truncate], chance: random.Random
) -> list[Write | Truncate]:
    """Writes overtake each other, but not a change of the size: that is journaled."""
    result: list[Write | Truncate] = []
    run: list[Write | Truncate] = []
    for change in changes:
        if isinstance(change, Truncate):
            chance.shuffle(run)
            result += [*run, change]
            run = []
        else:
            run.append(change)
    chance.shuffle(run)
    return result + run


class Disk:
    """The state after some number of calls: what is safe and what is not."""

    def __init__(self) -> None:
        self.root = Folder()
        self.done = 0

    def apply(self, call: Call) -> None:
        if isinstance(call, Write | Truncate):
            node = self._find(call.path)
            assert isinstance(node, File)
            node.pending.append((self.done, call))
        elif isinstance(call, Sync):
            self._find(call.path).sync(call.began)
        elif isinstance(call, Create):
            self._name({call.path: Folder() if call.folder else File()})
        elif isinstance(call, Remove):
            self._name({call.path: None})
        elif isinstance(call, Rename):
            self._name({call.path: None, call.target: self._find(call.path)})
        self.done += 1

    def _find(self, path: str) -> Node:
        node: Node = self.root
        for part in PurePosixPath(path).parts:
            assert isinstance(node, Folder)
            node = node.current()[part]
        return node

    def _name(self, change: dict[str, Node | None]) -> None:
        parents = {PurePosixPath(path).parent for path in change}
        assert len(parents) == 1, "a rename from one folder to another"
        folder = self._find(str(parents.pop()))
        assert isinstance(folder, Folder)
        inside = {PurePosixPath(path).name: node for path, node in change.items()}
        folder.pending.append((self.done, inside))

    def image(self, target: Path, mode: str, chance: random.Random) -> None:
        """Write what may be found after a power loss now into an empty folder."""
        assert mode in MODES
        self._write(self.root, target, mode, chance)

    def _write(
        self, folder: Folder, target: Path, mode: str, chance: random.Random
    ) -> None:
        for name, node in folder.names(mode, chance).items():
            path = target / name
            if isinstance(node, Folder):
                path.mkdir()
                self._write(node, path, mode, chance)
            else:
                inside = "all" if mode == "names" else mode
                path.write_bytes(node.contents(inside, chance))


# -- the replay ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BadImage:
    """A power loss after which a promise is broken; the same numbers build it again."""

    number: int
    after_call: int
    mode: str
    text: str


@dataclass(slots=True)
class Report:
    calls: int
    images: int
    acknowledged: int
    modes: Counter[str] = field(default_factory=Counter)
    bad: list[BadImage] = field(default_factory=list)

    def text(self) -> str:
        text = f"{len(self.bad)} bad of {self.images} images"
        text += f" ({self.calls} calls, {self.acknowledged} acknowledged)"
        if not self.bad and self.images:
            # With n clean trials the failure rate is below 3/n, with 95% confidence.
            text += f", below {3 / self.images:.2%} with 95% confidence"
        for image in self.bad[:5]:
            text += f"\n  image {image.number}, after call {image.after_call}, "
            text += f"unsynced {image.mode}: {image.text}"
        return text


def replay(calls: list[Call], inspect: Inspect, images: int, seed: int = 0) -> Report:
    """Build so many images, evenly over the run, and inspect each.

    Costs one pass over the calls plus the images. Image n of a seed is always the same.
    """
    report = Report(len(calls), images, 0)
    disk, acknowledged = Disk(), Acknowledged()
    for number in range(images):
        after = (number + 1) * len(calls) // images
        for call in calls[disk.done : after]:
            disk.apply(call)
            if isinstance(call, Note):
                acknowledged.note(call.text)
        chance = random.Random(f"{seed}/{number}")
        mode = MODES[number % len(MODES)]
        report.modes[mode] += 1
        with _scratch() as folder:
            disk.image(folder, mode, chance)
            text = _judge(inspect, folder, acknowledged)
        if text:
            report.bad.append(BadImage(number, after, mode, text))
    report.acknowledged = len(acknowledged.added) + len(acknowledged.removed)
    return report


class _scratch:  # noqa: N801 - used like a function
    """An empty folder in memory: the images are written once and read once."""

    def __enter__(self) -> Path:
        memory = Path("/dev/shm")
        parent = memory if memory.is_dir() else None
        self.path = Path(tempfile.mkdtemp(prefix="powerloss-", dir=parent))
        return self.path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path)


def _judge(inspect: Inspect, folder: Path, acknowledged: Acknowledged) -> str:
    try:
        present = inspect(folder)
    except Exception as error:  # noqa: BLE001 - whatever it is, the image is unusable
        return f"cannot be opened: {type(error).__name__}: {error}"
    return acknowledged.compare(present)
