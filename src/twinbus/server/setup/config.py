"""Namespaces and entities from a configuration file.

Owns the two formats that `--config` takes: ours, and the Config.json of Microsoft's
emulator. Both become the same descriptions, checked in full before the server sees
any of them. Fields are found by the descriptions' own fields, so a new property of
an entity can be configured without a change here.
Knows nothing about what already exists in a store.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from twinbus import limits
from twinbus.config_node import (
    ConfigNode,
    Fields,
    known_fields,
    read_file,
    read_text,
    required_field,
)
from twinbus.core import names, rights
from twinbus.core.entity import (
    ActiveStatus,
    AuthorizationRule,
    Description,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
    default_rule,
)
from twinbus.core.filters import (
    CorrelationFilter,
    FalseFilter,
    FilterDescription,
    SqlFilter,
    SqlRuleAction,
    TrueFilter,
)
from twinbus.core.rights import AUDIENCE, ROLES, JwtOptions
from twinbus.core.tier import NamespaceTier
from twinbus.server.broker.directory.config import (
    NamespaceConfig,
    SubscriptionConfig,
    TopicConfig,
)

_D = TypeVar("_D", QueueDescription, TopicDescription, SubscriptionDescription)


def load_config(path: Path) -> list[NamespaceConfig]:
    """Read a configuration file of either format; `ConfigError` says what to change."""
    return _namespaces(read_file(path))


def parse_config(text: str, file: str) -> list[NamespaceConfig]:
    """Read a configuration from text; `file` is its name for errors and its format."""
    return _namespaces(read_text(text, file))


def _namespaces(root: ConfigNode) -> list[NamespaceConfig]:
    if root.value is None:
        root.fail(
            "the file is empty. Write 'namespaces:' and a list below it, or leave the "
            "file out."
        )
    top, style = root.mapping(), _OURS
    if "UserConfig" in top:
        top = _known(top, ("UserConfig", "$schema"), style)
        root = _required(root, top, "UserConfig", style)
        style = _EMULATOR
        top = _known(style.fields(root), ("namespaces", "logging"), style)
    else:
        top = _known(top, ("namespaces",), style)
    nodes = _required(root, top, "namespaces", style).items()
    found = [_namespace(node, style) for node in nodes]
    _distinct(nodes, [namespace.name.lower() for namespace in found], "namespace")
    return found


class _Style(Protocol):
    """How one format spells keys, and where it puts properties and rules."""

    def spell(self, name: str) -> str: ...

    def fields(self, node: ConfigNode) -> Fields: ...

    def rule(self, node: ConfigNode) -> RuleDescription: ...

    def settle(self, values: dict[str, Any]) -> None: ...


class _Ours:
    """Our own format: the names of the descriptions' fields."""

    def spell(self, name: str) -> str:
        return name

    def fields(self, node: ConfigNode) -> Fields:
        # A name alone is an entity with the usual settings.
        return {"name": node} if isinstance(node.value, str) else node.mapping()

    def rule(self, node: ConfigNode) -> RuleDescription:
        fields = node.mapping()
        fields = _known(fields, ("name", "filter", "action"), self)
        action = fields.get("action")
        return RuleDescription(
            name=_name(node, fields, self),
            filter=_our_filter(fields["filter"])
            if "filter" in fields
            else TrueFilter(),
            action=_our_action(action) if action else None,
        )

    def settle(self, values: dict[str, Any]) -> None:
        """Nothing to adapt."""


