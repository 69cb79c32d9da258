"""Levels, shares and denials, with time that the test moves."""

from __future__ import annotations

import pytest

from twinbus import limits
from twinbus.core.entity import QueueDescription
from twinbus.server.broker.commands import Send
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.load.facets import (
    FREE,
    FULL,
    SHARED,
    Facet,
    Load,
    Shares,
    Thresholds,
)
from twinbus.server.broker.submissions import UNHEARD, Submission

LOOK_MS = round(limits.LOAD_LOOK_SECONDS * 1000)
MIB = 1 << 20


def queue(number: int, name: str) -> Entity:
    return Entity(number, "queue", name, QueueDescription(name), 0, 0)


FLOODER, NEIGHBOUR = queue(1, "flooder"), queue(2, "neighbour")


class Site:
    """The load of a shard, and its time."""

    def __init__(self, *process: Facet) -> None:
        self.load = Load(Thresholds(), process)
        self.now_ms = 1_000

    def turn(self, seconds: float, sends: dict[Entity, int] | None = None) -> None:
        """A turn with one send of so many bytes to each entity."""
        submissions = []
        for entity, size_bytes in (sends or {}).items():
            send = Send(entity)
            send.add([])
            submissions.append(Submission(send, UNHEARD, size_bytes, None))
        self.load.took(submissions, sum(each.size_bytes for each in submissions))
        self.load.committed(seconds)

    def look(self, times: int = 1, pending_bytes: int = 0) -> int:
        for _ in range(times):
            self.now_ms += LOOK_MS
            self.load.look(self.now_ms, pending_bytes)
        return self.load.level

    def slow(self, seconds: float, times: int = 20) -> int:
        """Commits that all take so long, with much from one and little from another."""
        for _ in range(times):
            self.turn(seconds, {FLOODER: MIB, NEIGHBOUR: 1000})
            self.look()
        return self.load.level


# -- facets ------------------------------------------------------------------------


def test_a_level_is_reached_at_once_and_left_after_some_time_well_below() -> None:
    facet = Facet("lag", "s", 1, 4)
    facet.set(4, 0)
    assert facet.level == FULL

    facet.set(3.9, 2_000)
    assert facet.level == FULL, "not below the part at which a level is left"
    facet.set(2.7, 2_500)
    assert facet.level == FULL, "not for long enough"
    facet.set(2.7, 3_000)
    assert facet.level == SHARED
    facet.set(0.6, 3_500)
    assert facet.level == SHARED
    facet.set(0.6, 4_000)
    assert facet.level == FREE


def test_a_single_sample_reaches_the_first_level_at_most() -> None:
    facet = Facet("lag", "s", 1, 4)

    facet.smooth(3600, 0)

    assert facet.level == SHARED
    facet.smooth(3600, 250)
    assert facet.level == FULL


def test_a_facet_without_a_threshold_has_no_level() -> None:
    facet = Facet("lag", "s", 0)

    facet.set(1e9, 0)

    assert facet.level == FREE
    assert facet.figures() == {"value": 1e9, "level": 0, "limits": [None, None]}


# -- commit latency ----------------------------------------------------------------


def test_slow_commits_reach_both_levels_and_fast_ones_leave_them() -> None:
    site = Site()
    assert site.slow(0.02) == FREE
    assert site.slow(0.5) == SHARED
    assert site.slow(1.5) == FULL
    assert site.slow(0.02) == FREE


def test_one_slow_commit_among_fast_ones_throttles_nothing() -> None:
    site = Site()
    site.slow(0.01)

    site.turn(0.9, {FLOODER: MIB})

    assert site.look() == FREE


def test_commits_without_sends_say_nothing_about_the_disk() -> None:
    site = Site()
    site.slow(0.5)

    for _ in range(20):
        site.turn(0)

    assert site.look() == SHARED


def test_sick_commits_are_never_throttled() -> None:
    site = Site()
    assert site.slow(2.9) == FULL

    site.turn(3.0, {FLOODER: MIB})
    assert site.look() == FREE
    # The first one after that counts alone.
    site.turn(0.01, {FLOODER: MIB})
    assert site.look() == FREE


def test_a_latency_without_further_sends_is_forgotten() -> None:
    site = Site()
    site.slow(1.5)

    assert site.look(4) == FULL
    assert site.look(40) == FREE


