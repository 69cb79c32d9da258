"""Where a namespace is, and how to get there.

Owns the choice of the way: TLS or plain, a WebSocket, another address than the name
says, a proxy. Knows no credentials but a proxy's, and opens nothing.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, replace

from twinbus.core.sas import ConnectionString, Secret

AMQPS_PORT = 5671
AMQP_PORT = 5672
HTTPS_PORT = 443
WEBSOCKET_PATH = "/$servicebus/websocket"


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy that opens tunnels."""

    host: str
    port: int
    user: str | None = None
    password: Secret | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A namespace by its host name, and the way there."""

    # The name that the namespace is known by: in `open`, in tokens, and to TLS.
    host: str
    # Given in the name; None means the usual one.
    port: int | None = None
    # None: plain TCP, for development on loopback.
    tls: ssl.SSLContext | None = None
    websocket: bool = False
    # Where to connect instead of the name, for private endpoints and tunnels.
    address: tuple[str, int] | None = None
    proxy: Proxy | None = None

    @property
    def authority(self) -> str:
        """Host and port as tokens name them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    @property
    def target(self) -> tuple[str, int]:
        """Host and port that the last hop connects to."""
        if self.address is not None:
            return self.address
        usual = HTTPS_PORT if self.websocket else AMQPS_PORT
        if self.tls is None:
            usual = 80 if self.websocket else AMQP_PORT
        return self.host, self.port if self.port is not None else usual

    @property
    def first_hop(self) -> tuple[str, int]:
        """Host and port of the socket."""
        if self.proxy is not None:
            return self.proxy.host, self.proxy.port
        return self.target

    def audience(self, path: str) -> str:
        """The name of an entity in tokens."""
        return f"sb://{self.authority}/{path}"


def endpoint_of(text: ConnectionString, way: Endpoint | None = None) -> Endpoint:
    """The endpoint that a connection string names.

    `way` brings what the string cannot say: WebSocket, proxy, address, trusted
    certificates. Without it TLS is on, unless the string says that it is for an
    emulator.
    """
    base = way if way is not None else Endpoint(host="")
    tls = base.tls
    if tls is None and not text.dev:
        tls = ssl.create_default_context()
    return replace(base, host=text.host, port=text.port, tls=tls)
