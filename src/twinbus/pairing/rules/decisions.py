"""What the rules of a pair ask its shell to do.

Owns the vocabulary between the two. The rules neither wait, send nor wake: they
return a list of these, and the shell carries them out in order. All times are
milliseconds; a time that has passed means now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from twinbus.pairing.events import PairingEvent


class Wakeable(Protocol):
    """A send that waits in a line; a `SendCall` is one."""

    def wake(self) -> None:
        """Have the shell call `woken`."""


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Call `EntityPolicy.timer_fired(timer_id)` at that time."""

    key: str
    timer_id: int
    due_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """The timer is no longer needed. One that fires all the same is ignored."""

    key: str
    timer_id: int


@dataclass(frozen=True, slots=True)
class StartPing:
    """Ping the entity at that time, once, and report `EntityPolicy.ping_ended`."""

    key: str
    ping_id: int
    at_ms: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class StopPinging:
    """Forget the ping that is planned, and cancel the one that is under way."""

    key: str
    ping_id: int


@dataclass(frozen=True, slots=True)
class Divert:
    """The entity failed over: take its sends off the primary.

    Sends without a call yet are given one (`adopt`); calls whose attempt has no answer,
    or that wait for a busy service, are woken. Held sends follow one by one, by `Wake`
    of the first in line.
    """

    key: str


@dataclass(frozen=True, slots=True)
class Resume:
    """The entity takes sends again: wake its calls."""

    key: str


@dataclass(frozen=True, slots=True)
class Wake:
    """It is this call's turn: wake it."""

    call: Wakeable


@dataclass(frozen=True, slots=True)
class ProbeQueue:
    """Probe this backlog queue at that time, and report `Rotation.probe_ended`.

    It replaces one that is planned and has not begun.
    """

    index: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Tell:
    """Let the application know."""

    event: PairingEvent


Decision = (
    StartTimer
    | CancelTimer
    | StartPing
    | StopPinging
    | Divert
    | Resume
    | Wake
    | ProbeQueue
    | Tell
)
