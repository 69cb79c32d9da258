"""The head of a request: what is refused before any surface sees the request.

Owns three checks. A body has one length: `Content-Length` together with
`Transfer-Encoding` is refused, since a proxy in front may read another length than this
server. With the documented key of `--dev`, which is public, `Host` must be a name of
this machine, and an `Origin` must be the server's own: so no web page that a developer
visits can use the key, also not one whose name was made to resolve to 127.0.0.1. The
SDKs send no `Origin` or their own.
Knows nothing about paths and tokens.
"""

from __future__ import annotations

import h11

from twinbus.server.access.port import NamespacePort, is_loopback
from twinbus.server.broker.directory.keys import DOCUMENTED_KEY

_LENGTHS = {b"content-length", b"transfer-encoding"}


class HeadRefused(h11.RemoteProtocolError):
    """The head of a request is refused; the connection closes."""


def check_head(request: h11.Request, port: NamespacePort) -> None:
    """Return if a surface may see the request; else raise `HeadRefused`."""
    headers = dict(request.headers)
    if headers.keys() >= _LENGTHS:
        raise HeadRefused("Send Content-Length or Transfer-Encoding, not both.")
    if port.host.namespace.dev_key != DOCUMENTED_KEY:
        return
    authority = headers.get(b"host", b"").decode("latin-1").lower()
    if not is_own(authority, port):
        raise HeadRefused(
            "With --dev the Host of a request must be localhost or an address of "
            "loopback, or be given to the server as --tls-host.",
            403,
        )
    origin = headers.get(b"origin")
    if origin is not None and origin.decode("latin-1").lower() not in (
        f"http://{authority}",
        f"https://{authority}",
    ):
        raise HeadRefused(
            "With --dev no web page of another origin may use the server.", 403
        )


def is_own(authority: str, port: NamespacePort) -> bool:
    """Whether a client that asks for a host means this machine."""
    host = authority.partition(":")[0]
    if authority.startswith("["):
        host = authority[1:].partition("]")[0]
    if is_loopback(host) or host.endswith(".localhost"):
        return True
    return host in port.own_names
