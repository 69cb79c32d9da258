"""A namespace at a glance: tier, shards, and the fragments of partitioned entities.

Owns what people and `GET /$shards` are told. All of it is read from memory, without a
turn, so that a shard that hangs does not hold up the answer. Changes nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from twinbus.core.names import SubQueue
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.directory.shards import Shards
from twinbus.server.broker.host import Host
from twinbus.server.broker.namespace import Namespace


def overview(shards: Shards) -> dict[str, Any]:
    """The shards of a namespace, and where its partitioned entities are."""
    partitioned = [entity for entity in shards.entities() if entity.fragments]
    return {
        "namespace": shards[0].name,
        "tier": shards.tier.value,
        "shards": [_shard(each) for each in shards],
        "partitioned": [
            _partitioned(shards, entity)
            for entity in sorted(partitioned, key=lambda one: one.key)
        ],
    }


def running_overview(first: Host) -> dict[str, Any]:
    """The same of a running namespace: also what is sick, kept, and denied."""
    found = overview(first.namespace.shards)
    for shard, host in zip(found["shards"], first.hosts, strict=True):
        shard.update(_running(host))
    return found


def _running(host: Host) -> dict[str, Any]:
    spool = host.spool
    kept = 0 if spool is None else spool.rows
    denied: Counter[str] = Counter()
    for entity in host.namespace.entities:
        denied.update(entity.denied)
    return {
        "problem": None if host.fault is None else host.fault.text,
        # What another shard keeps for it, and for how long it has done so.
        "spool_rows": kept,
        "spool_age_seconds": 0 if spool is None else round(spool.age_seconds),
        "spool_state": "off" if spool is None else spool.state.value,
        "throttled_by": list(host.load.throttled_by()),
        "denied": dict(denied),
        "load": host.load.figures(),
    }


def _shard(namespace: Namespace) -> dict[str, Any]:
    state = "sick" if namespace.is_stopped else "open"
    outbox = namespace.store.outbox()
    return {
        "shard": namespace.shard,
        "state": "away" if namespace.is_away else state,
        # With fragments: one of an entity counts in each shard that has it.
        "entities": len(namespace.entities),
        "size_bytes": namespace.store.stored_bytes(),
        "outbox_rows": sum(each.rows for each in outbox.values()),
    }


def _partitioned(shards: Shards, entity: Entity) -> dict[str, Any]:
    there = {each.shard: each for each in shards.fragments(entity)}
    fragments = []
    for shard in entity.fragments:
        # One may be missing for a moment after the entity was made.
        found = there.get(shard)
        counts = [] if found is None else _counts(shards[shard], found)
        fragments.append({"shard": shard, "messages": sum(counts)})
    return {"name": entity.name, "kind": entity.kind, "fragments": fragments}


def _counts(namespace: Namespace, fragment: Entity) -> list[int]:
    found = [namespace.store.counts(fragment.container(each)) for each in SubQueue]
    return [each.active + each.deferred + each.scheduled for each in found]
