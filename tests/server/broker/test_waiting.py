"""Commands that wait: clients take turns, and a costly one lets the others go on."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from twinbus import limits
from twinbus.clock import Now
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.submissions import (
    UNHEARD,
    CommandOwner,
    Submission,
    Waiting,
    in_fair_order,
)
from twinbus.server.broker.turn import Turn, TurnOutcome
from twinbus.store.opening import open_store


def _turn() -> Turn:
    return Turn(Now.at(1_700_000_000_000))


class _Client:
    """Who owns commands (`submissions.Owner`)."""

    costly = False


def _submitted(owner: CommandOwner | None, name: str) -> Submission:
    return Submission(lambda _namespace, _turn: name, UNHEARD, 0, owner)


def _names(submissions: Sequence[Submission]) -> list[str]:
    return [
        each.command(Namespace("contoso", open_store(None)), _turn())
        for each in submissions
    ]


def _outcome(*costs: int, tick_again: bool = False) -> TurnOutcome:
    return TurnOutcome([None for _ in costs], [*costs], [], _turn(), tick_again, None)


def test_one_command_of_each_client_comes_first() -> None:
    busy, calm = _Client(), _Client()
    waiting = [_submitted(busy, f"busy {number}") for number in range(3)]
    waiting += [_submitted(calm, "calm"), _submitted(None, "alone")]

    ordered = in_fair_order(waiting)

    assert _names(ordered) == ["busy 0", "calm", "alone", "busy 1", "busy 2"]


def _waiting(*submissions: Submission) -> Waiting:
    waiting = Waiting()
    for each in submissions:
        waiting.add(each)
    return waiting


def test_a_costly_command_waits_while_others_go_on() -> None:
    costly, calm = _Client(), _Client()
    waiting = _waiting(_submitted(costly, "costly"), _submitted(calm, "calm"))
    taken = waiting.take(now=10.0)
    waiting.note(taken, _outcome(limits.COSTLY_WORK, 1), begun=10.0, now=10.04)

    # As long as its turn took.
    waiting.put_back(taken)
    assert waiting.pause_seconds(10.041) == 0
    assert _names(waiting.take(now=10.041)) == ["calm"]
    assert waiting.is_quick
    assert waiting.pause_seconds(10.041) == pytest.approx(0.039)
    waiting.add(_submitted(calm, "calm again"))
    assert _names(waiting.take(now=10.075)) == ["calm again"]
    waiting.add(_submitted(calm, "calm once more"))
    assert waiting.pause_seconds(10.08) == 0
    assert _names(waiting.take(now=10.081)) == ["costly", "calm once more"]
    assert not waiting.is_quick


def test_a_pause_has_an_end() -> None:
    costly = _Client()
    waiting = _waiting(_submitted(costly, "costly"), _submitted(None, "other"))
    taken = waiting.take(now=1.0)

    waiting.note(taken, _outcome(limits.COSTLY_WORK, 1), begun=1.0, now=9.0)
    waiting.add(_submitted(costly, "costly"))

    pause = waiting.pause_seconds(9.0)
    assert pause == pytest.approx(limits.COSTLY_PAUSE_SECONDS_MAX)


def test_a_costly_client_alone_does_not_wait() -> None:
    costly = _Client()
    waiting = _waiting(_submitted(costly, "first"))
    taken = waiting.take(now=1.0)

    waiting.note(taken, _outcome(limits.COSTLY_WORK), begun=1.0, now=1.05)
    waiting.add(_submitted(costly, "second"))

    assert costly.costly
    assert waiting.pause_seconds(1.05) == 0
    assert _names(waiting.take(now=1.05)) == ["second"]


def test_a_client_is_no_longer_costly_after_a_cheap_command() -> None:
    client = _Client()
    client.costly = True
    waiting = _waiting(_submitted(client, "cheap"))

    waiting.note(waiting.take(now=1.0), _outcome(1), begun=1.0, now=1.001)

    assert client.costly is False


def test_what_time_left_over_waits_while_others_go_on() -> None:
    waiting = _waiting(_submitted(None, "calm"))
    taken = waiting.take(now=1.0)
    waiting.note(taken, _outcome(1, tick_again=True), begun=1.0, now=1.02)

    assert waiting.pause_seconds(1.02) == pytest.approx(0.02)
    waiting.add(_submitted(None, "calm"))
    waiting.take(now=1.02)
    assert waiting.is_quick
    waiting.take(now=1.041)
    assert not waiting.is_quick


def test_bytes_that_wait_are_counted_for_commands_that_are_left_out() -> None:
    costly = _Client()
    waiting = _waiting(_submitted(costly, "costly"), _submitted(None, "calm"))
    taken = waiting.take(now=1.0)
    waiting.note(taken, _outcome(limits.COSTLY_WORK, 1), begun=1.0, now=1.04)
    for size_bytes, owner in ((100, costly), (10, None)):
        waiting.add(Submission(lambda _n, _t: None, UNHEARD, size_bytes, owner))

    waiting.take(now=1.04)

    assert waiting.size_bytes == 100
