"""What is shown while a drill runs follows from what its processes say."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from tests.drill import stories
from twinbus.drill.plan import ENTITIES, PLACES, Wishes, make_plan
from twinbus.drill.report.summary import repeat
from twinbus.drill.scene import Scene
from twinbus.drill.screen import LineScreen, duration, final_table, view_of


def said(states: dict[str, str] | None = None, accepted: int = 10) -> dict[str, Any]:
    return {
        "accepted": dict.fromkeys(ENTITIES, accepted),
        "held": 2,
        "failed": 0,
        "states": states or dict.fromkeys(ENTITIES, "healthy"),
        "done": False,
        "over": [path for path, state in (states or {}).items() if "over" in state],
    }


@pytest.fixture
def scene() -> Scene:
    found = Scene(make_plan(Wishes(seed=1)))
    found.begin("start")
    return found


def test_numbers_are_added_over_all_processes(scene: Scene) -> None:
    scene.sender_says("sender-0", said())
    scene.sender_says("sender-1", said())
    scene.receiver_says("receiver-0", {"received": {"orders": 5}, "pings": 0})
    scene.receiver_says("receiver-1", {"received": {"orders": 6}, "pings": 1})

    assert scene.accepted == 2 * 10 * len(ENTITIES)
    assert scene.received == 11
    assert scene.held == 4
    assert scene.pings == 1


def test_a_topic_counts_the_deliveries_of_its_subscriptions(scene: Scene) -> None:
    received = dict.fromkeys(PLACES, 7)
    scene.receiver_says("receiver-0", {"received": received, "pings": 0})

    by_path = {line.path: line.received for line in scene.entities()}

    assert by_path["orders"] == 7
    assert by_path["events"] == 14


def test_an_entity_has_failed_over_when_every_sender_says_so(scene: Scene) -> None:
    over = dict.fromkeys(ENTITIES, "failed over")
    scene.sender_says("sender-0", said(over))
    scene.sender_says("sender-1", said({**over, "orders": "suspect"}))

    assert scene.not_yet_over() == ["orders"]
    assert scene.entities()[0].state == "failed over 1/2"

    scene.sender_says("sender-1", said(over))

    assert scene.not_yet_over() == []
    assert scene.not_yet_back() == list(ENTITIES)


def test_an_entity_on_probation_has_failed_over(scene: Scene) -> None:
    line = said(dict.fromkeys(ENTITIES, "probation"))
    line["over"] = list(ENTITIES)
    scene.sender_says("sender-0", line)

    assert scene.not_yet_over() == []
    assert scene.not_yet_back() == list(ENTITIES)
    assert not scene.traffic_is_over()

    # Without further sends, it stays on probation.
    scene.sender_says("sender-0", {**line, "done": True})

    assert scene.not_yet_back() == []
    assert scene.traffic_is_over()


def test_no_state_is_known_before_the_first_event(scene: Scene) -> None:
    assert scene.not_yet_back() == scene.not_yet_over() == list(ENTITIES)


def test_a_sender_that_has_ended_is_not_waited_for(scene: Scene) -> None:
    scene.sender_says("sender-0", said(dict.fromkeys(ENTITIES, "suspect")))
    scene.sender_says("sender-1", said())

    scene.forget_sender("sender-0")

    assert scene.not_yet_back() == []
    assert scene.accepted == 2 * 10 * len(ENTITIES)


def test_rates_are_those_of_the_last_seconds(scene: Scene) -> None:
    for second in range(11):
        scene.now = float(second)
        scene.sender_says("sender-0", said(accepted=second * second))
        scene.sample({})

    sent, received = scene.rates()

    assert sent == pytest.approx((100 - 49) * len(ENTITIES) / 3)
    assert received == 0


def test_the_time_that_is_left_shrinks(scene: Scene) -> None:
    whole = scene.eta_seconds()
    scene.now = 5.0
    scene.begin("healthy")
    scene.traffic_at = 5.0
    scene.now = 15.0

    left = scene.eta_seconds()

    assert whole is not None
    assert left == pytest.approx(whole - 10)


def test_the_remaining_time_is_unknown_before_spark_starts(scene: Scene) -> None:
    scene.traffic_at = 0.0
    scene.begin("home")
    assert scene.eta_seconds() is None

    scene.spark_seconds = 20.0
    scene.now = 100.0
    scene.begin("home")

    assert scene.eta_seconds() == pytest.approx(23.0)


def test_the_view_fits_a_small_terminal(scene: Scene) -> None:
    for number in range(3):
        states = dict.fromkeys(ENTITIES, "suspect" if number else "failed over")
        scene.sender_says(f"sender-{number}", said(states, accepted=123_456))
    scene.receiver_says(
        "receiver-0", {"received": dict.fromkeys(PLACES, 123_456), "pings": 0}
    )
    scene.sample({0: 0, 1: 12_345, 2: 6_000, 3: 0})
    scene.spark = "Spark was ready after 11.2 s"
    out = io.StringIO()

    Console(file=out, width=80, height=24).print(view_of(scene))

    lines = out.getvalue().splitlines()
    assert len(lines) <= 23
    assert max(map(len, lines)) <= 80
    assert "failed over 1/3" in out.getvalue()
    assert "12,345" in out.getvalue()


def test_progress_for_machines_is_one_object_per_line(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = LineScreen(as_json=True)

    screen.show(scene)
    screen.show(scene)
    scene.now = 2.0
    screen.show(scene)

    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["progress"]["at"] for line in lines] == [0.0, 2.0]


def test_progress_for_people_tells_every_part(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = LineScreen(as_json=False)

    screen.show(scene)
    scene.now = 1.0
    scene.begin("outage")
    screen.show(scene)

    captured = capsys.readouterr()
    assert "the primary has its fault" in captured.err
    assert captured.out == ""


def test_a_time_is_told_in_minutes_and_seconds() -> None:
    assert duration(61.4) == "1:01"
    assert duration(None) == "-"


def test_the_final_table_says_all_figures() -> None:
    from tests.drill.test_report import summary

    out = io.StringIO()

    Console(file=out, width=100).print(final_table(summary()))

    assert "Nothing was lost" in out.getvalue()
    assert "pings that a receiver saw" in out.getvalue()


@pytest.mark.parametrize(
    "wishes",
    [
        Wishes(seed=5),
        Wishes(seed=5, fault="cut", senders=2, seconds=20),
        Wishes(seed=5, messages=500, syphon="application"),
        Wishes(seed=5, messages=20_000, cast="some.package"),
        Wishes(seed=5, fault="random", seconds=20),
    ],
)
def test_the_command_that_repeats_a_drill_plans_the_same_one(wishes: Wishes) -> None:
    plan = make_plan(wishes)
    words = repeat(plan).split()
    given: dict[str, Any] = dict(
        zip((word.removeprefix("--") for word in words[2::2]), words[3::2], strict=True)
    )
    for name, kind in (("seed", int), ("messages", int), ("senders", int)):
        if name in given:
            given[name] = kind(given[name])
    if "seconds" in given:
        given["seconds"] = float(given["seconds"])

    assert make_plan(Wishes(**given)) == plan
    assert stories.plan() != plan
