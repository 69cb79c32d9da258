"""Which page answers a request, and what is refused before a page sees it.

Owns the list of pages and these checks, in this order: `Host` is a name of this server
or an address, so that no other name can be made to resolve here; the browser reads over
HTTPS, or on this machine; a request that changes something comes from a page of this
console (`Sec-Fetch-Site` or `Origin`), or shows a token, which no web page can; and
there is a claim, but for the sign-in. Every answer has the headers of `page.py`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from starlette.requests import ClientDisconnect, Request, cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Scope

from twinbus.core.rights import Operation
from twinbus.errors import CallerError, TwinbusError
from twinbus.ledger.schema import ACCEPTED, HTTP, MANAGE, PEEK, SEND
from twinbus.server.access.port import NamespacePort
from twinbus.server.broker.accounting import account_of, outcome_of
from twinbus.server.http.console.actions import MessageLocked
from twinbus.server.http.console.grouping import Groupings
from twinbus.server.http.console.jobs import Jobs
from twinbus.server.http.console.live import LiveStreams, View
from twinbus.server.http.console.looking import Looker
from twinbus.server.http.console.page import HEADERS, ROOT, static_file, url
from twinbus.server.http.console.pages import (
    access,
    bulk,
    connections,
    entity,
    files,
    message,
    operations,
    overview,
    pair,
    sending,
    session,
    settings,
    signing,
)
from twinbus.server.http.console.rates import RateHistory
from twinbus.server.http.console.sessions import ConsoleSessions
from twinbus.server.http.console.visit import Visit
from twinbus.server.http.head import is_own
from twinbus.server.http.route import MethodNotAllowed, check_authority
from twinbus.server.http.strangers import TooManyRequests, refusal

_STATIC = "static/"

Answer = Callable[[Visit], Awaitable[Response]]


class PageNotFound(CallerError):
    """The console has no such page."""


class NotFromHere(CallerError):
    """The request does not come from a page of this console."""


@dataclass(frozen=True, slots=True)
class ConsolePage:
    """One address of the console: what looks at it, and what changes something."""

    get: Answer | None = None
    post: Answer | None = None
    # Whether it answers before the sign-in.
    is_open: bool = False


# Pages whose parts follow.
VIEWS: dict[str, View] = {
    "overview": overview.live,
    "entity": entity.live,
    "pair": pair.live,
}


async def follow(visit: Visit) -> Response:
    """The parts of a page as they change."""
    view = VIEWS.get(visit.query("view"))
    if view is None:
        raise PageNotFound
    return visit.console.streams.open(visit, view)


PAGES: dict[str, ConsolePage] = {
    "": ConsolePage(overview.show),
    "events": ConsolePage(follow),
    "entity": ConsolePage(entity.show),
    "send": ConsolePage(sending.show, sending.send),
    "message": ConsolePage(message.show),
    "message/body": ConsolePage(message.body),
    "message/edit": ConsolePage(message.edit, message.resubmit),
    "message/delete": ConsolePage(post=message.delete),
    "message/cancel": ConsolePage(post=message.cancel),
    "message/receive": ConsolePage(post=message.receive),
    "bulk": ConsolePage(post=bulk.plan),
    "job": ConsolePage(bulk.show),
    "job/start": ConsolePage(post=bulk.start),
    "job/cancel": ConsolePage(post=bulk.cancel),
    "sessions": ConsolePage(session.show),
    "session": ConsolePage(session.state, session.set_state),
    "settings": ConsolePage(settings.show, settings.change),
    "rules": ConsolePage(settings.rules, settings.put_rule),
    "rules/delete": ConsolePage(post=settings.delete_rule),
    "pair": ConsolePage(pair.show),
    "connections": ConsolePage(connections.show),
    "connections/close": ConsolePage(post=connections.close),
    "access": ConsolePage(access.show, access.change),
    "faults": ConsolePage(operations.faults, operations.switch_fault),
    "diagnostics": ConsolePage(operations.diagnostics),
    "diagnostics/bundle": ConsolePage(operations.bundle),
    "audit": ConsolePage(operations.audit),
    "export": ConsolePage(files.export),
    "import": ConsolePage(post=files.import_file),
    "sign-in": ConsolePage(signing.show, signing.sign_in, is_open=True),
    "sign-out": ConsolePage(post=signing.sign_out),
    "link": ConsolePage(post=signing.offer),
    "enter": ConsolePage(signing.enter, is_open=True),
}

# Pages in the navigation, and what a visitor needs the right to do.
NAVIGATION: list[tuple[str, str, Operation | None]] = [
    ("", "Overview", None),
    ("pair", "Pair", Operation.READ_NAMESPACE),
    ("connections", "Connections", Operation.READ_NAMESPACE),
    ("access", "Access", Operation.READ_RULES),
    ("faults", "Faults", Operation.REHEARSE_FAULTS),
    ("diagnostics", "Diagnostics", Operation.READ_NAMESPACE),
    ("audit", "Changes", Operation.READ_NAMESPACE),
]


class Console:
    """The console of a namespace's HTTP port."""

    statuses: ClassVar[dict[type[TwinbusError], int]] = {
        PageNotFound: 404,
        NotFromHere: 403,
        signing.LinkRefused: 403,
        MessageLocked: 409,
    }

    def __init__(self, port: NamespacePort) -> None:
        self.port = port
        self.sessions = ConsoleSessions()
        self.looker = Looker()
        self.history = RateHistory(port.host)
        self.streams = LiveStreams()
        self.jobs = Jobs()
        self.groupings = Groupings()

    def routes(self) -> list[Route]:
        """What the HTTP server lists."""
        methods = ["GET", "POST"]
        page = Route(f"{ROOT}{{page:path}}", self._respond, methods=methods)
        return [Route(ROOT.rstrip("/"), _to_root, methods=["GET"]), page]

    async def close(self) -> None:
        """The server stops: pages that follow come to their end."""
        self.history.close()
        await self.jobs.close()
        await self.looker.close()

    def knows(self, scope: Scope) -> bool:
        """Whether a request shows the cookie of a session, and so is no stranger's."""
        if not scope["path"].startswith(ROOT):
            return False
        return any(
            self.sessions.is_open(token)
            for name, value in scope["headers"]
            if name == b"cookie"
            for token in cookie_parser(value.decode("latin-1")).values()
        )

    def navigation(self, visit: Visit) -> list[dict[str, Any]]:
        """The pages that the visitor may see."""
        here = visit.request.path_params["page"]
        return [
            {"url": url(page), "label": label, "current": page == here}
            for page, label, operation in NAVIGATION
            if operation is None or visit.may(operation)
            if page != "faults" or visit.host.faults is not None
            if page != "pair" or pair.primaries(visit.host)
        ]

    async def _respond(self, request: Request) -> Response:
        visit = Visit(self, request)
        outcome = ACCEPTED
        try:
            response = await self._answer(visit)
        except ClientDisconnect:
            # It is not sent: the client is gone.
            response = Response(status_code=400)
        except TooManyRequests as error:
            response = refusal(error)
        except TwinbusError as error:
            outcome = outcome_of(error)
            response = visit.refusal(error)
        _count(visit, outcome, response)
        for name, value in HEADERS.items():
            response.headers[name] = value
        return response

    async def _answer(self, visit: Visit) -> Response:
        _check_host(visit)
        name = visit.request.path_params["page"]
        if name.startswith(_STATIC):
            found = static_file(name.removeprefix(_STATIC))
            if found is None:
                raise PageNotFound
            return found
        page = PAGES.get(name)
        if page is None:
            raise PageNotFound
        changes = visit.request.method not in ("GET", "HEAD")
        if changes:
            _check_origin(visit)
        if not page.is_open:
            visit.admit()
        answer = page.post if changes else page.get
        if answer is None:
            method = visit.request.method
            raise MethodNotAllowed(f"{method} is not known for {ROOT}{name}.")
        return await answer(visit)