def test_a_latency_is_not_forgotten_while_a_commit_is_in_hand() -> None:
    site = Site()
    site.slow(1.5)
    send = Submission(Send(FLOODER), UNHEARD, 1, None)

    site.load.took([send], 1)

    assert site.look(40) == FULL


# -- bytes that wait ---------------------------------------------------------------


def test_bytes_that_wait_for_long_throttle_and_one_large_message_does_not() -> None:
    site = Site()
    site.look(1, 16 * MIB)
    assert site.load.level == FREE

    assert site.look(10, 17 * MIB) == SHARED
    assert site.look(10, 65 * MIB) == FULL
    assert site.look(20) == FREE


def test_bytes_that_wait_deny_only_while_they_wait() -> None:
    site = Site()
    site.turn(0, {FLOODER: MIB})
    site.look(10, 65 * MIB)

    assert site.load.denies(FLOODER, 16 * MIB)
    assert not site.load.denies(FLOODER, 16 * MIB - 1)


def test_facets_of_the_process_count_for_each_shard() -> None:
    memory = Facet("memory", "bytes", 90 * MIB, 100 * MIB)
    site = Site(memory)

    memory.set(100 * MIB, 0)

    assert site.look() == FULL
    error = site.load.deny(NEIGHBOUR, 10, 0)
    assert error is not None
    assert error.text == (
        "The server is busy: memory is 100.0 MiB, with a limit of 100.0 MiB. Wait 10 "
        "seconds and try again."
    )


# -- shares ------------------------------------------------------------------------


def test_above_its_share_is_what_has_more_than_an_equal_part() -> None:
    shares = Shares()
    shares.add(1, 2 * MIB)
    shares.add(2, MIB)
    shares.add(3, MIB)

    assert [shares.is_above(key) for key in (1, 2, 3, 4)] == [True, False, False, False]


def test_an_entity_alone_is_above_its_share_unless_it_has_little() -> None:
    shares = Shares()
    shares.add(1, limits.SHARE_BYTES_MIN // 2)
    assert not shares.is_above(1)

    shares.add(1, limits.SHARE_BYTES_MIN)

    assert shares.is_above(1)


def test_recent_load_fades() -> None:
    shares = Shares()
    shares.add(1, 8 * MIB)
    shares.add(2, MIB)

    shares.decay(limits.SHARE_HALF_LIFE_SECONDS * 4)
    shares.add(2, MIB)

    assert not shares.is_above(1)
    assert shares.is_above(2)


# -- denials -----------------------------------------------------------------------


def test_at_the_first_level_only_the_flooder_is_denied() -> None:
    site = Site()
    site.slow(0.5)

    error = site.load.deny(FLOODER, 100, 0)

    assert error is not None
    assert error.condition == "com.microsoft:server-busy"
    assert error.text == (
        "The server is busy: commit latency is 0.50 s, with a limit of 0.25 s and "
        "'flooder' gets more than its share. Wait 10 seconds and try again."
    )
    assert site.load.deny(NEIGHBOUR, 100, 0) is None
    assert site.load.deny_receiver() is None


def test_at_the_second_level_all_sends_and_new_receivers_are_denied() -> None:
    site = Site()
    site.slow(1.5)

    assert site.load.deny(NEIGHBOUR, 100, 0) is not None
    assert site.load.deny_receiver() is not None


def test_a_flooder_that_does_not_wait_stays_above_its_share() -> None:
    site = Site()
    site.slow(0.5)
    for _ in range(100):
        site.turn(0.5, {NEIGHBOUR: 1000})
        site.look()
        site.load.deny(FLOODER, MIB, 0)

    assert site.load.denies(FLOODER, 0)
    assert not site.load.denies(NEIGHBOUR, 0)


def test_denials_are_counted_by_facet() -> None:
    site, entity = Site(), queue(3, "counted")
    site.slow(1.5)

    for _ in range(3):
        site.load.deny(entity, 100, 0)

    assert entity.denied == {"commit_latency": 3}
    assert site.load.throttled_by() == [
        "commit latency is 1.50 s, with a limit of 1.00 s"
    ]
    figures = site.load.figures()
    assert figures["level"] == FULL
    assert figures["facets"]["commit_latency"]["value"] == pytest.approx(1.5, rel=0.01)
