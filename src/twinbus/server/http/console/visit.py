"""One request to the console: who it is from, what it may do, how it is answered.

Owns the way from a request to a claim. A browser shows the cookie of a session, a
program the same `Authorization` header as everywhere. `demand` asks the one function
that decides about rights, and `may` asks it in order to show only what can be used.
An answer is a page, or the same data as JSON for a client that asks for JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from twinbus.core.names import EntityPath, parse_address
from twinbus.core.rights import Claim, Operation, allowed, format_rights
from twinbus.errors import TwinbusError, Unauthorized
from twinbus.server.access.port import is_loopback
from twinbus.server.broker import answers
from twinbus.server.broker.directory.placement import rules_of
from twinbus.server.broker.host import Host
from twinbus.server.http import route
from twinbus.server.http.auth import Asked, admitted
from twinbus.server.http.console.audit import AuditEntry
from twinbus.server.http.console.forms import ConsoleForm, read_form
from twinbus.server.http.console.page import ROOT, render, url
from twinbus.server.http.console.sessions import ConsoleSession

if TYPE_CHECKING:
    from twinbus.server.http.console.route import Console

NAMESPACE = EntityPath("")
_USUAL_PORTS = {"http": "80", "https": "443"}


class Visit:
    """One request and its answer."""

    def __init__(self, console: Console, request: Request) -> None:
        self.console = console
        self.request = request
        self.authority = request.headers.get("host", "").lower()
        self.scheme: str = request.scope["scheme"]
        self.host: Host = console.port.choose(_host_in(self.authority))
        # None for a program that shows a token.
        self.session: ConsoleSession | None = None
        self.claim: Claim | None = None
        # The sizes of messages that the form has sent, for the ledger.
        self.sent: list[int] = []

    # -- who ---------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Where it comes from."""
        return self.request.client.host if self.request.client else ""

    @property
    def namespace(self) -> str:
        return self.host.namespace.name

    @property
    def is_local(self) -> bool:
        """Whether the browser runs on this machine, and says so."""
        return is_loopback(self.address) and is_loopback(_host_in(self.authority))

    @property
    def has_token(self) -> bool:
        """Whether it is a program, which no web page can make send a header."""
        return bool(self.request.headers.get("authorization"))

    @property
    def cookie_name(self) -> str:
        """Cookies do not tell ports apart, and a machine may serve several."""
        port = self.authority.rpartition(":")[2]
        if not port.isdigit():
            port = _USUAL_PORTS[self.scheme]
        name = f"twinbus-{self.namespace.lower()}-{port}"
        return f"__Host-{name}" if self.scheme == "https" else name

    @property
    def token(self) -> str:
        return self.request.cookies.get(self.cookie_name, "")

    @property
    def who(self) -> str:
        """What the log of changes calls it."""
        if self.session is not None and self.session.name:
            return self.session.name
        proof = None if self.claim is None else self.claim.proof
        return "a bearer token" if proof is None else proof.name

    def now_s(self) -> int:
        return self.host.token_clock.now().wall_ms // 1000

    def admit(self) -> None:
        """Find out who it is; `Unauthorized` if it shows nothing that is proved."""
        if self.has_token:
            path = self.path
            asked = Asked(Operation.OPEN_CONSOLE, path, path.text, self.authority)
            self.claim = admitted(self.request, asked, self.console.port, self.host)
            return
        sessions = self.console.sessions
        rules = partial(rules_of, self.host)
        session = sessions.find(self.token, rules, self.now_s())
        if session is None or session.namespace != self.namespace:
            raise Unauthorized("Sign in first.")
        self.session, self.claim = session, session.claim

    # -- what --------------------------------------------------------------------------

    @property
    def path(self) -> EntityPath:
        """The entity that the query names; empty for the namespace."""
        return parse_address(self.query("path"))

    def query(self, name: str) -> str:
        return self.request.query_params.get(name, "").strip()

    async def form(self) -> ConsoleForm:
        return await read_form(self.request)

    def may(self, operation: Operation, path: EntityPath = NAMESPACE) -> bool:
        """Whether the visitor has the right to do that."""
        try:
            self.demand(operation, path)
        except Unauthorized:
            return False
        return True

    def demand(self, operation: Operation, path: EntityPath = NAMESPACE) -> None:
        """Refuse what the visitor has no right to do."""
        claims = [] if self.claim is None else [self.claim]
        allowed(claims, operation, path, self.now_s())

    async def note(self, action: str, path: str) -> None:
        """Write a line into the log of changes, for what changes no row itself."""
        audit = AuditEntry(self.who, action, path)
        await self.host.run(lambda own, turn: audit.note(own, turn, 1))

    # -- answers -----------------------------------------------------------------------

    @property
    def wants_json(self) -> bool:
        accepted = self.request.headers.get("accept", "")
        return "application/json" in accepted and "text/html" not in accepted

    def page(
        self, template: str, data: Mapping[str, Any], status: int = 200
    ) -> Response:
        """A page, or its data."""
        headers = {"Cache-Control": "no-store"}
        if self.wants_json:
            return JSONResponse(dict(data), status, headers)
        text = render(template, {**self._around(), **data})
        return Response(text, status, headers, "text/html; charset=utf-8")

    def done(self, notice: str, to: str, data: Mapping[str, Any]) -> Response:
        """What a change has brought about: the next page says it, or the data does."""
        if self.wants_json:
            return JSONResponse(dict(data), headers={"Cache-Control": "no-store"})
        if self.session is not None:
            self.session.notices.append(notice)
        return self.redirect(to)

    def redirect(self, to: str) -> Response:
        return RedirectResponse(to, 303, {"Cache-Control": "no-store"})

    def refusal(self, error: TwinbusError) -> Response:
        """The answer that an error becomes."""
        text = answers.text_of(error)
        status = answers.status_of(error, route.STATUSES | self.console.statuses)
        is_stranger = self.claim is None
        if isinstance(error, Unauthorized) and not is_stranger:
            status = 403
        headers = {"Cache-Control": "no-store", "Connection": "close"}
        if self.wants_json or self.has_token:
            code = type(error).__name__
            body = {"error": {"code": code, "message": text}}
            return JSONResponse(body, status, headers)
        if isinstance(error, Unauthorized) and is_stranger:
            is_look = self.request.method in ("GET", "HEAD")
            back = (self._here() or None) if is_look else None
            return self.redirect(url("sign-in", next=back))
        page = render("error.html", {**self._around(), "status": status, "text": text})
        return Response(page, status, headers, "text/html; charset=utf-8")

    def _here(self) -> str:
        """This page, as the sign-in comes back to it."""
        path = self.request.scope["path"].removeprefix(ROOT)
        query = self.request.url.query
        return f"{path}?{query}" if query else path

    def _around(self) -> dict[str, Any]:
        """What every page has around its content."""
        notices: list[str] = []
        if self.session is not None:
            notices, self.session.notices = self.session.notices, []
        return {
            "namespace": self.namespace,
            "is_signed_in": self.session is not None,
            "who": self.who if self.claim is not None else "",
            "rights": format_rights(self.claim.rights) if self.claim else (),
            "navigation": self.console.navigation(self) if self.claim else (),
            "notices": notices,
        }


def _host_in(authority: str) -> str:
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.partition(":")[0]
