"""Signing in and out: with the name of a key and the key, or with a link.

Owns the cookie: it cannot be read by scripts, is sent by no other site, and over HTTPS
alone but for a browser on this machine. A link comes from `twinbus console`, which
proves the key in the usual way (`POST /$console/link`); it works once and soon, and not
from another site, so that a page cannot sign its visitors in.
"""

from __future__ import annotations

from functools import partial

from starlette.responses import JSONResponse, Response

from twinbus.core.names import parse_address
from twinbus.core.rights import claim_of_key
from twinbus.core.sas import DEV_KEY_NAME, Secret
from twinbus.errors import TwinbusError, Unauthorized
from twinbus.server.broker import answers
from twinbus.server.broker.directory.keys import DOCUMENTED_KEY
from twinbus.server.broker.directory.placement import rules_of
from twinbus.server.http.console.page import ROOT, url
from twinbus.server.http.console.sessions import ConsoleSession
from twinbus.server.http.console.visit import Visit
from twinbus.server.http.strangers import count_request


async def show(visit: Visit) -> Response:
    """The form."""
    return _form(visit, visit.query("next"))


def _form(visit: Visit, after: str, problem: str = "", status: int = 200) -> Response:
    is_public = visit.host.namespace.dev_key == DOCUMENTED_KEY
    data = {
        "after": after,
        "problem": problem,
        "key_name": DEV_KEY_NAME if is_public else "",
        # All the world knows it.
        "key": DOCUMENTED_KEY.reveal() if is_public else "",
    }
    return visit.page("sign_in.html", data, status)


async def sign_in(visit: Visit) -> Response:
    """Prove a key."""
    form = await visit.form()
    after = form.text("next")
    entity = parse_address(form.text("entity").strip()).entity_key
    scopes = dict.fromkeys([entity, ""])
    now = visit.host.token_clock.now()
    port = visit.console.port
    try:
        with port.failures.counted(visit.address, now.steady_ms):
            claim = claim_of_key(
                form.text("name").strip(),
                Secret(form.text("key").strip()),
                partial(rules_of, visit.host),
                scopes,
            )
    except Unauthorized as error:
        count_request(port, visit.request.scope)
        if visit.wants_json:
            raise
        return _form(visit, after, answers.text_of(error), 401)
    session = visit.console.sessions.describe(
        claim, visit.namespace, now.wall_ms // 1000
    )
    return _opened(visit, session, after)


def _opened(visit: Visit, session: ConsoleSession, after: str = "") -> Response:
    token = visit.console.sessions.open(session)
    response = visit.redirect(f"{ROOT}{after}")
    _set_cookie(visit, response, token, session.claim.expires_s - visit.now_s())
    return response


def _set_cookie(visit: Visit, response: Response, token: str, seconds: int) -> None:
    response.set_cookie(
        visit.cookie_name,
        token,
        max_age=seconds,
        path="/",
        secure=visit.scheme == "https",
        httponly=True,
        samesite="strict",
    )


async def sign_out(visit: Visit) -> Response:
    """End the session."""
    visit.console.sessions.close(visit.token)
    response = visit.redirect(url("sign-in"))
    _set_cookie(visit, response, "", 0)
    return response


async def offer(visit: Visit) -> Response:
    """Give out a link for the claim that the request has proved."""
    if visit.claim is None or not visit.has_token:
        raise Unauthorized("A link is for a token in the Authorization header.")
    sessions, now_s = visit.console.sessions, visit.now_s()
    session = sessions.describe(visit.claim, visit.namespace, now_s)
    code = sessions.offer(session, now_s)
    path = url("enter", code=code)
    return JSONResponse({"path": path}, headers={"Cache-Control": "no-store"})


async def enter(visit: Visit) -> Response:
    """Open the session of a link."""
    site = visit.request.headers.get("sec-fetch-site", "none")
    if site not in ("none", "same-origin"):
        raise LinkRefused("Another site led here. Open the link yourself.")
    session = visit.console.sessions.redeem(visit.query("code"), visit.now_s())
    if session is None or session.namespace != visit.namespace:
        raise LinkRefused("The link was used already or is too old. Ask for another.")
    return _opened(visit, session)


class LinkRefused(TwinbusError):
    """A link of the console cannot be used."""
