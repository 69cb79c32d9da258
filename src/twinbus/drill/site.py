"""The two servers of a drill, and what is done to the primary.

Owns both processes and, for a cut, the proxies before them. Every process that talks to
the primary gets the same connection string, so a cut is one for all. The two servers
start at the same time; the primary comes back with the data that it had.
"""

from __future__ import annotations

import asyncio
import sys
from importlib.util import find_spec
from pathlib import Path

from azure.core.exceptions import AzureError
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus import limits
from twinbus.cli.remote import reach
from twinbus.client.connection import Connection
from twinbus.drill.children import DrillFailed
from twinbus.drill.plan import (
    PRIMARY_NAME,
    SECONDARY_NAME,
    Means,
    Plan,
    primary_entities,
    secondary_entities,
)
from twinbus.drill.proxying import DrillProxy
from twinbus.drill.switching import Switch
from twinbus.drill.tied import tied
from twinbus.errors import RemoteError
from twinbus.pairing.rules.naming import backlog_index
from twinbus.server.access.port import INSTANCE_PROPERTY
from twinbus.testing.server_process import ServerDied, ServerProcess


def _wrapper(cast: str) -> list[str]:
    """The words before the command of the primary, if the cast has some."""
    module = f"{cast}.server"
    return [sys.executable, "-m", module] if cast and find_spec(module) else []


class Site:
    """A primary and a secondary."""

    def __init__(self, plan: Plan, folder: Path, run: str) -> None:
        self._plan = plan
        self._folder = folder
        self._run = run
        prefix = tied(run)
        self._primary = ServerProcess(
            folder / "primary",
            primary_entities(),
            name=PRIMARY_NAME,
            options=["--faults"],
            prefix=[*prefix, *_wrapper(plan.cast)],
        )
        # A supervisor ends a stall; what the drill kills has to stay away.
        self._primary.supervised = plan.fault == "stall"
        self._secondary = ServerProcess(
            folder / "secondary",
            secondary_entities(plan),
            name=SECONDARY_NAME,
            prefix=prefix,
        )
        self._proxies: list[DrillProxy] = []
        self._switch: Switch | None = None
        self._instance = ""
        self._admin: ServiceBusAdministrationClient | None = None
        self.primary_text = self._primary.connection_string
        self._sent_to = self._secondary.connection_string

    async def start(self) -> None:
        """Start everything."""
        try:
            await asyncio.gather(
                asyncio.to_thread(self._primary.start),
                asyncio.to_thread(self._secondary.start),
            )
        except ServerDied as error:
            raise DrillFailed(f"A server did not start: {error}") from error
        if self._plan.rules.means is Means.PROXY:
            self.primary_text = await self._proxied("proxy", self._primary)
        if self._plan.fault == "both":
            self._sent_to = await self._proxied("proxy-secondary", self._secondary)
        if self._plan.rules.means is Means.SWITCHBOARD:
            url = f"http://127.0.0.1:{self._primary.ports['http']}"
            self._switch = Switch(reach(self.primary_text, url, None))
            self._instance = await self._ask_instance()
        self._admin = ServiceBusAdministrationClient.from_connection_string(
            self._secondary.admin_connection_string,
            connection_verify=self._secondary.ca_file,
        )

    async def _proxied(self, name: str, server: ServerProcess) -> str:
        """Put a proxy before a server; returns the connection string through it."""
        proxy = DrillProxy(name, self._folder)
        self._proxies.append(proxy)
        port = await proxy.start(self._run, "127.0.0.1", server.ports["amqp"])
        return server.connection_string_through(port)

    async def _ask_instance(self) -> str:
        """Which life of the primary answers."""
        connection = Connection.from_connection_string(self.primary_text)
        async with connection:
            await connection.open(limits.DRILL_CONTACT_SECONDS_MAX)
            return str(connection.properties[INSTANCE_PROPERTY])

    # -- where things are --------------------------------------------------------------

    def access(self) -> dict[str, str]:
        """What a child needs to find both."""
        return {
            "primary": self.primary_text,
            "secondary": self._sent_to,
            "secondary_admin": self._secondary.admin_connection_string,
            "ca_file": self._secondary.ca_file,
            "primary_admin": self._primary.admin_connection_string,
            "primary_ca_file": self._primary.ca_file,
        }

    @property
    def secondary_text(self) -> str:
        return self._secondary.connection_string

    async def depths(self) -> dict[int, int]:
        """How many messages wait in each backlog queue."""
        try:
            return await asyncio.to_thread(self._depths)
        except AzureError as error:
            raise DrillFailed(f"The secondary does not answer: {error}") from error

    def _depths(self) -> dict[int, int]:
        assert self._admin is not None
        found: dict[int, int] = {}
        for queue in self._admin.list_queues_runtime_properties():
            index = backlog_index(queue.name, PRIMARY_NAME)
            if index is not None:
                found[index] = queue.active_message_count or 0
        return found

    # -- what is done to the primary ---------------------------------------------------

    async def break_primary(self) -> None:
        """Let the fault of the plan begin."""
        plan = self._plan
        if plan.fault == "kill":
            self._primary.kill()
        elif plan.fault == "stop":
            self._primary.pause()
        elif plan.rules.means is Means.PROXY:
            await asyncio.gather(*(proxy.cut(plan.cut) for proxy in self._proxies))
        else:
            assert self._switch is not None
            await asyncio.to_thread(self._switch.on, plan)

    async def restore_primary(self) -> None:
        """End the fault."""
        plan = self._plan
        if plan.fault == "kill":
            try:
                await asyncio.to_thread(self._primary.start)
            except ServerDied as error:
                raise DrillFailed(f"The primary did not come back: {error}") from error
        elif plan.fault == "stop":
            self._primary.resume()
        elif plan.rules.means is Means.PROXY:
            await asyncio.gather(*(proxy.heal() for proxy in self._proxies))
        else:
            assert self._switch is not None
            await asyncio.to_thread(self._switch.off)

    async def until_restarted(self) -> None:
        """Wait until the supervisor has started the primary again."""
        loop = asyncio.get_running_loop()
        until = loop.time() + limits.DRILL_CHANGE_SECONDS
        while loop.time() < until:
            try:
                if await self._ask_instance() != self._instance:
                    return
            except RemoteError:
                # It does not answer yet.
                pass
            await asyncio.sleep(limits.DRILL_EMPTY_SECONDS)
        raise DrillFailed(
            f"Waited {limits.DRILL_CHANGE_SECONDS:g} seconds for the supervisor to "
            "restart the primary, in vain."
        )

    async def close(self) -> None:
        """End both servers and the proxies."""
        if self._admin is not None:
            self._admin.close()
        for proxy in self._proxies:
            await proxy.end()
        await asyncio.gather(
            asyncio.to_thread(self._primary.close),
            asyncio.to_thread(self._secondary.close),
        )
