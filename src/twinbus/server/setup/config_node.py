"""One value of a configuration file, and where it stands.

Owns reading the file's text and asking its values for types. Every refusal names the
file, the place, the value and what to write instead; values of secrets are not shown.
Knows nothing about what a configuration means.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml

from twinbus import errors, limits
from twinbus.core.durations import parse_duration
from twinbus.core.sas import Secret

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ConfigNode:
    """A value with its place. The methods return it as a type, or fail."""

    file: str
    place: str
    value: Any

    def fail(self, problem: str) -> NoReturn:
        """Refuse the file because of this value."""
        where = f"{self.file}: {self.place}" if self.place else self.file
        raise errors.ConfigError(f"{where}: {problem}")

    def checked(self, call: Callable[[], _T]) -> _T:
        """Run a check of the core and add the place to its refusal."""
        try:
            return call()
        except errors.CallerError as refusal:
            self.fail(refusal.text)

    def mapping(self) -> dict[str, ConfigNode]:
        """Children by key."""
        if not isinstance(self.value, dict):
            self._wrong("a mapping of keys to values")
        children = {}
        for key, value in self.value.items():
            # YAML reads the bare words true and false as booleans, in keys too.
            name = str(key).lower() if isinstance(key, bool) else key
            if not isinstance(name, str):
                self.fail(f"the key {reprlib.repr(key)} is not text. Put it in quotes.")
            place = f"{self.place}.{name}" if self.place else name
            children[name] = ConfigNode(self.file, place, value)
        return children

    def items(self) -> list[ConfigNode]:
        """Children in order."""
        if not isinstance(self.value, list):
            self._wrong("a list")
        return [
            ConfigNode(self.file, f"{self.place}[{index}]", value)
            for index, value in enumerate(self.value)
        ]

    def text(self) -> str:
        """The value as text."""
        if not isinstance(self.value, str):
            self._wrong("text (in quotes, if it looks like something else)")
        return self.value

    def boolean(self) -> bool:
        """The value as a boolean."""
        if not isinstance(self.value, bool):
            self._wrong("true or false, without quotes")
        return self.value

    def integer(self) -> int:
        """The value as a whole number; a boolean is none."""
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            self._wrong("a whole number, without quotes")
        return self.value

    def duration_ms(self) -> int:
        """The value as a duration."""
        if not isinstance(self.value, str):
            self._wrong("an ISO 8601 duration, for example PT30S")
        return self.checked(lambda: parse_duration(self.value))

    def secret(self) -> Secret:
        """The value as a secret; a refusal does not show it."""
        if not isinstance(self.value, str) or not self.value:
            self.fail("this must be a key: text that is not empty. Put it in quotes.")
        return Secret(self.value)

    def _wrong(self, wanted: str) -> NoReturn:
        # What is inside a mapping or a list may be a secret, so it is not shown.
        kinds: dict[type, str] = {dict: "a mapping", list: "a list"}
        shown = kinds.get(type(self.value))
        _, _, name = self.place.rpartition(".")
        is_shown = name.startswith(("name", "rights"))
        if "authorization_rules" in self.place and not is_shown:
            # Whatever stands here may have been meant to be a key.
            shown = shown or "something else"
        self.fail(f"this is {shown or reprlib.repr(self.value)}; it must be {wanted}.")


def read_file(path: Path) -> ConfigNode:
    """Read a file into its root node."""
    file = str(path)
    try:
        with path.open("rb") as stream:
            data = stream.read(limits.CONFIG_BYTES_MAX + 1)
    except OSError as fault:
        reason = fault.strerror or type(fault).__name__
        raise errors.ConfigError(f"{file}: cannot be read: {reason}.") from None
    if len(data) > limits.CONFIG_BYTES_MAX:
        raise errors.ConfigError(
            f"{file}: is larger than {limits.CONFIG_BYTES_MAX} bytes. "
            "Is it the right file?"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise errors.ConfigError(f"{file}: is not UTF-8. Save it as UTF-8.") from None
    return read_text(text, file)


def read_text(text: str, file: str) -> ConfigNode:
    """Read text into its root node: JSON if it is called so or looks so, else YAML."""
    suffix = Path(file).suffix.lower()
    looks_json = text.lstrip().startswith("{") and suffix not in (".yaml", ".yml")
    parse = _parse_json if suffix == ".json" or looks_json else _parse_yaml
    try:
        return ConfigNode(file, "", parse(text))
    except (yaml.YAMLError, ValueError) as fault:
        # Only the place: the text around it may hold a key.
        raise errors.ConfigError(f"{file}: {_describe(fault)}") from None
    except RecursionError:
        raise errors.ConfigError(f"{file}: is nested too deeply.") from None


class _RepeatedKey(ValueError):
    """A mapping has one key twice."""


def _describe(fault: Exception) -> str:
    if isinstance(fault, _RepeatedKey):
        return f"the key {fault.args[0]!r} is there twice. Remove one."
    if isinstance(fault, json.JSONDecodeError):
        return f"line {fault.lineno}, column {fault.colno}: not JSON: {fault.msg}."
    if isinstance(fault, yaml.MarkedYAMLError) and fault.problem_mark:
        mark = fault.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}"
        return f"{where}: not YAML: {fault.problem}."
    return "this is neither YAML nor JSON. Check it with a linter."


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise _RepeatedKey(key)
        result[key] = value
    return result


def _parse_json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_unique)


class _Loader(yaml.SafeLoader):
    """YAML's safe types; one key twice is an error and not a guess."""

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                continue  # the base class refuses it, with its place
            if key in seen:
                raise _RepeatedKey(key)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def _parse_yaml(text: str) -> Any:
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - a subclass of SafeLoader
