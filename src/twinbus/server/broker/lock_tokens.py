"""Lock tokens: sixteen bytes that name a lock.

A token is a GUID made of the message id and the nonce of its lock, so a lock is found
by its token without an index. Clients see it in three forms: as the delivery tag (a
GUID in Microsoft's byte order), as the annotation `x-opt-lock-token` and in management
requests (an AMQP uuid, in network order).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import partial
from itertools import repeat
from typing import Any
from uuid import UUID

from twinbus.store.base import Lock

_PLAIN = struct.Struct(">QQ")
# As `Lock._make`, but without a Python call for each.
_lock: Callable[[Any], Lock] = partial(tuple.__new__, Lock)
_TAG = struct.Struct("<IHH8s").pack


def token_bytes(id: int, nonce: int) -> bytes:
    """The token as an AMQP uuid holds it."""
    return _PLAIN.pack(id, nonce)


def tags_of(ids: Iterable[int], nonce: int) -> list[bytes]:
    """The tokens of several messages as delivery tags."""
    end = nonce.to_bytes(8, "big")
    return [_TAG(key >> 32, key >> 16 & 0xFFFF, key & 0xFFFF, end) for key in ids]


def locks_of(ids: Iterable[int], nonce: int) -> list[Lock]:
    """The locks of several messages."""
    return list(map(_lock, zip(ids, repeat(nonce), strict=False)))


def uuid_of(lock: Lock) -> UUID:
    """The token as management replies carry it."""
    return UUID(bytes=_PLAIN.pack(lock.id, lock.nonce))


def lock_of(token: UUID) -> Lock:
    """The lock that a client's token names; it may well not exist.

    Numbers that no lock can have are mapped into range, where they match nothing.
    """
    key, nonce = _PLAIN.unpack(token.bytes)
    return Lock(key & ((1 << 63) - 1), nonce & ((1 << 63) - 1))
