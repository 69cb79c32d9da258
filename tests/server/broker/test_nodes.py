"""Two nodes of one namespace: what the rules of one know of the other."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests.postgres import shared_server
from tests.store.test_postgres import Shared
from twinbus.clock import Now
from twinbus.core.entity import QueueDescription
from twinbus.errors import EntityExists
from twinbus.server.broker.crossing.outbox import ApplyPosted, TakePosted
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.directory.shards import Shards
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.server.setup.namespaces import close_all, open_namespace
from twinbus.store.opening import DatabaseUrl
from twinbus.wire.message import sections

T = TypeVar("T")

START_MS = 1_700_000_000_000
MINUTE_MS = 60_000


@pytest.fixture
def nodes() -> Iterator[tuple[Namespace, Namespace]]:
    shared = Shared(shared_server().new_database())
    stores = shared.node(), shared.node()
    yield Namespace("contoso", stores[0]), Namespace("contoso", stores[1])
    for store in stores:
        store.close()


def tick(node: Namespace, now_ms: int) -> None:
    """A turn that looks at time, and catches up with the other node."""
    node.store.begin()
    if node.store.changed_elsewhere():
        node.catch_up()
    node.ticker.tick(Turn(Now.at(now_ms)))
    node.store.commit()
    node.undo_log.clear()


def test_an_entity_with_consumers_at_another_node_is_not_idle(
    nodes: tuple[Namespace, Namespace],
) -> None:
    first, second = nodes
    idle = QueueDescription("orders", auto_delete_on_idle_ms=5 * MINUTE_MS)
    first.store.begin()
    queue = first.entities.create(idle, START_MS)
    first.store.commit()
    first.in_use = {queue.id: 1}

    for minute in range(20):
        for node in nodes:
            tick(node, START_MS + minute * MINUTE_MS)
    assert second.entities.find("orders") is not None

    first.in_use = {}
    for minute in range(20, 40):
        for node in nodes:
            tick(node, START_MS + minute * MINUTE_MS)
    assert first.entities.find("orders") is None
    assert second.entities.find("orders") is None


# -- several shards ------------------------------------------------------------------

SHARDS = 3


@pytest.fixture
def sharded() -> Iterator[tuple[Shards, Shards]]:
    """Two nodes of a namespace with several shards; neither hears news."""
    url = DatabaseUrl(shared_server().new_database())
    nodes = tuple(open_namespace(url, "contoso", wanted=SHARDS) for _ in range(2))
    first, second = (node.shards for node in nodes)
    yield first, second
    close_all(first)
    close_all(second)


def named(prefix: str, shard: int) -> str:
    """A name that belongs to a shard."""
    names = (f"{prefix}{number}" for number in range(1_000))
    return next(name for name in names if zlib.crc32(name.encode()) % SHARDS == shard)


def turn_of(node: Namespace, command: Callable[[Namespace, Turn], T]) -> T:
    """A turn of one shard of a node, which catches up in that shard alone."""
    node.store.begin()
    if node.store.changed_elsewhere():
        node.catch_up()
    result = command(node, Turn(Now.at(START_MS)))
    node.store.commit()
    node.undo_log.clear()
    return result


def make(shards: Shards, description: QueueDescription) -> None:
    shard = shards.place(description.key)
    turn_of(shards[shard], lambda n, _turn: n.entities.create(description, START_MS))


def test_all_nodes_make_an_entity_in_the_same_shard(
    sharded: tuple[Shards, Shards],
) -> None:
    first, second = sharded
    for shard in reversed(range(SHARDS)):
        name = named("orders", shard)
        make(first, QueueDescription(name))

        assert second.find(name) is None
        with pytest.raises(EntityExists):
            make(second, QueueDescription(name))
        found = second.find(name)
        assert found is not None
        assert found.shard == shard


@pytest.mark.parametrize(
    ("parted", "carried"), [(False, False), (True, False), (True, True)]
)
def test_a_message_goes_on_to_an_entity_that_only_another_node_knows(
    sharded: tuple[Shards, Shards], parted: bool, carried: bool
) -> None:
    first, second = sharded
    source, target = named("from", 0), named("to", 1)
    make(first, QueueDescription(target, enable_partitioning=parted))
    if carried:
        carry(first, 1)
    make(first, QueueDescription(source, forward_to=target))

    def send(namespace: Namespace, turn: Turn) -> None:
        entity = namespace.entities.find(source)
        assert entity is not None
        # The key of a message for the fragment in shard 2.
        fields = {sections.GROUP_ID: named("s", 1)}
        message = sections.parse(sections.encode_message(b"a", fields))
        namespace.send(entity, [message], turn)

    turn_of(second[0], send)
    # In that shard the node still has not heard of it.
    assert second[1].entities.find(target) is None
    carry(second, 0)
    carry(second, 1)

    counts = [
        (each.shard, first[each.shard].store.counts(each.id).active)
        for each in caught_up(first, target)
    ]
    # The home is the first of the fragments, so shard 2 has the second.
    assert dict(counts) == ({1: 0, 2: 1, 0: 0} if parted else {1: 1})


def carry(shards: Shards, source: int) -> None:
    """Carry what a shard has posted for others."""
    for target in set(range(SHARDS)) - {source}:
        posted = turn_of(shards[source], TakePosted(target, 0))
        turn_of(shards[target], ApplyPosted(source, posted))


def caught_up(shards: Shards, key: str) -> list[Entity]:
    for namespace in shards:
        turn_of(namespace, lambda _namespace, _turn: None)
    entity = shards.find(key)
    assert entity is not None
    return shards.fragments(entity)
