"""XML of the administration API: the envelope and single values.

Owns reading a request's entry, and writing entries, feeds and errors; and how booleans,
numbers, durations and properties of filters are written. XML is read with `defusedxml`
alone, so it has no entities and no document type. It is written by hand: clients depend
on the order of elements and on which element declares which prefix. A value that cannot
be read is an `ArgumentError` that names the element.
Knows nothing about queues or rules, nor about which element means what.
"""

from __future__ import annotations

import base64
import html
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol
from uuid import UUID, uuid4

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import ParseError, fromstring

from twinbus import limits
from twinbus.core.durations import parse_duration
from twinbus.core.filter_values import DURATION_MAX
from twinbus.errors import ArgumentError, CallerError

ATOM = "http://www.w3.org/2005/Atom"
SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
SCHEMA = "http://www.w3.org/2001/XMLSchema"
SERIALIZATION = "http://schemas.microsoft.com/2003/10/Serialization/"

ENTRY_TYPE = "application/atom+xml;type=entry;charset=utf-8"
FEED_TYPE = "application/atom+xml;type=feed;charset=utf-8"
ERROR_TYPE = "application/xml; charset=utf-8"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# What .NET calls never.
NEVER = "0001-01-01T00:00:00Z"
# Units of 100 nanoseconds from year 1 to 1970.
_TICKS_AT_EPOCH = 621_355_968_000_000_000
# XML 1.0 has no form for these, not even an escaped one.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Element(Protocol):
    """An element that was read."""

    tag: str
    text: str | None
    attrib: dict[str, str]

    def __iter__(self) -> ElementIterator: ...


class ElementIterator(Protocol):
    """Its children, in order."""

    def __next__(self) -> Element: ...

    def __iter__(self) -> ElementIterator: ...


# -- reading -------------------------------------------------------------------------


def read_description(body: bytes) -> Element:
    """The description in a request's entry."""
    try:
        entry: Element = fromstring(body, forbid_dtd=True)
    # An unknown encoding is a LookupError, a wrong one a ValueError.
    except (ParseError, DefusedXmlException, LookupError, ValueError) as error:
        reason = type(error).__name__
        raise ArgumentError(f"The body is not usable XML ({reason}).") from None
    content = next((e for e in entry if e.tag == f"{{{ATOM}}}content"), None)
    if entry.tag != f"{{{ATOM}}}entry" or content is None:
        raise ArgumentError("The body must be an Atom entry with a content.")
    inside = list(content)
    if len(inside) != 1:
        raise ArgumentError("The content of the entry must be one description.")
    return inside[0]


def local_name(element: Element) -> str | None:
    """The name of an element of Service Bus; None for one of another namespace."""
    prefix = f"{{{SERVICE_BUS}}}"
    tag = element.tag
    return tag.removeprefix(prefix) if tag.startswith(prefix) else None


def instance_type(element: Element) -> str:
    """What `i:type` says, without the prefix."""
    return element.attrib.get(f"{{{INSTANCE}}}type", "").rpartition(":")[2]


def content_of(element: Element) -> str:
    """The text of an element, without the white space around it."""
    return (element.text or "").strip()


# -- writing -------------------------------------------------------------------------


def escape(text: str) -> str:
    """A text for between tags or double quotes."""
    escaped = html.escape(_NOT_XML.sub("\ufffd", text), quote=False)
    # White space that a reader would otherwise change, or drop, is written out.
    return escaped.replace('"', "&quot;").replace("\r", "&#13;")


def tag(name: str, inner: str, attributes: str = "") -> str:
    """An element around what is XML already."""
    opening = f"{name} {attributes}" if attributes else name
    return f"<{opening}>{inner}</{name}>" if inner else f"<{opening}/>"


def moment(ms: int) -> str:
    """A time; zero is never."""
    if ms == 0:
        return NEVER
    time = _EPOCH + timedelta(milliseconds=ms)
    return f"{time:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def ticks(ms: int) -> str:
    """A time as .NET counts it; the ETag of an entity."""
    return str(_TICKS_AT_EPOCH + ms * 10_000)


@dataclass(frozen=True, slots=True)
class AtomEntry:
    """An entry, as far as it differs from the others."""

    url: str
    title: str
    author: str
    created_ms: int
    updated_ms: int
    content: str


def write_entry(entry: AtomEntry, *, alone: bool = True) -> str:
    """An entry; only one that stands alone declares the namespace."""
    url = escape(entry.url)
    inner = (
        tag("id", url)
        + tag("title", escape(entry.title), 'type="text"')
        + tag("published", moment(entry.created_ms))
        + tag("updated", moment(entry.updated_ms))
        + tag("author", tag("name", escape(entry.author)))
        + f'<link rel="self" href="{url}"/>'
        + tag("content", entry.content, 'type="application/xml"')
    )
    return tag("entry", inner, f'xmlns="{ATOM}"' if alone else "")


def write_feed(
    title: str,
    url: str,
    now_ms: int,
    entries: Sequence[AtomEntry],
    next_url: str | None,
) -> str:
    """A page of entries; clients go on if it has a second link."""
    links = f'<link rel="self" href="{escape(url)}"/>'
    if next_url is not None:
        links += f'<link rel="next" href="{escape(next_url)}"/>'
    inner = (
        tag("title", escape(title), 'type="text"')
        + tag("id", escape(url))
        + tag("updated", moment(now_ms))
        + links
        + "".join(write_entry(entry, alone=False) for entry in entries)
    )
    return tag("feed", inner, f'xmlns="{ATOM}"')


def write_description(name: str, inner: str) -> str:
    """A description with the namespaces that clients know it by."""
    return tag(name, inner, f'xmlns="{SERVICE_BUS}" xmlns:i="{INSTANCE}"')


def write_error(status: int, detail: str, tracker: str, now_ms: int) -> str:
    """The body of a refusal."""
    text = (
        f"{detail} TrackingId:{uuid4()}, SystemTracker:{tracker}, "
        f"Timestamp:{moment(now_ms)}"
    )
    return tag("Error", tag("Code", str(status)) + tag("Detail", escape(text)))


# -- single values -------------------------------------------------------------------

# Only ASCII digits: `int` would also take other scripts and underscores.
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_FRACTION = re.compile(r"\.([0-9]+)S$")
_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1
_PAIR = "KeyValueOfstringanyType"


def shown(text: str) -> str:
    """As much of a client's text as an error repeats."""
    return text[: limits.SHOWN_VALUE_CHARS_MAX]


def refuse(name: str, text: str, wanted: str) -> ArgumentError:
    """The error for a value that cannot be read."""
    return ArgumentError(f"The value '{shown(text)}' of {name} is not {wanted}.")


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


# -- properties of filters -----------------------------------------------------------


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
            f"The value of '{key}' has the type '{shown(kind)}', which is "
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
