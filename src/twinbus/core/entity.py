"""Descriptions of queues, topics and subscriptions; those of rules are in `rule.py`.

Owns the properties of entities: their defaults, their ranges, which may never change,
and their form in the store. A description is a value; to change an entity is to replace
its description. Names of fields follow the administration API, durations are in ms.
Knows nothing about messages, counts, or how a description reaches the server.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Self

from twinbus import errors, limits
from twinbus.core import names
from twinbus.core.durations import DURATION_MAX_MS, format_duration
from twinbus.core.rights import (
    AuthorizationRule,
    Right,
    check_rules,
    format_rights,
    parse_rights,
)
from twinbus.core.rule import RuleDescription, default_rule
from twinbus.core.sas import Secret

__all__ = [
    "ActiveStatus",
    "AuthorizationRule",
    "Description",
    "QueueDescription",
    "Right",
    "RuleDescription",
    "SubscriptionDescription",
    "TopicDescription",
    "changed",
    "default_rule",
    "rule_from_json",
    "rule_to_json",
]

Json = dict[str, Any]


class ActiveStatus(enum.Enum):
    """What an entity lets its users do."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"

    @property
    def can_send(self) -> bool:
        """Whether messages may come in."""
        return self in (ActiveStatus.ACTIVE, ActiveStatus.RECEIVE_DISABLED)

    @property
    def can_receive(self) -> bool:
        """Whether messages may go out."""
        return self in (ActiveStatus.ACTIVE, ActiveStatus.SEND_DISABLED)


