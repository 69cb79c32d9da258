"""The timeline counts what happened, when it happened."""

from __future__ import annotations

from tests.drill import stories
from twinbus.drill.plan import ENTITIES
from twinbus.drill.report.timeline import timeline_of
from twinbus.drill.scene import Scene
from twinbus.drill.sightings import Stretch
from twinbus.drill.states import FAILED_OVER, PROBATION, SUSPECT
from twinbus.testing.events import Event


def test_messages_are_counted_in_the_second_in_which_they_ended() -> None:
    timeline = stories.timeline()

    sent, received = 2 * len(ENTITIES), 2 * (len(ENTITIES) + 1)
    assert {at: count for at, count in enumerate(timeline.accepted) if count} == {
        5: sent
    }
    assert {at: count for at, count in enumerate(timeline.received) if count} == {
        6: received
    }


def test_what_failed_is_not_counted() -> None:
    send = Event("sender-0", "send", "a", stories.ms(5), stories.ms(5), "fail")
    broken = Event("r", "receive", "", stories.ms(5), stories.ms(5), "unknown")

    timeline = timeline_of([send, broken], stories.scene(), stories.BEGUN_MS)

    assert sum(timeline.accepted) + sum(timeline.received) == 0


def test_an_entity_is_unwell_from_the_first_failure_to_an_accepted_send() -> None:
    timeline = stories.timeline()

    assert timeline.entities["billing"] == [
        Stretch(10.5, 12.5, SUSPECT),
        Stretch(20.5, 21.0, PROBATION),
        Stretch(12.5, 20.5, FAILED_OVER),
    ]
    assert timeline.relapses["billing"] == []
    assert set(timeline.entities) == set(ENTITIES)


def test_a_relapse_ends_a_probation() -> None:
    timeline = stories.timeline()

    over = [each for each in timeline.entities["orders"] if each.state == FAILED_OVER]
    # Both senders failed back and over again; the second time until a send was taken.
    assert over == [Stretch(12.5, 20.5, FAILED_OVER), Stretch(20.6, 21.0, FAILED_OVER)]
    assert timeline.relapses["orders"] == [20.6, 20.6]


def test_the_picture_has_what_was_seen_without_a_pair() -> None:
    timeline = stories.timeline()

    assert timeline.ways["send"] == [Stretch(10.2, 20.0, "no")]
    assert timeline.ways["receive"] == []


def test_a_blip_is_suspect_and_no_more() -> None:
    blip = [
        Event("s", "pairing", "", stories.ms(at), stories.ms(at), queue="orders")
        for at in (3, 4)
    ]
    blip[0].state, blip[1].state = "suspect", "recovered"

    timeline = timeline_of(blip, stories.scene(), stories.BEGUN_MS)

    assert timeline.entities["orders"] == [Stretch(3.0, 4.0, SUSPECT)]


def test_what_never_ended_goes_on_to_the_end() -> None:
    over = Event("s", "pairing", "", stories.ms(3), stories.ms(3), queue="orders")
    over.state = "failed over"

    timeline = timeline_of([over], stories.scene(), stories.BEGUN_MS)

    assert timeline.entities["orders"][-1].end == stories.END


def test_the_outage_and_the_backlog_are_as_they_were_seen() -> None:
    timeline = stories.timeline()

    assert timeline.outage == (10.0, 20.0)
    assert timeline.backlog == [(5.0, 0), (15.0, 40), (20.0, 100), (27.0, 0)]
    assert timeline.backlog_max == 100
    assert timeline.seconds == stories.END


def test_a_drill_in_which_nothing_happened_has_a_timeline() -> None:
    timeline = timeline_of([], Scene(stories.plan()), stories.BEGUN_MS)

    assert timeline.seconds >= 1
    assert timeline.outage is None
    assert timeline.backlog_max == 0
