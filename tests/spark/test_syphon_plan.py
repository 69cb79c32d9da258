"""Which tasks come next, and how work is shared out."""

from __future__ import annotations

from collections import Counter

import pytest

from twinbus import limits
from twinbus.spark.syphon_job.driver import QueueState, due, shares, slices

LATER = limits.SYPHON_EMPTY_SECONDS


def test_the_deepest_queue_comes_first() -> None:
    states = {0: QueueState(5), 1: QueueState(90), 2: QueueState(30)}

    assert due(states, now=0.0) == [1, 2, 0]


def test_a_queue_that_was_found_empty_rests_while_others_work() -> None:
    states = {0: QueueState(9), 1: QueueState(0, has_more=False, empty_at=100.0)}

    assert due(states, now=100.0 + LATER - 1) == [0]
    assert due(states, now=100.0 + LATER) == [0, 1]


def test_every_queue_has_a_slice_and_the_deep_ones_have_more() -> None:
    found = slices({0: 1000, 1: 10, 2: 3000}, wanted=8)

    assert Counter(index for index, _ in found) == {0: 2, 1: 1, 2: 5}
    assert [number for index, number in found if index == 2] == [0, 1, 2, 3, 4]


def test_more_queues_than_slots_are_one_slice_each() -> None:
    assert slices({0: 5, 1: 5, 2: 5}, wanted=2) == [(0, 0), (1, 0), (2, 0)]


@pytest.mark.parametrize(
    ("most", "tasks", "expected"),
    [(10, 3, [4, 3, 3]), (None, 2, [None, None]), (1, 2, [1, 1]), (6, 1, [6])],
)
def test_a_limit_is_shared_among_the_tasks(
    most: int | None, tasks: int, expected: list[int | None]
) -> None:
    assert list(shares(most, tasks)) == expected
