"""A namespace in four shards: where entities are, what crosses, and a shard away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.server.broker.sharded_site import SHARDS, ShardedSite, sharded
from twinbus import limits
from twinbus.core.entity import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.core.names import EntityPath
from twinbus.errors import EntityExists, EntityNotFound, ShardAway, StoreFault
from twinbus.server.broker.commands import MessageWant, SharedCredit
from twinbus.server.broker.directory import maintenance
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Room, Turn
from twinbus.server.http.admin.descriptions import shown_megabytes
from twinbus.store.base import Lock, Stored
from twinbus.wire.message import sections

BODIES = [f"m{number}" for number in range(50)]


@pytest.fixture
async def site() -> AsyncIterator[ShardedSite]:
    async with sharded(None) as running:
        yield running


async def make(site: ShardedSite, *names: str) -> None:
    """Queues, each in the next shard."""
    for shard, name in enumerate(names):
        await site.create(QueueDescription(name), shard)


# -- places ----------------------------------------------------------------------------


async def test_new_entities_go_where_least_is(site: ShardedSite) -> None:
    for number in range(SHARDS):
        await site.create(QueueDescription(f"q{number}"))
    assert sorted(site.find(f"q{k}").shard for k in range(SHARDS)) == [0, 1, 2, 3]

    # Bytes count before entities: shard 0 and 1 hold messages now.
    await site.send("q0", *BODIES)
    await site.send("q1", *BODIES)
    await site.create(QueueDescription("next"))
    assert site.find("next").shard not in {site.find("q0").shard, site.find("q1").shard}


async def test_a_subscription_is_where_its_topic_is(site: ShardedSite) -> None:
    await site.create(TopicDescription("events"), shard=2)
    await site.create(SubscriptionDescription("events", "all"))

    assert site.find("events/subscriptions/all").shard == 2
    await site.send("events", "hello")
    assert await site.bodies("events/subscriptions/all") == ["hello"]


async def test_a_name_is_taken_in_all_shards(site: ShardedSite) -> None:
    await site.create(QueueDescription("orders"), shard=3)

    for shard in range(SHARDS):
        with pytest.raises(EntityExists):
            await site.create(TopicDescription("Orders"), shard)


async def test_a_configuration_is_spread_and_found_again(tmp_path: Path) -> None:
    queues = tuple(QueueDescription(f"q{k}") for k in range(8))
    forward = QueueDescription("in", forward_to="q7")
    config = NamespaceConfig("contoso", queues=(*queues, forward))
    async with sharded(tmp_path, config) as site:
        before = {
            each.key: each.shard for each in site.first.namespace.shards.entities()
        }
        assert {list(before.values()).count(shard) for shard in range(SHARDS)} == {2, 3}

    async with sharded(tmp_path, config, shards=None) as site:
        after = {
            each.key: each.shard for each in site.first.namespace.shards.entities()
        }
    assert after == before


# -- what crosses ----------------------------------------------------------------------


async def test_forwarding_crosses_once_and_in_order(site: ShardedSite) -> None:
    await make(site, "a", "b")
    await site.create(QueueDescription("c", forward_to="a"), shard=2)
    await site.create(QueueDescription("d", forward_to="c"), shard=3)

    await site.send("d", *BODIES)
    await site.settle()

    assert await site.bodies("a") == BODIES
    assert await site.bodies("c") == await site.bodies("d") == []
    stored = (await site.kept("a"))[0]
    assert stored.origin == 1
    for host in site.hosts:
        assert all(not each.rows for each in host.namespace.store.outbox().values())


async def test_a_copy_of_a_topic_crosses(site: ShardedSite) -> None:
    await make(site, "a")
    await site.create(TopicDescription("events"), shard=1)
    forwards = SubscriptionDescription("events", "away", forward_to="a")
    await site.create(forwards)
    await site.create(SubscriptionDescription("events", "here"))

    await site.send("events", *BODIES)
    await site.settle()

    assert await site.bodies("a") == BODIES
    assert await site.bodies("events/subscriptions/here") == BODIES


async def test_dead_letters_cross_with_their_source(site: ShardedSite) -> None:
    await make(site, "graves")
    forwards = QueueDescription("work", forward_dead_lettered_messages_to="graves")
    await site.create(forwards, shard=1)
    await site.send("work", "bad")

    def bury(namespace: Namespace, turn: Turn) -> None:
        entity = namespace.entities.find("work")
        assert entity is not None
        until_ms = turn.now.steady_ms + 1000
        nonce, (stored,) = namespace.store.lock(entity.id, 1, until_ms, turn.now)
        namespace.dead_letter(Lock(stored.id, nonce), {"why": "bad"}, turn)

    await site.run("work", bury)
    await site.settle()

    (stored,) = await site.kept("graves")
    assert stored.source == "work"
    assert sections.read_application_properties(stored.bare) == {"why": "bad"}


async def test_what_cannot_arrive_comes_back(site: ShardedSite) -> None:
    await make(site, "full")
    await site.create(QueueDescription("in", forward_to="full"), shard=1)
    await site.send("full", "before")

    # Deleted after the message was posted: the source learns of it when it arrives.
    def delete(namespace: Namespace, turn: Turn) -> None:
        namespace.delete(EntityPath("full"), turn)

    site.hosts[0].mover = site.hosts[1].mover = None
    await site.send("in", "late")
    await site.run("full", delete)
    for host in site.hosts[:2]:
        host.mover = site.hosts[2].mover
    assert site.first.mover is not None
    await site.settle()

    (stored,) = await site.kept("in/$Transfer/$DeadLetterQueue")
    marks = sections.read_application_properties(stored.bare)
    assert marks["DeadLetterReason"] == "EntityNotFound"
    assert await site.bodies("in/$Transfer/$DeadLetterQueue") == ["late"]


async def test_hops_count_across_shards(site: ShardedSite) -> None:
    names = [f"h{k}" for k in range(limits.FORWARD_HOPS_MAX + 2)]
    await site.create(QueueDescription(names[-1]), shard=0)
    for place, name in reversed(list(enumerate(names[:-1]))):
        forwards = QueueDescription(name, forward_to=names[place + 1])
        await site.create(forwards, shard=(place + 1) % SHARDS)

    await site.send(names[0], "far")
    await site.settle()

    assert await site.bodies(names[-1]) == []
    last = names[limits.FORWARD_HOPS_MAX]
    assert await site.bodies(f"{last}/$Transfer/$DeadLetterQueue") == ["far"]


async def test_a_time_to_live_goes_on_between_shards(site: ShardedSite) -> None:
    await make(site, "a")
    ttl_ms = 10_000
    source = QueueDescription(
        "in", forward_to="a", default_message_time_to_live_ms=ttl_ms
    )
    await site.create(source, shard=1)
    before_ms = site.clock.now().wall_ms
    fields = {sections.MESSAGE_ID: "m"}
    message = sections.parse(sections.encode_message(b"x", fields, ttl_ms=ttl_ms))
    site.hosts[1].mover = None
    entity = site.find("in")
    await site.run("in", lambda n, t: list(n.send(entity, [message], t)))
    site.clock.advance(4_000)
    site.hosts[1].mover = site.hosts[0].mover
    await site.settle()

    (stored,) = await site.kept("a")
    assert stored.expires_ms == before_ms + ttl_ms


# -- a shard that is away --------------------------------------------------------------


async def fill(tmp_path: Path) -> None:
    async with sharded(tmp_path) as site:
        await make(site, "q0", "q1", "q2", "q3")
        for name in ("q0", "q1", "q2", "q3"):
            await site.send(name, f"in {name}")
        await site.settle()


def hide(folder: Path) -> Path:
    return folder.rename(folder.with_name(f"{folder.name}.away"))


async def test_a_shard_that_is_away_keeps_its_names(tmp_path: Path) -> None:
    await fill(tmp_path)
    away = hide(tmp_path / "contoso" / "shard-2")

    async with sharded(tmp_path, shards=None) as site:
        assert site.find("q2").shard == 2
        with pytest.raises(StoreFault, match="Shard 2 of the namespace is not open"):
            await site.send("q2", "x")
        with pytest.raises(StoreFault):
            await site.create(QueueDescription("q2"))
        with pytest.raises(EntityExists):
            await site.create(QueueDescription("q2"), shard=1)
        assert await site.bodies("q1") == ["in q1"]
        await site.create(QueueDescription("new"))
        assert site.find("new").shard != 2

        # It comes back, and the same entity goes on: links hold it.
        entity = site.find("q2")
        away.rename(tmp_path / "contoso" / "shard-2")
        await site.hosts[2].recovery.attempt()
        assert site.find("q2") is entity
        assert await site.bodies("q2") == ["in q2"]


async def test_without_shard_0_unknown_names_are_not_denied(tmp_path: Path) -> None:
    await fill(tmp_path)
    file = tmp_path / "contoso" / "messages.db"
    hidden = hide(file)

    async with sharded(tmp_path, shards=None) as site:
        shards = site.first.namespace.shards
        assert await site.bodies("q1") == ["in q1"]
        with pytest.raises(ShardAway):
            shards.get(EntityPath("q0"))
        with pytest.raises(ShardAway):
            await site.create(QueueDescription("q0"))
        # Keys of the namespace still work.
        assert [rule.name for rule in site.first.namespace.rules_of("")]

        hidden.rename(file)
        await site.first.recovery.attempt()
        assert await site.bodies("q0") == ["in q0"]
        with pytest.raises(EntityNotFound):
            shards.get(EntityPath("q9"))


async def test_what_is_for_an_absent_shard_waits(tmp_path: Path) -> None:
    async with sharded(tmp_path) as site:
        await site.create(QueueDescription("a"), shard=1)
        await site.create(QueueDescription("b"), shard=2)
        await site.create(QueueDescription("to-a", forward_to="a"), shard=3)
        await site.create(QueueDescription("to-b", forward_to="b"), shard=3)
        await site.settle()
    away = hide(tmp_path / "contoso" / "shard-1")

    async with sharded(tmp_path, shards=None) as site:
        await site.send("to-a", *BODIES)
        await site.send("to-b", *BODIES)
        await site.settle()
        assert await site.bodies("b") == BODIES
        outbox = site.hosts[3].namespace.store.outbox()
        assert outbox[1].rows == len(BODIES)

        away.rename(tmp_path / "contoso" / "shard-1")
        await site.hosts[1].recovery.attempt()
        await site.settle()
        assert await site.bodies("a") == BODIES


# -- partitioned entities --------------------------------------------------------------


def fragments_of(site: ShardedSite, name: str) -> list[int]:
    entity = site.find(name)
    return [each.shard for each in site.first.namespace.shards.fragments(entity)]


async def test_a_partitioned_entity_has_a_fragment_in_every_shard(
    tmp_path: Path,
) -> None:
    async with sharded(tmp_path) as site:
        await site.create(QueueDescription("q", enable_partitioning=True), shard=2)
        await site.create(TopicDescription("t", enable_partitioning=True), shard=1)
        await site.create(SubscriptionDescription("t", "s"))
        await site.settle()
        assert fragments_of(site, "q") == [2, 3, 0, 1]
        assert fragments_of(site, "t/subscriptions/s") == [1, 2, 3, 0]
        bases = {each.shard: each.number_base for each in every(site, "q")}
        assert bases == {2: 0, 3: 1 << 48, 0: 2 << 48, 1: 3 << 48}

    # The list does not grow with the shards.
    async with sharded(tmp_path, shards=6) as site:
        assert fragments_of(site, "q") == [2, 3, 0, 1]
        assert len(list(site.first.namespace.shards.entities())) == 3


def every(site: ShardedSite, name: str) -> list[Entity]:
    return site.first.namespace.shards.fragments(site.find(name))


async def test_fragments_follow_changes_and_deletion(site: ShardedSite) -> None:
    description = QueueDescription("q", enable_partitioning=True)
    await site.create(description, shard=1)
    changed = replace(description, max_delivery_count=3)

    def update(namespace: Namespace, turn: Turn) -> None:
        namespace.entities.update(changed, turn)

    await site.run("q", update)
    await site.settle()
    assert [each.max_delivery_count for each in every(site, "q")] == [3, 3, 3, 3]

    def delete(namespace: Namespace, turn: Turn) -> None:
        namespace.delete(EntityPath("q"), turn)

    await site.run("q", delete)
    await site.settle()
    for host in site.hosts:
        assert host.namespace.entities.find("q") is None
        assert await host.run(lambda n, _turn: n.store.entities()) == []
    assert await site.first.run(lambda n, _turn: n.store.mirrored()) == []


async def test_an_entity_with_the_name_of_a_deleted_one_stays(
    site: ShardedSite,
) -> None:
    await site.create(QueueDescription("q", enable_partitioning=True), shard=2)
    await site.settle()
    mover = site.first.mover
    for host in site.hosts:
        host.mover = None
    for host in site.hosts:
        await host.run(maintenance.delete_all)
    await site.create(QueueDescription("q"), shard=1)

    # What shard 2 has said of the old one arrives late.
    for host in site.hosts:
        host.mover = mover
    await site.settle()

    assert site.find("q").shard == 1


async def test_rules_of_a_partitioned_topic_work_in_each_fragment(
    site: ShardedSite,
) -> None:
    await site.create(TopicDescription("t", enable_partitioning=True), shard=1)
    await site.create(SubscriptionDescription("t", "s"))

    def change(namespace: Namespace, turn: Turn) -> None:
        entity = namespace.entities.get(EntityPath("t", "s"))
        namespace.entities.remove_rule(entity, "$Default", turn.now.wall_ms)

    await site.run("t/subscriptions/s", change)
    await site.settle()

    assert [list(each.rules) for each in every(site, "t/subscriptions/s")] == [[]] * 4


async def test_forwarding_to_a_partitioned_queue_keeps_a_session_together(
    site: ShardedSite,
) -> None:
    sessions = QueueDescription("q", enable_partitioning=True, requires_session=True)
    await site.create(sessions, shard=0)
    await site.create(QueueDescription("in", forward_to="q"), shard=1)
    await site.settle()
    for number in range(20):
        await site.send("in", *BODIES[:3], session=f"s{number}")
    await site.settle()

    places: dict[str | None, set[int]] = {}
    for entity in every(site, "q"):
        host = site.hosts[entity.shard]
        kept = await host.run(partial(peek_all, entity))
        for stored in kept:
            places.setdefault(stored.session, set()).add(entity.shard)
    assert len(places) == 20
    assert all(len(shards) == 1 for shards in places.values())
    assert set.union(*places.values()) == {0, 1, 2, 3}
    assert site.first.namespace.shards.counts(site.find("q")).active == 60


def peek_all(entity: Entity, namespace: Namespace, turn: Turn) -> list[Stored]:
    return namespace.store.peek(entity.id, 1, 1000, turn.now, None)


async def test_a_fragment_without_messages_lets_the_others_look_again(
    site: ShardedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.create(QueueDescription("q", enable_partitioning=True), shard=0)
    await site.settle()
    empty, full = every(site, "q")[:2]
    credit = SharedCredit()
    credit.set(1)
    room = Room()
    wants = [
        MessageWant(1, each.id, each, room, 1, shared_credit=credit)
        for each in (empty, full)
    ]
    store = site.hosts[empty.shard].namespace.store
    lock = store.lock
    missed: list[object] = []

    def lock_meanwhile(*given: Any) -> Any:
        # The turn of the other fragment comes while this one has the credit.
        other = site.hosts[full.shard].namespace
        missed.append(wants[1].take(other, Turn(site.clock.now()), 10))
        return lock(*given)

    monkeypatch.setattr(store, "lock", lock_meanwhile)
    host = site.hosts[empty.shard]
    taken = await host.run(lambda n, t: wants[0].take(n, t, 10))

    assert missed == [None]
    assert taken is not None
    assert (list(taken.messages), taken.missed) == ([], True)


async def test_the_size_that_is_shown_is_the_size_of_all_fragments(
    site: ShardedSite,
) -> None:
    description = QueueDescription(
        "q", enable_partitioning=True, max_size_in_megabytes=1024
    )
    await site.create(description, shard=1)
    await site.settle()

    shown = shown_megabytes(description, len(site.find("q").fragments))
    assert sum(each.size_bytes_max for each in every(site, "q")) == shown << 20
