"""The entities of a namespace, wherever it is: in a data folder, or running.

Owns the options that choose a namespace and what can be asked of its entities, so that
each command is written once. `folder.py` answers from a data folder that no server
has, `running.py` asks a namespace of ours or of Azure. Both speak of entities in the
words of the configuration file.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Protocol

from twinbus.cli.confirm import confirm, messages_text
from twinbus.cli.namespace.settings import (
    Settings,
    setting_options,
    with_option_names,
)
from twinbus.cli.offline import DATA, Data, NamespaceName, opened
from twinbus.cli.output import show, show_all
from twinbus.cli.remote import CaFile, Running, Url
from twinbus.cli.watch import watched
from twinbus.core.entity import Description
from twinbus.core.names import EntityPath
from twinbus.core.rule import RuleDescription
from twinbus.errors import ConfigError, TwinbusError

Command = Callable[..., None]
EntityJson = dict[str, Any]


class Catalogue(Protocol):
    """The entities of one namespace. A kind is `queue`, `topic` or `subscription`."""

    # Which namespace and where, for people.
    where: str

    def create(self, description: Description, settings: Settings) -> EntityJson:
        """Make an entity; `settings` are those that were given."""

    def update(self, description: Description, settings: Settings) -> EntityJson:
        """Change the given settings of an entity."""

    def listed(self, kind: str, topic: str | None) -> list[EntityJson]:
        """All of a kind, with their counts; subscriptions are those of a topic."""

    def shown(self, kind: str, path: EntityPath) -> EntityJson:
        """One with its counts."""

    def count(self, kind: str, path: EntityPath) -> int:
        """How many messages it has, in any state."""

    def delete(self, kind: str, path: EntityPath) -> None:
        """Delete one that is there."""

    def rules(self, path: EntityPath) -> list[RuleDescription]:
        """The rules of a subscription, by name."""

    def rule(self, path: EntityPath, name: str) -> RuleDescription:
        """One of them."""

    def add_rule(self, path: EntityPath, rule: RuleDescription) -> RuleDescription:
        """Add one."""

    def replace_rule(self, path: EntityPath, rule: RuleDescription) -> RuleDescription:
        """Give one another filter and action."""

    def delete_rule(self, path: EntityPath, name: str) -> None:
        """Delete one that is there."""


@dataclass(frozen=True, slots=True)
class NamespaceChoice:
    """Which namespace a command is about: the options as they were given."""

    data: Data = DATA
    namespace: NamespaceName = None
    connection_string: Running = None
    url: Url = None
    ca_file: CaFile = None

    @contextmanager
    def opened(self, *, make: bool = False) -> Iterator[Catalogue]:
        """Its entities; a change in a folder is made when the block ends."""
        if self.connection_string is None:
            from twinbus.cli.namespace.folder import FolderCatalogue

            if self.url is not None:
                raise ConfigError("--url needs --connection-string.")
            with opened(self.data, self.namespace, make=make) as (shards, turn):
                yield FolderCatalogue(self.data, shards, turn)
            return
        from twinbus.cli.administration import administered
        from twinbus.cli.namespace.running import RunningCatalogue

        if self.namespace is not None:
            raise ConfigError(
                "--namespace chooses one of a folder. With --connection-string leave "
                "it out: the string names the namespace."
            )
        given = self.connection_string, self.url, self.ca_file
        with administered(*given) as (client, remote):
            yield RunningCatalogue(client, str(remote))


def on_namespace(kind: type[Description] | None = None) -> Callable[[Command], Command]:
    """Give a command the options that choose a namespace, as its first argument.

    With a kind of entity it also gets an option for each setting, as a keyword that is
    None unless it was given.
    """

    def decorate(command: Command) -> Command:
        _, *own = inspect.signature(command, eval_str=True).parameters.values()
        kept = [one for one in own if one.kind is not inspect.Parameter.VAR_KEYWORD]
        chosen = inspect.signature(NamespaceChoice, eval_str=True).parameters.values()
        parameters = [*kept, *chosen, *(setting_options(kind) if kind else ())]

        def run(**given: Any) -> None:
            names = [item.name for item in fields(NamespaceChoice)]
            choice = NamespaceChoice(**{name: given.pop(name) for name in names})
            try:
                command(choice, **given)
            except TwinbusError as error:
                error.args = (with_option_names(error.text),)
                raise

        run.__name__, run.__doc__ = command.__name__, command.__doc__
        # Typer reads both to find the options.
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


# -- what the commands of all kinds do -----------------------------------------------


@dataclass(frozen=True, slots=True)
class EntityList:
    """What `list` shows: which entities, which columns, and how."""

    kind: str
    columns: tuple[str, ...]
    topic: str | None = None
    as_json: bool = False
    watch: bool = False

    def show(self, choice: NamespaceChoice) -> None:
        """Print it, once or again and again."""

        def found(catalogue: Catalogue) -> list[EntityJson]:
            listed = catalogue.listed(self.kind, self.topic)
            return sorted(listed, key=lambda one: str(one["name"]).lower())

        show_list(choice, found, self.columns, self.as_json, watch=self.watch)


def show_list(
    choice: NamespaceChoice,
    found: Callable[[Catalogue], list[EntityJson]],
    columns: tuple[str, ...],
    as_json: bool,
    *,
    watch: bool,
) -> None:
    """Print what is found, once or again and again."""
    if watch and choice.connection_string is None:
        raise ConfigError(
            "--watch needs --connection-string: nothing changes in a folder that no "
            "server has."
        )
    with choice.opened() as catalogue:
        watched(lambda: show_all(found(catalogue), columns, as_json), again=watch)


def delete_entity(
    choice: NamespaceChoice, kind: str, path: EntityPath, *, yes: bool, as_json: bool
) -> None:
    """Delete an entity, once confirmed."""
    with choice.opened() as catalogue:
        found = catalogue.shown(kind, path)
        name = str(found["name"])
        spelled = (
            EntityPath(path.entity, name) if path.subscription else EntityPath(name)
        )
        count = messages_text(catalogue.count(kind, path))
        what = f"delete the {kind} '{spelled.text}' with {count} from {catalogue.where}"
        confirm(what, name, yes=yes)
        catalogue.delete(kind, path)
    show({"deleted": path.text}, as_json)
