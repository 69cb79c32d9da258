"""The line format of a history: what one client did, when, and how it ended.

Owns the event record, the writer that clients share, and the reader. The rule it
keeps: an operation whose outcome the client does not know is `unknown`, never `fail`.
Knows nothing about what makes a history right or wrong.
"""

from __future__ import annotations

import gc
import json
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, replace
from itertools import islice
from pathlib import Path
from sys import intern
from types import TracebackType
from typing import Any, Literal, Self

from twinbus import limits
from twinbus.clock import Clock, SystemClock

Result = Literal["ok", "fail", "unknown"]

# What ends a delivery. `cancel` is for scheduled messages, which are not held yet.
SETTLEMENTS = frozenset({"complete", "abandon", "defer", "dead_letter", "release"})
OPERATIONS = SETTLEMENTS | {
    "send",  # key, queue, session, digest, ttl_ms, not_before
    "cancel",  # key, queue: take a scheduled message back
    "receive",  # one event per delivery; `unknown` without a key when a link broke
    "renew",  # token and the new lock_until, or a session without a token
    "accept",  # a session's lock: queue, session, lock_until, link
    "detach",  # the link of `process` was closed or lost
    "restart",  # the broker was stopped; every link was lost
    "drain",  # the final look: a message found at the end, with its state
    "drained",  # the final look at this queue reached its end
    # Of paired namespaces; see `history_paired.py`.
    "pairing",  # an event of a pair: queue is its path, state its kind
    "fault",  # what was done to whom (queue), and how (state), from begin to end
    "attempt",  # on the wire: a message was sent to an entity of the primary
    "divert",  # on the wire: a message was sent to a backlog queue, for a path
}


@dataclass(slots=True)
class Event:
    """One operation of one client. Times are milliseconds of one shared clock.

    An empty field means "not known" or "does not apply".
    """

    process: str
    op: str
    key: str = ""
    invoke_at: float = 0
    end_at: float = 0
    result: Result = "ok"
    queue: str = ""
    session: str = ""
    sequence: int = 0
    # Names one grant of one lock, so that a settlement finds its delivery.
    token: str = ""
    # By the broker's clock, as the delivery or the renewal said.
    lock_until: float = 0
    # 1 on the first delivery.
    delivery_count: int = 0
    link: str = ""
    # receive: "" (peek-lock), "receive_and_delete" or "deferred".
    mode: str = ""
    # drain: "active", "deferred", "scheduled" or "dead".
    state: str = ""
    not_before: float = 0
    ttl_ms: float = 0
    # receive: how many messages an operation could have taken.
    credit: int = 0
    # Any text that must arrive unchanged, such as a hash of the body.
    digest: str = ""
    content_type: str = ""
    # By the broker's clock, as a delivery or the final look said.
    enqueued_at: float = 0
    # In a backlog queue: where it is to go, and since when it is on its way.
    path: str = ""
    diverted_at: float = 0
    error: str = ""
    # Ties a line written at the start of an operation to the one at its end.
    id: str = ""

    def to_json(self) -> str:
        """One line without its newline. Fields at their default are left out."""
        values = {
            name: value
            for name in _NAMES
            if (value := getattr(self, name)) != _DEFAULTS[name]
        }
        return json.dumps(values, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str | bytes) -> Event:
        """Read one line; raises `ValueError` for anything that is not an event."""
        return cls.from_values(json.loads(line))

    @classmethod
    def from_values(cls, values: Any) -> Event:
        """Make an event of what a line says."""
        if not isinstance(values, dict) or values.get("op") not in OPERATIONS:
            raise ValueError(f"not a history event: {values!r}")
        for name in _REPEATED:
            if name in values:
                values[name] = intern(values[name])
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"not a history event: {error}") from None


_NAMES = tuple(field.name for field in fields(Event))
# Few values for many events: each is kept in memory once.
_REPEATED = ("link", "op", "process", "queue", "session")
_DEFAULTS = {
    field.name: None if field.default is MISSING else field.default
    for field in fields(Event)
}


class Recorder:
    """Appends events to a file. Safe for threads, and for processes that share it.

    Each event is one `write` on a file opened for appending, so lines never mix and
    a killed client leaves at most one torn line at the very end.
    """

    def __init__(
        self, path: str | os.PathLike[str], clock: Clock | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def now(self) -> float:
        return self._clock.now_ms()

    def record(self, event: Event) -> None:
        """Append one event; it has left this process when the call returns."""
        line = event.to_json().encode() + b"\n"
        with self._lock:
            written = os.write(self._file, line)
        assert written == len(line), "the history file is full"

    def start(self, process: str, op: str, **known: Any) -> Event:
        """An operation begins now. Nothing is written before `finish`."""
        return Event(process, op, invoke_at=self.now(), result="unknown", **known)

    def announce(self, event: Event) -> None:
        """Write the operation as `unknown` at once, for clients that may be killed.

        The line of `finish` replaces this one.
        """
        event.id = event.id or f"{event.process}/{event.op}/{os.urandom(6).hex()}"
        self.record(event)

    def finish(self, event: Event, result: Result = "ok", **learned: Any) -> Event:
        """The operation ends now with this result; writes its line."""
        done = replace(event, end_at=self.now(), result=result, **learned)
        self.record(done)
        return done

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@contextmanager
def without_collector() -> Iterator[None]:
    """Keep the garbage collector away while millions of objects are made to stay.

    It would look at all of them again and again, and find nothing.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def load(path: str | os.PathLike[str]) -> list[Event]:
    """Read a history file; a torn last line is what a killed client leaves."""
    with Path(path).open("rb") as file, without_collector():
        return list(read(file))


def read(lines: Iterable[bytes]) -> Iterator[Event]:
    """Events of complete lines; an announced one is replaced by its end."""
    announced: dict[str, Event] = {}
    rest = iter(lines)
    while some := list(islice(rest, limits.RECORDER_LINES_MAX)):
        if not some[-1].endswith(b"\n"):
            some.pop()
        for values in json.loads(b"[" + b",".join(some) + b"]"):
            event = Event.from_values(values)
            if event.id:
                announced[event.id] = event
            else:
                yield event
    for event in announced.values():
        # Without an end it may still have taken effect at any later time.
        yield event if event.end_at else replace(event, end_at=float("inf"))
