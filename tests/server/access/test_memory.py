"""Memory has an owner: sums by address and process, and which connection has to go."""

from __future__ import annotations

import pytest

from twinbus import limits
from twinbus.errors import LimitExceeded
from twinbus.server.access.memory import Ledger, MemoryAccount, check_connection

MIB = 1024 * 1024


class Connection:
    """A connection that can be told to go."""

    def __init__(self, ledger: Ledger, address: str) -> None:
        self._error: LimitExceeded | None = None
        self.account: MemoryAccount = ledger.open(self, address)

    def give_up(self, error: LimitExceeded) -> None:
        self._error = error
        # As a connection does when it closes: the account is closed already.
        self.account.close()

    def said(self) -> str:
        """Why it had to go; empty if it stays."""
        return self._error.text if self._error is not None else ""


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def test_what_a_connection_holds_is_summed_up(ledger: Ledger) -> None:
    one, two = Connection(ledger, "a"), Connection(ledger, "a")
    other = Connection(ledger, "b")

    one.account.note(3 * MIB)
    two.account.note(2 * MIB)
    other.account.note(MIB)
    one.account.note(MIB)

    assert ledger.by_address == {"a": 3 * MIB, "b": MIB}
    assert ledger.held_bytes == 4 * MIB
    for each in (one, two, other, other):
        each.account.close()
    assert ledger.held_bytes == 0
    assert not ledger.by_address
    # One that is gone counts no more.
    one.account.note(9 * MIB)
    assert ledger.held_bytes == 0


def test_small_changes_are_added_up_with_later_ones(ledger: Ledger) -> None:
    account = Connection(ledger, "a").account
    step = limits.MEMORY_STEP_BYTES

    account.note(step - 1)
    assert ledger.held_bytes == 0
    account.note(step)
    assert ledger.held_bytes == step
    account.note(1)
    assert ledger.held_bytes == step
    account.note(0)
    assert ledger.held_bytes == 0


def test_the_largest_connection_of_an_address_goes(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MEMORY_PER_ADDRESS_BYTES_MAX", 10 * MIB)
    small, large = Connection(ledger, "a"), Connection(ledger, "a")
    other = Connection(ledger, "b")
    other.account.note(10 * MIB)
    large.account.note(6 * MIB)
    assert not large.said()

    small.account.note(5 * MIB)

    assert "of this address" in large.said()
    assert "6 MiB" in large.said()
    assert small.said() == other.said() == ""
    assert ledger.by_address == {"a": 5 * MIB, "b": 10 * MIB}


def test_the_largest_connection_of_the_largest_address_goes(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MEMORY_BYTES_MAX", 20 * MIB)
    many = [Connection(ledger, "many") for _ in range(4)]
    for number, each in enumerate(many):
        each.account.note((2 + number) * MIB)
    alone = Connection(ledger, "alone")

    alone.account.note(7 * MIB)

    # The one alone is larger than each of the others, but not than all of them.
    assert not alone.said()
    assert [bool(each.said()) for each in many] == [False, False, False, True]
    assert ledger.held_bytes == 16 * MIB


def test_a_connection_may_hold_what_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MEMORY_PER_CONNECTION_BYTES_MAX", 10 * MIB)
    check_connection(10 * MIB)

    with pytest.raises(LimitExceeded, match="holds 10 MiB of memory, and may hold 10"):
        check_connection(10 * MIB + 1)


def test_the_bounds_fit_into_each_other() -> None:
    """The largest message fits where it is unfinished, with all else of its client."""
    rest = limits.LINK_BYTES * 1000 + limits.UNSETTLED_BYTES * 10_000
    largest = limits.MESSAGE_BYTES_CEILING
    assert largest + rest < limits.MEMORY_PER_CONNECTION_BYTES_MAX
    assert 2 * largest < limits.MEMORY_PER_ADDRESS_BYTES_MAX
    assert 2 * limits.MEMORY_PER_ADDRESS_BYTES_MAX <= limits.MEMORY_BYTES_MAX
