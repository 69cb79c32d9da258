"""What a receiver is given by a store: messages, some of them still joined.

Owns the joined form and how it comes apart. A receiver may take a thousand messages at
once; those that were kept together stay together until they are written to the client,
so that they come apart a few at a time, and not all of them before the first is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise, repeat
from typing import Any, NamedTuple, overload

from twinbus.store.base import Stored

# As `Stored._make`, but without a Python call for each.
_as_stored: Callable[[Any], Stored] = partial(tuple.__new__, Stored)


class AlikeStored(NamedTuple):
    """Active messages that follow each other and differ in their bare messages alone.

    They have no session, no end and no source, and were not delivered before.
    """

    # That of the first; the others count on, and so do their origins.
    id: int
    enqueued_ms: int
    origin: int | None
    head: bytes
    # The lengths of the bare messages, which are at the end of `bares`.
    sizes: Sequence[int]
    bares: bytes

    @property
    def ids(self) -> range:
        """Those of all messages."""
        return range(self.id, self.id + len(self.sizes))

    @property
    def origins(self) -> range | None:
        """Those of all messages, if they have any."""
        if self.origin is None:
            return None
        return range(self.origin, self.origin + len(self.sizes))

    def apart(self) -> list[bytes]:
        """The bare messages."""
        bares, sizes = self.bares, self.sizes
        ends = accumulate(sizes, initial=len(bares) - sum(sizes))
        return [bares[at:end] for at, end in pairwise(ends)]

    def messages(self) -> list[Stored]:
        """Each on its own."""
        none, zero = repeat(None), repeat(0)
        origins: Iterable[int | None] = none
        if self.origins is not None:
            origins = self.origins
        same = (repeat(self.enqueued_ms), zero, zero, none, none, none)
        rest = (origins, none, repeat(self.head), self.apart())
        return list(map(_as_stored, zip(self.ids, *same, *rest, strict=False)))


class ReceivedMessages(Sequence[Stored]):
    """Messages in their order."""

    __slots__ = ("_count", "parts")

    def __init__(self) -> None:
        self.parts: list[list[Stored] | AlikeStored] = []
        self._count = 0

    def add(self, messages: list[Stored]) -> None:
        """More, each on its own."""
        if messages:
            self.parts.append(messages)
            self._count += len(messages)

    def add_alike(self, part: AlikeStored) -> None:
        """More that are joined; a damaged part may have none that can be read."""
        if part.sizes:
            self.parts.append(part)
            self._count += len(part.sizes)

    @property
    def size_bytes(self) -> int:
        """The bytes of all bare messages."""
        size_bytes = 0
        for part in self.parts:
            if isinstance(part, list):
                size_bytes += sum(len(stored.bare) for stored in part)
            else:
                size_bytes += sum(part.sizes)
        return size_bytes

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Stored]:
        for part in self.parts:
            yield from part if isinstance(part, list) else part.messages()

    @overload
    def __getitem__(self, place: int) -> Stored: ...
    @overload
    def __getitem__(self, place: slice) -> list[Stored]: ...
    def __getitem__(self, place: int | slice) -> Stored | list[Stored]:
        return list(self)[place]

    def __eq__(self, other: object) -> bool:
        """Whether the messages are the same, joined or not."""
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))
