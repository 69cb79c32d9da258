"""What a connection needs to know of the listener it came through.

A port serves one namespace; where host names are real, others can be reached by name.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from twinbus import limits
from twinbus.ledger.keeper import LedgerKeeper
from twinbus.server.access.buckets import Buckets
from twinbus.server.access.failures import Failures
from twinbus.server.access.memory import Ledger
from twinbus.server.broker.faults import FaultKind
from twinbus.server.broker.host import Host
from twinbus.wire.performatives import Error
from twinbus.wire.types import Symbol, UShort

if TYPE_CHECKING:
    from twinbus.server.access.jwt import BearerTokens
    from twinbus.server.access.switchboard import Switchboard


# Said in the properties of `open`, so that a client that knows where a namespace has
# AMQP finds its HTTP. Requests may name the instance and are then refused by others.
HTTP_PORT_PROPERTIES = {"http": "twinbus:http-port", "https": "twinbus:https-port"}
INSTANCE_PROPERTY = "twinbus:instance"
INSTANCE_HEADER = "Twinbus-Instance"
# What a transport is asked for that is not a plain socket: its name in the ledger.
CONNECTION_KIND = "twinbus.connection"


class Admitted(Protocol):
    """A connection that came in."""

    def close(self, error: Error | None = None) -> None:
        """Close it, and tell the client why."""

    def drop(self, reason: str) -> None:
        """End it at once, without a word to the client."""

    def fall_silent(self) -> None:
        """Read no more and write no more, and stay."""

    def describe(self) -> dict[str, Any]:
        """What the console shows of it: its peer, its links, what is unsettled."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass
class NamespacePort:
    """The way into a namespace."""

    host: Host
    # What proves bearer tokens for a namespace, where they are accepted.
    tokens_of: Callable[[Host], BearerTokens | None] = lambda _host: None
    # Other namespaces of the process, by the first label of their host name.
    hosts: dict[str, Host] = field(default_factory=dict)
    # The ports for HTTP of each namespace of the process, by kind.
    http_ports: dict[Host, dict[str, int]] = field(default_factory=dict)
    # Host names by which clients may ask for it, beside those of loopback.
    own_names: frozenset[str] = frozenset()
    # Whether people may open the console.
    has_console: bool = False
    connections: set[Admitted] = field(default_factory=set)
    # Connections by remote address; loopback is not counted.
    by_address: Counter[str] = field(default_factory=Counter)
    # Connections that have put no token yet, in the order in which they came.
    unclaimed: dict[Admitted, None] = field(default_factory=dict)
    # When a client with a claim last sent something, by the loop's time.
    active_at: float = -math.inf
    # Switches rehearsed faults; None on a server without `--faults`.
    switchboard: Switchboard | None = None
    # Reads the diagnostics bundles of former failures, the newest first.
    bundles: Callable[[], list[dict[str, Any]]] = list
    # Where its operations are counted; None without a ledger.
    ledger: LedgerKeeper | None = None
    # What connections hold; one for all ports of a process.
    memory: Ledger = field(default_factory=Ledger)
    # Tokens that were refused.
    failures: Failures = field(default_factory=Failures)
    # Requests without a valid claim, over HTTP.
    strangers: Buckets = field(
        default_factory=lambda: Buckets(
            limits.STRANGER_REQUESTS_MAX, limits.STRANGER_REQUESTS_PER_SECOND
        )
    )

    def admit(self, address: str) -> str | None:
        """Why one more connection from there is too many; None if it is not.

        When all places are taken, the one that has been silent longest has to go: so
        silent peers keep no other out.
        """
        faults = self.host.faults
        if faults is not None and faults.strikes(FaultKind.REFUSE):
            return "a rehearsed fault"
        if self.by_address[address] >= limits.CONNECTIONS_PER_ADDRESS_MAX:
            return f"more than {limits.CONNECTIONS_PER_ADDRESS_MAX} of that address"
        if len(self.connections) >= limits.CONNECTIONS_MAX and self.unclaimed:
            next(iter(self.unclaimed)).drop("its place is needed")
        if len(self.connections) >= limits.CONNECTIONS_MAX:
            return f"more than {limits.CONNECTIONS_MAX} connections"
        return None

    def enter(self, connection: Admitted, address: str) -> None:
        """A connection is there."""
        self.connections.add(connection)
        self.unclaimed[connection] = None
        if not is_loopback(address):
            self.by_address[address] += 1

    def leave(self, connection: Admitted, address: str) -> None:
        """A connection is gone."""
        self.unclaimed.pop(connection, None)
        if connection in self.connections:
            self.connections.discard(connection)
            self.by_address[address] -= 1
            if self.by_address[address] <= 0:
                del self.by_address[address]

    @property
    def is_silent(self) -> bool:
        """Whether a rehearsed fault keeps it from answering."""
        faults = self.host.faults
        return faults is not None and faults.strikes(FaultKind.SILENCE) is not None

    def is_busy(self) -> bool:
        """Whether clients with a claim are at work."""
        since = asyncio.get_running_loop().time() - self.active_at
        return since * 1000 < limits.BUSY_MS

    def choose(self, hostname: str | None) -> Host:
        """The namespace that a client's `open` asks for."""
        label = (hostname or "").partition(".")[0].lower()
        return self.hosts.get(label, self.host)

    def properties_of(self, host: Host) -> dict[str, Any]:
        """What `open` says of a namespace: where it has HTTP, and which start it is."""
        said: dict[str, Any] = {Symbol(INSTANCE_PROPERTY): host.instance}
        for kind, port in self.http_ports.get(host, {}).items():
            said[Symbol(HTTP_PORT_PROPERTIES[kind])] = UShort(port)
        return said