class _Emulator:
    """Microsoft's Config.json: capital letters, and settings under `Properties`."""

    def spell(self, name: str) -> str:
        return "".join(word.capitalize() for word in name.split("_"))

    def fields(self, node: ConfigNode) -> Fields:
        fields: Fields = {}
        for key, child in node.mapping().items():
            if key != "Properties":
                fields[_snake(key)] = child
            elif child.value is not None:
                inner = child.mapping()
                fields |= {_snake(name): value for name, value in inner.items()}
        return fields

    def rule(self, node: ConfigNode) -> RuleDescription:
        fields = self.fields(node)
        kinds = ("sql_filter", "correlation_filter")
        fields = _known(fields, ("name", "filter_type", "action", *kinds), self)
        kind = _required(node, fields, "filter_type", self)
        wanted = f"{kind.text().lower().removesuffix('filter')}_filter"
        if wanted not in kinds:
            kind.fail(f"{kind.value!r} must be 'Sql' or 'Correlation'.")
        body = _required(node, fields, wanted, self)
        sql = wanted == "sql_filter"
        return RuleDescription(
            name=_name(node, fields, self),
            filter=SqlFilter(self._sql(body)) if sql else self._correlation(body),
            action=SqlRuleAction(self._sql(fields["action"]))
            if "action" in fields
            else None,
        )

    def settle(self, values: dict[str, Any]) -> None:
        """Lift a window that is shorter than ours may be, where it has no effect."""
        window = "duplicate_detection_history_time_window_ms"
        if window in values and not values.get("requires_duplicate_detection"):
            values[window] = max(values[window], limits.DUPLICATE_WINDOW_MS_MIN)

    def _sql(self, node: ConfigNode) -> str:
        fields = self.fields(node)
        ignored = ("compatibility_level", "requires_preprocessing")
        fields = _known(fields, ("sql_expression", *ignored), self)
        return _required(node, fields, "sql_expression", self).text()

    def _correlation(self, node: ConfigNode) -> CorrelationFilter:
        # Here `Properties` are conditions of the user, whose names stay as they are.
        fields = {_snake(key): child for key, child in node.mapping().items()}
        fields.pop("requires_preprocessing", None)
        return _correlation(node, fields, self)


_OURS: _Style = _Ours()
_EMULATOR: _Style = _Emulator()


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


# -- namespaces and entities -------------------------------------------------------


def _namespace(node: ConfigNode, style: _Style) -> NamespaceConfig:
    fields = style.fields(node)
    ours = ("authorization_rules", "message_rate_per_second", "jwt", "shards")
    more = ("ledger", "tier", *ours)
    fields = _known(fields, ("name", "queues", "topics", *more), style)
    name = _name(node, fields, style)
    fields["name"].checked(lambda: names.check_namespace_name(name))
    queue_nodes = _take_list(fields, "queues")
    topic_nodes = _take_list(fields, "topics")
    queues = [_queue(child, style) for child in queue_nodes]
    topics = [_topic(child, style) for child in topic_nodes]
    keys = [queue.key for queue in queues]
    keys += [topic.description.key for topic in topics]
    _distinct([*queue_nodes, *topic_nodes], keys, "queue or topic")
    rate = fields.get("message_rate_per_second")
    if rate and not 1 <= rate.integer() <= limits.MESSAGE_RATE_MAX:
        rate.fail(f"{rate.value} must be between 1 and {limits.MESSAGE_RATE_MAX}.")
    rules = fields.get("authorization_rules")
    return NamespaceConfig(
        name=name,
        queues=tuple(queues),
        topics=tuple(topics),
        authorization_rules=_authorization_rules(rules) if rules else (),
        message_rate_per_second=rate.integer() if rate else None,
        jwt=_jwt(fields["jwt"]) if "jwt" in fields else None,
        tier=_tier(fields["tier"]) if "tier" in fields else None,
        shards=_shards(fields["shards"]) if "shards" in fields else None,
        ledger=_ledger(fields["ledger"]) if "ledger" in fields else None,
    )


def _tier(node: ConfigNode) -> NamespaceTier:
    known = {tier.value: tier for tier in NamespaceTier}
    if node.text().lower() not in known:
        node.fail(f"{node.value!r} is not a tier. Use {' or '.join(known)}.")
    return known[node.text().lower()]


def _ledger(node: ConfigNode) -> Path | Literal[False]:
    """The folder of the ledger, or false for none."""
    if node.value is False:
        return False
    if not isinstance(node.value, str) or not node.value:
        node.fail("this must be the folder of the ledger, or false for none.")
    # A relative path starts where the file is.
    return Path(node.file).parent / node.text()


