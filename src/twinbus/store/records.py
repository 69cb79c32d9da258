"""Messages to be kept, as the store is given them.

Owns what a record says. What the store gives back is `base.Stored`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Record(NamedTuple):
    """A message to be kept."""

    head: bytes
    bare: bytes
    session: str | None = None
    expires_ms: int | None = None
    # Set on a message that must not be delivered before that time.
    due_ms: int | None = None
    # The sequence number it got in the first entity, if it has been elsewhere before.
    origin: int | None = None
    # The entity it was dead-lettered from, if that is not the container's own.
    source: str | None = None
    deliveries: int = 0


class AlikeRecords(NamedTuple):
    """Active messages to be kept that differ in their bare messages alone.

    They have no session, no end and no source, and were not delivered.
    """

    head: bytes
    # The lengths of the bare messages, which follow each other in `bares`.
    sizes: Sequence[int]
    bares: bytes
    # That of the first; those of the others count on.
    origin: int | None = None

    def records(self) -> Iterator[Record]:
        """Each on its own."""
        origin, end = self.origin, 0
        for place, size in enumerate(self.sizes):
            start, end = end, end + size
            number = None if origin is None else origin + place
            yield Record(self.head, self.bares[start:end], origin=number)
