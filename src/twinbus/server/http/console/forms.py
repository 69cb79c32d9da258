"""What people have typed into a form, or a program has put into JSON.

Owns the reading of bodies: as a browser sends a form without files, or a JSON object
with the same names. Every field is text; a refusal names the field. Bodies are bounded.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Mapping
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any

from starlette.requests import Request

from twinbus import limits
from twinbus.errors import ArgumentError, ArgumentOutOfRange
from twinbus.server.http.route import BodyTooLarge, read_body

_FORM = "application/x-www-form-urlencoded"
_JSON = "application/json"


class ConsoleForm:
    """The fields of a request."""

    def __init__(self, fields: Mapping[str, list[str]]) -> None:
        self._fields = fields

    def text(self, name: str) -> str:
        """A field; empty if it is missing."""
        return self._fields.get(name, [""])[0]

    def line(self, name: str) -> str | None:
        """A field without the blanks around it; None if nothing is left."""
        return self.text(name).strip() or None

    def needed(self, name: str, label: str) -> str:
        """A field that must have something in it."""
        found = self.line(name)
        if found is None:
            raise ArgumentError(f"{label} is missing. Fill it in.")
        return found

    def all(self, name: str) -> list[str]:
        """All values of a field that may be there several times."""
        return list(self._fields.get(name, ()))

    def flag(self, name: str) -> bool:
        """Whether a box is ticked."""
        return self.text(name).lower() in ("on", "true", "1", "yes")

    def number(self, name: str, low: int, high: int, default: int) -> int:
        """A whole number between two others."""
        text = self.line(name)
        if text is None:
            return default
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise ArgumentOutOfRange(
                f"'{name}' must be a whole number from {low} to {high}."
            )
        return int(text)


async def read_form(request: Request) -> ConsoleForm:
    """The body of a request, whichever way it is written."""
    bytes_max = limits.CONSOLE_FORM_BYTES_MAX
    too_large = BodyTooLarge(f"A form has at most {bytes_max} bytes.")
    body = await read_body(request, bytes_max, too_large)
    kind = request.headers.get("content-type", _FORM).partition(";")[0].strip().lower()
    if kind == _JSON:
        return ConsoleForm(_from_json(body))
    if kind != _FORM:
        raise ArgumentError(f"Send a form ({_FORM}) or {_JSON}.")
    try:
        text = body.decode("ascii")
        fields = urllib.parse.parse_qs(
            text,
            keep_blank_values=True,
            errors="strict",
            max_num_fields=limits.CONSOLE_FIELDS_MAX,
        )
    except ValueError:
        raise ArgumentError("The form cannot be read.") from None
    return ConsoleForm(fields)


async def read_upload(request: Request) -> bytes:
    """The file of a form, or a body that is the file itself."""
    bytes_max = limits.CONSOLE_IMPORT_BYTES_MAX
    too_large = BodyTooLarge(f"A file has at most {bytes_max} bytes.")
    body = await read_body(request, bytes_max, too_large)
    kind = request.headers.get("content-type", "")
    if not kind.lower().startswith("multipart/form-data"):
        return body
    head = f"Content-Type: {kind}\r\n\r\n".encode("latin-1", "replace")
    parsed = BytesParser(policy=HTTP).parsebytes(head + body)
    for part in parsed.iter_parts() if parsed.is_multipart() else ():
        if part.get_filename() is not None:
            content = part.get_payload(decode=True)
            return content if isinstance(content, bytes) else b""
    raise ArgumentError("Choose a file.")


def _from_json(body: bytes) -> dict[str, list[str]]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise ArgumentError("The body is not JSON.") from None
    if not isinstance(found, dict):
        raise ArgumentError("The body must be a JSON object.")
    return {
        name: [_plain(each) for each in (value if isinstance(value, list) else [value])]
        for name, value in found.items()
        if value is not None
    }


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value)
