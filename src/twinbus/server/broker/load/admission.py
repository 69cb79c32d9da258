"""Whether a request is let in while its shard has too much to do.

Owns the questions that surfaces ask before they hand anything in: about a send, and
about a new receiver. Nothing else is ever denied because of load (`load.py`), and a
sick shard denies nothing: what it answers says that it is broken, so that
clients fail over, which they do not when they are told that it is busy.
"""

from __future__ import annotations

from collections.abc import Iterable

from twinbus.errors import BusyError
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.host import Host


def _is_sick(host: Host) -> bool:
    """Whether it takes nothing now, or another shard takes sends for it."""
    return host.fault is not None or (host.spool is not None and host.spool.is_on)


def send_denial(host: Host, entity: Entity, size_bytes: int) -> BusyError | None:
    """Why a send is denied; None if it is let in."""
    if _is_sick(host):
        return None
    return host.load.deny(entity, size_bytes, host.pending.size_bytes)


def would_deny(host: Host, entity: Entity) -> bool:
    """Whether a send would be denied; counts nothing."""
    return not _is_sick(host) and host.load.denies(entity, host.pending.size_bytes)


def check_receiver(hosts: Iterable[Host]) -> None:
    """Refuse a new receiver if all shards that it would take from deny it.

    Receivers that are there go on, and empty what is full. A new one is told at its
    attach, which costs no turn, and which the SDKs try again by themselves. To let its
    credit wait would look like an empty entity, and to answer its drain would say so.
    """
    denial = None
    for host in hosts:
        denial = None if _is_sick(host) else host.load.deny_receiver()
        if denial is None:
            return
    if denial is not None:
        raise denial


__all__ = ["check_receiver", "send_denial", "would_deny"]
