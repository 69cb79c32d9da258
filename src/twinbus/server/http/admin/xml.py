"""XML of the administration API: the envelope, not what is in it.

Owns reading a request's entry, and writing entries, feeds and errors. XML is read with
`defusedxml` alone, so it has no entities and no document type. It is written by hand:
clients depend on the order of elements and on which element declares which prefix.
Knows nothing about queues or rules.
"""

from __future__ import annotations

import html
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import ParseError, fromstring

from twinbus.errors import ArgumentError

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
    # Odd encodings are look-ups that fail, or values that are wrong.
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
class Entry:
    """An entry, as far as it differs from the others."""

    url: str
    title: str
    author: str
    created_ms: int
    updated_ms: int
    content: str


def write_entry(entry: Entry, *, alone: bool = True) -> str:
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
    title: str, url: str, now_ms: int, entries: Sequence[Entry], next_url: str | None
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
        f"{detail} TrackingId:{uuid.uuid4()}, SystemTracker:{tracker}, "
        f"Timestamp:{moment(now_ms)}"
    )
    return tag("Error", tag("Code", str(status)) + tag("Detail", escape(text)))
