"""Held sends: in order, and bounded."""

from __future__ import annotations

import pytest

from tests.pairing.rules.one_entity import Call
from twinbus import limits
from twinbus.errors import BusyError
from twinbus.pairing.errors import TooManyHeldSends
from twinbus.pairing.rules.holding import HoldBudget, Line


def test_held_sends_keep_their_order() -> None:
    line = Line(HoldBudget())
    places = [line.join(Call(name), 1) for name in "abc"]
    line.pass_on(places[0])

    order = []
    assert line.from_the_head() is places[0]
    while line.turn is not None:
        order.append(line.turn.call)
        line.leave(line.turn)

    assert order == [Call("a"), Call("b"), Call("c")]
    assert line.from_the_head() is None


def test_only_the_place_with_the_turn_passes_it_on() -> None:
    line = Line(HoldBudget())
    first, second, third = (line.join(Call(name), 1) for name in "abc")

    assert line.turn is first
    assert line.leave(second) is None
    assert line.leave(first) is third
    assert line.leave(third) is None
    assert line.turn is None


def test_the_turn_goes_round() -> None:
    line = Line(HoldBudget())
    first, second = line.join(Call("a"), 1), line.join(Call("b"), 1)

    assert line.pass_on(second) is None
    assert line.pass_on(first) is second
    assert line.pass_on(second) is first


def test_a_place_that_is_alone_keeps_the_turn() -> None:
    line = Line(HoldBudget())
    place = line.join(Call("a"), 1)

    assert line.pass_on(place) is None
    assert line.turn is place


def test_a_place_that_joins_again_stands_where_it_stood() -> None:
    line = Line(HoldBudget())
    first, second = line.join(Call("a"), 1), line.join(Call("b"), 1)
    line.leave(first)
    line.join(Call("c"), 1)

    assert line.join(Call("a"), 1, first) is first

    assert [place.call for place in line] == [Call("a"), Call("b"), Call("c")]
    assert line.turn is second
    assert line.from_the_head() is first


def test_held_sends_are_bounded_in_number() -> None:
    budget = HoldBudget(sends_max=2)
    one, other = Line(budget), Line(budget)
    place = one.join(Call("a"), 10)
    other.join(Call("b"), 10)

    with pytest.raises(TooManyHeldSends, match="2 sends of 20 bytes") as caught:
        other.join(Call("c"), 10)

    assert isinstance(caught.value, BusyError)
    assert (caught.value.held, caught.value.held_bytes) == (2, 20)
    one.leave(place)
    other.join(Call("c"), 10)


def test_held_sends_are_bounded_in_bytes() -> None:
    line = Line(HoldBudget(bytes_max=100))
    line.join(Call("a"), 60)

    with pytest.raises(TooManyHeldSends):
        line.join(Call("b"), 41)

    line.join(Call("b"), 40)


def test_the_bounds_are_ten_thousand_sends_and_64_megabytes() -> None:
    assert limits.HELD_SENDS_MAX == 10_000
    assert limits.HELD_BYTES_MAX == 64 * 1024 * 1024
