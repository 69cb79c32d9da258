"""Settings of entities as options: `--lock-duration PT30S`, `--requires-session`.

Owns the way from an entity's description to the options of a command and back. Options
are made from the fields of the description, and their values are read by the same code
that reads configuration files, so that both take the same and refuse the same.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

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

_D = TypeVar("_D", QueueDescription, TopicDescription, SubscriptionDescription)

Command = Callable[..., None]
Settings = Mapping[str, Any]


def with_settings(kind: type[Description]) -> Callable[[Command], Command]:
    """Give a command an option for each setting of an entity.

    The command takes them as keywords; those that were not given are None.
    """

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True).parameters.values()
        kept = [one for one in own if one.kind is not inspect.Parameter.VAR_KEYWORD]
        parameters = [*kept, *_options(kind)]

        def run(**given: Any) -> None:
            command(**given)

        run.__name__, run.__doc__ = command.__name__, command.__doc__
        # Typer reads both to find the options.
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def _options(kind: type[Description]) -> Iterator[inspect.Parameter]:
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


# -- reading -----------------------------------------------------------------------


def queue_from(name: str, settings: Settings) -> QueueDescription:
    """A queue with these settings."""
    return _read({"queues": [_given(name, settings)]}).queues[0]


def topic_from(name: str, settings: Settings) -> TopicDescription:
    """A topic with these settings."""
    return _read({"topics": [_given(name, settings)]}).topics[0].description


def subscription_from(
    topic: str, name: str, settings: Settings
) -> SubscriptionDescription:
    """A subscription with these settings."""
    below = {"name": topic, "subscriptions": [_given(name, settings)]}
    return _read({"topics": [below]}).topics[0].subscriptions[0].description


def rule_from(rule: Mapping[str, Any]) -> RuleDescription:
    """A rule, written as in a configuration file."""
    subscription = {"name": "s", "rules": [rule]}
    topic = {"name": "t", "subscriptions": [subscription]}
    return _read({"topics": [topic]}).topics[0].subscriptions[0].rules[0]


def changed_by(old: _D, new: _D, settings: Settings) -> _D:
    """A description with the given settings of another one, and the rest of its own."""
    fields = {
        item.name.removesuffix("_ms"): item.name for item in dataclasses.fields(new)
    }
    given = [fields[name] for name, value in settings.items() if value is not None]
    if not given:
        raise ConfigError("Nothing to change. Give at least one setting; see --help.")
    return dataclasses.replace(old, **{name: getattr(new, name) for name in given})


def _given(name: str, settings: Settings) -> dict[str, Any]:
    given = {key: value for key, value in settings.items() if value is not None}
    return {"name": name, **given}


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
