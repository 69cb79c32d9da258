"""Descriptions of queues, topics and subscriptions in the administration API.

Owns which element is which setting, the documented order of elements (clients of .NET
read them in that order alone), and what each version of the API knows. What a request
leaves out has its default; what is read-only is accepted and ignored, since clients
send back what they got. Ranges and what may change are decided by `core/entity.py`.
An authorization rule that comes without keys keeps those it had, or gets random ones.
Descriptions are written for those who hold Manage on the entity, with its keys.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twinbus import limits
from twinbus.core import names
from twinbus.core.durations import format_duration
from twinbus.core.entity import (
    ActiveStatus,
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.core.rights import AuthorizationRule, Right, format_rights, parse_rights
from twinbus.core.sas import Secret
from twinbus.errors import ArgumentError
from twinbus.server.broker.directory.keys import new_key
from twinbus.server.http.admin.xml import (
    COUNTS,
    Element,
    content_of,
    escape,
    instance_type,
    local_name,
    moment,
    read_boolean,
    read_duration_ms,
    read_integer,
    refuse,
    shown,
    tag,
    write_description,
)

# Versions of the API at which something changed.
STRICT_VERSION = "2017-04"
LARGE_MESSAGES_VERSION = "2021-05"
FILTER_COUNTS_VERSION = "2024-05"

_QUEUE = """
LockDuration MaxSizeInMegabytes RequiresDuplicateDetection RequiresSession
DefaultMessageTimeToLive DeadLetteringOnMessageExpiration
DuplicateDetectionHistoryTimeWindow MaxDeliveryCount EnableBatchedOperations SizeInBytes
MessageCount IsAnonymousAccessible AuthorizationRules Status CreatedAt UpdatedAt
AccessedAt SupportOrdering CountDetails AutoDeleteOnIdle EnablePartitioning
EntityAvailabilityStatus EnableExpress ForwardTo UserMetadata
ForwardDeadLetteredMessagesTo MaxMessageSizeInKilobytes
"""
_TOPIC = """
DefaultMessageTimeToLive MaxSizeInMegabytes RequiresDuplicateDetection
DuplicateDetectionHistoryTimeWindow EnableBatchedOperations SizeInBytes
FilteringMessagesBeforePublishing IsAnonymousAccessible AuthorizationRules Status
CreatedAt UpdatedAt AccessedAt SupportOrdering CountDetails SubscriptionCount
SqlFilterCount CorrelationFilterCount AutoDeleteOnIdle EnablePartitioning
EntityAvailabilityStatus EnableSubscriptionPartitioning EnableExpress UserMetadata
MaxMessageSizeInKilobytes
"""
_SUBSCRIPTION = """
LockDuration RequiresSession DefaultMessageTimeToLive DeadLetteringOnMessageExpiration
DeadLetteringOnFilterEvaluationExceptions DefaultRuleDescription MessageCount
MaxDeliveryCount EnableBatchedOperations Status ForwardTo CreatedAt UpdatedAt AccessedAt
CountDetails UserMetadata ForwardDeadLetteredMessagesTo AutoDeleteOnIdle
EntityAvailabilityStatus IsClientAffine
"""

_SINCE = {
    "MaxMessageSizeInKilobytes": LARGE_MESSAGES_VERSION,
    "SqlFilterCount": FILTER_COUNTS_VERSION,
    "CorrelationFilterCount": FILTER_COUNTS_VERSION,
}


# -- one setting ---------------------------------------------------------------------


def _read_status(name: str, text: str) -> ActiveStatus:
    for status in ActiveStatus:
        if status.value.lower() == text.lower():
            return status
    known = ", ".join(status.value for status in ActiveStatus)
    raise refuse(name, text, f"one of {known}")


def _read_target(_name: str, text: str) -> str | None:
    """The path of another entity; clients send it as a whole URL."""
    return names.parse_address(text).text if text else None


def _read_text(_name: str, text: str) -> str | None:
    return text or None


def _write_boolean(value: bool) -> str:
    return "true" if value else "false"


Codec = tuple[Callable[[str, str], object], Callable[[Any], str]]

_BOOLEAN: Codec = (read_boolean, _write_boolean)
_INTEGER: Codec = (read_integer, str)
_DURATION: Codec = (read_duration_ms, format_duration)
_STATUS: Codec = (_read_status, lambda status: str(status.value))
_TEXT: Codec = (_read_text, escape)
_TARGET: Codec = (_read_target, escape)

_SETTINGS: dict[str, tuple[str, Codec]] = {
    "LockDuration": ("lock_duration_ms", _DURATION),
    "MaxSizeInMegabytes": ("max_size_in_megabytes", _INTEGER),
    "RequiresDuplicateDetection": ("requires_duplicate_detection", _BOOLEAN),
    "RequiresSession": ("requires_session", _BOOLEAN),
    "DefaultMessageTimeToLive": ("default_message_time_to_live_ms", _DURATION),
    "DeadLetteringOnMessageExpiration": (
        "dead_lettering_on_message_expiration",
        _BOOLEAN,
    ),
    "DeadLetteringOnFilterEvaluationExceptions": (
        "dead_lettering_on_filter_evaluation_exceptions",
        _BOOLEAN,
    ),
    "DuplicateDetectionHistoryTimeWindow": (
        "duplicate_detection_history_time_window_ms",
        _DURATION,
    ),
    "MaxDeliveryCount": ("max_delivery_count", _INTEGER),
    "EnableBatchedOperations": ("enable_batched_operations", _BOOLEAN),
    "FilteringMessagesBeforePublishing": (
        "filtering_messages_before_publishing",
        _BOOLEAN,
    ),
    "Status": ("status", _STATUS),
    "SupportOrdering": ("support_ordering", _BOOLEAN),
    "AutoDeleteOnIdle": ("auto_delete_on_idle_ms", _DURATION),
    "EnablePartitioning": ("enable_partitioning", _BOOLEAN),
    "EnableSubscriptionPartitioning": ("enable_subscription_partitioning", _BOOLEAN),
    "EnableExpress": ("enable_express", _BOOLEAN),
    "ForwardTo": ("forward_to", _TARGET),
    "UserMetadata": ("user_metadata", _TEXT),
    "ForwardDeadLetteredMessagesTo": ("forward_dead_lettered_messages_to", _TARGET),
    "MaxMessageSizeInKilobytes": ("max_message_size_in_kilobytes", _INTEGER),
}
_MAY_BE_EMPTY = (_TEXT, _TARGET)

_DEFAULTS_SHOWN: dict[str, Any] = {
    "max_message_size_in_kilobytes": limits.MESSAGE_KILOBYTES_DEFAULT
}


# -- a kind of description -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Form:
    """How one kind of description is written."""

    element: str
    kind: str
    order: tuple[str, ...]
    settings: Mapping[str, tuple[str, Codec]]

    def knows(self, name: str, version: str) -> bool:
        """Whether a version of the API has that element."""
        return name in self.order and version >= _SINCE.get(name, "")


def _form(element: str, kind: type[Description], word: str, order: str) -> Form:
    fields = {item.name for item in dataclasses.fields(kind)}
    settings = {
        name: (field, codec)
        for name in order.split()
        if name in _SETTINGS
        for field, codec in [_SETTINGS[name]]
        if field in fields
    }
    return Form(element, word, tuple(order.split()), settings)


QUEUE = _form("QueueDescription", QueueDescription, "queue", _QUEUE)
TOPIC = _form("TopicDescription", TopicDescription, "topic", _TOPIC)
SUBSCRIPTION = _form(
    "SubscriptionDescription", SubscriptionDescription, "subscription", _SUBSCRIPTION
)
FORMS = {form.kind: form for form in (QUEUE, TOPIC, SUBSCRIPTION)}


@dataclass(frozen=True, slots=True)
class GivenDescription:
    """What a request says about an entity."""

    form: Form
    settings: dict[str, Any]
    authorization_rules: tuple[GivenRule, ...] = ()
    default_rule: Element | None = None


def read(element: Element, version: str) -> GivenDescription:
    """The settings in a description; refuses what the version does not know."""
    form = next((f for f in FORMS.values() if f.element == local_name(element)), None)
    if form is None:
        known = ", ".join(form.element for form in FORMS.values())
        raise ArgumentError(f"The description must be one of {known}.")
    settings: dict[str, Any] = {}
    rules: tuple[GivenRule, ...] = ()
    default_rule = None
    for child in element:
        name = local_name(child) or child.tag
        if not form.knows(name, version):
            _refuse_unknown(name, form, version)
        elif name == "AuthorizationRules":
            rules = read_rules(child)
        elif name == "DefaultRuleDescription":
            default_rule = child
        elif name in form.settings:
            field, codec = form.settings[name]
            settings[field] = _read_setting(name, content_of(child), codec)
    return GivenDescription(form, settings, rules, default_rule)


def _refuse_unknown(name: str, form: Form, version: str) -> None:
    # Later versions let a client be newer than the server.
    if version <= STRICT_VERSION:
        raise ArgumentError(
            f"The property {shown(name)} of {form.element} is not known to version "
            f"{version} of the API."
        )


def _read_setting(name: str, text: str, codec: Codec) -> object:
    if not text and codec not in _MAY_BE_EMPTY:
        raise ArgumentError(f"{name} is empty. Give it a value, or leave it out.")
    return codec[0](name, text)


def write(
    description: Description,
    runtime: Mapping[str, str],
    url: str,
    version: str,
    fragments: int = 0,
) -> str:
    """A whole description; `runtime` has the elements that are no settings, as XML.

    `url` is the address of the namespace, which targets of forwarding begin with.
    """
    form = next(f for f in FORMS.values() if f.element == type(description).__name__)
    values = dict(runtime)
    for name, (field, codec) in form.settings.items():
        value = getattr(description, field)
        value = _DEFAULTS_SHOWN.get(field) if value is None else value
        if value is None:
            continue
        if codec is _TARGET:
            value = url + names.parse_address(value).text
        elif name == "MaxSizeInMegabytes":
            value = shown_megabytes(description, fragments)
        values[name] = codec[1](value)
    inner = "".join(
        values[name] if name == "CountDetails" else tag(name, values[name])
        for name in form.order
        if name in values and form.knows(name, version)
    )
    return write_description(form.element, inner)


def shown_megabytes(description: Description, fragments: int) -> int:
    """The size that a client sees: that of all fragments of a partitioned entity."""
    assert not isinstance(description, SubscriptionDescription)
    return description.max_size_in_megabytes * max(fragments, 1)


def write_counts(counts: Mapping[str, int]) -> str:
    """`CountDetails`; one client finds the counts by the only prefix declared on it."""
    inner = "".join(tag(f"d2p1:{name}", str(count)) for name, count in counts.items())
    return tag("CountDetails", inner, f'xmlns:d2p1="{COUNTS}"')


# -- authorization rules -------------------------------------------------------------

_KIND = "SharedAccessAuthorizationRule"


@dataclass(frozen=True, slots=True)
class GivenRule:
    """A rule as a request has it."""

    name: str
    rights: Right
    primary_key: Secret | None
    secondary_key: Secret | None


def read_rules(element: Element) -> tuple[GivenRule, ...]:
    """The rules below `AuthorizationRules`."""
    return tuple(
        _read_rule(child)
        for child in element
        if local_name(child) == "AuthorizationRule"
    )


def _read_rule(element: Element) -> GivenRule:
    if instance_type(element) not in (_KIND, ""):
        raise ArgumentError(f"An AuthorizationRule must be of the type {_KIND}.")
    parts = {local_name(part): part for part in element}
    if "KeyName" not in parts or "Rights" not in parts:
        raise ArgumentError("An AuthorizationRule needs a KeyName and Rights.")
    rights = [
        content_of(right)
        for right in parts["Rights"]
        if local_name(right) == "AccessRights"
    ]
    keys = [
        Secret(content_of(parts[name]))
        if name in parts and content_of(parts[name])
        else None
        for name in ("PrimaryKey", "SecondaryKey")
    ]
    return GivenRule(content_of(parts["KeyName"]), parse_rights(rights), *keys)


def complete_rules(
    given: Sequence[GivenRule], old: Sequence[AuthorizationRule]
) -> tuple[AuthorizationRule, ...]:
    """The rules with the keys that the request left out."""
    by_name = {rule.name: rule for rule in old}
    rules = []
    for rule in given:
        known = by_name.get(rule.name)
        primary = rule.primary_key or (known.primary_key if known else new_key())
        secondary = rule.secondary_key or (known.secondary_key if known else new_key())
        rules.append(AuthorizationRule(rule.name, rule.rights, primary, secondary))
    return tuple(rules)


def write_rules(rules: Sequence[AuthorizationRule], entity_ms: int) -> str:
    """What is in `AuthorizationRules`.

    `entity_ms` is for rules that an older version has stored without their times.
    """
    return "".join(_write_rule(rule, entity_ms) for rule in rules)


def _write_rule(rule: AuthorizationRule, entity_ms: int) -> str:
    rights = "".join(tag("AccessRights", name) for name in format_rights(rule.rights))
    secondary = rule.secondary_key.reveal() if rule.secondary_key else ""
    inner = (
        tag("ClaimType", "SharedAccessKey")
        + tag("ClaimValue", "None")
        + tag("Rights", rights)
        + tag("CreatedTime", moment(rule.created_at_ms or entity_ms))
        + tag("ModifiedTime", moment(rule.modified_at_ms or entity_ms))
        + tag("KeyName", escape(rule.name))
        + tag("PrimaryKey", escape(rule.primary_key.reveal()))
        + tag("SecondaryKey", escape(secondary))
    )
    return tag("AuthorizationRule", inner, f'i:type="{_KIND}"')
