"""What was seen and what helped is told in words, from attempts and histories."""

from __future__ import annotations

from tests.drill import stories
from twinbus.drill.report.lessons import helped, seen
from twinbus.drill.scene import Scene
from twinbus.drill.sightings import (
    BUSY,
    CONTACT,
    NO,
    OK,
    SEND,
    SLOW,
    WAYS,
    Sighting,
    Stretch,
    stretches_of,
    union,
)
from twinbus.testing.events import Event

FAULT = (10.0, 20.0)


def attempts(
    way: str, answer: str, why: str = "", seconds: float = 0.1
) -> list[Sighting]:
    """One a second, and all is well before the fault and after it."""
    return [
        Sighting(way, at, seconds, answer, why)
        if FAULT[0] <= at < FAULT[1]
        else Sighting(way, at, 0.1)
        for at in map(float, range(5, 25))
    ]


def told(sightings: list[Sighting]) -> dict[str, str]:
    return {each.what: each.text for each in seen(sightings, FAULT)}


def test_a_way_that_is_closed_is_named_with_its_cause() -> None:
    sightings = [*attempts(CONTACT, OK), *attempts(SEND, NO, "service")]

    assert told(sightings) == {
        "cannot send": "for 10.0 s: the service says that it is broken"
    }


def test_without_contact_nothing_else_is_named() -> None:
    sightings = [*attempts(CONTACT, NO, "connection"), *attempts(SEND, NO, "timeout")]

    assert told(sightings) == {
        "cannot contact it": "for 10.0 s: the connection broke or was refused"
    }


def test_busy_and_slow_have_their_own_words() -> None:
    assert told(attempts(SEND, BUSY, "busy")) == {
        "busy when sending": "for 10.0 s: the service asks to come back in 10 seconds"
    }
    assert told(attempts("receive", SLOW, seconds=2.5)) == {
        "slow to receive": "for 10.0 s: up to 2.5 s each"
    }


def test_what_was_seen_outside_the_fault_is_not_told() -> None:
    sightings = [
        Sighting(SEND, 8.0, 1.5, SLOW),
        Sighting(SEND, 9.9, 0.1),
        Sighting(SEND, 21.0, 3.0, SLOW),
    ]

    assert told(sightings) == {"nothing": "every attempt succeeded in time"}


def test_without_contact_every_way_is_closed() -> None:
    sightings = [
        Sighting(CONTACT, 1.0, 0.1),
        Sighting(SEND, 1.0, 0.1),
        Sighting(CONTACT, 2.0, 1.5, NO),
        Sighting(CONTACT, 4.0, 0.1),
        Sighting(SEND, 4.2, 0.1),
    ]

    assert stretches_of(sightings, SEND) == [Stretch(2.0, 4.0, NO)]


def test_times_that_touch_become_one() -> None:
    assert union([(5, 6), (1, 3), (2, 4), (4, 4.5)]) == [(1, 4.5), (5, 6)]
    assert union([]) == []


# -- what helped -----------------------------------------------------------------------


def helpers(fault: str, events: list[Event], moved: int = 0) -> dict[str, str]:
    scene = Scene(stories.plan(fault))
    scene.moved = moved
    scene.restarted = fault in ("kill", "stall")
    found = helped(scene, events)
    return {each.what: each.text for each in found}


def test_the_pair_helps_with_its_backlog_and_probation() -> None:
    found = helpers("sick", stories.events(), 100)

    assert found == {
        "the pair": "failovers: 10; messages that went through the backlog: 100",
        "probation": "relapses, each of which diverted its message at once: 2",
    }


def test_a_pair_without_a_way_to_the_backlog_does_not_help() -> None:
    assert "the pair" not in helpers("both", stories.events())


def test_a_restart_helps_where_the_process_was_at_fault() -> None:
    assert "a restart" in helpers("kill", [])
    assert "supervisor" in helpers("stall", [])["a restart"]
    assert helpers("cut", []) == {}


def test_waiting_helps_where_the_service_is_busy() -> None:
    at = stories.ms(11)
    busy = Event("sender-0", "pairing", "", at, at, state="answered")
    busy.error = "com.microsoft:server-busy"

    assert helpers("throttle", [busy] * 3) == {
        "busy and retry": "answers that were busy, each followed by a wait of 10 s: 3"
    }


def test_the_application_helps_where_sends_raise() -> None:
    raised = Event("sender-0", "send", "a", stories.ms(5), stories.ms(6), "unknown")

    assert helpers("unauthorized", [raised]) == {
        "the application's retry": "sends that raised, after which the message was "
        "sent again: 1"
    }


def test_every_way_can_be_told_in_every_state() -> None:
    for way in WAYS:
        for state in (NO, BUSY, SLOW):
            assert seen(attempts(way, state), FAULT)[0].what != "nothing"
