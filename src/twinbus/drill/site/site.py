"""The two namespaces of a drill, and what is done to the primary.

Owns the faults: a proxy before the primary that cuts it off, and the switchboard of the
primary. `ServerSite` has servers of its own, whose processes it can kill and stop; it
starts both at the same time, and the primary comes back with the data that it had. The
namespaces that a user has are in `given_site.py`. Every process that talks to the
primary gets the same access, so a cut is one for all.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus import limits
from twinbus.cli.remote import Remote, reach
from twinbus.drill.children import DrillFailed
from twinbus.drill.plan import (
    LEDGERS,
    PRIMARY_NAME,
    SECONDARY_NAME,
    Means,
    Plan,
    primary_entities,
    secondary_entities,
)
from twinbus.drill.site.access import LOOPBACK, NamespaceAccess
from twinbus.drill.site.proxying import DrillProxy
from twinbus.drill.site.switching import Switch
from twinbus.drill.tied import tied
from twinbus.errors import RemoteError
from twinbus.server.access.port import INSTANCE_PROPERTY
from twinbus.testing.server_process import ServerDied, ServerProcess


class Site(abc.ABC):
    """A primary and a secondary."""

    primary: NamespaceAccess
    secondary: NamespaceAccess

    def __init__(self, plan: Plan, folder: Path, run: str) -> None:
        self.plan = plan
        self.folder = folder
        self._run = run
        self._proxies: list[DrillProxy] = []
        self._switch: Switch | None = None
        self._instance: str | None = None
        self._admin: ServiceBusAdministrationClient | None = None

    @abc.abstractmethod
    async def check(self) -> None:
        """Refuse what cannot be done, with `ConfigError`, before anything begins."""

    async def start(self) -> None:
        """Have both namespaces ready for the drill."""
        self.primary, self.secondary = await self._open()
        rules = self.plan.rules
        if rules.means is Means.SWITCHBOARD:
            remote = await asyncio.to_thread(self._reach)
            self._switch = Switch(self.plan, remote)
            self._instance = await self._answering()
        if rules.means is Means.PROXY:
            self.primary = await self._proxied("proxy", self.primary)
        if self.plan.fault == "both":
            self.secondary = await self._proxied("proxy-secondary", self.secondary)
        self._admin = self.secondary.admin()

    @abc.abstractmethod
    async def _open(self) -> tuple[NamespaceAccess, NamespaceAccess]:
        """How to reach both namespaces, which are ready."""

    @abc.abstractmethod
    def _reach(self) -> Remote:
        """The primary over HTTP."""

    async def _proxied(self, name: str, access: NamespaceAccess) -> NamespaceAccess:
        """The same access, behind a proxy."""
        proxy = DrillProxy(name, self.folder)
        self._proxies.append(proxy)
        connection = access.connection(limits.DRILL_CONTACT_SECONDS_MAX)
        port = await proxy.start(self._run, *connection.endpoint.target)
        return replace(access, proxy_port=port)

    async def _answering(self) -> str | None:
        """Which start of the primary answers; None if none does."""
        access = self.primary
        try:
            async with access.connection(
                limits.DRILL_CONTACT_SECONDS_MAX
            ) as connection:
                await connection.open()
                return str(connection.properties.get(INSTANCE_PROPERTY, ""))
        except RemoteError:
            return None

    async def depths(self) -> dict[int, int]:
        """How many messages wait in each backlog queue."""
        try:
            return await asyncio.to_thread(self._depths)
        except AzureError as error:
            raise DrillFailed(f"The secondary does not answer: {error}") from error

    def _depths(self) -> dict[int, int]:
        assert self._admin is not None
        found: dict[int, int] = {}
        for index, path in enumerate(self.plan.backlog):
            with contextlib.suppress(ResourceNotFoundError):
                queue = self._admin.get_queue_runtime_properties(path)
                found[index] = queue.active_message_count or 0
        return found

    # -- what is done to the primary ---------------------------------------------------

    async def break_primary(self) -> None:
        """Let the fault of the plan begin."""
        if self._switch is not None:
            await asyncio.to_thread(self._switch.on)
        cuts = [proxy.cut(self.plan.cut) for proxy in self._proxies]
        await asyncio.gather(*cuts)

    async def restore_primary(self) -> None:
        """End the fault."""
        if self._switch is not None:
            await asyncio.to_thread(self._switch.off)
        await asyncio.gather(*(proxy.heal() for proxy in self._proxies))

    async def stall_ended(self) -> bool:
        """Wait until a stalled primary answers; returns whether it was restarted."""
        loop = asyncio.get_running_loop()
        until = loop.time() + limits.DRILL_STALL_SECONDS + limits.DRILL_CHANGE_SECONDS
        was_silent = False
        while loop.time() < until:
            instance = await self._answering()
            if instance is None:
                was_silent = True
            elif instance != self._instance or was_silent:
                return instance != self._instance
            await asyncio.sleep(limits.DRILL_EMPTY_SECONDS)
        raise DrillFailed("The primary does not answer again after the stall.")

    async def close(self) -> list[str]:
        """End what the drill has begun; returns what it could not remove."""
        if self._admin is not None:
            self._admin.close()
        for proxy in self._proxies:
            await proxy.end()
        return []


def _wrapper(cast: str) -> list[str]:
    """The words before the command of the primary, if the cast has some."""
    module = f"{cast}.server"
    return [sys.executable, "-m", module] if cast and find_spec(module) else []


class ServerSite(Site):
    """Two servers of the drill's own."""

    def __init__(self, plan: Plan, folder: Path, run: str) -> None:
        super().__init__(plan, folder, run)
        prefix = tied(run)
        self._first = ServerProcess(
            folder / "primary",
            primary_entities(),
            name=PRIMARY_NAME,
            options=["--faults", "--ledger", str(folder / LEDGERS / "primary")],
            prefix=[*prefix, *_wrapper(plan.cast)],
        )
        # A supervisor ends a stall; what the drill kills has to stay away.
        self._first.supervised = plan.fault == "stall"
        self._second = ServerProcess(
            folder / "secondary",
            secondary_entities(plan),
            name=SECONDARY_NAME,
            options=["--ledger", str(folder / LEDGERS / "secondary")],
            prefix=prefix,
        )

    async def check(self) -> None:
        """Its own servers can do everything."""

    async def _open(self) -> tuple[NamespaceAccess, NamespaceAccess]:
        servers = (self._first, self._second)
        try:
            await asyncio.gather(
                *(asyncio.to_thread(server.start) for server in servers)
            )
        except ServerDied as error:
            raise DrillFailed(f"A server did not start: {error}") from error
        first, second = (
            NamespaceAccess(
                each.connection_string, each.admin_connection_string, each.ca_file
            )
            for each in servers
        )
        return first, second

    def _reach(self) -> Remote:
        url = f"http://{LOOPBACK}:{self._first.ports['http']}"
        return reach(self.primary.text, url, None)

    async def break_primary(self) -> None:
        if self.plan.fault == "kill":
            self._first.kill()
        elif self.plan.fault == "stop":
            self._first.pause()
        await super().break_primary()

    async def restore_primary(self) -> None:
        if self.plan.fault == "kill":
            try:
                await asyncio.to_thread(self._first.start)
            except ServerDied as error:
                raise DrillFailed(f"The primary did not come back: {error}") from error
        elif self.plan.fault == "stop":
            self._first.resume()
        await super().restore_primary()

    async def stall_ended(self) -> bool:
        if not await super().stall_ended():
            raise DrillFailed("The supervisor did not restart the stalled primary.")
        return True

    async def close(self) -> list[str]:
        """End both servers at once; what they have is in the folder."""
        await asyncio.gather(
            asyncio.to_thread(_end, self._first),
            asyncio.to_thread(_end, self._second),
        )
        return await super().close()


def _end(server: ServerProcess) -> None:
    """Let a server write its ledger; one that does not end is killed."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.stop()
    server.close()
