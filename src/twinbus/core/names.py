"""Addresses and names of entities.

Owns how an address becomes a path and which names are allowed. An address is read
once, here, and from then on is an `EntityPath`; two paths are the same entity if their
keys are equal. Reading never fails: an odd address is simply one that nothing has.
Knows nothing about which entities exist.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from functools import cached_property

from twinbus import errors, limits

CBS = "$cbs"

_MANAGEMENT = "$management"
_DEAD_LETTER = "$DeadLetterQueue"
_TRANSFER = "$Transfer"
_SUBSCRIPTIONS = "Subscriptions"

# The tilde is not in the published list, but the real service takes it and frameworks
# put it into topic names.
_ENTITY_PATH = re.compile(r"[A-Za-z0-9._~/-]+")
_SUBSCRIPTION_NAME = re.compile(r"[A-Za-z0-9._~-]+")
_RULE_NAME = re.compile(r"[A-Za-z0-9._~$-]+")
_NAMESPACE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")


class SubQueue(enum.Enum):
    """Which of an entity's containers is meant; the value is its path suffix."""

    NONE = ""
    DEAD_LETTER = f"/{_DEAD_LETTER}"
    TRANSFER_DEAD_LETTER = f"/{_TRANSFER}/{_DEAD_LETTER}"


@dataclass(frozen=True)
class EntityPath:
    """An address, taken apart. The empty entity is the namespace itself."""

    entity: str
    subscription: str | None = None
    sub_queue: SubQueue = SubQueue.NONE
    management: bool = False

    @cached_property
    def display(self) -> str:
        """The queue, topic or subscription, without sub-queue and management."""
        if self.subscription is None:
            return self.entity
        return f"{self.entity}/{_SUBSCRIPTIONS}/{self.subscription}"

    @cached_property
    def text(self) -> str:
        """The whole path in its canonical spelling."""
        suffix = f"/{_MANAGEMENT}" if self.management else ""
        return f"{self.display}{self.sub_queue.value}{suffix}".strip("/")

    @cached_property
    def key(self) -> str:
        """What finds the queue, topic or subscription: `events/subscriptions/all`."""
        return self.display.lower()

    @cached_property
    def entity_key(self) -> str:
        """What finds the queue or topic, even for a subscription of it."""
        return self.entity.lower()

    @cached_property
    def scope_key(self) -> str:
        """The whole path for comparing scopes: `orders/$deadletterqueue`."""
        return self.text.lower()

    @property
    def is_cbs(self) -> bool:
        """Whether this is the node that takes tokens."""
        return self.scope_key == CBS

    @property
    def is_namespace(self) -> bool:
        """Whether this names no entity at all."""
        return not self.entity


def strip_uri(address: str) -> str:
    """Cut scheme, host, query and outer slashes off; a bare path stays as it is."""
    scheme, separator, rest = address.partition("://")
    if separator and "/" not in scheme:
        rest = re.split(r"[?#]", rest, maxsplit=1)[0]
        address = rest.partition("/")[2]
    return address.strip("/")


def parse_address(address: str) -> EntityPath:
    """Read a link address, a token audience or a bare path."""
    segments = strip_uri(address).split("/")
    lowered = [segment.lower() for segment in segments]
    end = len(segments)
    management = lowered[end - 1] == _MANAGEMENT
    if management:
        end -= 1
    sub_queue = SubQueue.NONE
    if lowered[:end][-1:] == [_DEAD_LETTER.lower()]:
        transfer = lowered[: end - 1][-1:] == [_TRANSFER.lower()]
        sub_queue = SubQueue.TRANSFER_DEAD_LETTER if transfer else SubQueue.DEAD_LETTER
        end -= 2 if transfer else 1
    subscription = None
    if end >= 3 and lowered[end - 2] == _SUBSCRIPTIONS.lower():
        subscription = segments[end - 1]
        end -= 2
    return EntityPath("/".join(segments[:end]), subscription, sub_queue, management)


def covers(scope_key: str, target_key: str) -> bool:
    """Whether a scope is the target or holds it, by whole segments.

    Both are lower-case paths; `orders` covers `orders/x` and not `orders2`. The empty
    scope is the namespace and covers everything.
    """
    return not scope_key or f"{target_key}/".startswith(f"{scope_key}/")


def check_entity_path(name: str, what: str = "queue or topic") -> None:
    """Refuse a queue or topic path that is not allowed."""
    _check(name, what, _ENTITY_PATH, limits.ENTITY_PATH_CHARS_MAX)
    segments = name.lower().split("/")
    if {"", ".", ".."} & set(segments):
        raise errors.ArgumentError(
            f"The {what} name '{name}' has an empty or a dot segment. "
            "Put a name before and after every slash."
        )
    # Such a path would be read as a subscription of a topic, so nothing could reach it.
    if _SUBSCRIPTIONS.lower() in segments[1:]:
        raise errors.ArgumentError(
            f"The {what} name '{name}' has the segment 'Subscriptions', which is "
            "reserved. Choose another name."
        )


def check_subscription_name(name: str) -> None:
    """Refuse a subscription name that is not allowed."""
    _check(name, "subscription", _SUBSCRIPTION_NAME, limits.SUBSCRIPTION_NAME_CHARS_MAX)


def check_rule_name(name: str) -> None:
    """Refuse a rule name that is not allowed; `$Default` is."""
    _check(name, "rule", _RULE_NAME, limits.RULE_NAME_CHARS_MAX)


def check_namespace_name(name: str) -> None:
    """Refuse a namespace name that could not be part of a host name."""
    _check(name, "namespace", _NAMESPACE_NAME, limits.NAMESPACE_NAME_CHARS_MAX)


def _check(name: str, what: str, allowed: re.Pattern[str], chars_max: int) -> None:
    if not name:
        raise errors.ArgumentError(f"The {what} name is empty. Give it a name.")
    if len(name) > chars_max:
        raise errors.ArgumentOutOfRange(
            f"The {what} name '{name[:32]}...' has {len(name)} characters; "
            f"at most {chars_max} are allowed."
        )
    if not allowed.fullmatch(name):
        rule = _ALPHABETS[allowed.pattern]
        raise errors.ArgumentError(
            f"The {what} name {name!r} has a character that is not allowed. Use {rule}."
        )


_ALPHABETS = {
    _ENTITY_PATH.pattern: "letters, digits and . - _ ~ /",
    _SUBSCRIPTION_NAME.pattern: "letters, digits and . - _ ~",
    _RULE_NAME.pattern: "letters, digits and . - _ ~ $",
    _NAMESPACE_NAME.pattern: "letters, digits and hyphens, a letter first",
}