# Times of the entity itself are no settings, so they do not make descriptions differ.
def _moment() -> int:
    return field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class QueueDescription:
    """A queue."""

    name: str
    _: KW_ONLY
    lock_duration_ms: int = 60_000
    max_size_in_megabytes: int = 1024
    requires_duplicate_detection: bool = False
    requires_session: bool = False
    default_message_time_to_live_ms: int = DURATION_MAX_MS
    dead_lettering_on_message_expiration: bool = False
    duplicate_detection_history_time_window_ms: int = 600_000
    max_delivery_count: int = 10
    enable_batched_operations: bool = True
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    status: ActiveStatus = ActiveStatus.ACTIVE
    support_ordering: bool = True
    auto_delete_on_idle_ms: int = DURATION_MAX_MS
    enable_partitioning: bool = False
    enable_express: bool = False
    forward_to: str | None = None
    user_metadata: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    max_message_size_in_kilobytes: int | None = None
    message_rate_per_second: int | None = None
    created_at_ms: int = _moment()
    updated_at_ms: int = _moment()

    @property
    def path(self) -> names.EntityPath:
        """Where the queue is found."""
        return names.EntityPath(self.name)

    @property
    def key(self) -> str:
        """What finds the queue."""
        return self.name.lower()

    @property
    def message_bytes_max(self) -> int:
        """The largest message that the queue takes."""
        return _message_bytes_max(self.max_message_size_in_kilobytes)

    @property
    def forward_key(self) -> str | None:
        """The key of the entity that messages go on to."""
        return _target_key(self.forward_to)

    @property
    def forward_dead_letter_key(self) -> str | None:
        """The key of the entity that dead-lettered messages go on to."""
        return _target_key(self.forward_dead_lettered_messages_to)

    def validate(self) -> None:
        """Refuse what the real service refuses; the error names the field."""
        names.check_entity_path(self.name, "queue")
        _check_lock(self.lock_duration_ms)
        _check_delivery_count(self.max_delivery_count)
        _check_storage(self)
        _check_lifetimes(self)
        _check_forwarding(self)
        check_rules(self.authorization_rules)

    def to_json(self) -> Json:
        """A plain dictionary for the store, keys of rules included."""
        return _to_json(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote, now or in a later version."""
        return cls(**_from_json(cls, data))


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic."""

    name: str
    _: KW_ONLY
    default_message_time_to_live_ms: int = DURATION_MAX_MS
    max_size_in_megabytes: int = 1024
    requires_duplicate_detection: bool = False
    duplicate_detection_history_time_window_ms: int = 600_000
    enable_batched_operations: bool = True
    filtering_messages_before_publishing: bool = False
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    status: ActiveStatus = ActiveStatus.ACTIVE
    support_ordering: bool = True
    auto_delete_on_idle_ms: int = DURATION_MAX_MS
    enable_partitioning: bool = False
    enable_subscription_partitioning: bool = False
    enable_express: bool = False
    user_metadata: str | None = None
    max_message_size_in_kilobytes: int | None = None
    message_rate_per_second: int | None = None
    created_at_ms: int = _moment()
    updated_at_ms: int = _moment()

    @property
    def path(self) -> names.EntityPath:
        """Where the topic is found."""
        return names.EntityPath(self.name)

    @property
    def key(self) -> str:
        """What finds the topic."""
        return self.name.lower()

    @property
    def message_bytes_max(self) -> int:
        """The largest message that the topic takes."""
        return _message_bytes_max(self.max_message_size_in_kilobytes)

    def validate(self) -> None:
        """Refuse what the real service refuses; the error names the field."""
        names.check_entity_path(self.name, "topic")
        _check_storage(self)
        _check_lifetimes(self)
        check_rules(self.authorization_rules)

    def to_json(self) -> Json:
        """A plain dictionary for the store, keys of rules included."""
        return _to_json(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote, now or in a later version."""
        return cls(**_from_json(cls, data))


@dataclass(frozen=True, slots=True)
class SubscriptionDescription:
    """A subscription of a topic."""

    topic_name: str
    name: str
    _: KW_ONLY
    lock_duration_ms: int = 60_000
    requires_session: bool = False
    default_message_time_to_live_ms: int = DURATION_MAX_MS
    dead_lettering_on_message_expiration: bool = False
    dead_lettering_on_filter_evaluation_exceptions: bool = True
    max_delivery_count: int = 10
    enable_batched_operations: bool = True
    status: ActiveStatus = ActiveStatus.ACTIVE
    forward_to: str | None = None
    user_metadata: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    auto_delete_on_idle_ms: int = DURATION_MAX_MS
    message_rate_per_second: int | None = None
    created_at_ms: int = _moment()
    updated_at_ms: int = _moment()

    @property
    def path(self) -> names.EntityPath:
        """Where the subscription is found."""
        return names.EntityPath(self.topic_name, self.name)

    @property
    def key(self) -> str:
        """What finds the subscription."""
        return self.path.key

    @property
    def forward_key(self) -> str | None:
        """The key of the entity that messages go on to."""
        return _target_key(self.forward_to)

    @property
    def forward_dead_letter_key(self) -> str | None:
        """The key of the entity that dead-lettered messages go on to."""
        return _target_key(self.forward_dead_lettered_messages_to)

    def validate(self) -> None:
        """Refuse what the real service refuses; the error names the field."""
        names.check_entity_path(self.topic_name, "topic")
        names.check_subscription_name(self.name)
        _check_lock(self.lock_duration_ms)
        _check_delivery_count(self.max_delivery_count)
        _check_lifetimes(self)
        _check_forwarding(self)

    def to_json(self) -> Json:
        """A plain dictionary for the store."""
        return _to_json(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote, now or in a later version."""
        return cls(**_from_json(cls, data))


Description = QueueDescription | TopicDescription | SubscriptionDescription

_IMMUTABLE = ("requires_session", "requires_duplicate_detection", "enable_partitioning")


def changed(old: Description, new: Description) -> bool:
    """Whether any setting differs; refuses changes of what is fixed at creation."""
    if type(old) is not type(new) or old.key != new.key:
        raise errors.ArgumentError(
            f"'{old.path.text}' cannot become '{new.path.text}'. "
            "Create another entity instead."
        )
    for name in _IMMUTABLE:
        if getattr(old, name, None) != getattr(new, name, None):
            raise errors.ArgumentError(
                f"{name} of '{old.path.text}' cannot be changed after creation. "
                "Delete the entity and create it again."
            )
    return old != new


# -- checks ------------------------------------------------------------------------


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise errors.ArgumentOutOfRange(
            f"{name} must be between {low} and {high}, not {value}."
        )


def _check_duration(name: str, value_ms: int, low_ms: int, high_ms: int) -> None:
    if not low_ms <= value_ms <= high_ms:
        given = format_duration(value_ms) if value_ms >= 0 else "negative"
        raise errors.ArgumentOutOfRange(
            f"{name} must be between {format_duration(low_ms)} and "
            f"{format_duration(high_ms)}, not {given}."
        )


def _check_lock(lock_ms: int) -> None:
    _check_duration("lock_duration", lock_ms, limits.LOCK_MS_MIN, limits.LOCK_MS_MAX)


def _check_delivery_count(count: int) -> None:
    _check_range("max_delivery_count", count, 1, limits.DELIVERY_COUNT_MAX)


def _check_storage(entity: QueueDescription | TopicDescription) -> None:
    size = entity.max_size_in_megabytes
    _check_range("max_size_in_megabytes", size, 1, limits.ENTITY_MEGABYTES_MAX)
    _check_duration(
        "duplicate_detection_history_time_window",
        entity.duplicate_detection_history_time_window_ms,
        limits.DUPLICATE_WINDOW_MS_MIN,
        limits.DUPLICATE_WINDOW_MS_MAX,
    )
    # Clients read the default and write it back, so it counts as not set.
    kilobytes = entity.max_message_size_in_kilobytes
    if kilobytes not in (None, limits.MESSAGE_KILOBYTES_DEFAULT):
        # Clients look for the name of the service's own field.
        name = (
            "max_message_size_in_kilobytes: the value for 'MaxMessageSizeInKilobytes'"
        )
        low, high = limits.MESSAGE_KILOBYTES_MIN, limits.MESSAGE_KILOBYTES_MAX
        _check_range(name, kilobytes, low, high)


def _check_lifetimes(entity: Description) -> None:
    _check_duration(
        "default_message_time_to_live",
        entity.default_message_time_to_live_ms,
        limits.TIME_TO_LIVE_MS_MIN,
        DURATION_MAX_MS,
    )
    _check_duration(
        "auto_delete_on_idle",
        entity.auto_delete_on_idle_ms,
        limits.AUTO_DELETE_MS_MIN,
        DURATION_MAX_MS,
    )
    rate = entity.message_rate_per_second
    if rate is not None:
        _check_range("message_rate_per_second", rate, 1, limits.MESSAGE_RATE_MAX)
    metadata_chars = len(entity.user_metadata or "")
    if metadata_chars > limits.USER_METADATA_CHARS_MAX:
        raise errors.ArgumentOutOfRange(
            f"user_metadata has {metadata_chars} characters; at most "
            f"{limits.USER_METADATA_CHARS_MAX} are allowed."
        )


def _check_forwarding(entity: QueueDescription | SubscriptionDescription) -> None:
    """A target may be the entity itself: the number of hops is bounded."""
    for name in ("forward_to", "forward_dead_lettered_messages_to"):
        target: str | None = getattr(entity, name)
        if not target:
            continue
        path = names.parse_address(target)
        if path.text != path.entity or not path.entity:
            raise errors.ArgumentError(
                f"{name} '{target}' must name a queue or a topic, nothing below it."
            )
        names.check_entity_path(path.entity, name)


def _target_key(address: str | None) -> str | None:
    return names.parse_address(address).key if address else None


def _message_bytes_max(kilobytes: int | None) -> int:
    if kilobytes is None:
        return limits.MESSAGE_BYTES_MAX
    return kilobytes * 1024


# -- the form in the store ---------------------------------------------------------


def _to_json(entity: Description) -> Json:
    data: Json = {}
    for item in dataclasses.fields(entity):
        value = getattr(entity, item.name)
        if isinstance(value, ActiveStatus):
            value = value.value
        elif item.name == "authorization_rules":
            value = [rule_to_json(rule) for rule in value]
        data[item.name] = value
    return data


def _from_json(kind: type[Description], data: Mapping[str, Any]) -> Json:
    known = {item.name for item in dataclasses.fields(kind)}
    values = {name: value for name, value in data.items() if name in known}
    if "status" in values:
        values["status"] = ActiveStatus(values["status"])
    if "authorization_rules" in values:
        rules = values["authorization_rules"]
        values["authorization_rules"] = tuple(rule_from_json(rule) for rule in rules)
    return values


def rule_to_json(rule: AuthorizationRule) -> Json:
    """A plain dictionary for the store, with both keys."""
    secondary = rule.secondary_key
    return {
        "name": rule.name,
        "rights": list(format_rights(rule.rights)),
        "primary_key": rule.primary_key.reveal(),
        "secondary_key": secondary.reveal() if secondary else None,
        "created_at_ms": rule.created_at_ms,
        "modified_at_ms": rule.modified_at_ms,
    }


def rule_from_json(data: Mapping[str, Any]) -> AuthorizationRule:
    """Read what `rule_to_json` wrote."""
    secondary = data.get("secondary_key")
    return AuthorizationRule(
        name=data["name"],
        rights=parse_rights(data["rights"]),
        primary_key=Secret(data["primary_key"]),
        secondary_key=Secret(secondary) if secondary else None,
        created_at_ms=data.get("created_at_ms", 0),
        modified_at_ms=data.get("modified_at_ms", 0),
    )