def _shards(node: ConfigNode) -> int | tuple[Path, ...]:
    """How many there are, or the folder of each."""
    most = limits.SHARDS_MAX
    is_list = isinstance(node.value, list)
    count = len(node.items()) if is_list else node.integer()
    if not 1 <= count <= most:
        node.fail(f"{count} shards are not possible; a namespace has 1 to {most}.")
    if not is_list:
        return count
    for child in node.items():
        if not child.text():
            child.fail("this must be the folder of a shard.")
    # A relative path starts where the file is.
    return tuple(Path(node.file).parent / child.text() for child in node.items())


def _queue(node: ConfigNode, style: _Style) -> QueueDescription:
    fields = style.fields(node)
    values = _settings(QueueDescription, node, fields, style)
    return _checked(node, QueueDescription(**values))


def _topic(node: ConfigNode, style: _Style) -> TopicConfig:
    fields = style.fields(node)
    nodes = _take_list(fields, "subscriptions")
    values = _settings(TopicDescription, node, fields, style, ("subscriptions",))
    topic = _checked(node, TopicDescription(**values))
    subscriptions = [_subscription(child, topic.name, style) for child in nodes]
    keys = [subscription.description.key for subscription in subscriptions]
    _distinct(nodes, keys, "subscription")
    filters = sum(len(subscription.rules) for subscription in subscriptions)
    if filters > limits.FILTERS_PER_TOPIC_MAX:
        node.fail(
            f"the topic has {filters} rules; "
            f"at most {limits.FILTERS_PER_TOPIC_MAX} are allowed."
        )
    return TopicConfig(topic, tuple(subscriptions))


def _subscription(
    node: ConfigNode, topic_name: str, style: _Style
) -> SubscriptionConfig:
    fields = style.fields(node)
    nodes = _take_list(fields, "rules")
    values = _settings(SubscriptionDescription, node, fields, style, ("rules",))
    subscription = SubscriptionDescription(topic_name=topic_name, **values)
    rules = [style.rule(child) for child in nodes]
    for child, rule in zip(nodes, rules, strict=True):
        child.checked(rule.validate)
    _distinct(nodes, [rule.key for rule in rules], "rule")
    # A subscription without rules would get nothing, so it is a mistake.
    return SubscriptionConfig(
        _checked(node, subscription), tuple(rules) or (default_rule(),)
    )


def _status(node: ConfigNode) -> ActiveStatus:
    known = {status.value.lower(): status for status in ActiveStatus}
    if node.text().lower() not in known:
        choices = ", ".join(status.value for status in ActiveStatus)
        node.fail(f"{node.value!r} is not a status. Use one of {choices}.")
    return known[node.text().lower()]


def _authorization_rules(node: ConfigNode) -> tuple[AuthorizationRule, ...]:
    rules = tuple(_authorization_rule(child) for child in node.items())
    node.checked(lambda: rights.check_rules(rules))
    return rules


def _authorization_rule(node: ConfigNode) -> AuthorizationRule:
    style = _OURS
    fields = node.mapping()
    fields = _known(fields, ("name", "rights", "primary_key", "secondary_key"), style)
    given = _required(node, fields, "rights", style)
    texts = [child.text() for child in given.items()]
    secondary = fields.get("secondary_key")
    return AuthorizationRule(
        name=_name(node, fields, style),
        rights=given.checked(lambda: rights.parse_rights(texts)),
        primary_key=_required(node, fields, "primary_key", style).secret(),
        secondary_key=secondary.secret() if secondary else None,
    )


def _jwt(node: ConfigNode) -> JwtOptions:
    fields = _known(node.mapping(), ("issuer", "jwks", "audience", "roles"), _OURS)
    roles = fields.get("roles")
    audience = fields.get("audience")
    return JwtOptions(
        issuer=_required(node, fields, "issuer", _OURS).text(),
        # A relative path starts where the file is.
        jwks=Path(node.file).parent / _required(node, fields, "jwks", _OURS).text(),
        audience=audience.text() if audience else AUDIENCE,
        roles=_roles(roles) if roles else ROLES,
    )


def _roles(node: ConfigNode) -> dict[str, rights.Right]:
    """The rights of roles and scopes: `{Writer: [Send]}`."""
    found: dict[str, rights.Right] = {}
    for name, child in node.mapping().items():
        texts = [item.text() for item in child.items()]
        found[name] = child.checked(partial(rights.parse_rights, texts))
    return found


