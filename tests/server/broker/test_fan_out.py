"""Copies for many subscriptions: in bounded turns, in order, and each of them once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.server.broker.turn_site import NOW, Site, message, sending, text_of
from twinbus import limits
from twinbus.clock import Now
from twinbus.core.entity import (
    SubscriptionDescription,
)
from twinbus.core.filters import SqlFilter
from twinbus.core.rule import RuleDescription
from twinbus.server.broker.commands import Send
from twinbus.server.broker.sending.letter import Letter
from twinbus.server.broker.turn import Turn, Work, run
from twinbus.store.base import (
    TRANSFER_DEAD_LETTER,
    Stored,
)
from twinbus.store.records import Record
from twinbus.wire.message import sections


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path / "store")
    yield site
    site.store.close()


def fail_on(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a defect meet one message that was kept whole."""
    stored = Letter.stored

    def failing(message: Stored, wall_ms: int) -> Letter:
        if text_of(message) == text:
            raise ZeroDivisionError("a defect")
        return stored(message, wall_ms)

    monkeypatch.setattr(Letter, "stored", failing)


def test_a_batch_for_many_subscriptions_takes_several_turns(site: Site) -> None:
    topic = site.topic("t", 100)
    texts = [f"m{number}" for number in range(100)]

    first = site.turn(sending(topic, *texts))
    accepted = first.answers
    site.turns()

    assert accepted == [{}]
    assert first.tick_again
    # A message that was begun goes on to the end of the turn's work.
    most = 2 * limits.TURN_WORK_MAX + 2
    assert max(site.written) <= most
    assert sum(site.written) == 100 * 100
    assert site.store.counts(topic.id).scheduled == 0
    for subscription in topic.subscriptions.values():
        assert site.texts(subscription) == texts


