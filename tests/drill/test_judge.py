"""A drill fails for every promise that was broken, and says which."""

from __future__ import annotations

from pathlib import Path

from tests.drill import stories
from twinbus.drill.judge import Judgement, judge, read_histories
from twinbus.testing.events import Event, Recorder
from twinbus.wire.message.names import PING_CONTENT_TYPE


def judged(events: list[Event], left: int = 0, fault: str = "kill") -> Judgement:
    return judge(stories.plan(fault), events, left)


def without_pairing() -> list[Event]:
    """All went well, and no entity failed over."""
    return [event for event in stories.events() if event.op != "pairing"]


def answered(condition: str) -> Event:
    at = stories.ms(11)
    line = Event("sender-0", "pairing", "", at, at, state="answered")
    line.error = condition
    return line


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


# -- what each fault has to show ------------------------------------------------------


BUSY = "com.microsoft:server-busy"
NO_ACCESS = "amqp:unauthorized-access"


def test_a_busy_primary_is_no_reason_to_fail_over() -> None:
    calm = [*without_pairing(), answered(BUSY)]

    assert judged(calm, fault="throttle").ok
    [reason] = judged([*stories.events(), answered(BUSY)], fault="throttle").reasons
    assert reason.startswith("These failed over, which this fault is no reason for:")


def test_a_fault_that_no_send_met_was_not_shown() -> None:
    assert judged(without_pairing(), fault="throttle").reasons == [
        f"No send was answered with {BUSY}."
    ]


def test_the_application_may_send_again_what_was_refused() -> None:
    refused = Event("sender-0", "send", "s0-orders", stories.ms(4), stories.ms(4.1))
    refused.queue, refused.result = "orders", "unknown"
    events = [*without_pairing(), answered(NO_ACCESS), refused]

    assert judged(events, fault="unauthorized").ok

    given_up = Event("sender-0", "send", "s0-more", stories.ms(5), stories.ms(6))
    given_up.queue, given_up.result = "orders", "unknown"

    assert judged([*events, given_up], fault="unauthorized").reasons == [
        "Messages that no send was accepted for: 1."
    ]


def test_a_sick_primary_has_to_show_a_relapse() -> None:
    events = stories.events()
    calm = [event for event in events if event.state != "relapsed"]

    [reason] = judged(calm, fault="sick").reasons

    assert reason.startswith("No entity relapsed")
    assert judged(events, fault="sick").ok


def test_a_stall_may_end_before_any_entity_fails_over() -> None:
    assert judged(stories.events(), fault="stall").ok
    assert judged(without_pairing(), fault="stall").ok


def test_the_histories_of_all_processes_are_read(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with Recorder(tmp_path / f"{name}.jsonl") as recorder:
            recorder.finish(recorder.start(name, "drained", queue="q"))
    (tmp_path / "died").touch()

    assert [event.process for event in read_histories(tmp_path)] == ["a", "b"]
