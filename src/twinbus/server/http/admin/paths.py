"""Where an administration request leads: its path, taken apart.

Owns the reading of the request's path. It is decoded once and compared by whole
segments; a path that has an empty segment leads nowhere, so that no spelling of one
place can pass for another. Queues and topics may have slashes in their names, written
plainly or as `%2F`. `Subscriptions` and `Rules` are known in any case.
Knows nothing about which entities exist, nor about who asks.
"""

from __future__ import annotations

import enum
import urllib.parse
from dataclasses import dataclass

from twinbus.core.names import EntityPath
from twinbus.errors import ArgumentError

_SUBSCRIPTIONS = "subscriptions"
_RULES = "rules"


class Kind(enum.Enum):
    """What a path names; the value is how an error calls it."""

    NAMESPACE = "namespace"
    QUEUES = "queues"
    TOPICS = "topics"
    ENTITY = "queue or topic"
    SUBSCRIPTIONS = "subscriptions"
    SUBSCRIPTION = "subscription"
    RULES = "rules"
    RULE = "rule"

    @property
    def is_list(self) -> bool:
        """Whether it is answered with a feed."""
        return self in _LISTS


_LISTS = frozenset({Kind.QUEUES, Kind.TOPICS, Kind.SUBSCRIPTIONS, Kind.RULES})

_FIXED = {
    "$namespaceinfo": Kind.NAMESPACE,
    "$resources/queues": Kind.QUEUES,
    "$resources/topics": Kind.TOPICS,
}


@dataclass(frozen=True, slots=True)
class Place:
    """The target of a request."""

    kind: Kind
    # The queue or topic; for the fixed places their whole path.
    entity: str
    subscription: str | None = None
    rule: str | None = None
    # The path as the client wrote it, without outer slashes: this may be signed.
    spelled: str = ""

    @property
    def path(self) -> EntityPath:
        """What finds the queue, topic or subscription."""
        return EntityPath(self.entity, self.subscription)

    @property
    def scope(self) -> EntityPath:
        """The whole path, for the decision about rights.

        Rules and lists are below their topic, so a rule of the topic reaches them.
        """
        below = {
            Kind.SUBSCRIPTIONS: "",
            Kind.RULES: f"{self.subscription}/Rules",
            Kind.RULE: f"{self.subscription}/Rules/{self.rule}",
        }
        return EntityPath(self.entity, below.get(self.kind, self.subscription))

    def tracker(self, namespace: str) -> str:
        """The name that errors give it: `contoso:Topic:events|all|$Default`."""
        parts = (self.entity, self.subscription, self.rule)
        kind = "Queue" if self.kind is Kind.ENTITY else "Topic"
        return f"{namespace}:{kind}:" + "|".join(part for part in parts if part)


def parse_place(raw_path: str) -> Place:
    """Read the path of a request, as it stands in the request line."""
    try:
        path = urllib.parse.unquote(raw_path, errors="strict")
    except UnicodeDecodeError:
        raise ArgumentError("The path of the request is not UTF-8.") from None
    spelled = raw_path.removeprefix("/").removesuffix("/")
    path = path.removeprefix("/").removesuffix("/")
    segments = path.split("/")
    if "" in segments:
        raise ArgumentError("The path of the request has an empty segment.")
    fixed = _FIXED.get(path.lower())
    if fixed is not None:
        return Place(fixed, path, spelled=spelled)
    lowered = [segment.lower() for segment in segments]
    # A queue or topic cannot have this word in its name, save as the first.
    if _SUBSCRIPTIONS not in lowered[1:]:
        return Place(Kind.ENTITY, path, spelled=spelled)
    end = lowered.index(_SUBSCRIPTIONS, 1)
    return _below_topic("/".join(segments[:end]), segments[end + 1 :], spelled)


def _below_topic(topic: str, rest: list[str], spelled: str) -> Place:
    match rest:
        case []:
            return Place(Kind.SUBSCRIPTIONS, topic, spelled=spelled)
        case [subscription]:
            return Place(Kind.SUBSCRIPTION, topic, subscription, spelled=spelled)
        case [subscription, rules] if rules.lower() == _RULES:
            return Place(Kind.RULES, topic, subscription, spelled=spelled)
        case [subscription, rules, rule] if rules.lower() == _RULES:
            return Place(Kind.RULE, topic, subscription, rule, spelled)
    raise ArgumentError(
        "The path of the request is not known. Use /topic/Subscriptions/name or "
        "/topic/Subscriptions/name/Rules/name."
    )
