"""Requests and answers of the administration API, without HTTP.

Owns what an operation is given and gives back, and how an error becomes an answer: its
status, its sub-code and its text, as the real service words them.
Knows nothing about sockets, nor about what an operation does.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from twinbus.core.names import EntityPath
from twinbus.core.rights import Claim, Operation, allowed
from twinbus.errors import (
    Bug,
    StoreFault,
    TwinbusError,
    Unauthorized,
)
from twinbus.server.broker import answers
from twinbus.server.http import route
from twinbus.server.http.admin.filters import Filter
from twinbus.server.http.admin.paths import Kind, Place
from twinbus.server.http.admin.xml import ERROR_TYPE, Element, write_error
from twinbus.server.http.auth import Asked, Door, claim_in


@dataclass(frozen=True, slots=True)
class Forwarding:
    """Credentials of a request for the targets that an entity forwards to."""

    # For each field of a target: the token for it, and the request's own.
    tokens: Mapping[str, tuple[str, ...]]
    authority: str
    door: Door
    now_s: int

    def check(self, field: str, target: str) -> None:
        """Return if the request may make an entity send to that target.

        A client that may change one queue could otherwise send to all others through
        it. The right may come from the token for the target, or from the request's own.
        """
        asked = Asked(Operation.SEND_LINK, EntityPath(target), target, self.authority)
        claims: list[Claim] = []
        for token in self.tokens[field]:
            with suppress(Unauthorized):
                claims.append(claim_in(token, asked, self.door, self.now_s))
        allowed(claims, asked.operation, asked.scope, self.now_s)


@dataclass(frozen=True, slots=True)
class AdminRequest:
    """A request that may do what it asks for."""

    method: str
    place: Place
    # The URL that was asked for, and the part of it up to the path.
    url: str
    root: str
    version: str
    if_match: str | None = None
    skip: int = 0
    top: int = 0
    # Which entities of a list are wanted, and how the client wrote that.
    wanted: Filter = lambda _facts: True
    filter_text: str | None = None
    description: Element | None = None
    # What proves that messages may be forwarded; None for requests that change nothing.
    forwarding: Forwarding | None = None


@dataclass(frozen=True, slots=True)
class AdminReply:
    """An answer."""

    status: int
    body: str = ""
    content_type: str | None = None
    etag: str | None = None


# Nothing was changed, and the store may recover by itself.
STATUSES = route.STATUSES | {StoreFault: 503}

_SUB_CODES = {
    400: "SubCode=40000. Bad Request. ",
    403: "SubCode=40301. Forbidden. ",
    405: "SubCode=40500. Method Not Allowed. ",
    412: "SubCode=41200. Precondition Failed. ",
    413: "SubCode=41300. Request Entity Too Large. ",
    503: "SubCode=50300. Server Busy. ",
}


def refusal(
    error: TwinbusError, method: str, place: Place | None, namespace: str, now_ms: int
) -> AdminReply:
    """The answer that an error becomes."""
    status = answers.status_of(error, STATUSES)
    tracker = place.tracker(namespace) if place else namespace
    detail = _detail(error, status, method, place, tracker)
    return AdminReply(status, write_error(status, detail, tracker, now_ms), ERROR_TYPE)


def _detail(
    error: TwinbusError, status: int, method: str, place: Place | None, tracker: str
) -> str:
    is_entity = place is not None and place.kind is Kind.ENTITY
    if status == 409:
        if is_entity:
            return f"SubCode=40900. Conflict. {error.text}"
        return f"The messaging entity '{tracker}' already exists."
    if status == 404:
        if method == "DELETE":
            return "No service is hosted at the specified address."
        if is_entity:
            return f"SubCode=40400. Not Found. {error.text}"
        return f"Entity '{tracker}' was not found. {error.text}"
    if isinstance(error, Bug):
        return f"SubCode=50000. Internal Server Error. {answers.SEE_LOG}"
    return _SUB_CODES.get(status, "") + error.text
