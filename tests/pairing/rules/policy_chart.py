"""Writes the page about the state machine from its table.

    python -m tests.pairing.rules.policy_chart

A test compares the page with the table, so neither can change without the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from twinbus.pairing.rules.policy import TRANSITIONS, EntityState

PAGE = Path(__file__).resolve().parents[3] / "docs" / "pairing-policy.md"

_HEAD = """# When an entity fails over, and back

Every queue and topic of the primary has a state of its own, which all senders of a
factory share. This page is made from the table in
`src/twinbus/pairing/rules/policy.py` by `python -m tests.pairing.rules.policy_chart`.

* **healthy**: sends go to the primary.
* **suspect**: a failure was counted, and the timer runs for the failover interval.
  Sends still go to the primary. One that fails is held and tried again.
* **deciding**: the timer fired, but no send has failed since it started. A ping finds
  out whether that was only a blip. `status()` shows this state as suspect.
* **failed over**: sends go to a backlog queue. Pings ask whether the entity is back.
* **refused**: as failed over, but a ping was answered: the entity is missing, disabled
  or closed to this client. A send raises that answer, as it would on a healthy entity;
  in a backlog queue it could only be dead-lettered.
* **probation**: the entity failed back, and no send was accepted since. Sends go to the
  primary. The first one that is accepted ends the probation. The first one that fails
  is a relapse: the entity fails over at once, and that send goes to the backlog in the
  same call. After a relapse the next ping waits for a pause that doubles, from the ping
  interval to five minutes (or the ping interval, if that is longer), and probation
  admits one send at a time; the others go on to the backlog until that one is accepted.

Only a send that began on probation ends it. One that is accepted *late*, after its call
was diverted or slower than `slow_send`, leads at most to probation, and after a relapse
it changes nothing.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_chart(), "", *_table(), ""])


def _name(state: EntityState) -> str:
    return state.value.replace(" ", "_")


def _chart() -> Iterator[str]:
    yield "```mermaid"
    yield "stateDiagram-v2"
    for state in EntityState:
        yield f"    {_name(state)}: {state.value}"
    yield f"    [*] --> {_name(EntityState.HEALTHY)}"
    for (state, happened), move in TRANSITIONS.items():
        yield f"    {_name(state)} --> {_name(move.to)}: {happened.value}"
    yield "```"


def _table() -> Iterator[str]:
    yield "| state | what happens | next state | what follows | events |"
    yield "|---|---|---|---|---|"
    for (state, happened), move in TRANSITIONS.items():
        actions = ", ".join(action.value for action in move.actions)
        events = ", ".join(event.value for event in move.events) or "none"
        yield (
            f"| {state.value} | {happened.value} | {move.to.value} | {actions} "
            f"| {events} |"
        )
    yield ""
    yield "Anything else changes nothing: a later failure does not restart the timer."


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())
