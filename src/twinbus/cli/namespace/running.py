"""Entities of a running namespace, ours or Azure's, through the official client.

Owns the way between the client's properties and the words of the configuration file.
What the administration API does not know, such as `message_rate_per_second`, is not
shown, and to set it is refused before anything is changed.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from twinbus.cli.namespace.catalogue import EntityJson
from twinbus.cli.namespace.settings import Settings, given_settings, option_name
from twinbus.cli.output import description_json, time_text
from twinbus.core.durations import format_duration
from twinbus.core.entity import (
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.core.filters import (
    CorrelationFilter,
    FalseFilter,
    FilterDescription,
    SqlFilter,
    SqlRuleAction,
    TrueFilter,
)
from twinbus.core.names import EntityPath
from twinbus.core.rule import RuleDescription
from twinbus.errors import ConfigError, EntityNotFound

if TYPE_CHECKING:
    from azure.servicebus import management
    from azure.servicebus.management import ServiceBusAdministrationClient

_KINDS: dict[type[Description], str] = {
    QueueDescription: "queue",
    TopicDescription: "topic",
    SubscriptionDescription: "subscription",
}
# What the client calls the counts, and what they are called here.
_COUNTS = {
    "active_message_count": "active_messages",
    "dead_letter_message_count": "dead_letter_messages",
    "subscription_count": "subscriptions",
    "scheduled_message_count": "scheduled_messages",
    "transfer_dead_letter_message_count": "transfer_dead_letter_messages",
    "size_in_bytes": "size_bytes",
}
_TIMES = ("created_at", "updated_at", "accessed_at")
# Not a setting, or shown by no other command.
_NOT_SHOWN = frozenset({"name", "authorization_rules", "availability_status"})


class RunningCatalogue:
    """The entities of one running namespace (`Catalogue`)."""

    def __init__(self, client: ServiceBusAdministrationClient, where: str) -> None:
        self.where = where
        self._client = client

    def create(self, description: Description, settings: Settings) -> EntityJson:
        """The API creates active entities; another status is set afterwards."""
        kind, path = _KINDS[type(description)], description.path
        create = getattr(self._client, f"create_{kind}")
        values = _values(description, settings)
        status = values.pop("status", None)
        _check_known(values, inspect.signature(create).parameters)
        made = create(*_names(path), **values)
        if status is not None:
            made.status = status
            getattr(self._client, f"update_{kind}")(*_names(path)[:-1], made)
        return self.shown(kind, path)

    def update(self, description: Description, settings: Settings) -> EntityJson:
        """Settings that were not given stay as they are."""
        kind, path = _KINDS[type(description)], description.path
        values = _values(description, settings)
        found = self._get(kind, path)
        _check_known(values, vars(found))
        for name, value in values.items():
            setattr(found, name, value)
        getattr(self._client, f"update_{kind}")(*_names(path)[:-1], found)
        return self.shown(kind, path)

    def listed(self, kind: str, topic: str | None) -> list[EntityJson]:
        """In no order."""
        above = () if topic is None else (topic,)
        with _missing("topic", topic or ""):
            list_all = getattr(self._client, f"list_{kind}s")
            list_counts = getattr(self._client, f"list_{kind}s_runtime_properties")
            counts = {each.name: each for each in list_counts(*above)}
            # One that was made between the two requests has no counts yet.
            return [
                _entity_json(each, counts[each.name])
                for each in list_all(*above)
                if each.name in counts
            ]

    def shown(self, kind: str, path: EntityPath) -> EntityJson:
        """One with its counts."""
        return _entity_json(self._get(kind, path), self._counts(kind, path))

    def count(self, kind: str, path: EntityPath) -> int:
        """How many messages it has, in any state."""
        if kind != "topic":
            return int(self._counts(kind, path).total_message_count)
        listed = self._client.list_subscriptions_runtime_properties(path.entity)
        below = sum(each.total_message_count or 0 for each in listed)
        return int(self._counts(kind, path).scheduled_message_count) + below

    def delete(self, kind: str, path: EntityPath) -> None:
        """Delete one that is there."""
        getattr(self._client, f"delete_{kind}")(*_names(path))

    def _get(self, kind: str, path: EntityPath) -> Any:
        with _missing(kind, path.text):
            return getattr(self._client, f"get_{kind}")(*_names(path))

    def _counts(self, kind: str, path: EntityPath) -> Any:
        with _missing(kind, path.text):
            get = getattr(self._client, f"get_{kind}_runtime_properties")
            return get(*_names(path))

    # -- rules -------------------------------------------------------------------------

    def rules(self, path: EntityPath) -> list[RuleDescription]:
        """The rules of a subscription, by name."""
        with _missing("subscription", path.text):
            found = list(self._client.list_rules(*_subscription(path)))
        return sorted(map(_our_rule, found), key=lambda rule: rule.key)

    def rule(self, path: EntityPath, name: str) -> RuleDescription:
        """One of them."""
        with _missing("rule", f"{path.text}/Rules/{name}"):
            return _our_rule(self._client.get_rule(*_subscription(path), name))

    def add_rule(self, path: EntityPath, rule: RuleDescription) -> RuleDescription:
        """Add one."""
        topic, subscription = _subscription(path)
        with _missing("subscription", path.text):
            made = self._client.create_rule(
                topic,
                subscription,
                rule.name,
                filter=_their_filter(rule.filter),
                action=_their_action(rule.action),
            )
        return _our_rule(made)

    def replace_rule(self, path: EntityPath, rule: RuleDescription) -> RuleDescription:
        """Give one another filter and action."""
        topic, subscription = _subscription(path)
        with _missing("rule", f"{path.text}/Rules/{rule.name}"):
            found = self._client.get_rule(topic, subscription, rule.name)
        found.filter = _their_filter(rule.filter)
        found.action = _their_action(rule.action)
        self._client.update_rule(topic, subscription, found)
        return self.rule(path, rule.name)

    def delete_rule(self, path: EntityPath, name: str) -> None:
        """Delete one that is there."""
        self._client.delete_rule(*_subscription(path), name)


def _names(path: EntityPath) -> tuple[str, ...]:
    """What the client calls an entity by."""
    return (path.entity, path.subscription) if path.subscription else (path.entity,)


def _subscription(path: EntityPath) -> tuple[str, str]:
    assert path.subscription is not None
    return path.entity, path.subscription


@contextmanager
def _missing(kind: str, path: str) -> Iterator[None]:
    """What is not there is said as everywhere."""
    from azure.core.exceptions import ResourceNotFoundError

    try:
        yield
    except ResourceNotFoundError:
        raise EntityNotFound(path) from None
    except AttributeError:
        # So the client ends when it asks for a queue and finds a topic.
        raise EntityNotFound(f"{kind} {path}") from None


def _values(description: Description, settings: Settings) -> dict[str, Any]:
    """The given settings, checked and as the client takes them."""
    known = description_json(description)
    return {name: known[name] for name in given_settings(settings)}


def _check_known(values: Iterable[str], known: Mapping[str, Any]) -> None:
    for name in values:
        if name not in known:
            raise ConfigError(
                f"{option_name(name)} cannot be set in a running namespace: the "
                "administration API does not have it. Leave it out."
            )


def _entity_json(properties: Any, counts: Any) -> EntityJson:
    """All about an entity: its settings, its counts and its times."""
    found: EntityJson = {"name": properties.name}
    for name, value in vars(properties).items():
        if not name.startswith("_") and name not in _NOT_SHOWN:
            found[name] = _plain(value)
    for theirs, ours in _COUNTS.items():
        if hasattr(type(counts), theirs):
            found[ours] = getattr(counts, theirs)
    for name in _TIMES:
        found[name] = _plain(getattr(counts, f"{name}_utc"))
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return format_duration(value // timedelta(milliseconds=1))
    if isinstance(value, datetime):
        return time_text(_wall_ms(value))
    # An enumeration of theirs is a text as well.
    return str(getattr(value, "value", value)) if isinstance(value, str) else value


def _wall_ms(moment: datetime) -> int:
    # What was never used has the first moment that there is.
    return max(0, int(moment.timestamp() * 1000)) if moment.year > 1 else 0


# -- filters and actions -----------------------------------------------------------


def _our_rule(rule: management.RuleProperties) -> RuleDescription:
    action = rule.action
    return RuleDescription(
        rule.name,
        _our_filter(rule.filter),
        SqlRuleAction(action.sql_expression, dict(action.parameters or {}))
        if action is not None and action.sql_expression
        else None,
        0 if rule.created_at_utc is None else _wall_ms(rule.created_at_utc),
    )


def _our_filter(found: Any) -> FilterDescription:
    from azure.servicebus import management

    if isinstance(found, management.CorrelationRuleFilter):
        names = [item.name for item in dataclasses.fields(CorrelationFilter)]
        values = {name: getattr(found, name) for name in names if name != "properties"}
        return CorrelationFilter(**values, properties=dict(found.properties or {}))
    if isinstance(found, management.TrueRuleFilter):
        return TrueFilter()
    if isinstance(found, management.FalseRuleFilter):
        return FalseFilter()
    return SqlFilter(found.sql_expression, dict(found.parameters or {}))


def _their_filter(ours: FilterDescription) -> Any:
    from azure.servicebus import management

    match ours:
        case CorrelationFilter():
            values = {
                item.name: getattr(ours, item.name)
                for item in dataclasses.fields(ours)
                if getattr(ours, item.name)
            }
            return management.CorrelationRuleFilter(**values)
        case TrueFilter():
            return management.TrueRuleFilter()
        case FalseFilter():
            return management.FalseRuleFilter()
        case _:
            return management.SqlRuleFilter(ours.expression)


def _their_action(ours: SqlRuleAction | None) -> management.SqlRuleAction | None:
    from azure.servicebus import management

    return None if ours is None else management.SqlRuleAction(ours.expression)
