"""No turn does more than its share of work; what is left goes on in the next ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from twinbus import limits
from twinbus.clock import Now
from twinbus.core.entity import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.core.filters import SqlFilter
from twinbus.core.rule import RuleDescription
from twinbus.errors import EntityNotFound
from twinbus.server.broker.commands import Send
from twinbus.server.broker.directory import maintenance
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.letter import Letter
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Command, Turn, TurnOutcome, Work, run
from twinbus.store.base import TRANSFER_DEAD_LETTER, Record, Stored
from twinbus.store.opening import open_store
from twinbus.wire.message import sections
from twinbus.wire.message.sections import Incoming

NOW = Now.at(1_700_000_000_000)


def message(text: str) -> Incoming:
    return sections.parse(
        sections.encode_message(text.encode(), {sections.MESSAGE_ID: text})
    )


def _turn() -> Turn:
    return Turn(NOW)


class Site:
    """A namespace in a file, and its turns."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.store = open_store(folder)
        self.namespace = Namespace("contoso", self.store)
        # Rows that each turn has written for subscriptions and queues.
        self.written: list[int] = []

    def topic(
        self, name: str, subscriptions: int, forward_to: str | None = None
    ) -> Entity:
        self.store.begin()
        topic = self.namespace.entities.create(TopicDescription(name), 0)
        for number in range(subscriptions):
            described = SubscriptionDescription(
                name, f"s{number}", forward_to=forward_to
            )
            self.namespace.entities.create(described, 0)
        self.store.commit()
        return topic

    def queue(self, name: str) -> Entity:
        self.store.begin()
        queue = self.namespace.entities.create(QueueDescription(name), 0)
        self.store.commit()
        return queue

    def turn(self, *commands: Command[Any]) -> TurnOutcome:
        before = self.kept()
        self.store.begin()
        outcome = run(self.namespace, Work(NOW, commands, tick=True))
        assert len(outcome.answers) == len(commands)
        self.store.commit()
        self.namespace.undo_log.clear()
        self.written.append(self.kept() - before)
        return outcome

    def turns(self) -> None:
        """Go on until time has nothing to do."""
        while self.turn().tick_again:
            pass

    def kept(self) -> int:
        return sum(
            self.store.counts(each.id).active
            for each in self.namespace.entities
            if each.kind != "topic"
        )

    def copies(self, topic: Entity) -> int:
        """How many messages the subscriptions of a topic have."""
        below = topic.subscriptions.values()
        return sum(self.store.counts(each.id).active for each in below)

    def texts(self, entity: Entity) -> list[str]:
        return [text_of(each) for each in self.messages(entity)]

    def messages(self, entity: Entity) -> list[Stored]:
        return self.store.peek(entity.id, 1, 10_000, NOW, None)

    def reopen(self) -> None:
        self.store.close()
        self.store = open_store(self.folder)
        self.namespace = Namespace("contoso", self.store)

    def entity(self, key: str) -> Entity:
        found = self.namespace.entities.find(key)
        assert found is not None
        return found


def text_of(stored: Stored) -> str:
    return str(sections.read_properties(stored.bare)[sections.MESSAGE_ID])


def sending(entity: Entity, *texts: str) -> Send:
    send = Send(entity)
    send.deliveries.append([message(text) for text in texts])
    return send


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path / "store")
    yield site
    site.store.close()


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

    # A look at the subscription and its first copy; for commands and for the tick.
    most = limits.TURN_WORK_MAX // (1 + limits.ROWS_OF_FIRST_PUT)
    assert max(site.written) <= 2 * (most + 1)
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
        send.deliveries.append([sent])

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
        send.deliveries.append([message(f"m{number}")])

    site.store.begin()
    run(site.namespace, Work(NOW, [send]))
    site.store.commit()

    assert site.copies(topic) == 2 * limits.SEND_DELIVERIES_MAX


def test_a_topic_with_few_subscriptions_is_bounded_as_well(site: Site) -> None:
    topic = site.topic("t", 2)

    outcome = site.turn(sending(topic, *(f"m{number}" for number in range(4_000))))
    site.turns()

    assert outcome.tick_again
    of_message = 2 * (1 + limits.ROWS_OF_PUT)
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


def test_a_message_that_cannot_be_copied_fails_alone(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others of its group are copied, in order; it is set aside whole."""
    topic = site.topic("t", 10)
    texts = [f"{number:03}" for number in range(300)]
    stored = Letter.stored

    def failing(message: Stored, wall_ms: int) -> Letter:
        if text_of(message) == "250":
            raise ZeroDivisionError("a defect")
        return stored(message, wall_ms)

    monkeypatch.setattr(Letter, "stored", failing)
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
    send.deliveries.append([sections.parse(sections.encode_message(b"", fields))])

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
        site.namespace.entities.delete(each.path, _turn())
    site.store.commit()
    site.turns()

    assert len(topic.subscriptions) == 1_900
    assert all(site.texts(each) == ["wide"] for each in topic.subscriptions.values())


def test_a_topic_that_goes_meanwhile_takes_its_messages_along(site: Site) -> None:
    topic = site.topic("t", 2_000)
    site.turn(sending(topic, "wide"))

    site.store.begin()
    site.namespace.delete(topic.path, _turn())
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


def test_a_deleted_entity_is_emptied_soon(site: Site) -> None:
    queue = filled(site, "q", 5_000)
    site.store.begin()
    work = Work(NOW, [lambda namespace, turn: namespace.delete(queue.path, turn)])

    outcome = run(site.namespace, work)

    assert outcome.tick_again


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


def filled(site: Site, name: str, count: int) -> Entity:
    queue = site.queue(name)
    site.store.begin()
    site.store.append(queue.id, [Record(b"", b"x")] * count, NOW)
    site.store.commit()
    return queue


def test_a_large_purge_takes_several_turns(site: Site) -> None:
    """It covers what was there when it began."""
    queue = filled(site, "q", 5_000)
    left: dict[int, int] | None = None
    purged = []

    while left is None or left:
        some = partial(maintenance.purge_some, queue.path, left)
        outcome = site.turn(sending(queue, "new"), some)
        count, left = outcome.answers[1]
        purged.append(count)

    assert max(purged) < limits.TURN_WORK_MAX + limits.PURGE_STEP
    # The first new one came before the purge began.
    assert sum(purged) == 5_001
    assert site.texts(queue) == ["new"] * (len(purged) - 1)


def test_what_a_deleted_entity_holds_goes_later(site: Site) -> None:
    queue = filled(site, "q", 5_000)
    stored = queue.id

    def delete(namespace: Namespace, turn: Turn) -> None:
        namespace.delete(queue.path, turn)

    site.turn(delete)

    assert site.namespace.entities.find("q") is None
    left = [site.store.counts(stored).active]
    site.queue("q")
    site.reopen()
    while site.turn().tick_again:
        left.append(site.store.counts(stored).active)
    # A new entity of that name has nothing to do with it.
    assert site.texts(site.entity("q")) == []
    steps = [before - after for before, after in pairwise(left)]
    assert 0 < max(steps) <= limits.TURN_WORK_MAX
    assert site.store.retired() == []
    with pytest.raises(EntityNotFound):
        site.store.counts(stored)


def test_commands_that_do_not_fit_wait_for_the_next_turn() -> None:
    site = Site(None)
    queue = site.queue("q")
    batches = [
        sending(queue, *(f"{batch}.{number}" for number in range(1_000)))
        for batch in range(3)
    ]

    site.store.begin()
    outcome = run(site.namespace, Work(NOW, batches))

    assert outcome.answers == [{}, {}]
