"""Single values of the administration API: text on the wire, typed inside.

Owns how booleans, numbers, durations and properties of filters are written and read.
What cannot be read is an `ArgumentError` that names the element; there is no other.
Knows nothing about which element means what.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from twinbus.core.durations import parse_duration
from twinbus.core.filter_values import DURATION_MAX
from twinbus.errors import ArgumentError, CallerError
from twinbus.server.http.admin.xml import (
    SCHEMA,
    SERIALIZATION,
    Element,
    content_of,
    escape,
    instance_type,
    local_name,
    tag,
)

# Only ASCII digits: `int` would also take other scripts and underscores.
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_FRACTION = re.compile(r"\.([0-9]+)S$")
_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1
_PAIR = "KeyValueOfstringanyType"
_SHOWN_CHARS_MAX = 64


def refuse(name: str, text: str, wanted: str) -> ArgumentError:
    """The error for a value that cannot be read."""
    return ArgumentError(
        f"The value '{text[:_SHOWN_CHARS_MAX]}' of {name} is not {wanted}."
    )


def read_boolean(name: str, text: str) -> bool:
    """`true` or `false`, in any case."""
    value = _BOOLEANS.get(text.lower())
    if value is None:
        raise refuse(name, text, "true or false")
    return value


def read_integer(name: str, text: str) -> int:
    """A whole number of at most 64 bits."""
    value = int(text) if _INTEGER.fullmatch(text) else None
    if value is None or not -_LONG_MAX - 1 <= value <= _LONG_MAX:
        raise refuse(name, text, "a whole number")
    return value


def read_duration_ms(name: str, text: str) -> int:
    """An ISO 8601 duration."""
    try:
        return parse_duration(text)
    except CallerError as error:
        raise ArgumentError(f"{name}: {error.text}") from None


# -- properties of filters -------------------------------------------------------------


def read_properties(element: Element) -> dict[str, object]:
    """The pairs below `Properties` or `Parameters`."""
    values: dict[str, object] = {}
    for pair in element:
        if local_name(pair) != _PAIR:
            continue
        parts = {local_name(part): part for part in pair}
        if "Key" not in parts or "Value" not in parts:
            raise ArgumentError(f"A {_PAIR} needs a Key and a Value.")
        key = content_of(parts["Key"])
        values[key] = _read_value(key, parts["Value"])
    return values


def write_properties(name: str, values: Mapping[str, object]) -> str:
    """The pairs, or nothing: clients stumble over an element without pairs."""
    if not values:
        return ""
    pairs = (
        tag(_PAIR, tag("Key", escape(key)) + _write_value(value))
        for key, value in values.items()
    )
    return tag(name, "".join(pairs))


def _read_value(key: str, element: Element) -> object:
    kind = instance_type(element)
    reader = _READERS.get(kind)
    if reader is None:
        raise ArgumentError(
            f"The value of '{key}' has the type '{kind[:_SHOWN_CHARS_MAX]}', which is "
            f"not known. Use one of {', '.join(_READERS)}."
        )
    # Spaces belong to a text and to nothing else.
    text = (element.text or "") if kind == "string" else content_of(element)
    try:
        return reader(key, text)
    except (ValueError, OverflowError):
        raise refuse(key, text, f"a {kind}") from None


def _read_timespan(key: str, text: str) -> timedelta:
    """A duration to the microsecond; filters have finer ones than entities."""
    fraction = _FRACTION.search(text)
    micros = int(fraction[1].ljust(6, "0")[:6]) if fraction else 0
    whole = _FRACTION.sub("S", text)
    span = timedelta(
        milliseconds=read_duration_ms(key, whole.removeprefix("-")),
        microseconds=micros,
    )
    if span > DURATION_MAX:
        raise OverflowError
    return -span if text.startswith("-") else span


_READERS: dict[str, Callable[[str, str], object]] = {
    "string": lambda _key, text: text,
    "int": read_integer,
    "long": read_integer,
    "short": read_integer,
    "boolean": read_boolean,
    "double": lambda _key, text: float(text),
    "float": lambda _key, text: float(text),
    "decimal": lambda _key, text: float(text),
    "dateTime": lambda _key, text: datetime.fromisoformat(text),
    "duration": _read_timespan,
    "guid": lambda _key, text: UUID(text),
    "base64Binary": lambda _key, text: base64.b64decode(text, validate=True),
}


def _write_value(value: object) -> str:
    kind, text, namespace = _typed(value)
    attributes = f'xmlns:d6p1="{namespace}" i:type="d6p1:{kind}"'
    return tag("Value", escape(text), attributes)


def _typed(value: Any) -> tuple[str, str, str]:
    """Type, text and the namespace of the type."""
    if isinstance(value, bool):
        return "boolean", str(value).lower(), SCHEMA
    if isinstance(value, int):
        small = -_INT_MAX - 1 <= value <= _INT_MAX
        return ("int" if small else "long"), str(value), SCHEMA
    if isinstance(value, float):
        return "double", _write_double(value), SCHEMA
    if isinstance(value, datetime):
        text = value.isoformat()
        is_utc = value.tzinfo is not None and value.utcoffset() == timedelta(0)
        return "dateTime", text[:-6] + "Z" if is_utc else text, SCHEMA
    if isinstance(value, timedelta):
        return "duration", _write_timespan(value), SERIALIZATION
    if isinstance(value, UUID):
        return "guid", str(value), SERIALIZATION
    if isinstance(value, bytes):
        return "base64Binary", base64.b64encode(value).decode("ascii"), SCHEMA
    return "string", str(value), SCHEMA


def _write_double(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "INF" if value > 0 else "-INF"
    return repr(value)


def _write_timespan(span: timedelta) -> str:
    sign = "-" if span < timedelta(0) else ""
    span = abs(span)
    minutes, seconds = divmod(span.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{span.microseconds:06d}".rstrip("0") if span.microseconds else ""
    return f"{sign}P{span.days}DT{hours}H{minutes}M{seconds}{fraction}S"
