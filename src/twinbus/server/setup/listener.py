"""Sockets that clients connect to: plain TCP and TLS, one set of ports per namespace.

Owns which ports there are and where clear text is allowed: on loopback, and elsewhere
only with `--allow-plaintext`. A port that cannot be bound is a `ConfigError` that names
it. Knows nothing about the protocol on a connection: it hands each to a factory.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twinbus import limits
from twinbus.errors import ConfigError
from twinbus.server.access.entrance import Entrance, ProtocolFactory
from twinbus.server.access.port import is_loopback

# In the order in which the ready line lists them.
KINDS = ("amqp", "amqps", "http", "https")
PLAIN_KINDS = frozenset({"amqp", "http"})
TLS_KINDS = frozenset({"amqps", "https"})
HTTP_KINDS = frozenset({"http", "https"})

_PORT_MAX = 65535


@dataclass(frozen=True, slots=True)
class ListenOptions:
    """Where to listen: an address, and the first port of each kind that is on.

    The first namespace gets these ports, the next ones count up; 0 picks a free port.
    """

    host: str
    first_ports: Mapping[str, int]
    allow_plaintext: bool = False


def check_plaintext(options: ListenOptions) -> None:
    """Refuse clear text beyond loopback, unless it was allowed."""
    plain = [kind for kind in options.first_ports if kind in PLAIN_KINDS]
    if plain and not is_loopback(options.host) and not options.allow_plaintext:
        raise ConfigError(
            f"{options.host} can be reached from other machines, and {plain[0]} sends "
            "keys and messages in clear text. Use --amqps-port and --https-port, or "
            "--allow-plaintext if the network is yours alone."
        )


def plan_ports(
    options: ListenOptions, namespaces: Sequence[str]
) -> dict[str, dict[str, int]]:
    """The port of each namespace and kind; refuses two that would collide."""
    plan: dict[str, dict[str, int]] = {name: {} for name in namespaces}
    taken: dict[int, str] = {}
    for kind, first in options.first_ports.items():
        for index, name in enumerate(namespaces):
            port = first + index if first else 0
            if not 0 <= port <= _PORT_MAX:
                raise ConfigError(
                    f"--{kind}-port {first} leaves no port for '{name}': {port} is not "
                    f"between 0 and {_PORT_MAX}."
                )
            user = f"{kind} of '{name}'"
            if port and port in taken:
                raise ConfigError(
                    f"Port {port} would be both {taken[port]} and {user}. Each "
                    f"namespace counts up from the first: choose another --{kind}-port."
                )
            taken[port] = user
            plan[name][kind] = port
    return plan


def bind(host: str, port: int, kind: str) -> socket.socket:
    """Take a port; nothing can connect before `listen`."""
    family, address = _resolve(host, port)
    # The protocol is named, or asyncio takes it for something that cannot be told not
    # to delay small writes, and every second answer would wait 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # A restarted server gets its port back although old connections linger.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit it: a peer that vanished is noticed some day.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise ConfigError(_bind_text(error, f"{host}:{port}", kind)) from error
    return bound


def adopt(
    bound: socket.socket, kind: str, options: ListenOptions, *, public: bool
) -> None:
    """Take a socket that another process has bound; the rules for ours hold for it.

    `public`: a key works that all the world knows.
    """
    if bound.family not in (socket.AF_INET, socket.AF_INET6):
        raise ConfigError(f"The socket handed over for {kind} is not one of TCP.")
    host = bound.getsockname()[0]
    if public and not is_loopback(host):
        raise ConfigError(
            f"--dev uses a key that is public, and the socket handed over for {kind} "
            f"is on {host}. Let it listen on 127.0.0.1, give a key of your own in "
            "TWINBUS_KEY, or leave --dev out."
        )
    check_plaintext(ListenOptions(host, {kind: 0}, options.allow_plaintext))
    bound.setblocking(False)


def queue(bound: socket.socket, kind: str) -> None:
    """Let clients wait in line until `listen` serves them."""
    try:
        bound.listen(limits.LISTEN_BACKLOG_SOCKETS_MAX)
    except OSError as error:
        # Two sockets can be bound to one port, but only one of them can listen.
        host, port = bound.getsockname()[:2]
        raise ConfigError(_bind_text(error, f"{host}:{port}", kind)) from error


def listen(
    bound: socket.socket,
    kind: str,
    factory: ProtocolFactory,
    tls: ssl.SSLContext | None,
    is_busy: Callable[[], bool] = lambda: False,
) -> Entrance:
    """Let clients in; each gets a protocol of its own."""
    queue(bound, kind)
    return Entrance(bound, factory, tls, is_busy)


def _resolve(host: str, port: int) -> tuple[int, Any]:
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise ConfigError(
            f"--host {host} is no address of this machine ({error.strerror})."
        ) from error
    # Clients that are told a name try both families; old ones try the first alone.
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return found[0][0], found[0][4]


def _bind_text(error: OSError, where: str, kind: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"{where} is in use by another program. Stop it, or choose another "
            f"--{kind}-port (0 picks a free one)."
        )
    if error.errno == errno.EACCES:
        return (
            f"{where} needs a privilege that this user lacks. Choose a --{kind}-port "
            "above 1023, or grant the capability cap_net_bind_service."
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{where} is no address of this machine. Choose another --host."
    return f"{where} cannot be used ({error.strerror}). Choose another --{kind}-port."
