"""No turn does more than its share of work; what is left goes on in the next ones."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from tests.server.broker.turn_site import NOW, Site, sending
from twinbus import limits
from twinbus.errors import EntityNotFound
from twinbus.server.broker.directory import maintenance
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn, Work, run
from twinbus.store.records import Record


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path / "store")
    yield site
    site.store.close()


def test_a_deleted_entity_is_emptied_soon(site: Site) -> None:
    queue = filled(site, "q", 5_000)
    site.store.begin()
    work = Work(NOW, [lambda namespace, turn: namespace.delete(queue.path, turn)])

    outcome = run(site.namespace, work)

    assert outcome.tick_again


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