# Pages that show messages of an entity; in the ledger they are peeks.
_PEEKS = frozenset({"entity", "message", "message/body", "message/edit", "export"})


def _count(visit: Visit, outcome: str, response: Response) -> None:
    """Count a request in the ledger, as those of the HTTP API are.

    Requests without a claim are not counted, nor files and the ticks of pages that
    follow. What a job does is the server's own work, as forwarding is.
    """
    if visit.claim is None:
        return
    account = account_of(visit.host, visit.path, visit.claim, HTTP)
    if account is None:
        return
    if visit.sent:
        account.messages_in(SEND, outcome, visit.sent)
        return
    is_look = visit.request.method in ("GET", "HEAD")
    is_peek = is_look and visit.request.path_params["page"] in _PEEKS
    asked = visit.request.headers.get("content-length", "")
    bytes_in = int(asked) if asked.isascii() and asked.isdigit() else 0
    bytes_out = len(getattr(response, "body", b""))
    account.calls(PEEK if is_peek else MANAGE, outcome, 1, bytes_in, bytes_out)


async def _to_root(request: Request) -> Response:
    del request
    return RedirectResponse(ROOT, 308, HEADERS)


def _check_host(visit: Visit) -> None:
    """Refuse a host that this server is not called, and a network without TLS."""
    check_authority(visit.authority)
    name = visit.authority.rpartition(":")[0] or visit.authority
    if not is_own(visit.authority, visit.console.port) and not _is_address(name):
        raise NotFromHere(
            f"This server is not called {visit.authority}. Give it the name with "
            "--tls-host, or open the console by an address."
        )
    if visit.scheme != "https" and not visit.is_local:
        raise NotFromHere(
            "The console needs HTTPS, except in a browser on the same machine."
        )


def _is_address(name: str) -> bool:
    """Whether it is the address itself, which no name server can lead elsewhere."""
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _check_origin(visit: Visit) -> None:
    """Refuse a change that another site asks for."""
    if visit.has_token:
        return
    headers = visit.request.headers
    site, origin = headers.get("sec-fetch-site"), headers.get("origin", "").lower()
    is_same = origin == f"{visit.scheme}://{visit.authority}"
    if site is None and is_same:
        return
    if site == "same-origin" and (is_same or not origin):
        return
    raise NotFromHere("Use the buttons of the console itself.")