def test_copies_to_many_subscriptions_count_by_what_they_cost(site: Site) -> None:
    topic = site.topic("t", 500)

    site.turn(sending(topic, *(f"m{number}" for number in range(10))))
    site.turns()

    # A look at the subscription for each copy, of which the first costs more.
    of_ten = 10 * (1 + limits.ROWS_OF_COPY) - limits.ROWS_OF_COPY
    of_ten += limits.ROWS_OF_FIRST_PUT
    assert max(site.written[1:]) <= 10 * (limits.TURN_WORK_MAX // of_ten + 1)
    assert sum(site.written) == 10 * 500


def test_messages_that_a_topic_keeps_whole_are_work_too(site: Site) -> None:
    topic = site.topic("t", 500)
    site.turn(sending(topic, *(f"m{number}" for number in range(10))))
    batches = [
        sending(topic, *(f"{batch}.{number}" for number in range(500)))
        for batch in range(4)
    ]

    site.store.begin()
    outcome = run(site.namespace, Work(NOW, batches))
    site.store.commit()

    # They are written in one go, so that each is a row.
    assert outcome.answers == [{}, {}, {}]


def test_messages_that_are_kept_whole_live_as_long_as_others(site: Site) -> None:
    topic = site.topic("t", 500)
    send = Send(topic)
    for ttl_ms in (None, 90_000, None, 60_000):
        sent = message("m")
        sent.ttl_ms = ttl_ms
        send.add([sent])

    site.turn(send)
    site.turns()

    ends = [NOW.wall_ms + 90_000, None, NOW.wall_ms + 60_000]
    for subscription in topic.subscriptions.values():
        copies = site.messages(subscription)
        assert [each.expires_ms for each in copies] == [None, *ends]


def test_a_topic_with_few_subscriptions_keeps_no_command_whole(site: Site) -> None:
    topic = site.topic("t", 2)
    send = Send(topic)
    for number in range(limits.SEND_DELIVERIES_MAX):
        send.add([message(f"m{number}")])

    site.store.begin()
    run(site.namespace, Work(NOW, [send]))
    site.store.commit()

    assert site.copies(topic) == 2 * limits.SEND_DELIVERIES_MAX


def test_a_topic_with_few_subscriptions_is_bounded_as_well(site: Site) -> None:
    topic = site.topic("t", 2)

    outcome = site.turn(sending(topic, *(f"m{number}" for number in range(4_000))))
    site.turns()

    assert outcome.tick_again
    of_message = 2 * (1 + limits.ROWS_OF_COPY)
    most = 2 * limits.TURN_WORK_MAX + limits.SMALL_TOPIC_WORK_MAX
    assert max(site.written) <= 2 * most / of_message
    assert sum(site.written) == 2 * 4_000


def test_others_are_served_between(site: Site) -> None:
    topic, queue = site.topic("t", 100), site.queue("q")
    site.turn(sending(topic, *(f"m{number}" for number in range(100))))

    outcome = site.turn(sending(queue, "between"))

    assert outcome.answers == [{}]
    assert outcome.tick_again
    assert site.texts(queue) == ["between"]


def test_later_messages_of_the_topic_come_after(site: Site) -> None:
    topic = site.topic("t", 100)
    site.turn(sending(topic, *(f"m{number}" for number in range(40))))

    site.turn(sending(topic, "late"))
    site.turns()

    assert {site.texts(each)[-1] for each in topic.subscriptions.values()} == {"late"}
    assert sum(site.written) == 41 * 100


def test_copies_of_a_group_are_kept_together(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement for each subscription and group, not for each copy."""
    topic = site.topic("t", 10)
    calls: list[int] = []
    append = site.store.append

    def counted(container: int, records: Sequence[Record], now: Now) -> int:
        calls.append(len(records))
        return append(container, records, now)

    monkeypatch.setattr(site.store, "append", counted)
    texts = [f"{number:03}" for number in range(300)]
    site.turn(sending(topic, *texts))
    site.turns()

    assert site.copies(topic) == 3_000
    assert len(calls) < 200
    for subscription in topic.subscriptions.values():
        assert site.texts(subscription) == texts


def test_a_group_is_copied_by_subscriptions(site: Site) -> None:
    """So that what a subscription gets is written in one place, and in few rows."""
    topic = site.topic("t", 300)
    texts = [f"{number:03}" for number in range(100)]
    site.turn(sending(topic, *texts))
    counts: set[int] = set()

    while site.turn().tick_again:
        below = topic.subscriptions.values()
        counts |= {site.store.counts(each.id).active for each in below}

    # Some have all of them, one has a part, and the others those of the first turn.
    assert len(counts) < len(site.written) + 3
    for subscription in topic.subscriptions.values():
        assert site.texts(subscription) == texts


def test_a_group_goes_on_after_a_restart(site: Site) -> None:
    site.topic("t", 300)
    texts = [f"{number:03}" for number in range(100)]
    site.turn(sending(site.entity("t"), *texts))

    again = True
    while again:
        site.reopen()
        again = site.turn().tick_again

    for subscription in site.entity("t").subscriptions.values():
        assert site.texts(subscription) == texts


def test_a_subscription_that_goes_in_the_middle_of_a_group_leaves_the_others(
    site: Site,
) -> None:
    topic = site.topic("t", 300)
    texts = [f"{number:03}" for number in range(100)]
    site.turn(sending(topic, *texts))
    site.turn()
    (begun,) = (
        each
        for each in topic.subscriptions.values()
        if 10 < site.store.counts(each.id).active < 100
    )

    site.store.begin()
    site.namespace.entities.delete(begun.path, Turn(NOW))
    site.store.commit()
    site.turns()

    assert len(topic.subscriptions) == 299
    for subscription in topic.subscriptions.values():
        assert site.texts(subscription) == texts


def test_a_message_that_an_earlier_version_has_begun_goes_on(site: Site) -> None:
    """It kept the number of the message and the last subscription that had it."""
    topic = site.topic("t", 2_000)
    site.turn(sending(topic, "wide"))
    name = f"fan-out {topic.id}"
    last, subscription, _ = (site.store.setting(name) or "").split()
    site.store.begin()
    site.store.put_setting(name, f"{last} {subscription}")
    site.store.commit()

    site.turns()

    for each in topic.subscriptions.values():
        assert site.texts(each) == ["wide"]


def test_an_error_in_a_group_that_is_begun_doubles_no_copy(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = site.topic("t", 300)
    texts = [f"{number:03}" for number in range(100)]
    site.turn(sending(topic, *texts))
    site.turn()
    fail_on("050", monkeypatch)
    site.turns()

    for subscription in topic.subscriptions.values():
        found = site.texts(subscription)
        assert [text for text in found if text != "050"] == texts[:50] + texts[51:]
        assert found.count("050") <= 1
    assert site.store.counts(topic.id + TRANSFER_DEAD_LETTER).active == 1


def test_a_message_that_cannot_be_copied_fails_alone(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others of its group are copied, in order; it is set aside whole."""
    topic = site.topic("t", 10)
    texts = [f"{number:03}" for number in range(300)]
    fail_on("250", monkeypatch)
    site.turn(sending(topic, *texts))
    site.turns()

    texts.remove("250")
    for subscription in topic.subscriptions.values():
        assert site.texts(subscription) == texts
    assert site.store.counts(topic.id + TRANSFER_DEAD_LETTER).active == 1


def test_a_message_for_more_subscriptions_than_a_turn_writes(site: Site) -> None:
    """Also with restarts between, each gets one copy, with the number of the first."""
    site.topic("t", 2_000)
    site.turn(sending(site.entity("t"), "wide"))

    site.reopen()
    site.turn()
    site.reopen()
    site.turns()

    copies = [site.messages(each) for each in site.entity("t").subscriptions.values()]
    assert [len(each) for each in copies] == [1] * 2_000
    assert {each[0].origin for each in copies} == {1}
    assert len(site.written) > 2


def test_filters_are_work_too(site: Site) -> None:
    topic = site.topic("t", 20)
    costly = SqlFilter(" OR ".join(["sys.Label LIKE '%a_z%'"] * 8))
    site.store.begin()
    for subscription in topic.subscriptions.values():
        rule = RuleDescription("costly", costly)
        site.namespace.entities.add_rule(subscription, rule, 0)
    site.store.commit()
    fields = {sections.SUBJECT: "a" * 5_000}
    send = Send(topic)
    send.add([sections.parse(sections.encode_message(b"", fields))])

    site.turn(send)
    site.turns()

    # 40,000 steps for each subscription; the rule that each has from the beginning
    # makes its copy.
    assert site.written == [6, 3, 3, 3, 3, 2]


def test_simple_rules_are_work_too(site: Site) -> None:
    topic = site.topic("t", 1)
    (subscription,) = topic.subscriptions.values()
    site.store.begin()
    for number in range(200):
        rule = RuleDescription(f"{number}", SqlFilter(f"x = {number}"))
        site.namespace.entities.add_rule(subscription, rule, 0)
    site.store.commit()

    site.turn(sending(topic, *(f"m{number}" for number in range(500))))
    site.turns()

    rows_of_message = 200 * limits.FILTER_STEPS_OF_RULE / limits.FILTER_STEPS_PER_ROW
    assert max(site.written) <= 2 * limits.TURN_WORK_MAX / rows_of_message
    assert sum(site.written) == 500


def test_topics_take_turns(site: Site) -> None:
    topics = [site.topic("a", 500), site.topic("b", 500)]
    for topic in topics:
        site.turn(sending(topic, *(f"m{number}" for number in range(50))))
    before = [site.copies(topic) for topic in topics]

    for _ in range(2):
        site.turn()

    after = [site.copies(topic) for topic in topics]
    assert all(one < other for one, other in zip(before, after, strict=True))
    assert max(after) < 50 * 500


def test_a_subscription_that_goes_meanwhile_is_passed_over(site: Site) -> None:
    topic = site.topic("t", 2_000)
    site.turn(sending(topic, "wide"))
    gone = [each for each in topic.subscriptions.values() if not site.messages(each)]

    site.store.begin()
    for each in gone[:100]:
        site.namespace.entities.delete(each.path, Turn(NOW))
    site.store.commit()
    site.turns()

    assert len(topic.subscriptions) == 1_900
    assert all(site.texts(each) == ["wide"] for each in topic.subscriptions.values())


def test_a_topic_that_goes_meanwhile_takes_its_messages_along(site: Site) -> None:
    topic = site.topic("t", 2_000)
    site.turn(sending(topic, "wide"))

    site.store.begin()
    site.namespace.delete(topic.path, Turn(NOW))
    site.store.commit()
    site.turns()

    assert site.store.postponed(0, 1, 1) == []


def test_a_message_on_its_way_cannot_be_cancelled(site: Site) -> None:
    """Cancelling is for scheduled messages; this one was accepted to be delivered."""
    topic = site.topic("t", 2_000)
    site.turn(sending(topic, "wide"))
    (waiting,) = site.store.postponed(0, 10, 1)

    site.store.begin()
    cancelled = site.namespace.cancel(topic, [waiting.sequence])
    site.store.commit()
    site.turns()

    assert not cancelled
    assert site.copies(topic) == 2_000


def test_what_is_forwarded_is_bounded(site: Site) -> None:
    """Two topics that forward to each other stop after so many hops."""
    site.topic("back", 0)
    there = site.topic("there", 600, forward_to="back")
    site.store.begin()
    again = SubscriptionDescription("back", "s", forward_to="there")
    site.namespace.entities.create(again, 0)
    site.store.commit()

    site.turn(sending(there, "round"))
    site.turns()

    assert site.store.postponed(0, 1, 1) == []
    buried = sum(
        site.store.counts(each.id + 2).active for each in site.namespace.entities
    )
    assert 0 < buried < 2 * limits.FORWARD_COPIES_MAX


def test_copies_of_a_group_are_bounded_message_by_message(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy and the one that is forwarded are two: three subscriptions make six.

    Messages of a group in which a turn has ended are counted anew.
    """
    monkeypatch.setattr(limits, "FORWARD_COPIES_MAX", 5)
    monkeypatch.setattr(limits, "FAN_OUT_MESSAGES_MAX", 5)
    queue = site.queue("q")
    topic = site.topic("t", 10, forward_to="q")

    first = site.turn(sending(topic, *(f"m{number}" for number in range(500))))
    site.turns()

    assert first.tick_again
    forwarded = site.store.counts(queue.id).active
    assert 500 * 3 <= forwarded <= 500 * 4
    buried = (each.id + TRANSFER_DEAD_LETTER for each in topic.subscriptions.values())
    left = sum(site.store.counts(each).active for each in buried)
    assert left == 500 * 10 - forwarded
