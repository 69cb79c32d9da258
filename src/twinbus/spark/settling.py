"""Locks that travel in rows: read from a column, settled where they were made.

A row says in `lock_token` which lock it is and at which entity of which namespace, so
that it can be settled in another process than the one that received it. Rule: a lock
that is lost is counted and never an error, since its message comes again by itself.
Messages of sessions cannot be settled so: their lock ends with the link that holds it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple
from uuid import UUID

from twinbus import limits
from twinbus.client.settlement import COMPLETE, Settlement, abandon
from twinbus.client.sync.connection import Connection
from twinbus.errors import ArgumentError, LockLost, RemoteError
from twinbus.pairing.rules.retry import halves

_ABANDON = abandon()


class RowLock(NamedTuple):
    """One lock, and where it was made."""

    token: UUID
    authority: str
    path: str


def read_lock(text: str) -> RowLock:
    """Read what `Place.token` wrote."""
    token, at, place = text.partition("@")
    authority, slash, path = place.partition("/")
    with suppress(ValueError):
        if at and slash and authority and path:
            return RowLock(UUID(token), authority, path)
    raise ArgumentError(
        "'lock_token' is not what the source wrote. Pass the column on unchanged."
    )


class LockSettler:
    """Settles locks of one namespace, many in one request."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def check(self, lock: RowLock) -> None:
        """Refuse a lock of a namespace that this cannot reach."""
        authority = self._connection.endpoint.authority
        if lock.authority.lower() != authority.lower():
            raise ArgumentError(
                f"The rows were received from '{lock.authority}' and are settled "
                "there. Say how to connect to it in option 'sourceConnectionStringEnv'."
            )

    def complete(self, locks: Iterable[RowLock]) -> int:
        """Remove the messages; returns how many locks were lost before."""
        return self._settle(locks, COMPLETE)

    def abandon(self, locks: Iterable[RowLock]) -> None:
        """Give the messages back; those whose lock is lost are back already."""
        self._settle(locks, _ABANDON)

    def renew(self, locks: Iterable[RowLock]) -> None:
        """Move the ends of the locks; for those that are lost it is too late."""
        for path, tokens in _by_path(locks).items():
            for some in _runs(tokens):
                with suppress(RemoteError):
                    self._connection.management(path).renew_locks(some)

    def _settle(self, locks: Iterable[RowLock], settlement: Settlement) -> int:
        return sum(
            self._settle_some(path, some, settlement)
            for path, tokens in _by_path(locks).items()
            for some in _runs(tokens)
        )

    def _settle_some(
        self, path: str, tokens: list[UUID], settlement: Settlement
    ) -> int:
        """Settle all of them; where one is lost, the halves without the others."""
        try:
            self._connection.management(path).settle(tokens, settlement)
        except RemoteError as error:
            if len(tokens) == 1 or error.condition != LockLost.condition:
                return len(tokens)
            return sum(
                self._settle_some(path, part, settlement) for part in halves(tokens)
            )
        return 0


def _by_path(locks: Iterable[RowLock]) -> dict[str, list[UUID]]:
    found: dict[str, list[UUID]] = {}
    for lock in locks:
        found.setdefault(lock.path, []).append(lock.token)
    return found


def _runs(tokens: list[UUID]) -> Iterable[list[UUID]]:
    most = limits.SETTLE_TOKENS_MAX
    return (tokens[at : at + most] for at in range(0, len(tokens), most))
