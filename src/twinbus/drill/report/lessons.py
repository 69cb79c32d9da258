"""What a drill teaches: what an application without help saw, and what helped.

Owns the words for both. What was seen comes from the witness, in the time of the fault;
what helped comes from the histories of the senders. Judges nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twinbus import limits
from twinbus.drill.answers import answers_in
from twinbus.drill.scene import Scene
from twinbus.drill.sightings import (
    BUSY,
    CONTACT,
    MANAGE,
    NO,
    RECEIVE,
    SEND,
    SLOW,
    WAYS,
    Sighting,
    Stretch,
    stretches_of,
)
from twinbus.pairing.events import EventKind
from twinbus.testing.events import Event

_TEXTS = {
    NO: {
        CONTACT: "cannot contact it",
        SEND: "cannot send",
        RECEIVE: "cannot receive",
        MANAGE: "cannot manage",
    },
    BUSY: {
        CONTACT: "busy when contacted",
        SEND: "busy when sending",
        RECEIVE: "busy when receiving",
        MANAGE: "busy when managing",
    },
    SLOW: {
        CONTACT: "slow to contact",
        SEND: "slow to send",
        RECEIVE: "slow to receive",
        MANAGE: "slow to manage",
    },
}
# What lay behind a failed attempt, by the kind of its error.
_CAUSES = {
    "connection": "the connection broke or was refused",
    "timeout": "no answer came",
    "service": "the service says that it is broken",
    "access": "access was refused",
    "busy": "the service asks to come back in 10 seconds",
}
_BUSY_CONDITION = "com.microsoft:server-busy"


@dataclass(frozen=True, slots=True)
class Lesson:
    """One line of the report: what, and how much of it."""

    what: str
    text: str


def seen(sightings: Sequence[Sighting], fault: tuple[float, float]) -> list[Lesson]:
    """What an application without a pair saw between these two times."""
    ways = [CONTACT] if _closed(sightings, CONTACT, fault) else WAYS
    found = []
    for way in ways:
        stretches = [
            cut
            for each in stretches_of(sightings, way)
            if (cut := _inside(each, fault)) is not None
        ]
        for state in (NO, BUSY, SLOW):
            seconds = sum(each.seconds for each in stretches if each.state == state)
            if seconds >= limits.DRILL_SEEN_SECONDS_MIN:
                text = _detail(sightings, (way, state), seconds, fault)
                found.append(Lesson(_TEXTS[state][way], text))
    return found or [Lesson("nothing", "every attempt succeeded in time")]


def _closed(
    sightings: Sequence[Sighting], way: str, fault: tuple[float, float]
) -> bool:
    """Whether there was none of it for most of the time."""
    parts = [_inside(each, fault) for each in stretches_of(sightings, way)]
    seconds = sum(part.seconds for part in parts if part and part.state == NO)
    return seconds > (fault[1] - fault[0]) / 2


def _inside(stretch: Stretch, fault: tuple[float, float]) -> Stretch | None:
    """The part of a stretch that lies in the time of the fault."""
    start, end = max(stretch.start, fault[0]), min(stretch.end, fault[1])
    return Stretch(start, end, stretch.state) if start < end else None


def _detail(
    sightings: Sequence[Sighting],
    what: tuple[str, str],
    seconds: float,
    fault: tuple[float, float],
) -> str:
    meant = [
        each
        for each in sightings
        if (each.way, each.answer) == what
        and each.at < fault[1]
        and each.at + each.seconds > fault[0]
    ]
    text = f"for {seconds:.1f} s"
    if what[1] == SLOW:
        return f"{text}: up to {max(each.seconds for each in meant):.1f} s each"
    causes = dict.fromkeys(_CAUSES.get(each.why, each.why) for each in meant)
    return f"{text}: {', '.join(causes)}" if causes else text


def helped(scene: Scene, events: Sequence[Event]) -> list[Lesson]:
    """What kept the messages safe meanwhile."""
    found = []
    busy = answers_in(events)[_BUSY_CONDITION]
    if busy:
        text = f"answers that were busy, each followed by a wait of 10 s: {busy:,}"
        found.append(Lesson("busy and retry", text))
    if scene.restarted:
        text = "the process came back with its data"
        if scene.plan.fault == "stall":
            text = "the supervisor noticed the stall, and restarted the server"
        found.append(Lesson("a restart", text))
    told = [event.state for event in events if event.op == "pairing"]
    over, relapses = (
        told.count(kind.value) for kind in (EventKind.FAILED_OVER, EventKind.RELAPSED)
    )
    if over and scene.moved:
        text = f"failovers: {over:,}; "
        text += f"messages that went through the backlog: {scene.moved:,}"
        found.append(Lesson("the pair", text))
    if relapses:
        text = f"relapses, each of which diverted its message at once: {relapses:,}"
        found.append(Lesson("probation", text))
    raised = sum(event.op == "send" and event.result != "ok" for event in events)
    if raised:
        text = f"sends that raised, after which the message was sent again: {raised:,}"
        found.append(Lesson("the application's retry", text))
    return found
