"""A request of the administration API, taken apart, and its answer, without HTTP.

Owns the reading of the path. It is decoded once and compared by whole segments; a path
that has an empty segment leads nowhere, so that no spelling of one place can pass for
another. Queues and topics may have slashes in their names, written plainly or as `%2F`.
`Subscriptions` and `Rules` are known in any case.
Knows nothing about sockets, which entities exist, or what an operation does.
"""

from __future__ import annotations

import enum
import urllib.parse
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from twinbus.core.names import EntityPath
from twinbus.core.rights import Claim, Operation, allowed
from twinbus.errors import ArgumentError, Unauthorized
from twinbus.server.http.admin.filters import Filter
from twinbus.server.http.admin.xml import Element
from twinbus.server.http.auth import Asked, Door, claim_in

# -- the path ------------------------------------------------------------------------

_SUBSCRIPTIONS = "subscriptions"
_RULES = "rules"


class TargetKind(enum.Enum):
    """What a path names; the value is how an error calls it."""

    NAMESPACE = "namespace"
    RESOURCES = "queues and topics"
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


_LISTS = frozenset(
    {
        TargetKind.RESOURCES,
        TargetKind.QUEUES,
        TargetKind.TOPICS,
        TargetKind.SUBSCRIPTIONS,
        TargetKind.RULES,
    }
)

_FIXED = {
    "$namespaceinfo": TargetKind.NAMESPACE,
    "$resources/queues": TargetKind.QUEUES,
    "$resources/topics": TargetKind.TOPICS,
}


@dataclass(frozen=True, slots=True)
class AdminTarget:
    """The target of a request."""

    kind: TargetKind
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
            TargetKind.SUBSCRIPTIONS: "",
            TargetKind.RULES: f"{self.subscription}/Rules",
            TargetKind.RULE: f"{self.subscription}/Rules/{self.rule}",
        }
        return EntityPath(self.entity, below.get(self.kind, self.subscription))

    def tracker(self, namespace: str) -> str:
        """The name that errors give it: `contoso:Topic:events|all|$Default`."""
        parts = (self.entity, self.subscription, self.rule)
        kind = "Queue" if self.kind is TargetKind.ENTITY else "Topic"
        return f"{namespace}:{kind}:" + "|".join(part for part in parts if part)


def parse_target(raw_path: str) -> AdminTarget:
    """Read the path of a request, as it stands in the request line."""
    try:
        path = urllib.parse.unquote(raw_path, errors="strict")
    except UnicodeDecodeError:
        raise ArgumentError("The path of the request is not UTF-8.") from None
    spelled = raw_path.removeprefix("/").removesuffix("/")
    path = path.removeprefix("/").removesuffix("/")
    if raw_path == "/":
        return AdminTarget(TargetKind.RESOURCES, "")
    segments = path.split("/")
    if "" in segments:
        raise ArgumentError("The path of the request has an empty segment.")
    fixed = _FIXED.get(path.lower())
    if fixed is not None:
        return AdminTarget(fixed, path, spelled=spelled)
    lowered = [segment.lower() for segment in segments]
    # A queue or topic cannot have this word in its name, save as the first.
    if _SUBSCRIPTIONS not in lowered[1:]:
        return AdminTarget(TargetKind.ENTITY, path, spelled=spelled)
    end = lowered.index(_SUBSCRIPTIONS, 1)
    return _below_topic("/".join(segments[:end]), segments[end + 1 :], spelled)


def _below_topic(topic: str, rest: list[str], spelled: str) -> AdminTarget:
    match rest:
        case []:
            return AdminTarget(TargetKind.SUBSCRIPTIONS, topic, spelled=spelled)
        case [subscription]:
            return AdminTarget(
                TargetKind.SUBSCRIPTION, topic, subscription, spelled=spelled
            )
        case [subscription, rules] if rules.lower() == _RULES:
            return AdminTarget(TargetKind.RULES, topic, subscription, spelled=spelled)
        case [subscription, rules, rule] if rules.lower() == _RULES:
            return AdminTarget(TargetKind.RULE, topic, subscription, rule, spelled)
    raise ArgumentError(
        "The path of the request is not known. Use /topic/Subscriptions/name or "
        "/topic/Subscriptions/name/Rules/name."
    )


# -- the request ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Forwarding:
    """Credentials of a request for the targets that an entity forwards to."""

    # For each field of a target: the token for it, and the request's own.
    tokens: Mapping[str, tuple[str, ...]]
    authority: str
    door: Door
    now_s: int

    def check(self, field: str, target: str) -> None:
        """Return if the request may make an entity send to that target.

        A client that may change one queue could otherwise send to all others through
        it. The right may come from the token for the target, or from the request's own.
        """
        asked = Asked(Operation.SEND_LINK, EntityPath(target), target, self.authority)
        claims: list[Claim] = []
        for token in self.tokens[field]:
            with suppress(Unauthorized):
                claims.append(claim_in(token, asked, self.door, self.now_s))
        allowed(claims, asked.operation, asked.scope, self.now_s)


@dataclass(frozen=True, slots=True)
class AdminRequest:
    """A request that may do what it asks for."""

    method: str
    target: AdminTarget
    # The URL that was asked for, and the part of it up to the path.
    url: str
    root: str
    version: str
    if_match: str | None = None
    skip: int = 0
    top: int = 0
    # Which entities of a list are wanted, and how the client wrote that.
    wanted: Filter = lambda _facts: True
    filter_text: str | None = None
    description: Element | None = None
    # What proves that messages may be forwarded; None for requests that change nothing.
    forwarding: Forwarding | None = None


@dataclass(frozen=True, slots=True)
class AdminReply:
    """An answer."""

    status: int
    body: str = ""
    content_type: str | None = None
    etag: str | None = None
