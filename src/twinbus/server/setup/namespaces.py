"""Opens a namespace with its shards, sets it up, and starts and stops their hosts.

Owns what happens when a shard cannot be opened: one of several stays away, and the rest
is served. Its entities are known from what shard 0 remembers of them, and the rules of
the namespace from a copy that every shard has.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

from twinbus import limits
from twinbus.clock import Clock, Now
from twinbus.core import names
from twinbus.core.tier import DEFAULT_TIER, NamespaceTier
from twinbus.errors import ConfigError, ShardAway, StoreFault, TwinbusError
from twinbus.server.broker.crossing.mover import Mover
from twinbus.server.broker.crossing.outbox import compare
from twinbus.server.broker.crossing.parcels import spooled_for
from twinbus.server.broker.crossing.spool import ShardSpool
from twinbus.server.broker.directory import keys
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.broker.directory.provision import bring_up, create_missing, plan
from twinbus.server.broker.directory.shards import Shards
from twinbus.server.broker.host import Host
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.store.base import EntityRow, Store
from twinbus.store.nodes import News
from twinbus.store.opening import DatabaseUrl
from twinbus.store.shards import OpenedShard, open_shards, open_shared_shards
from twinbus.store.stand_in import StandIn

log = logging.getLogger("twinbus.server")

# The setting of each shard with the tier of the namespace.
_TIER = "tier"


class OpenedNamespace(NamedTuple):
    """A namespace whose folders are open."""

    shards: Shards
    opened: Sequence[OpenedShard]

    @property
    def first(self) -> Namespace:
        """The shard that keeps the namespace's own rows."""
        return self.shards[0]


def open_namespace(
    data: Path | DatabaseUrl | None,
    name: str,
    rate: int | None = None,
    reserve_bytes: int | None = None,
    wanted: int | Sequence[Path] | None = None,
) -> OpenedNamespace:
    """Open a namespace's folder or database, which is made if it is not there.

    Without `data` it lives in memory. `wanted` is the number of shards or the folder of
    each. The caller closes it (`close_all`). `ConfigError` if another process has the
    folder. See `open_store` for the reserve.
    """
    names.check_namespace_name(name)
    count = wanted if isinstance(wanted, int) else None
    folders = None if isinstance(wanted, int) else wanted
    if isinstance(data, DatabaseUrl):
        if folders:
            raise ConfigError(
                f"The configuration names folders for the shards of {name}, which are "
                "in a --database. Give their number."
            )
        opened = open_shared_shards(data, name, count)
    else:
        # Names of hosts have no case, so neither do the folders.
        folder = None if data is None else data / name.lower()
        opened = open_shards(folder, count, folders, reserve_bytes)
    shards = Shards()
    try:
        known = _mirrored(opened[0].store)
        for each in opened:
            store = each.store
            if store is None:
                text = ShardAway(each.number).text
                store = cast("Store", StandIn(known.get(each.number, []), text))
            namespace = Namespace(name, store, rate=rate, shards=shards)
            namespace.is_away = namespace.is_stopped = each.store is None
        shards.tier = _remembered_tier(shards)
        _check_names(shards)
        for namespace in shards:
            if not namespace.is_away:
                _compare(namespace)
    except BaseException:
        for each in opened:
            if each.store is not None:
                each.store.close()
        raise
    if shards[0].is_away:
        shards[0].rules = next((each.rules for each in shards if each.rules), [])
    return OpenedNamespace(shards, opened)


def _mirrored(store: Store | None) -> dict[int, list[EntityRow]]:
    """What shard 0 remembers of the entities of the others."""
    known: dict[int, list[EntityRow]] = {}
    for each in [] if store is None else store.mirrored():
        known.setdefault(each.shard, []).append(each.entity)
    return known


def _remembered_tier(shards: Shards) -> NamespaceTier:
    """The tier that the namespace had, from the first shard that says it."""
    kept = (each.store.setting(_TIER) for each in shards)
    text = next((text for text in kept if text is not None), None)
    return DEFAULT_TIER if text is None else NamespaceTier(text)


def _compare(namespace: Namespace) -> None:
    """Look for older copies; a store that takes no writes does it when it recovers."""
    try:
        compare(namespace)
    except StoreFault as fault:
        log.warning("shard %d takes nothing: %s", namespace.shard, fault.text)
        namespace.is_stopped = True


def _check_names(shards: Shards) -> None:
    """Refuse a namespace in which two shards have an entity of the same name."""
    where: dict[str, int] = {}
    for entity in shards.entities():
        other = where.setdefault(entity.key, entity.shard)
        if other != entity.shard:
            raise ConfigError(
                f"'{entity.name}' is in shard {other} and in shard {entity.shard}. One "
                "of the two was made while the other shard was away. Stop, move the "
                "folder of one of them aside, and delete the entity in the other."
            )


def close_all(shards: Shards) -> None:
    """Close the stores of a namespace."""
    for namespace in shards:
        namespace.store.close()


# -- setting up ------------------------------------------------------------------------


