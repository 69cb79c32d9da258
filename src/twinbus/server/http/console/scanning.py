"""Searching messages: what is looked for, and when a search stops.

Owns the filter of a list: session, state, text, a condition as in a rule of a
subscription, and the reason and source of dead letters. A scan stops when its page is
full, after so many messages, or when its time is over, and says where to go on. It runs
in the thread of a reader, so it holds nothing but what it has found.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from twinbus import limits
from twinbus.core.filters import Budget, Filter, SqlFilter, compile_filter
from twinbus.errors import ArgumentError, FilterError, PeerError
from twinbus.server.broker.sending.letter import Letter, LetterView
from twinbus.server.http.console.looking import Looker, LookPlace
from twinbus.store.base import State, Stored
from twinbus.store.reading import StoreReader
from twinbus.wire.message import sections
from twinbus.wire.message.names import DEAD_LETTER_REASON

T = TypeVar("T")

_STATES = {each.name.lower(): each for each in State}


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """What messages are looked for; empty fields are no condition."""

    session: str = ""
    state: str = ""
    text: str = ""
    sql: str = ""
    # Of dead letters; None is no condition, empty is none given.
    reason: str | None = None
    source: str | None = None
    _compiled: list[Filter] = field(default_factory=list, compare=False, repr=False)

    @classmethod
    def of(cls, given: Mapping[str, str]) -> MessageFilter:
        """The filter of a query; refuses a condition that cannot be used."""
        plain = {name: given.get(name, "").strip() for name in _PLAIN}
        if plain["state"] and plain["state"] not in _STATES:
            raise ArgumentError(
                f"There is no state '{plain['state']}'. Use {', '.join(_STATES)}."
            )
        found = cls(
            plain["session"],
            plain["state"],
            plain["text"],
            plain["sql"],
            given.get("reason"),
            given.get("source"),
        )
        if found.sql:
            found._compiled.append(compile_filter(SqlFilter(found.sql)))
        return found

    @property
    def query(self) -> dict[str, str]:
        """What `of` reads, for the next page."""
        given = {name: getattr(self, name) for name in FILTERS}
        return {
            name: value
            for name, value in given.items()
            if value or (value == "" and name in ("reason", "source"))
        }

    @property
    def fields(self) -> dict[str, str]:
        """All fields, for a form."""
        return {name: getattr(self, name) or "" for name in FILTERS}

    def matches(self, stored: Stored) -> bool:
        """Whether a message is one of those; the session was looked at before."""
        if self.state and stored.state != _STATES[self.state]:
            return False
        if self.source is not None and (stored.source or "") != self.source:
            return False
        if self.text and not _has_text(stored.bare, self.text):
            return False
        if self.reason is not None and reason_of(stored) != self.reason:
            return False
        return all(_selects(each, stored) for each in self._compiled)


_PLAIN = ("session", "state", "text", "sql")
# The fields of a filter, as forms and addresses name them.
FILTERS = (*_PLAIN, "reason", "source")


def _has_text(bare: bytes, text: str) -> bool:
    """Whether properties or body have a text, whatever its case."""
    return text.lower().encode() in bare.lower()


def _selects(each: Filter, stored: Stored) -> bool:
    letter = Letter.stored(stored, stored.enqueued_ms)
    try:
        view = LetterView(letter, stored.sequence, stored.enqueued_ms)
        return each.matches(view, Budget())
    except (FilterError, PeerError):
        # As with a rule: a message on which it fails is not selected.
        return False


def reason_of(stored: Stored) -> str:
    """Why a message was dead-lettered, as far as it says so."""
    try:
        found = sections.read_application_properties(stored.bare)
    except PeerError:
        return ""
    reason = found.get(DEAD_LETTER_REASON)
    return "" if reason is None else str(reason)


@dataclass(slots=True)
class Scanned:
    """What a scan has found, and where it stopped."""

    found: list[Any] = field(default_factory=list)
    # How many messages it has looked at.
    looked: int = 0
    # The number at which to go on; None if it came to the end.
    next: int | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    """A search through the containers of a path."""

    filter: MessageFilter
    # What is kept of each message that matches.
    take: Callable[[LookPlace, Stored], Any]
    # How many are wanted.
    limit: int = limits.CONSOLE_PAGE_MESSAGES
    # The last number to look at; None for no end.
    until: int | None = None

    async def run(
        self, looker: Looker, places: list[LookPlace], start: int = 0
    ) -> Scanned:
        """Look from a number on."""
        scanned = Scanned()
        ends_at = time.monotonic() + limits.CONSOLE_SCAN_SECONDS_MAX
        for place in places:
            if start >= place.base and not place.holds(start):
                continue
            first = max(start - place.base, 0)
            wall_ms = place.host.clock.now().wall_ms

            def work(
                reader: StoreReader,
                place: LookPlace = place,
                at: tuple[int, int] = (first, wall_ms),
            ) -> None:
                self._scan(reader, place, at, (scanned, ends_at))

            await looker.look(place.host, work)
            if scanned.next is not None:
                break
        return scanned

    def _scan(
        self,
        reader: StoreReader,
        place: LookPlace,
        at: tuple[int, int],
        so_far: tuple[Scanned, float],
    ) -> None:
        scanned, ends_at = so_far
        session = self.filter.session or None
        for stored in reader.messages(place.container, *at, session):
            number = place.number(stored)
            if self.until is not None and number > self.until:
                break
            if (
                len(scanned.found) == self.limit
                or scanned.looked == limits.CONSOLE_SCAN_MESSAGES_MAX
                or (scanned.looked % 16 == 15 and time.monotonic() > ends_at)
            ):
                scanned.next = number
                break
            scanned.looked += 1
            if self.filter.matches(stored):
                scanned.found.append(self.take(place, stored))
