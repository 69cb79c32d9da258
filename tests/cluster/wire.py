"""A machine of its own for PostgreSQL, as far as the network is concerned.

Owns a network namespace with one wire to this machine, which can be cut in either
direction: packets are lost and neither side is told. Needs root; removed at the end.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

# No interface has it, so what is sent to it is lost.
_LOST = "02:00:00:00:00:99"
_numbers = count(1)


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def can_have_wires() -> bool:
    """Whether this process may make network namespaces."""
    name = f"twinbus-{os.getpid()}-try"
    words = ["ip", "netns", "add", name]
    try:
        done = subprocess.run(words, capture_output=True, check=False)
    except FileNotFoundError:
        return False
    if done.returncode == 0:
        _ip("netns", "del", name)
    return done.returncode == 0


@dataclass
class Wire:
    """The wire between this machine and the other."""

    name: str
    # The two ends, and their addresses.
    near: str
    far: str
    here: str
    there: str

    @property
    def command(self) -> list[str]:
        """What runs a program on the other machine."""
        return ["ip", "netns", "exec", self.name]

    def cut(self, *, there: bool, here: bool) -> None:
        """Lose what goes there, what comes here, or both."""
        if there:
            lost = ("neigh", "replace", self.there, "lladdr", _LOST, "dev", self.near)
            _ip(*lost, "nud", "permanent")
        if here:
            lost = ("neigh", "replace", self.here, "lladdr", _LOST, "dev", self.far)
            _ip("-n", self.name, *lost, "nud", "permanent")

    def mend(self) -> None:
        """Lose nothing any more."""
        _ip("neigh", "flush", "dev", self.near, "nud", "permanent")
        _ip("-n", self.name, "neigh", "flush", "dev", self.far, "nud", "permanent")


@contextlib.contextmanager
def wire() -> Iterator[Wire]:
    """Have another machine until the block ends."""
    place = next(_numbers)
    number = f"{os.getpid() % 100_000}{place}"
    # Four addresses of its own: a wire is taken away some time after its end.
    third, fourth = divmod((os.getpid() * 32 + place) % 16_384 * 4, 256)
    here, there = (f"10.213.{third}.{fourth + end}" for end in (1, 2))
    ends = (f"twn{number}", f"twf{number}", here, there)
    made = Wire(f"twinbus-{number}", *ends)
    _ip("netns", "add", made.name)
    try:
        far = ("peer", "name", made.far, "netns", made.name)
        _ip("link", "add", made.near, "type", "veth", *far)
        _ip("addr", "add", f"{here}/30", "dev", made.near)
        _ip("link", "set", made.near, "up")
        _ip("-n", made.name, "addr", "add", f"{there}/30", "dev", made.far)
        _ip("-n", made.name, "link", "set", made.far, "up")
        _ip("-n", made.name, "link", "set", "lo", "up")
        yield made
    finally:
        with contextlib.suppress(AssertionError):
            _ip("link", "del", made.near)
        _ip("netns", "del", made.name)
