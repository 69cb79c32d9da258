"""What shards send each other through their outboxes, as bytes.

A parcel is a row in the outbox of one shard, for another one (`store/base.py`). Owns
the kinds of parcels and how each is written: entities and settings as JSON, a letter
with the way that it has behind it. What a shard does with a parcel that arrives is in
`outbox.py`.
"""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from twinbus.errors import PeerError
from twinbus.server.broker.sending.letter import Letter
from twinbus.store.base import EntityRow
from twinbus.wire.message import sections

# An entity as its shard has it now, or its key when it is gone; for shard 0.
MIRROR = "mirror"
UNMIRROR = "unmirror"
# An entity of which the target has a fragment, or its key when it is gone.
FRAGMENT = "fragment"
UNFRAGMENT = "unfragment"
# The authorization rules of the namespace, for every other shard.
RULES = "rules"
# A message for an entity of the target.
LETTER = "letter"
# One that was sent to an entity of the target while that was sick. A colon and the key
# of the entity follow.
SPOOLED = "spooled"
# One that could not be delivered, for the entity that it came from.
RETURNED = "returned"

_LENGTH = struct.Struct(">I")
# What of a letter is not in its bytes.
_LETTER_FIELDS = ("scheduled_ms", "origin", "source", "deliveries")


@dataclass(frozen=True, slots=True)
class Route:
    """The way of a letter from one shard to another."""

    # The keys of the entity that it is for and of the one that it comes from.
    target: str
    source: str
    # How often it was forwarded before, and how many copies of it were made.
    hops: int
    copied: int
    # When it was posted, by the wall clock: its time to live goes on.
    posted_ms: int
    # Why it could not be delivered, as reason and description.
    problem: tuple[str, str] | None = None


def spooled_kind(key: str) -> str:
    """The kind of a message that is kept for an entity of a sick shard."""
    return f"{SPOOLED}:{key}"


def spooled_for(kind: str) -> str | None:
    """The key of the entity for which a sick shard's message is kept, if it is one."""
    name, _, key = kind.partition(":")
    return key if name == SPOOLED else None


def is_letter(kind: str) -> bool:
    """Whether a parcel is a message for an entity of the target."""
    return kind == LETTER or spooled_for(kind) is not None


def pack_entity(row: EntityRow) -> bytes:
    """An entity's row as a parcel."""
    return json.dumps(row, separators=(",", ":")).encode()


def unpack_entity(body: bytes) -> EntityRow:
    """The row in a parcel."""
    return EntityRow._make(json.loads(body))


def pack_letter(letter: Letter, route: Route) -> bytes:
    """A letter with its way as a parcel."""
    facts: dict[str, Any] = asdict(route)
    facts["letter"] = {name: getattr(letter, name) for name in _LETTER_FIELDS}
    facts["letter"]["ttl_ms"] = letter.ttl_ms
    text = json.dumps(facts, separators=(",", ":")).encode()
    lengths = (_LENGTH.pack(len(text)), _LENGTH.pack(len(letter.head)))
    return b"".join((*lengths, text, letter.head, letter.bare))


def unpack_letter(body: bytes, wall_ms: int) -> tuple[Letter, Route]:
    """The letter in a parcel, and its way."""
    (text_bytes,) = _LENGTH.unpack_from(body, 0)
    (head_bytes,) = _LENGTH.unpack_from(body, _LENGTH.size)
    start = 2 * _LENGTH.size
    head_start = start + text_bytes
    bare_start = head_start + head_bytes
    facts = json.loads(body[start:head_start])
    given = facts.pop("letter")
    problem = facts.pop("problem")
    route = Route(**facts, problem=None if problem is None else tuple(problem))
    letter = Letter(body[head_start:bare_start], body[bare_start:])
    # What rules have added may be more than is read: it travels all the same.
    with suppress(PeerError):
        fields = sections.read_properties(letter.bare)
        letter.message_id = fields[sections.MESSAGE_ID]
        letter.session_id = fields[sections.GROUP_ID]
    for name in _LETTER_FIELDS:
        setattr(letter, name, given[name])
    ttl_ms = given["ttl_ms"]
    if ttl_ms is not None:
        letter.ttl_ms = max(ttl_ms - max(wall_ms - route.posted_ms, 0), 0)
    return letter, route
