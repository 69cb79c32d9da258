"""How the processes of a drill reach a namespace, its own or one of the user's.

Owns the ways in: a connection of the project's own client, a factory as applications
use it, and the official administration client. With a proxy before the namespace, the
first two go through it: the name stays, and the address is another. All of it is plain
values, since it goes to other processes; there are keys in it, and it is never shown.
"""

from __future__ import annotations

import ssl
from dataclasses import asdict, dataclass, field
from typing import Any

from azure.servicebus import TransportType
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus.aio import MessagingFactory
from twinbus.client.connection import Connection
from twinbus.client.transport.endpoint import Endpoint
from twinbus.core.sas import parse_connection_string

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class NamespaceAccess:
    """One namespace."""

    text: str = field(repr=False)
    # For the administration client, which speaks HTTPS.
    admin_text: str = field(repr=False)
    # The authority to trust; empty for those of the machine.
    ca_file: str = ""
    # The port of a proxy on this machine; 0 without one.
    proxy_port: int = 0

    def connection(self, timeout_seconds: float) -> Connection:
        """A connection of the project's own client."""
        dev = parse_connection_string(self.text).dev
        tls = None if dev else ssl.create_default_context(cafile=self.ca_file or None)
        address = (LOOPBACK, self.proxy_port) if self.proxy_port else None
        return Connection.from_connection_string(
            self.text,
            Endpoint("", tls=tls, address=address),
            timeout_seconds=timeout_seconds,
        )

    def factory(self, **options: Any) -> MessagingFactory:
        """A factory, as an application makes it."""
        if self.proxy_port:
            options["custom_endpoint_address"] = f"sb://{LOOPBACK}:{self.proxy_port}"
            options["transport_type"] = TransportType.Amqp
        return MessagingFactory.from_connection_string(
            self.text, **options, **self._trust()
        )

    def admin(self, **options: Any) -> ServiceBusAdministrationClient:
        """The administration client, past any proxy."""
        return ServiceBusAdministrationClient.from_connection_string(
            self.admin_text, **options, **self._trust()
        )

    def _trust(self) -> dict[str, str]:
        return {"connection_verify": self.ca_file} if self.ca_file else {}

    def to_values(self) -> dict[str, Any]:
        """As plain values, for another process."""
        return asdict(self)
