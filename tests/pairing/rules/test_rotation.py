"""Backlog queues: chosen by chance, kept, taken out for all, and back by themselves."""

from __future__ import annotations

from random import Random

from twinbus.errors import RemoteError
from twinbus.pairing.events import EventKind
from twinbus.pairing.rules.classification import Failure
from twinbus.pairing.rules.decisions import Decision, ProbeQueue, Tell, Wake
from twinbus.pairing.rules.rotation import Rotation, SenderChoice

T0 = 1_700_000_000_000
GONE = RemoteError("amqp:not-found")


def make(count: int = 3, seed: int = 1) -> Rotation:
    return Rotation("contoso", range(count), Random(seed).randrange)


def told(decisions: list[Decision]) -> list[tuple[EventKind, str]]:
    return [
        (each.event.kind, each.event.path)
        for each in decisions
        if isinstance(each, Tell)
    ]


def fail(rotation: Rotation, index: int, now_ms: int = T0) -> list[Decision]:
    return rotation.failed(index, Failure.MISSING, GONE, now_ms)


def test_each_sender_picks_one_queue_at_random() -> None:
    rotation = make(10)

    picked = {SenderChoice(rotation).queue() for _ in range(200)}

    assert picked == set(range(10))


def test_a_sender_stays_with_its_queue() -> None:
    choice = SenderChoice(make(10))

    assert len({choice.queue() for _ in range(50)}) == 1


def test_only_the_usable_indexes_are_picked() -> None:
    rotation = Rotation("contoso", {2, 5}, Random(1).randrange)

    assert {rotation.pick() for _ in range(50)} == {2, 5}


def test_a_queue_that_fails_is_out_for_every_sender() -> None:
    rotation = make(2)
    senders = [SenderChoice(rotation) for _ in range(20)]
    for sender in senders:
        sender.queue()

    decisions = fail(rotation, 0)

    assert {sender.queue() for sender in senders} == {1}
    assert told(decisions) == [
        (EventKind.BACKLOG_QUEUE_OUT, "contoso/x-servicebus-transfer/0")
    ]


def test_a_sender_stays_with_the_queue_that_it_had_to_move_to() -> None:
    rotation = make(2)
    choice = SenderChoice(rotation)
    first = choice.queue()
    assert first is not None
    fail(rotation, first)
    second = choice.queue()

    rotation.probe_ended(first, None, T0 + 5_000)

    assert choice.queue() == second != first


def test_when_no_queue_is_left_the_last_error_is_known() -> None:
    rotation = make(2)
    fail(rotation, 0)
    last = RemoteError("amqp:internal-error")
    rotation.failed(1, Failure.SERVICE, last, T0)

    assert SenderChoice(rotation).queue() is None
    assert rotation.last_cause is last


def test_a_queue_taken_out_is_probed_after_five_seconds() -> None:
    decisions = fail(make(), 0)

    assert ProbeQueue(0, T0 + 5_000) in decisions


def test_sends_that_fail_together_take_a_queue_out_once() -> None:
    rotation = make()
    fail(rotation, 0)

    assert fail(rotation, 0, T0 + 1) == []


def test_a_queue_comes_back_by_itself() -> None:
    rotation = make(1)
    fail(rotation, 0)

    decisions = rotation.probe_ended(0, None, T0 + 5_000)

    assert rotation.pick() == 0
    assert told(decisions) == [
        (EventKind.BACKLOG_QUEUE_IN, "contoso/x-servicebus-transfer/0")
    ]


