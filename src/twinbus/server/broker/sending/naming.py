"""Ids of messages, and the keys that are made of them.

Owns how a message without an id gets one (any thread may ask), what tells duplicates,
and what decides which fragment of a partitioned entity takes a message.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from twinbus import limits
from twinbus.server.broker.directory.entity import Entity
from twinbus.wire.message import parts
from twinbus.wire.message.sections import Incoming


class RandomIds:
    """Ids from random bytes that are asked for together."""

    def __init__(self) -> None:
        self._left: list[str] = []

    def __call__(self) -> str:
        try:
            # One step, so that no two threads get the same.
            return self._left.pop()
        except IndexError:
            text = os.urandom(16 * limits.RANDOM_IDS).hex()
            first, *left = (text[at : at + 32] for at in range(0, len(text), 32))
            self._left += left
            return first


def give_ids(messages: Iterable[Incoming], new_id: Callable[[], str]) -> None:
    """Give an id to each message that has none."""
    for message in messages:
        if message.message_id is None:
            message.message_id = new_id()
            message.bare = parts.with_message_id(message.bare, message.message_id)


def duplicate_key(message_id: Any) -> str:
    """A message id as text that keeps its type apart."""
    if isinstance(message_id, str):
        return f"s{message_id}"
    return f"{type(message_id).__name__}{message_id!r}"


def fragment_key(entity: Entity, message: Incoming) -> str | None:
    """What decides which fragment of an entity takes a message; None: any of them."""
    key = message.session_id or message.partition_key
    if key is not None or message.message_id is None:
        return key
    if entity.duplicate_window_ms is None:
        return None
    return duplicate_key(message.message_id)
