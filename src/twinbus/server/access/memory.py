"""Memory that clients make the server hold, with an owner for every byte.

Owns an account for each connection and the sums for each address and for the process.
The account bounds what a connection holds by itself; where an address or the process
holds too much, the connection that holds the most at the largest address has to go.
Figures are estimates of what a client can make grow; they know nothing of AMQP.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
from collections import Counter
from typing import Protocol

from twinbus import limits
from twinbus.errors import LimitExceeded

log = logging.getLogger("twinbus.memory")


def _trim() -> None:
    """Have the C library return free pages; it keeps those below one in use."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class Holder(Protocol):
    """A connection that holds memory for its client."""

    def give_up(self, error: LimitExceeded) -> None:
        """End, and let go of all that it holds."""


class MemoryAccount:
    """What one connection holds."""

    __slots__ = ("_ledger", "address", "held_bytes", "holder")

    def __init__(self, ledger: Ledger, holder: Holder, address: str) -> None:
        self._ledger = ledger
        self.holder = holder
        self.address = address
        self.held_bytes = 0

    def note(self, held_bytes: int) -> None:
        """It holds so much now; small changes are not worth a look."""
        grown = held_bytes - self.held_bytes
        if abs(grown) >= limits.MEMORY_STEP_BYTES:
            self._ledger.change(self, grown)

    def close(self) -> None:
        """The connection is gone, and so is all that it held."""
        self._ledger.close(self)
        self._ledger.trim()


class Ledger:
    """The accounts of a process."""

    def __init__(self) -> None:
        self.held_bytes = 0
        self.by_address: Counter[str] = Counter()
        self._accounts: dict[str, dict[MemoryAccount, None]] = {}
        # Held by connections that are gone, and perhaps not given back to the system.
        self._freed_bytes = 0

    def open(self, holder: Holder, address: str) -> MemoryAccount:
        """A connection has come in."""
        account = MemoryAccount(self, holder, address)
        self._accounts.setdefault(address, {})[account] = None
        return account

    def change(self, account: MemoryAccount, grown_bytes: int) -> None:
        """A connection holds more or less; one that holds too much may have to go."""
        if account not in self._accounts.get(account.address, {}):
            return
        self._add(account, grown_bytes)
        if grown_bytes > 0:
            self._bound(account.address)

    def close(self, account: MemoryAccount) -> None:
        """A connection is gone; a second time does nothing."""
        accounts = self._accounts.get(account.address, {})
        if account in accounts:
            self._freed_bytes += account.held_bytes
            self._add(account, -account.held_bytes)
            del accounts[account]
            if not accounts:
                del self._accounts[account.address]
                del self.by_address[account.address]

    def trim(self) -> None:
        """Give free memory back to the system, if there may be much of it."""
        if self._freed_bytes >= limits.MEMORY_TRIM_BYTES:
            self._freed_bytes = 0
            _trim()

    def _add(self, account: MemoryAccount, grown_bytes: int) -> None:
        account.held_bytes += grown_bytes
        self.by_address[account.address] += grown_bytes
        self.held_bytes += grown_bytes

    def _bound(self, address: str) -> None:
        """End connections until the address and the process are within bounds."""
        while self.by_address[address] > limits.MEMORY_PER_ADDRESS_BYTES_MAX:
            text = "The connections of this address hold too much memory"
            self._end_largest(address, text)
        while self.held_bytes > limits.MEMORY_BYTES_MAX:
            largest = max(self.by_address, key=self.by_address.__getitem__)
            self._end_largest(largest, "All connections together hold too much memory")

    def _end_largest(self, address: str, text: str) -> None:
        accounts = self._accounts[address]
        account = max(accounts, key=lambda each: each.held_bytes)
        held_mib = account.held_bytes >> 20
        log.warning("ending a connection of %s that holds %d MiB", address, held_mib)
        self.close(account)
        account.holder.give_up(
            LimitExceeded(
                f"{text}, and this one the most of it: {held_mib} MiB. End messages "
                "that are sent in part, settle and read more, or connect later."
            )
        )


def check_connection(held_bytes: int) -> None:
    """Refuse to hold more for a connection that holds all that it may."""
    if held_bytes > limits.MEMORY_PER_CONNECTION_BYTES_MAX:
        raise LimitExceeded(
            f"The connection holds {held_bytes >> 20} MiB of memory, and may hold "
            f"{limits.MEMORY_PER_CONNECTION_BYTES_MAX >> 20}. End messages that are "
            "sent in part, settle and read more, or detach links first."
        )