def test_the_pause_doubles_from_five_seconds_to_five_minutes() -> None:
    rotation = make(1)
    fail(rotation, 0)
    pauses = []
    now_ms = T0 + 5_000
    for _ in range(8):
        (probe,) = rotation.probe_ended(0, GONE, now_ms)
        assert isinstance(probe, ProbeQueue)
        pauses.append((probe.at_ms - now_ms) // 1000)
        now_ms = probe.at_ms

    assert pauses == [10, 20, 40, 80, 160, 300, 300, 300]


def test_a_queue_that_only_the_probe_likes_is_probed_less_and_less() -> None:
    rotation = make(1)
    fail(rotation, 0)
    rotation.probe_ended(0, None, T0 + 5_000)

    decisions = fail(rotation, 0, T0 + 6_000)

    assert ProbeQueue(0, T0 + 16_000) in decisions


def test_a_queue_that_took_a_message_is_as_good_as_new() -> None:
    rotation = make(1)
    fail(rotation, 0)
    rotation.probe_ended(0, None, T0 + 5_000)
    rotation.accepted(0)

    assert ProbeQueue(0, T0 + 11_000) in fail(rotation, 0, T0 + 6_000)


def test_a_busy_queue_is_not_probed_before_ten_seconds() -> None:
    decisions = make().failed(0, Failure.BUSY, GONE, T0)

    assert ProbeQueue(0, T0 + 10_000) in decisions


def test_a_probe_of_a_queue_that_is_in_is_ignored() -> None:
    assert make().probe_ended(0, GONE, T0) == []


class Call:
    """A call that waits."""

    def wake(self) -> None:
        raise AssertionError("the rules wake nothing themselves")


def probes(decisions: list[Decision]) -> list[ProbeQueue]:
    return [each for each in decisions if isinstance(each, ProbeQueue)]


def test_while_a_call_waits_queues_are_probed_every_second() -> None:
    rotation = make(2)
    for index in (0, 1):
        fail(rotation, index)
    now_ms = T0 + 100

    planned = rotation.wait(Call(), now_ms)
    pauses = []
    for _ in range(8):
        now_ms += 1_000
        (probe,) = probes(rotation.probe_ended(0, GONE, now_ms))
        pauses.append(probe.at_ms - now_ms)

    assert planned == [ProbeQueue(0, T0 + 1_100), ProbeQueue(1, T0 + 1_100)]
    assert pauses == [1_000] * 8


def test_a_queue_that_is_back_wakes_the_calls_in_their_order() -> None:
    rotation = make(2)
    for index in (0, 1):
        fail(rotation, index)
    first, second, gone = Call(), Call(), Call()
    for call in (first, gone, second):
        rotation.wait(call, T0)
    rotation.forget(gone)

    decisions = rotation.probe_ended(1, None, T0 + 1_000)

    assert decisions[1:] == [Wake(first), Wake(second)]
    assert told(decisions) == [
        (EventKind.BACKLOG_QUEUE_IN, "contoso/x-servicebus-transfer/1")
    ]
    # Without a call that waits, the pause is the usual one again.
    assert probes(rotation.probe_ended(0, GONE, T0 + 1_001)) == [
        ProbeQueue(0, T0 + 11_001)
    ]


def test_a_probe_that_is_planned_sooner_or_under_way_is_left_alone() -> None:
    rotation = make(2)
    for index in (0, 1):
        fail(rotation, index)
    rotation.wait(Call(), T0)

    assert rotation.wait(Call(), T0 + 500) == []
    assert rotation.wait(Call(), T0 + 1_500) == []


def test_a_probe_that_another_one_has_replaced_plans_no_third() -> None:
    rotation = make(1)
    fail(rotation, 0)
    rotation.wait(Call(), T0)
    rotation.probe_ended(0, GONE, T0 + 4_500)

    assert rotation.probe_ended(0, GONE, T0 + 5_000) == []


def test_a_busy_queue_is_left_alone_for_ten_seconds_whatever_waits() -> None:
    rotation = make(1)
    rotation.failed(0, Failure.BUSY, GONE, T0)

    assert rotation.wait(Call(), T0 + 1) == []
    assert rotation.status()[0].probe_ms == T0 + 10_000


def test_status_tells_the_state_of_every_queue() -> None:
    rotation = make(2)
    rotation.accepted(1, 7)
    fail(rotation, 0)

    out, working = rotation.status()

    assert out.path == "contoso/x-servicebus-transfer/0"
    assert (out.usable, out.probe_ms) == (False, T0 + 5_000)
    assert "amqp:not-found" in (out.last_cause or "")
    assert (working.usable, working.accepted, working.last_cause) == (True, 7, None)


def test_queues_that_are_found_later_are_picked_and_wake_the_calls() -> None:
    rotation = make(0)
    call = Call()
    assert rotation.wait(call, T0) == []

    assert rotation.add([1]) == [Wake(call)]

    assert rotation.pick() == 1


def test_a_queue_that_is_known_already_stays_out() -> None:
    rotation = make(1)
    fail(rotation, 0)
    call = Call()
    rotation.wait(call, T0)

    assert rotation.add([0]) == []

    assert rotation.pick() is None