def set_up(shards: Shards, config: NamespaceConfig, now: Now) -> None:
    """Make the keys and entities that a namespace must have, all or nothing.

    With several shards that is all or nothing in each; what is missing after a crash is
    made at the next start.
    """
    begun = _begin(shards)
    first = shards[0]
    turn = Turn(first.store.now() or now)
    try:
        for namespace in shards:
            namespace.config = config
        shards.tier = config.tier or shards.tier
        for each in begun:
            each.store.put_setting(_TIER, shards.tier.value)
        if first in begun:
            _set_up_first(first, begun, turn)
        parts = plan(shards, config)
        made = {
            each.shard: create_missing(each, parts[each.shard], turn) for each in begun
        }
        for each in begun:
            bring_up(each, parts[each.shard], made[each.shard], turn)
        _check_tier(shards)
        while begun:
            begun[0].store.commit()
            begun.pop(0).undo_log.clear()
    except BaseException:
        for each in begun:
            with contextlib.suppress(StoreFault):
                each.store.rollback()
        raise


def _check_tier(shards: Shards) -> None:
    """Refuse a smaller tier than entities need that the configuration leaves alone."""
    for entity in shards.entities():
        if not shards.tier.allows(entity.description):
            raise ConfigError(
                f"'{entity.name}' needs the tier premium, since it takes messages of "
                f"{entity.message_bytes_max >> 10} KB. Serve the namespace with --tier "
                "premium, set max_message_size_in_kilobytes of the entity to "
                f"{limits.MESSAGE_KILOBYTES_DEFAULT}, or delete it."
            )


def _begin(shards: Shards) -> list[Namespace]:
    """Begin a transaction in each shard that takes one."""
    begun: list[Namespace] = []
    for namespace in shards:
        try:
            if not namespace.is_stopped:
                namespace.store.begin()
                begun.append(namespace)
                if namespace.store.changed_elsewhere():
                    namespace.reload()
        except StoreFault as fault:
            if len(shards) == 1:
                raise
            text = fault.text
            log.warning("shard %d takes nothing: %s", namespace.shard, text)
            namespace.is_stopped = True
    return begun


def _set_up_first(first: Namespace, begun: Sequence[Namespace], turn: Turn) -> None:
    wall_ms = turn.now.wall_ms
    first.change_rules(lambda store: keys.ensure_root(store, wall_ms), turn)
    first.note_created(wall_ms)
    # A shard that is new has no copy of the rules yet.
    first.tell_rules(
        each.shard for each in begun if each is not first and not each.rules
    )


# -- hosts -----------------------------------------------------------------------------


def start_hosts(namespace: OpenedNamespace, clock: Clock) -> Host:
    """Start a host for each shard; returns that of the first."""
    hosts: list[Host] = []
    for each, opened in zip(namespace.shards, namespace.opened, strict=True):
        hosts.append(Host(each, clock, opened.reopen if each.is_away else None))
    mover = Mover(hosts) if len(hosts) > 1 else None
    for host, opened in zip(hosts, namespace.opened, strict=True):
        host.hosts, host.mover = hosts, mover
        # Shards in one database are sick together: none keeps sends for another.
        can_spool = mover is not None and not host.namespace.store.is_remote
        host.spool = ShardSpool(host) if can_spool else None
        host.instance = hosts[0].instance
        if host.namespace.is_stopped:
            host.recovery.stay_away(opened.problem or "it takes no writes")
        else:
            if mover is not None:
                host.namespace.store.keep_tokens()
            # Time may have passed without a server: locks and messages have ended.
            host.tick()
            loop = asyncio.get_running_loop()
            host.namespace.store.watch(partial(_tell, loop, host))
    if mover is not None:
        mover.accepts_again()
    return hosts[0]


def _tell(loop: asyncio.AbstractEventLoop, host: Host, news: News) -> None:
    """Let a host hear news, from any thread."""
    # The loop may be closed by now.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(host.hear, news)


async def _resume_spools(hosts: Sequence[Host]) -> None:
    """What one shard keeps for another goes before new sends; a sick one gets one."""
    for host in hosts:
        if host.spool is None:
            continue
        for keeper in hosts:
            if waiting_bytes := await _kept_for(host, keeper):
                host.spool.resume(keeper, waiting_bytes)
        if host.fault is not None:
            host.spool.begin()


async def _kept_for(host: Host, keeper: Host) -> dict[str, int]:
    """The bytes that one shard keeps for the entities of another."""
    target = host.namespace.shard
    counts = keeper.namespace.store.outbox().get(target)
    if keeper.fault is not None or counts is None or counts.rows == 0:
        return {}
    try:
        found = await keeper.run(lambda its, _turn: its.store.posted_bytes(target))
    except StoreFault:
        return {}
    keys = {kind: spooled_for(kind) for kind in found}
    return {key: found[kind] for kind, key in keys.items() if key is not None}


async def settle_hosts(first: Host) -> None:
    """Let shards know what they have to know of each other, before clients come.

    A shard that hangs is not waited for.
    """
    if first.mover is not None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limits.SHARDS_SETTLE_SECONDS_MAX):
                await first.mover.settle()
        await _resume_spools(first.hosts)


async def stop_hosts(first: Host) -> None:
    """Stop when all that came in is on disk: locks that connections gave back, too."""
    for host in first.hosts:
        with contextlib.suppress(TwinbusError):
            await host.run(lambda _namespace, _turn: None)
    if first.mover is not None:
        await first.mover.close()
    for host in first.hosts:
        await host.close()


__all__ = [
    "OpenedNamespace",
    "close_all",
    "open_namespace",
    "set_up",
    "settle_hosts",
    "start_hosts",
    "stop_hosts",
]
