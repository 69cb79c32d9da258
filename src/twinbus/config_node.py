"""One value of a configuration file, and where it stands.

Owns reading the file's text and asking its values for types. Every refusal names the
file, the line (in YAML), the place, the value and what to write instead; values of
secrets are not shown. Knows nothing about what a configuration means.
"""

from __future__ import annotations

import difflib
import json
import reprlib
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from decimal import Decimal
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
    # What YAML read the value from, and the line of its key; None where it is JSON.
    source: yaml.Node | None = None
    line: int | None = None

    def fail(self, problem: str) -> NoReturn:
        """Refuse the file because of this value."""
        where = self.file if self.line is None else f"{self.file}: line {self.line}"
        where = f"{where}: {self.place}" if self.place else self.file
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
        sources = self._sources()
        for key, value in self.value.items():
            # YAML reads the bare words true and false as booleans, in keys too.
            name = str(key).lower() if isinstance(key, bool) else key
            if not isinstance(name, str):
                self.fail(f"the key {reprlib.repr(key)} is not text. Put it in quotes.")
            place = f"{self.place}.{name}" if self.place else name
            # A key that was merged into the mapping is not among its own.
            line, source = sources.get(name, (self.line, None))
            children[name] = ConfigNode(self.file, place, value, source, line)
        return children

    def items(self) -> list[ConfigNode]:
        """Children in order."""
        if not isinstance(self.value, list):
            self._wrong("a list")
        children = []
        for index, value in enumerate(self.value):
            place, source, line = f"{self.place}[{index}]", None, self.line
            if isinstance(self.source, yaml.SequenceNode):
                source = self.source.value[index]
                line = _line_of(source)
            children.append(ConfigNode(self.file, place, value, source, line))
        return children

    def _sources(self) -> dict[str, tuple[int, yaml.Node]]:
        """By key, where the children of a mapping stand."""
        if not isinstance(self.source, yaml.MappingNode):
            return {}
        return {
            key.value: (_line_of(key), value)
            for key, value in self.source.value
            if isinstance(key, yaml.ScalarNode)
        }

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

    def amount(self) -> Decimal:
        """The value as a number that is not negative, with the digits of the file."""
        value = self.value
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value < float("inf"):
            self._wrong("a number of 0 or more, without quotes")
        return Decimal(str(value))

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


Fields = dict[str, ConfigNode]
# How a format writes the name of a key.
Spell = Callable[[str], str]


def known_fields(fields: Fields, known: Iterable[str], spell: Spell = str) -> Fields:
    """Refuse a key that means nothing here; drop those without a value."""
    allowed = list(known)
    for name, child in fields.items():
        if name in allowed:
            continue
        near = difflib.get_close_matches(name, allowed, n=1)
        hint = (
            f"Did you mean '{spell(near[0])}'?"
            if near
            else f"Known are {', '.join(spell(key) for key in allowed)}."
        )
        child.fail(f"this key is not known. {hint}")
    return {name: child for name, child in fields.items() if child.value is not None}


def required_field(
    node: ConfigNode, fields: Fields, name: str, spell: Spell = str
) -> ConfigNode:
    """A field that has to be there."""
    if name not in fields:
        node.fail(f"the key '{spell(name)}' is missing.")
    return fields[name]


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
    is_json = suffix == ".json" or looks_json
    try:
        if is_json:
            return ConfigNode(file, "", _parse_json(text))
        return ConfigNode(file, "", *_parse_yaml(text))
    except (yaml.YAMLError, ValueError) as fault:
        # Only the place: the text around it may hold a key.
        raise errors.ConfigError(f"{file}: {_describe(fault)}") from None
    except RecursionError:
        raise errors.ConfigError(f"{file}: is nested too deeply.") from None


class _RepeatedKey(ValueError):
    """A mapping has one key twice."""

    def __init__(self, key: object, line: int | None = None) -> None:
        super().__init__(key)
        self.where = "" if line is None else f"line {line}: "


def _describe(fault: Exception) -> str:
    if isinstance(fault, _RepeatedKey):
        return f"{fault.where}the key {fault.args[0]!r} is there twice. Remove one."
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
                raise _RepeatedKey(key, _line_of(key_node))
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def _line_of(source: yaml.Node) -> int:
    line: int = source.start_mark.line
    return line + 1


def _parse_yaml(text: str) -> tuple[Any, yaml.Node | None]:
    """The value, and what it was read from; None for an empty file."""
    loader = _Loader(text)
    try:
        source = loader.get_single_node()
        value = None if source is None else loader.construct_document(source)
    finally:
        loader.dispose()
    return value, source
