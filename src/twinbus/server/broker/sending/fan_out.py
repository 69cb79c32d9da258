"""How far the copies of messages have come that a topic has kept whole.

Owns the cursor of `Router.fan_out`, a setting of the store. Messages are copied in
groups, one subscription after the other: what a subscription gets together is kept in
few rows, and its pages are written once. A turn may end anywhere in a group, and the
next one goes on there, also after a restart.
"""

from __future__ import annotations

from collections.abc import Sequence

from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.sending.letter import Letter, LetterView
from twinbus.store.base import Store


class Copied:
    """A message of a group, while it is copied."""

    __slots__ = ("count", "letter", "number", "view")

    def __init__(self, number: int, letter: Letter, wall_ms: int, count: int) -> None:
        assert letter.origin is not None
        self.number = number
        self.letter = letter
        # What the filters see of it.
        self.view = LetterView(letter, letter.origin, wall_ms)
        # How many copies of it there are, on all of its way.
        self.count = count


class Cursor:
    """What was copied of a group: all of it for subscriptions with a smaller id."""

    __slots__ = ("last", "message", "subscription")

    def __init__(self, last: int, subscription: int = 0, message: int = 0) -> None:
        # The number of the last message of the group. Those behind it have no copy.
        self.last = last
        # The subscription that was copied to last, and the last message that it has.
        self.subscription = subscription
        self.message = message

    def left_of(self, group: Sequence[Copied], subscription: int) -> Sequence[Copied]:
        """The messages of the group that a subscription has not got."""
        if subscription > self.subscription:
            return group
        if subscription < self.subscription:
            return ()
        return [each for each in group if each.number > self.message]

    def reach(self, subscription: int, message: int) -> None:
        """A subscription has got its copy of a message."""
        self.subscription = subscription
        self.message = message


def cursor_of(store: Store, topic: Entity) -> Cursor:
    """Where the copies of a topic have come."""
    last, subscription, *message = map(
        int, (store.setting(_name(topic)) or "0 0").split()
    )
    # Those of earlier versions were of single messages.
    return Cursor(last, subscription, *(message or [last]))


def keep_cursor(store: Store, topic: Entity, cursor: Cursor) -> None:
    """Go on there next time."""
    text = f"{cursor.last} {cursor.subscription} {cursor.message}"
    store.put_setting(_name(topic), text)


def _name(topic: Entity) -> str:
    return f"fan-out {topic.id}"
