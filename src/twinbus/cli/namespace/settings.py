"""Settings of entities as options: `--lock-duration PT30S`, `--requires-session`.

Owns the way from an entity's description to the options of a command and back. Options
are made from the fields of the description, and their values are read by the same code
that reads configuration files, so that both take the same and refuse the same.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.core.entity import (
    Description,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.errors import ConfigError

if TYPE_CHECKING:
    from twinbus.server.broker.directory.config import NamespaceConfig

# Names and times are no settings; rights and keys have a command of their own.
_NOT_OPTIONS = frozenset(
    {"name", "topic_name", "created_at_ms", "updated_at_ms", "authorization_rules"}
)
# Where the name alone does not say what may be given.
_DURATION = "As ISO 8601, for example PT30S."
_HELP = {"status": "Active, Disabled, SendDisabled or ReceiveDisabled."}
_TYPES: Mapping[str, Any] = {"int": int, "int | None": int, "bool": bool}

Settings = Mapping[str, Any]

_SETTING = re.compile(
    "|".join(
        rf"\b{item.name.removesuffix('_ms')}\b"
        for kind in (QueueDescription, TopicDescription, SubscriptionDescription)
        for item in dataclasses.fields(kind)
        if "_" in item.name and item.name not in _NOT_OPTIONS
    )
)


def setting_options(kind: type[Description]) -> Iterator[inspect.Parameter]:
    """An option for each setting of an entity; None if it is not given."""
    for item in dataclasses.fields(kind):
        if item.name in _NOT_OPTIONS:
            continue
        is_duration = item.name.endswith("_ms")
        value_type = str if is_duration else _TYPES.get(str(item.type), str)
        option = typer.Option(
            help=_DURATION if is_duration else _HELP.get(item.name),
            metavar="DURATION" if is_duration else None,
        )
        yield inspect.Parameter(
            item.name.removesuffix("_ms"),
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[value_type | None, option],
        )


def option_name(setting: str) -> str:
    """How a setting is given on the command line."""
    return f"--{setting.replace('_', '-')}"


def with_option_names(text: str) -> str:
    """A text with its settings named as on the command line."""
    return _SETTING.sub(lambda found: option_name(found.group()), text)


# -- reading -----------------------------------------------------------------------


def queue_from(name: str, settings: Settings) -> QueueDescription:
    """A queue with these settings."""
    return _read({"queues": [{"name": name, **given_settings(settings)}]}).queues[0]


def topic_from(name: str, settings: Settings) -> TopicDescription:
    """A topic with these settings."""
    topic = {"name": name, **given_settings(settings)}
    return _read({"topics": [topic]}).topics[0].description


def subscription_from(
    topic: str, name: str, settings: Settings
) -> SubscriptionDescription:
    """A subscription with these settings."""
    subscription = {"name": name, **given_settings(settings)}
    below = {"name": topic, "subscriptions": [subscription]}
    return _read({"topics": [below]}).topics[0].subscriptions[0].description


def rule_from(rule: Mapping[str, Any]) -> RuleDescription:
    """A rule, written as in a configuration file."""
    subscription = {"name": "s", "rules": [rule]}
    topic = {"name": "t", "subscriptions": [subscription]}
    return _read({"topics": [topic]}).topics[0].subscriptions[0].rules[0]


def changed_by(old: Description, new: Description, settings: Settings) -> Description:
    """A description with the given settings of another one, and the rest of its own."""
    fields = {
        item.name.removesuffix("_ms"): item.name for item in dataclasses.fields(new)
    }
    given = [fields[name] for name in given_settings(settings)]
    return dataclasses.replace(old, **{name: getattr(new, name) for name in given})


def given_settings(settings: Settings) -> dict[str, Any]:
    """Those settings that were given."""
    return {name: value for name, value in settings.items() if value is not None}


def check_changes(settings: Settings) -> None:
    """Refuse an update that would change nothing."""
    if not given_settings(settings):
        raise ConfigError("Nothing to change. Give at least one setting; see --help.")


def _read(entities: Mapping[str, Any]) -> NamespaceConfig:
    from twinbus.server.setup.config import parse_config

    namespace = {"name": "n", **entities}
    try:
        return parse_config(json.dumps({"namespaces": [namespace]}), "options.json")[0]
    except ConfigError as error:
        # These settings are in no file, so only the last part of the place helps.
        raise ConfigError(_without_place(error.text)) from None


def _without_place(text: str) -> str:
    place, separator, rest = text.removeprefix("options.json: ").partition(": ")
    if not separator or not place.startswith("namespaces"):
        return text
    field = place.rpartition(".")[2]
    return rest if field.endswith("]") else f"{field}: {rest}"