_NOT_SETTINGS = frozenset({"topic_name", "created_at_ms", "updated_at_ms"})

_READERS: dict[str, Callable[[ConfigNode], Any]] = {
    "int": ConfigNode.integer,
    "int | None": ConfigNode.integer,
    "bool": ConfigNode.boolean,
    "str": ConfigNode.text,
    # An empty text is how the emulator's file says "not set".
    "str | None": lambda node: node.text() or None,
    "ActiveStatus": _status,
    "tuple[AuthorizationRule, ...]": _authorization_rules,
}


def _settings(
    kind: type[Description],
    node: ConfigNode,
    fields: Fields,
    style: _Style,
    others: Iterable[str] = (),
) -> dict[str, Any]:
    """Read every field of a description that the file gives."""
    items = [f for f in dataclasses.fields(kind) if f.name not in _NOT_SETTINGS]
    spelled = {item.name.removesuffix("_ms"): item for item in items}
    fields = _known(fields, (*spelled, *others), style)
    _name(node, fields, style)
    values: dict[str, Any] = {}
    for name, child in fields.items():
        item = spelled[name]
        if item.name.endswith("_ms"):
            values[item.name] = child.duration_ms()
        else:
            values[item.name] = _READERS[str(item.type)](child)
    style.settle(values)
    return values


# -- filters and actions -----------------------------------------------------------


def _our_filter(node: ConfigNode) -> FilterDescription:
    fields = node.mapping()
    kinds = ("sql", "correlation", "true", "false")
    fields = _known(fields, (*kinds, "parameters"), _OURS)
    given = [kind for kind in kinds if kind in fields]
    if len(given) != 1 or ("parameters" in fields and given != ["sql"]):
        node.fail("a filter is one of sql, correlation, true or false.")
    body = fields[given[0]]
    if given == ["sql"]:
        return SqlFilter(body.text(), _values(fields.get("parameters")))
    if given == ["correlation"]:
        return _correlation(body, body.mapping(), _OURS)
    if body.value != {}:
        body.fail(f"write {{{given[0]}: {{}}}}, with nothing in it.")
    return TrueFilter() if given == ["true"] else FalseFilter()


def _our_action(node: ConfigNode) -> SqlRuleAction:
    if isinstance(node.value, str):
        return SqlRuleAction(node.value)
    fields = node.mapping()
    fields = _known(fields, ("sql", "parameters"), _OURS)
    sql = _required(node, fields, "sql", _OURS)
    return SqlRuleAction(sql.text(), _values(fields.get("parameters")))


def _correlation(node: ConfigNode, fields: Fields, style: _Style) -> CorrelationFilter:
    known = [item.name for item in dataclasses.fields(CorrelationFilter)]
    fields = _known(fields, known, style)
    properties = _values(fields.pop("properties", None))
    texts = {name: child.text() for name, child in fields.items()}
    if not texts and not properties:
        node.fail("a correlation filter needs at least one condition.")
    return CorrelationFilter(**texts, properties=properties)


def _values(node: ConfigNode | None) -> dict[str, object]:
    if node is None:
        return {}
    return {name: child.value for name, child in node.mapping().items()}


# -- keys --------------------------------------------------------------------------


def _known(fields: Fields, known: Iterable[str], style: _Style) -> Fields:
    return known_fields(fields, known, style.spell)


def _required(node: ConfigNode, fields: Fields, name: str, style: _Style) -> ConfigNode:
    return required_field(node, fields, name, style.spell)


def _take_list(fields: Fields, name: str) -> list[ConfigNode]:
    node = fields.pop(name, None)
    return [] if node is None or node.value is None else node.items()


def _name(node: ConfigNode, fields: Fields, style: _Style) -> str:
    return _required(node, fields, "name", style).text()


def _checked(node: ConfigNode, description: _D) -> _D:
    node.checked(description.validate)
    return description


def _distinct(nodes: list[ConfigNode], keys: list[str], what: str) -> None:
    seen: dict[str, ConfigNode] = {}
    for node, key in zip(nodes, keys, strict=True):
        if key in seen:
            node.fail(
                f"there is already a {what} of this name ('{key}') at "
                f"{seen[key].place}. Rename or remove one."
            )
        seen[key] = node
