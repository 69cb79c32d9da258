"""Errors that the primary has answered sends and pings with, in a history.

Owns their form there: what the pair was told, though the application saw none of it. An
error without a condition, such as a time-out, is known by its class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from twinbus.testing.events import Event, Recorder

# The state of such a line; those of pairs are other words.
_ANSWERED = "answered"


def record_answer(recorder: Recorder, process: str, condition: str) -> None:
    """Write one down."""
    at = recorder.now()
    line = Event(process, "pairing", "", at, at, state=_ANSWERED, error=condition)
    recorder.record(line)


def answers_in(events: Iterable[Event]) -> Counter[str]:
    """How often each condition was answered."""
    return Counter(
        event.error
        for event in events
        if event.op == "pairing" and event.state == _ANSWERED
    )
