"""Refused tokens by address: an address with too many has to wait.

Owns a bucket for each remote address: ten failures at once, then one a second. Only
failures cost; while a bucket is empty, nothing from there is looked at, so that even a
right guess tells a stranger nothing. Memory is bounded: an address whose failures are
paid is forgotten. Loopback is counted like any other, since a proxy may stand there.
Knows nothing about tokens.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from twinbus import limits
from twinbus.errors import Unauthorized

log = logging.getLogger("twinbus.claims")

TOO_MANY = "There were too many failures from this address. Wait and try again."


class Failures:
    """How often tokens of each address were refused."""

    def __init__(self) -> None:
        # When the last failure of an address is paid for, in milliseconds.
        self._paid_ms: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._paid_ms)

    @contextmanager
    def counted(self, address: str, steady_ms: int) -> Iterator[None]:
        """Prove something inside; `Unauthorized` costs, and too many of it stop all."""
        key = _network(address)
        if self._paid_ms.get(key, 0) - steady_ms > _debt_ms(
            limits.TOKEN_FAILURES_MAX - 1
        ):
            raise Unauthorized(TOO_MANY)
        try:
            yield
        except Unauthorized as error:
            # No more than ten and one a second, so it cannot fill a disk.
            log.warning("refused a token from %s: %s", address, error.text)
            self._note(key, steady_ms)
            raise

    def _note(self, key: str, steady_ms: int) -> None:
        # Taken out first, so that the order is that of the last failures.
        paid_ms = max(self._paid_ms.pop(key, 0), steady_ms)
        if len(self._paid_ms) >= limits.TOKEN_FAILURE_ADDRESSES_MAX:
            self._forget(steady_ms)
        self._paid_ms[key] = paid_ms + _debt_ms(1)

    def _forget(self, steady_ms: int) -> None:
        """Make room: all that are paid, else the one that failed longest ago."""
        kept = {key: paid for key, paid in self._paid_ms.items() if paid > steady_ms}
        if len(kept) == len(self._paid_ms):
            del kept[next(iter(kept))]
        self._paid_ms = kept


def _debt_ms(failures: int) -> int:
    return failures * 1000 // limits.TOKEN_FAILURES_PER_SECOND


def _network(address: str) -> str:
    """The address; of IPv6 the network, for one machine has all addresses in it."""
    if ":" not in address:
        return address
    try:
        host = address.partition("%")[0]
        return str(ipaddress.IPv6Network((host, 64), strict=False))
    except ValueError:
        return address
