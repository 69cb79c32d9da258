"""Two namespaces that the user has, with entities of the drill's own in them.

Owns these entities: they are made at the start and removed at the end, however that
comes; all have the prefix of the plan. Nothing else in the namespaces is touched. The
drill can put proxies before them; other faults need a twinbus server with `--faults`.
Whether a namespace is Azure's or a twinbus server is asked over AMQP.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from azure.core.exceptions import (
    AzureError,
    ResourceNotFoundError,
    ServiceRequestError,
)
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus import limits
from twinbus.cli.remote import Remote, reach
from twinbus.cli.sdk import ClientFailed
from twinbus.core.sas import ConnectionString, parse_connection_string
from twinbus.drill.children import DrillFailed
from twinbus.drill.plan import TOPIC, Means, Plan, primary_entities
from twinbus.drill.site.access import NamespaceAccess
from twinbus.drill.site.site import Site
from twinbus.drill.site.switching import Switch
from twinbus.errors import ConfigError, RemoteError
from twinbus.server.access.port import HTTP_PORT_PROPERTIES, INSTANCE_PROPERTY


@dataclass(frozen=True, slots=True)
class GivenNamespaces:
    """What the user has named, with their keys."""

    primary: str = field(repr=False)
    secondary: str = field(repr=False)
    # The authority to trust, for both.
    ca_file: Path | None = None


class GivenSite(Site):
    """Namespaces that were there before the drill and stay after it."""

    def __init__(
        self, plan: Plan, folder: Path, run: str, given: GivenNamespaces
    ) -> None:
        super().__init__(plan, folder, run)
        self._given = given
        # What has to be removed, by the name that people know: how to do it.
        self._made: dict[str, Callable[[], None]] = {}
        self._clients: list[ServiceBusAdministrationClient] = []

    async def check(self) -> None:
        options = {
            "--primary": self._given.primary,
            "--secondary": self._given.secondary,
        }
        found = [await self._access(*option) for option in options.items()]
        self.primary, self.secondary = found
        for option, access in zip(options, found, strict=True):
            admin = access.admin()
            self._clients.append(admin)
            await asyncio.to_thread(_check_manages, option, admin)
        if self.plan.rules.means is Means.SWITCHBOARD:
            await asyncio.to_thread(self._check_switchboard)

    async def _open(self) -> tuple[NamespaceAccess, NamespaceAccess]:
        await asyncio.to_thread(self._make)
        return self.primary, self.secondary

    async def _access(self, option: str, text: str) -> NamespaceAccess:
        """How to reach a namespace, and its administration."""
        parsed = parse_connection_string(text)
        ca_file = "" if self._given.ca_file is None else str(self._given.ca_file)
        access = NamespaceAccess(text, text, ca_file)
        connection = access.connection(limits.CLI_NAMESPACE_SECONDS)
        authority = connection.endpoint.authority
        try:
            async with connection:
                await connection.open()
                told = connection.properties
        except RemoteError as error:
            raise ConfigError(
                f"{option}: {error.text} Start the server, or check the host, the "
                "port and --ca-file."
            ) from error
        if INSTANCE_PROPERTY not in told:
            # Azure has both behind one name.
            return access
        port = told.get(HTTP_PORT_PROPERTIES["https"])
        if not isinstance(port, int):
            raise ConfigError(
                f"{option}: {authority} has no HTTPS, which the drill makes its "
                "entities with. Start that server with --https-port."
            )
        return NamespaceAccess(text, _admin_text(parsed, port), ca_file)

    def _reach(self) -> Remote:
        ca_file = self._given.ca_file
        return reach(self._given.primary, None, None if ca_file is None else [ca_file])

    def _check_switchboard(self) -> None:
        try:
            Switch(self.plan, self._reach()).check()
        except (ClientFailed, ConfigError) as error:
            raise ConfigError(
                f"--fault {self.plan.fault} needs a primary that is a twinbus server "
                "with --faults. Start it with that option, or choose --fault cut or "
                f"both. ({error.text})"
            ) from error

    # -- entities ----------------------------------------------------------------------

    def _make(self) -> None:
        """Make the entities; the senders make the backlog queues."""
        plan = self.plan
        manager, other = self._clients
        for path in plan.backlog:
            self._made[path] = partial(other.delete_queue, path)
        try:
            for queue in primary_entities()["queues"]:
                name = plan.real(queue.pop("name"))
                self._made[name] = partial(manager.delete_queue, name)
                manager.create_queue(name, **_IDLE, **queue)
            name = plan.real(TOPIC)
            self._made[name] = partial(manager.delete_topic, name)
            manager.create_topic(name, **_IDLE)
            for subscription in primary_entities()["topics"][0]["subscriptions"]:
                manager.create_subscription(
                    name, subscription.pop("name"), **subscription
                )
        except AzureError as error:
            text = " ".join(str(error).split())
            raise DrillFailed(
                f"The drill's entities cannot be made: {text} They need topics and "
                "sessions."
            ) from error

    async def close(self) -> list[str]:
        """Remove the entities; returns those that could not be removed."""
        await super().close()
        if self._switch is not None:
            with contextlib.suppress(DrillFailed):
                await asyncio.to_thread(self._switch.off)
        loop = asyncio.get_running_loop()
        until = loop.time() + limits.DRILL_REMOVE_SECONDS
        # A fault that has just ended may still keep the namespace from it.
        while self._made:
            await asyncio.to_thread(self._remove)
            if loop.time() >= until:
                break
            await asyncio.sleep(limits.DRILL_EMPTY_SECONDS)
        for client in self._clients:
            client.close()
        return sorted(self._made)

    def _remove(self) -> None:
        for name, remove in list(self._made.items()):
            with contextlib.suppress(AzureError):
                with contextlib.suppress(ResourceNotFoundError):
                    remove()
                del self._made[name]


# Should the drill be killed, its entities go by themselves.
_IDLE: dict[str, Any] = {"auto_delete_on_idle": "PT1H"}


def _admin_text(parsed: ConnectionString, port: int) -> str:
    """The connection string for HTTPS."""
    host = f"[{parsed.host}]" if ":" in parsed.host else parsed.host
    text = f"Endpoint=sb://{host}:{port}/;"
    if parsed.token is not None:
        return f"{text}SharedAccessSignature={parsed.token.reveal()}"
    assert parsed.key is not None
    key = parsed.key.reveal()
    return f"{text}SharedAccessKeyName={parsed.key_name};SharedAccessKey={key}"


def _check_manages(option: str, manager: ServiceBusAdministrationClient) -> None:
    """Refuse a namespace whose entities the drill cannot make."""
    try:
        next(iter(manager.list_queues()), None)
    except AzureError as error:
        text = " ".join(str(error).split())
        hint = "The key needs Manage."
        if isinstance(error, ServiceRequestError):
            hint = "Check that HTTPS can be reached, and --ca-file."
        raise ConfigError(f"{option} cannot be managed: {text} {hint}") from error
