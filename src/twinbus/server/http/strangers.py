"""Requests without a valid claim: so many of an address, and then 429.

Owns what a stranger's request costs. One without a token is counted before it reaches
a surface, one with a token that proves nothing after that was found (`route.py`). An
address that has used up its share is told when to come back, and its connection is
closed; so it must connect again, and `access/entrance.py` paces strangers' connections
while clients with a claim are at work. A valid claim costs nothing here.
WebSockets are not counted: each is a connection.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from twinbus import limits
from twinbus.errors import CallerError
from twinbus.server.access.port import NamespacePort


class TooManyRequests(CallerError):
    """There were too many requests without a valid token from this address."""


class PacedStrangers:
    """An application, with a limit on requests without a token."""

    def __init__(
        self,
        port: NamespacePort,
        app: ASGIApp,
        knows: Callable[[Scope], bool] = lambda _scope: False,
    ) -> None:
        self._port = port
        self._app = app
        # Whether a request shows a session of the console instead of a token.
        self._knows = knows

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        try:
            has_token = any(n == b"authorization" and v for n, v in scope["headers"])
            if not has_token and not self._knows(scope):
                count_request(self._port, scope)
        except TooManyRequests as error:
            await refusal(error)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def count_request(port: NamespacePort, scope: Scope) -> None:
    """Count a request without a valid claim; `TooManyRequests` if it is too many."""
    address = scope["client"][0] if scope.get("client") else ""
    steady_ms = port.host.token_clock.now().steady_ms
    if not port.strangers.take(address, steady_ms):
        raise TooManyRequests


def refusal(error: TooManyRequests) -> Response:
    """The answer to one request too many."""
    text = f"{error.text} Wait a second, or send a token.\n"
    again = str(limits.STRANGER_RETRY_AFTER_SECONDS)
    headers = {"Retry-After": again, "Connection": "close"}
    return PlainTextResponse(text, 429, headers)
