"""Token buckets by remote address.

Owns how often something may happen for one address: so often at once, then so often a
second. Memory is bounded: an address whose bucket is full again is forgotten. Loopback
is counted like any other address, since a proxy may stand there.
Knows nothing about what is counted.
"""

from __future__ import annotations

import ipaddress

from twinbus import limits


class Buckets:
    """One bucket for each address."""

    def __init__(self, at_once: int, per_second: int) -> None:
        self._each_ms = 1000 // per_second
        self._debt_ms_max = (at_once - 1) * self._each_ms
        # When the bucket of an address is full again, in milliseconds.
        self._full_ms: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._full_ms)

    def take(self, address: str, steady_ms: int) -> bool:
        """Take one out of the bucket of an address; False if it is empty."""
        key = _network(address)
        full_ms = max(self._full_ms.get(key, 0), steady_ms)
        if full_ms - steady_ms > self._debt_ms_max:
            return False
        # Removed first, so that the order is that of the last use.
        self._full_ms.pop(key, None)
        if len(self._full_ms) >= limits.BUCKET_ADDRESSES_MAX:
            self._forget(steady_ms)
        self._full_ms[key] = full_ms + self._each_ms
        return True

    def _forget(self, steady_ms: int) -> None:
        """Make room: remove all that are full, else the one unused for longest."""
        kept = {key: full for key, full in self._full_ms.items() if full > steady_ms}
        if len(kept) == len(self._full_ms):
            del kept[next(iter(kept))]
        self._full_ms = kept


def _network(address: str) -> str:
    """The address; of IPv6 the network, for one machine has all addresses in it."""
    if ":" not in address:
        return address
    try:
        host = address.partition("%")[0]
        return str(ipaddress.IPv6Network((host, 64), strict=False))
    except ValueError:
        return address
