"""A drill fails for every promise that was broken, and says which."""

from __future__ import annotations

from pathlib import Path

from tests.drill import stories
from twinbus.drill.judge import Judgement, judge, read_histories
from twinbus.testing.events import Event, Recorder
from twinbus.wire.message.names import PING_CONTENT_TYPE


def judged(events: list[Event], left: int = 0) -> Judgement:
    return judge(stories.plan(), events, left)


def test_a_drill_in_which_all_went_well_has_no_reason_to_fail() -> None:
    judgement = judged(stories.events())

    assert judgement.ok, judgement.reasons
    assert judgement.figures()["lost"] == 0


def test_a_message_that_was_never_received_is_lost() -> None:
    events = [
        event
        for event in stories.events()
        if event.key != "s1-orders" or event.op == "send"
    ]

    [reason] = judged(events).reasons

    assert reason.startswith("1 lost: accepted, and never seen again.")
    assert "s1-orders in orders" in reason


def test_what_still_waits_at_the_end_was_not_received() -> None:
    assert judged(stories.events(), left=3).reasons == [
        "Messages that were still waiting at the end: 3."
    ]


def test_a_send_that_raised_is_a_failure() -> None:
    events = stories.events()
    send = Event("sender-0", "send", "s0-more", stories.ms(5), stories.ms(6), "unknown")
    send.queue = "orders"

    [reason] = judged([*events, send]).reasons

    assert reason == "Sends that did not succeed: 1. A paired send never fails."


def test_a_ping_that_was_seen_is_a_failure() -> None:
    ping = Event("receiver-0", "receive", "p", stories.ms(6), stories.ms(6))
    ping.queue, ping.content_type = "orders", PING_CONTENT_TYPE

    [reason] = judged([*stories.events(), ping]).reasons

    assert reason.startswith("1 ping: a ping that a receiver could see.")


def test_an_entity_that_never_failed_over_was_not_shown() -> None:
    events = [
        event
        for event in stories.events()
        if event.op != "pairing"
        or (event.process, event.queue) != ("sender-1", "rooms")
    ]

    [reason] = judged(events).reasons

    assert reason == "sender-1 never failed over with rooms."


def test_the_histories_of_all_processes_are_read(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with Recorder(tmp_path / f"{name}.jsonl") as recorder:
            recorder.finish(recorder.start(name, "drained", queue="q"))
    (tmp_path / "died").touch()

    assert [event.process for event in read_histories(tmp_path)] == ["a", "b"]
