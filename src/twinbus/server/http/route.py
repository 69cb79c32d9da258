"""The shape of every HTTP surface: find, admit, answer or refuse.

Owns the order of these steps. A path function says which requests belong to a surface.
Then `Host` is checked, the credential is proved and `rights.allowed` decides; only
after that does the surface read a body, run its command and write its answer. An error
in any step becomes the surface's own refusal. Also owns the bounds on `Host`, which
answers repeat, and on bodies, and how a path is taken apart.

A new surface is a path function, a subclass of `Exchange` and a line in the list of
routes in `server.py`.
"""

from __future__ import annotations

import abc
import re
import urllib.parse
from collections.abc import Callable
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import Receive, Scope, Send

from twinbus import limits
from twinbus.core.names import EntityPath, parse_address
from twinbus.core.rights import Claim
from twinbus.errors import (
    ArgumentError,
    CallerError,
    EntityNotFound,
    TwinbusError,
)
from twinbus.ledger.counts import LedgerAccount
from twinbus.ledger.schema import ACCEPTED, HTTP, MANAGE
from twinbus.server.access.port import NamespacePort
from twinbus.server.broker import answers
from twinbus.server.broker.accounting import account_of, outcome_of
from twinbus.server.broker.host import Host
from twinbus.server.http.auth import Asked, admitted
from twinbus.server.http.strangers import TooManyRequests, refusal

_AUTHORITY = re.compile(r"[A-Za-z0-9._\-\[\]:]{1,255}")
# Where the scope of a request has what the path function returned.
_FOUND = "twinbus.found"


class PreconditionFailed(CallerError):
    """The entity has changed since the ETag of If-Match was given out."""


class BodyTooLarge(CallerError):
    """The body of the request is too large."""


class MethodNotAllowed(CallerError):
    """The method is not known for this path."""


# What HTTP adds to the statuses of errors.
STATUSES = answers.STATUSES | {
    MethodNotAllowed: 405,
    PreconditionFailed: 412,
    BodyTooLarge: 413,
}


class Exchange(abc.ABC):
    """One request and its answer."""

    # What the refusal of a credential begins with.
    unproved = ""

    def __init__(self, port: NamespacePort, request: Request) -> None:
        self.port = port
        self.request = request
        # Bytes of its body that were read.
        self._body_bytes = 0
        # The host and port that the client asked for.
        self.authority = request.headers.get("host", "")
        # The host of the namespace; what is about an entity asks `placement.host_of`.
        self.host: Host = port.choose(self.authority.partition(":")[0])

    async def run(self) -> Response:
        """Admit the request and answer it; every error becomes a refusal."""
        try:
            check_authority(self.authority)
            asked = self.asked()
            claim = admitted(self.request, asked, self.port, self.host, self.unproved)
        except TooManyRequests as error:
            return refusal(error)
        except TwinbusError as error:
            return self.refusal(error)
        outcome = ACCEPTED
        try:
            response = await self.answer(claim)
        except ClientDisconnect:
            # It is not sent: the client is gone.
            response = Response(status_code=400)
        except TwinbusError as error:
            if isinstance(error, EntityNotFound):
                self._tell_missing(error.path)
            outcome = outcome_of(error)
            response = self.refusal(error)
        account = account_of(self.host, self.counted_at(asked), claim, HTTP)
        if account is not None:
            self.count(account, outcome, response)
        return response

    def _tell_missing(self, path: str) -> None:
        client = self.request.client
        steady_ms = self.host.token_clock.now().steady_ms
        self.port.failures.missing(client.host if client else "", steady_ms, path)

    def counted_at(self, asked: Asked) -> EntityPath:
        """The entity that the ledger names; empty for the namespace."""
        return asked.scope

    def count(self, account: LedgerAccount, outcome: str, response: Response) -> None:
        """Count the request in the ledger; those without a claim are not."""
        account.calls(MANAGE, outcome, 1, self._body_bytes, len(response.body))

    @abc.abstractmethod
    def asked(self) -> Asked:
        """What the request wants to do, and to what."""

    @abc.abstractmethod
    async def answer(self, claim: Claim) -> Response:
        """Carry out a request that was admitted; refusals are raised."""

    @abc.abstractmethod
    def refusal(self, error: TwinbusError) -> Response:
        """The answer that an error becomes."""

    @property
    def found(self) -> Any:
        """What the path function of the surface returned for this request."""
        return self.request.scope[_FOUND]

    @property
    def raw_path(self) -> str:
        """The path as it stands in the request line."""
        return raw_path_in(self.request.scope)

    def now_s(self) -> int:
        """The time that tokens end by."""
        return self.host.token_clock.now().wall_ms // 1000

    async def body(self) -> bytes:
        """The whole body of a request that describes something."""
        bytes_max = limits.ADMIN_BODY_BYTES_MAX
        too_large = BodyTooLarge(f"A body has at most {bytes_max} bytes.")
        body = await read_body(self.request, bytes_max, too_large)
        self._body_bytes = len(body)
        return body


class SurfaceRoute(BaseRoute):
    """Takes the requests that a path function finds."""

    def __init__(
        self,
        port: NamespacePort,
        find: Callable[[str, str], object | None],
        exchange: Callable[[NamespacePort, Request], Exchange],
    ) -> None:
        self._port = port
        # Is given method and raw path; None if the request belongs to another surface.
        self._find = find
        self._exchange = exchange

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether a request belongs here; it takes along what was found."""
        if scope["type"] != "http":
            return Match.NONE, {}
        found = self._find(scope["method"], raw_path_in(scope))
        if found is None:
            return Match.NONE, {}
        return Match.FULL, {_FOUND: found}

    def url_path_for(self, name: str, /, **path_params: Any) -> Any:
        """Nothing here has a name."""
        raise NoMatchFound(name, path_params)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        response = await self._exchange(self._port, Request(scope, receive)).run()
        await response(scope, receive, send)


def raw_path_in(scope: Scope) -> str:
    """The path of a request as it stands in the request line."""
    return bytes(scope["raw_path"]).decode("ascii", "replace")


def split_path(raw_path: str) -> tuple[str, list[str]] | None:
    """The path as it is spelled, without outer slashes, and its decoded segments.

    It is cut at its slashes first and each segment is decoded once, so that no spelling
    of one place can pass for another. None if it is not UTF-8.
    """
    spelled = raw_path.removeprefix("/").removesuffix("/")
    try:
        return spelled, [
            urllib.parse.unquote(segment, errors="strict")
            for segment in spelled.split("/")
        ]
    except UnicodeDecodeError:
        return None


def entity_at(segments: list[str]) -> EntityPath | None:
    """The entity that segments name; None if they are not its address and no more."""
    address = "/".join(segments)
    path = parse_address(address)
    # Other readers must find the same entity in it: no empty segment, no host.
    if path.management or path.text.lower() != address.lower():
        return None
    return path


def check_authority(authority: str) -> None:
    """Refuse a `Host` that is missing or holds what no host has."""
    if not _AUTHORITY.fullmatch(authority):
        raise ArgumentError("The Host of the request is missing or not valid.")


async def read_body(request: Request, bytes_max: int, too_large: TwinbusError) -> bytes:
    """The whole body; raises `too_large` as soon as there is more than that."""
    chunks: list[bytes] = []
    size_bytes = 0
    async for chunk in request.stream():
        size_bytes += len(chunk)
        if size_bytes > bytes_max:
            raise too_large
        chunks.append(chunk)
    return b"".join(chunks)
