"""The history checker convicts broken brokers and acquits sound ones.

A checker that never convicts proves nothing, so each defect of the model broker must be
seen, as the kind that it is. A checker that convicts the innocent is no better, so no
seed of the sound broker may be convicted.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.testing.clients import Run
from tests.testing.model import RULES
from twinbus.clock import ManualClock
from twinbus.testing.history import Event, QueueRules, Recorder, Rules, check, load

# What is wrong with the broker -> the kind that it must be convicted of.
DEFECTS = {
    "a message from nowhere": "phantom",
    "abandoned and deleted": "conservation",
    "accepted before it was synced": "lost",
    "accepted but dropped": "lost",
    "any token settles": "settle",
    "cancellation forgotten": "resurrected",
    "completed but kept": "resurrected",
    "completion not synced": "resurrected",
    "contents mixed up": "altered",
    "counted twice": "count",
    "counts forgotten": "count",
    "dead-lettered and lost": "conservation",
    "dead-lettered but kept": "duplicate",
    "dead-lettered one early": "count",
    "deferral forgotten": "settle",
    "deferred but delivered": "settle",
    "duplicates found by a short hash": "lost",
    "duplicates not found": "duplicate",
    "expired but delivered": "time",
    "expires too early": "lost",
    "fan-out misses a subscription": "lost",
    "link lost, message dropped": "conservation",
    "lock ends early": "overlap",
    "lock ignored": "overlap",
    "locks forgotten": "overlap",
    "log replayed twice": "duplicate",
    "never dead-lettered": "count",
    "next one settled": "lost",
    "not counted": "count",
    "not deleted on receipt": "resurrected",
    "number used twice": "order",
    "order not kept": "order",
    "refused but stored": "phantom",
    "renewal forgotten": "overlap",
    "schedule ignored": "time",
    "session given to two": "overlap",
    "session mixed up": "altered",
    "session open to a former holder": "overlap",
    "settlement refused": "settle",
    "stored twice": "duplicate",
    "window forgotten": "duplicate",
}
SEEDS_TO_CONVICT = 20


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_broken_broker_is_convicted(defect: str) -> None:
    kinds: set[str] = set()

    for seed in range(SEEDS_TO_CONVICT):
        kinds |= check(Run(seed, defect).events, RULES).broken.keys()
        if DEFECTS[defect] in kinds:
            break

    assert DEFECTS[defect] in kinds, f"{SEEDS_TO_CONVICT} seeds: {kinds or 'acquitted'}"


def _acquit(seeds: Iterable[int]) -> None:
    for seed in seeds:
        verdict = check(Run(seed).events, RULES)

        assert verdict.ok, f"seed {seed}: {verdict.text()}"


def test_a_sound_broker_is_acquitted() -> None:
    # In the last two the first of two holders is the last to hear of it.
    _acquit([*range(150), 8372, 17302])


@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_a_sound_broker_is_acquitted_over_many_seeds() -> None:
    _acquit(range(1000, 21_000))


def test_the_verdict_does_not_depend_on_the_order_of_clients() -> None:
    run = Run(7, "locks forgotten")
    by_client = sorted(run.events, key=lambda event: event.process)

    assert check(by_client, RULES).broken == check(run.events, RULES).broken


# -- where lost messages stood ---------------------------------------------------


def _sends(count: int) -> list[Event]:
    return [
        Event("p", "send", f"p-{number}", number * 10, number * 10 + 5, queue="q")
        for number in range(count)
    ]


def _look(*numbers: int) -> list[Event]:
    found = [
        Event("look", "drain", f"p-{number}", 999, 999, queue="q", sequence=number + 1)
        for number in numbers
    ]
    return [*found, Event("look", "drained", "", 999, 999, queue="q")]


@pytest.mark.parametrize(
    ("left", "part"),
    [((1, 2), "prefix"), ((0, 2), "middle"), ((0, 1), "postfix"), ((), "postfix")],
)
def test_a_lost_message_is_placed_among_its_producers(
    left: tuple[int, ...], part: str
) -> None:
    verdict = check([*_sends(3), *_look(*left)])

    assert verdict.broken == {"lost": 3 - len(left)}
    assert verdict.counts[f"lost_{part}"] == 3 - len(left)


def test_without_a_final_look_nothing_is_proved() -> None:
    assert check(_sends(2)).broken == {"incomplete": 1}


def test_an_unknown_send_that_arrives_is_recovered_not_phantom() -> None:
    sends = _sends(2)
    sends[1].result = "unknown"

    verdict = check([*sends, *_look(0, 1)])

    assert verdict.ok
    assert verdict.counts["recovered"] == 1


def test_a_broken_receive_and_delete_may_eat_what_it_asked_for() -> None:
    eaten = Event("c", "receive", "", 50, 60, "unknown", queue="q", credit=1)
    eaten.mode = "receive_and_delete"

    assert check([*_sends(2), eaten, *_look(0)]).ok
    assert check([*_sends(3), eaten, *_look(0)]).broken == {"lost": 1}


# -- locks without lock times ----------------------------------------------------


def _delivery(number: int, at: float, process: str = "c") -> Event:
    key = f"p-{number}"
    return Event(process, "receive", key, at, at + 1, queue="q", sequence=number + 1)


def test_a_second_delivery_needs_a_reason() -> None:
    deliveries = [_delivery(0, 100), _delivery(0, 200, "d")]

    verdict = check([*_sends(1), *deliveries, *_look(0)])

    assert verdict.broken == {"duplicate": 1}


@pytest.mark.parametrize(
    "reason",
    [
        Event("c", "abandon", "p-0", 150, 151, queue="q", sequence=1),
        Event("c", "complete", "p-0", 150, 151, "unknown", queue="q", sequence=1),
        Event("c", "detach", "", 150, 151),
        Event("nemesis", "restart", "", 150, 151),
    ],
    ids=lambda event: event.op,
)
def test_a_second_delivery_may_be_explained(reason: Event) -> None:
    deliveries = [_delivery(0, 100), reason, _delivery(0, 200, "d")]

    assert check([*_sends(1), *deliveries, *_look(0)]).ok


def test_strict_locks_do_not_accept_a_lost_link_as_a_reason() -> None:
    rules = Rules(default=QueueRules(strict_locks=True))
    restart = Event("nemesis", "restart", "", 150, 151)
    history = [*_sends(1), _delivery(0, 100), restart, _delivery(0, 200), *_look(0)]

    assert check(history, rules).broken == {"duplicate": 1}


@pytest.mark.parametrize(("early_ms", "convicted"), [(0, 0), (2, 0), (50, 1)])
def test_the_ends_of_locks_are_told_by_a_clock_that_is_slewed(
    early_ms: int, convicted: int
) -> None:
    rules = Rules(default=QueueRules(lock_ms=5000, strict_locks=True))
    first, second = _delivery(0, 100), _delivery(0, 5100)
    first.lock_until = 5100
    second.lock_until = 5100 - early_ms + 5000

    verdict = check([*_sends(1), first, second, *_look(0)], rules)

    assert verdict.broken.get("overlap", 0) == convicted


def test_repeated_settlements_may_succeed_but_not_differ() -> None:
    complete = Event("c", "complete", "p-0", 150, 151, queue="q", sequence=1)
    again = Event("c", "complete", "p-0", 160, 161, queue="q", sequence=1)
    changed = Event("c", "abandon", "p-0", 170, 171, queue="q", sequence=1)
    history = [*_sends(1), _delivery(0, 100), complete, again, *_look()]

    assert check(history).ok
    assert check([*history, changed]).broken == {"settle": 1}


def test_ordered_queues_need_no_sessions_to_be_judged() -> None:
    history = [*_sends(2), _delivery(1, 100), _delivery(0, 200), *_look(0, 1)]

    assert check(history).ok
    ordered = Rules(default=QueueRules(ordered=True))
    assert check(history, ordered).broken == {"order": 1}


# -- the verdict in words --------------------------------------------------------


def test_the_text_names_the_worst_first_and_a_few_examples() -> None:
    verdict = check([*_sends(30), *_look()])

    lines = verdict.text(examples=2).splitlines()
    assert lines[0].startswith("BROKEN: 30 attempted, 30 accepted")
    assert lines[1] == "  30 lost (accepted, and never seen again)"
    assert lines[2] == "    p-0 in q: accepted at 5 from p (postfix)"
    assert len(lines) == 4


def test_the_verdict_is_json_with_exact_counts() -> None:
    values = json.loads(check([*_sends(30), *_look()]).to_json())

    assert values["ok"] is False
    assert values["broken"] == {"lost": 30}
    assert values["findings"][0]["kind"] == "lost"
    assert len(values["findings"]) == 20


# -- the file --------------------------------------------------------------------


def test_what_was_recorded_is_read_again(tmp_path: Path) -> None:
    clock = ManualClock(1000)
    with Recorder(tmp_path / "history", clock) as recorder:
        event = recorder.start("p", "send", key="p-1", queue="q")
        clock.advance(5)
        done = recorder.finish(event, "fail", error="server-busy")

    assert load(tmp_path / "history") == [done]
    assert (done.invoke_at, done.end_at, done.result) == (1000, 1005, "fail")


def test_threads_do_not_mix_their_lines(tmp_path: Path) -> None:
    with Recorder(tmp_path / "history") as recorder:

        def write(process: str) -> None:
            for number in range(200):
                recorder.record(Event(process, "send", f"{process}-{number}"))

        threads = [threading.Thread(target=write, args=(f"p{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    keys = {event.key for event in load(tmp_path / "history")}
    assert keys == {f"p{n}-{number}" for n in range(4) for number in range(200)}


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    whole = Event("p", "send", "p-1")
    (tmp_path / "history").write_text(whole.to_json() + '\n{"process":"p","op"')

    assert load(tmp_path / "history") == [whole]


def test_an_announced_operation_without_an_end_is_unknown(tmp_path: Path) -> None:
    with Recorder(tmp_path / "history", ManualClock(1000)) as recorder:
        first = recorder.start("p", "send", key="p-1", queue="q")
        recorder.announce(first)
        recorder.finish(first)
        recorder.announce(recorder.start("p", "send", key="p-2", queue="q"))

    ends = {event.key: event for event in load(tmp_path / "history")}
    assert ends["p-1"].result == "ok"
    assert (ends["p-2"].result, ends["p-2"].end_at) == ("unknown", float("inf"))


@pytest.mark.parametrize("line", ["[]", '{"op":"fly"}', '{"op":"send"}', "{"])
def test_a_line_that_is_no_event_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"not a history event|Expecting"):
        Event.from_json(line)
