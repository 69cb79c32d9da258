"""A turn among those of other nodes: what they changed, and what they are told.

Owns what a host does beside `turn.run` where several nodes share a namespace: the time
comes from the database, the directory is read anew if another node has changed it, and
news are left for the others. With one node, only the machine's time is kept. Runs where
the turn runs, and knows nothing of links.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from twinbus import limits
from twinbus.errors import TwinbusError
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.namespace_clock import NamespaceClock
from twinbus.server.broker.turn import Turn, TurnOutcome, Work, run
from twinbus.store.base import SessionEnded, Store
from twinbus.store.nodes import News

if TYPE_CHECKING:
    from twinbus.server.broker.host import Host


def run_among_nodes(
    namespace: Namespace, clock: NamespaceClock, work: Work
) -> TurnOutcome:
    """Begin a transaction, run a turn in it, and leave the transaction open."""
    store = namespace.store
    store.begin()
    now = store.now()
    if now is None:
        clock_was_set = clock.keep(work.now)
    else:
        work.now = now
        clock_was_set = clock.follow(now)
    deleted = namespace.catch_up() if store.changed_elsewhere() else None
    posted = _posted(store)
    outcome = run(namespace, work)
    effects = outcome.effects
    if store.is_remote:
        store.announce(_news(effects))
        # What a node has posted is carried by that node. If it dies, time tells.
        outcome.carries = work.tick or _posted(store) != posted
    store.seal()
    if clock_was_set:
        # Claims end by the wall clock, and messages are due by it.
        effects.rules_changed = True
        outcome.tick_again = True
    if deleted is not None:
        effects.deleted += deleted
        effects.rules_changed = True
    return outcome


def _posted(store: Store) -> list[int]:
    """The last numbers that were given to parcels for other shards."""
    return [counts.last_number for counts in store.outbox().values()]


def _news(effects: Turn) -> News:
    ended = tuple((each.container, each.nonce) for each in effects.ended_sessions)
    return News(tuple(effects.ready), ended, tuple(effects.emptied))


class _Afterwards:
    """Goes on after a command, however it ended (`submissions.Reply`)."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def done(self, result: None) -> None:
        del result
        self._call()

    def failed(self, error: TwinbusError) -> None:
        del error
        self._call()


def look_again(host: Host, call: Callable[[], None]) -> bool:
    """Call after a turn of each shard, in which this node catches up with the others.

    For what was not found: another node may have made it just now. False if there are
    no others, and nothing is called.
    """
    if not host.namespace.store.is_remote:
        return False
    left = len(host.hosts)

    def one_done() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            call()

    for each in host.hosts:
        each.submit(_nothing, _Afterwards(one_done))
    return True


async def catch_up(host: Host) -> None:
    """Wait for such turns, where there are other nodes."""
    done = asyncio.Event()
    if look_again(host, done.set):
        await done.wait()


def _nothing(namespace: Namespace, turn: Turn) -> None:
    """Let a turn come (`turn.Command`)."""


def tick_seconds_max(store: Store) -> float:
    """How long a host may let time pass without a look at it."""
    return limits.SHARED_TICK_SECONDS if store.is_remote else limits.TICK_SECONDS_MAX


def as_effects(news: News, turn: Turn, wanted: Collection[int]) -> Turn:
    """What news of another node bring about, where those containers have wants."""
    ready = wanted if news.directory else news.ready
    turn.again = {key: None for key in ready if key in wanted}
    turn.ended_sessions = [
        SessionEnded(container, "", nonce, []) for container, nonce in news.ended
    ]
    turn.emptied = list(news.emptied)
    return turn
