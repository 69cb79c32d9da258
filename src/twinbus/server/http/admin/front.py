"""`GET /` without a token: a page for browsers, an empty list for other clients.

Owns both answers. They tell a stranger the version and where to go, and no name of an
entity; the list is what Azure gives. With a token the same path lists queues and topics
(`route.py`). The page loads nothing and runs nothing.
"""

from __future__ import annotations

from importlib import metadata

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from twinbus.server.http.admin.xml import FEED_TYPE, write_feed

# What is listed without a right to see more: clients find no entry in it.
NOTHING_LISTED = "Publicly Listed Services"

_VERSION = metadata.version("twinbus")
_PAGE = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>twinbus {_VERSION}</title>
<style>body {{ font: 1em/1.5 sans-serif; max-width: 40em; margin: 3em auto; }}</style>
</head>
<body>
<h1>twinbus {_VERSION}</h1>
<p>This is the HTTP port of a Service-Bus-compatible namespace server.</p>
<ul>
<li><a href="/health">/health</a>: whether messages can be sent and received.</li>
<li><a href="/metrics">/metrics</a>: figures for Prometheus; from another machine with a
token alone.</li>
<li>Messages and administration need a token: use the official Azure Service Bus
clients, or <code>twinbus status --connection-string ...</code> at a command line.</li>
<li>The documentation is <code>docs/server.md</code> of twinbus, and
<code>twinbus --help</code>.</li>
</ul>
</body>
</html>
"""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
    "Vary": "Accept, Authorization",
}


def is_for_strangers(request: Request) -> bool:
    """Whether a request is for the namespace as such, and brings no token."""
    is_front = request.method == "GET" and request.url.path == "/"
    return is_front and not request.headers.get("authorization")


def front(request: Request, url: str, now_ms: int) -> Response:
    """The page, or the empty list."""
    if "text/html" in request.headers.get("accept", ""):
        return HTMLResponse(_PAGE, headers=_HEADERS)
    feed = write_feed(NOTHING_LISTED, url, now_ms, [], None)
    return Response(feed, headers={**_HEADERS, "Content-Type": FEED_TYPE})
