"""An entity that exists, and what it says about itself.

Owns the facts: kind, description, rules, where it is, and what was counted since the
start. It is changed by `entities.py` alone; everything else reads it.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Literal

from twinbus import limits
from twinbus.core.durations import DURATION_MAX_MS
from twinbus.core.entity import (
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.core.filters import Action, Filter, compile_action, compile_filter
from twinbus.core.names import EntityPath, SubQueue
from twinbus.core.rights import AuthorizationRule
from twinbus.core.rule import RuleDescription
from twinbus.server.broker.load.throttle import Bucket
from twinbus.server.broker.undo import UndoLog
from twinbus.store.base import DEAD_LETTER, TRANSFER_DEAD_LETTER

_SUB_QUEUES = {
    SubQueue.NONE: 0,
    SubQueue.DEAD_LETTER: DEAD_LETTER,
    SubQueue.TRANSFER_DEAD_LETTER: TRANSFER_DEAD_LETTER,
}


# Where the number of a fragment begins in the sequence numbers that clients see.
FRAGMENT_SHIFT = 48


class Rule:
    """A rule of a subscription, ready to run."""

    __slots__ = ("action", "description", "filter")

    def __init__(self, description: RuleDescription) -> None:
        self.description = description
        self.filter: Filter = compile_filter(description.filter)
        self.action: Action | None = None
        if description.action is not None:
            self.action = compile_action(description.action)


# What is counted of an entity since the start.
Counter = Literal[
    "received",
    "pings",
    "delivered",
    "completed",
    "dead_lettered",
    "expired",
    "throttled",
    "unfiltered",
]


@dataclass(eq=False)
class Entity:
    """A queue, topic or subscription that exists."""

    id: int
    kind: str
    key: str
    description: Description
    created_ms: int
    updated_ms: int
    # The number of the shard that it is in.
    shard: int = 0
    # Of a partitioned entity: the shards that have a fragment of it. The first is where
    # it is changed; the others follow.
    fragments: tuple[int, ...] = ()
    # Of a topic: its subscriptions by lower-case name.
    subscriptions: dict[str, Entity] = field(default_factory=dict)
    # Of a subscription: its rules by lower-case name, and its topic.
    rules: dict[str, Rule] = field(default_factory=dict)
    topic: Entity | None = None
    bucket: Bucket | None = None
    # Messages that came in since the start, pings apart.
    received: int = 0
    pings: int = 0
    # What else happened since the start.
    delivered: int = 0
    completed: int = 0
    dead_lettered: int = 0
    expired: int = 0
    throttled: int = 0
    # Sends that were denied because of load, by facet (`load/facets.py`).
    denied: dict[str, int] = field(default_factory=dict)
    # Messages on which a rule failed.
    unfiltered: int = 0
    # When it was accessed and updated, as the last look for idle entities found it, and
    # since when it has been idle, by the steady clock.
    used: tuple[int, int] | None = None
    idle_since_ms: int = 0

    @property
    def path(self) -> EntityPath:
        return self.description.path

    @property
    def is_home(self) -> bool:
        """Whether it is changed here; it is not if this is a further fragment."""
        return not self.fragments or self.fragments[0] == self.shard

    def fragment_of(self, key: str) -> int:
        """The shard of the fragment that has all messages with that key.

        By the list of all fragments, not of those that are there: it never changes.
        """
        return self.fragments[zlib.crc32(key.encode()) % len(self.fragments)]

    @property
    def number_base(self) -> int:
        """What clients see above sequence numbers: which fragment gave them out."""
        if not self.fragments:
            return 0
        return self.fragments.index(self.shard) << FRAGMENT_SHIFT

    @property
    def name(self) -> str:
        return self.description.path.text

    @property
    def authorization_rules(self) -> tuple[AuthorizationRule, ...]:
        """Its own rules; a subscription has its topic's."""
        return rules_of_description(self.description)

    @property
    def _receivable(self) -> QueueDescription | SubscriptionDescription | None:
        """The description of a queue or subscription; None for a topic."""
        description = self.description
        return None if isinstance(description, TopicDescription) else description

    @property
    def requires_session(self) -> bool:
        description = self._receivable
        return description is not None and description.requires_session

    @property
    def lock_ms(self) -> int:
        """How long a lock lasts; a topic has locks on what it set aside."""
        description = self._receivable
        if description is None:
            return limits.TOPIC_LOCK_MS
        return description.lock_duration_ms

    @property
    def max_delivery_count(self) -> int | None:
        """How often a message is delivered before it is dead-lettered."""
        description = self._receivable
        return None if description is None else description.max_delivery_count

    @property
    def dead_letters_expired(self) -> bool:
        description = self._receivable
        if description is None:
            return False
        return description.dead_lettering_on_message_expiration

    @property
    def dead_letters_filter_errors(self) -> bool:
        description = self.description
        if not isinstance(description, SubscriptionDescription):
            return False
        return description.dead_lettering_on_filter_evaluation_exceptions

    @property
    def rules_by_name(self) -> list[Rule]:
        """The rules as they are listed; `rules` has the order of evaluation."""
        return [self.rules[key] for key in sorted(self.rules)]

    @property
    def forward_key(self) -> str | None:
        """The entity that all messages are forwarded to."""
        description = self._receivable
        return None if description is None else description.forward_key

    @property
    def forward_dead_letter_key(self) -> str | None:
        """The entity that dead-lettered messages are forwarded to."""
        description = self._receivable
        return None if description is None else description.forward_dead_letter_key

    @property
    def ttl_ms(self) -> int | None:
        """The default time to live; None is for ever."""
        ttl = self.description.default_message_time_to_live_ms
        return None if ttl >= DURATION_MAX_MS else ttl

    @property
    def duplicate_window_ms(self) -> int | None:
        """How long message ids are remembered; None if they are not."""
        description = self.description
        if isinstance(description, SubscriptionDescription):
            return None
        if not description.requires_duplicate_detection:
            return None
        return description.duplicate_detection_history_time_window_ms

    @property
    def keeps_bundles(self) -> bool:
        """Whether messages that are alike are kept alike: a queue and no more."""
        return (
            self.kind == "queue"
            and self.forward_key is None
            and self.ttl_ms is None
            and self.duplicate_window_ms is None
            and not self.requires_session
        )

    @property
    def size_bytes_max(self) -> int:
        """The quota; a subscription's messages count for its topic."""
        owner = (self.topic or self).description
        assert not isinstance(owner, SubscriptionDescription)
        return owner.max_size_in_megabytes * 1024 * 1024

    @property
    def message_bytes_max(self) -> int:
        """The largest message that it holds; a topic says it for its subscriptions."""
        owner = (self.topic or self).description
        assert not isinstance(owner, SubscriptionDescription)
        return owner.message_bytes_max

    def gives_messages(self, sub_queue: SubQueue) -> bool:
        """Whether it can be received from; a topic only from what it set aside."""
        return self.kind != "topic" or sub_queue is SubQueue.TRANSFER_DEAD_LETTER

    def count(self, name: Counter, amount: int, undo_log: UndoLog) -> None:
        """Raise a counter, until what was counted is undone."""
        setattr(self, name, getattr(self, name) + amount)
        undo_log.note(lambda: setattr(self, name, getattr(self, name) - amount))

    def container(self, sub_queue: SubQueue) -> int:
        """The store's container for the entity or one of its sub-queues."""
        return self.id + _SUB_QUEUES[sub_queue]


def rules_of_description(description: Description) -> tuple[AuthorizationRule, ...]:
    """Its own authorization rules; a subscription has its topic's."""
    if isinstance(description, SubscriptionDescription):
        return ()
    return description.authorization_rules
