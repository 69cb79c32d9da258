"""Two nodes of one namespace: what the rules of one know of the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres import shared_server
from tests.store.test_postgres import Shared
from twinbus.clock import Now
from twinbus.core.entity import QueueDescription
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn

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
