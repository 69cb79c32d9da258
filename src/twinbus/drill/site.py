"""The two servers of a drill, and what is done to the primary.

Owns both processes and, for a cut, the proxy before the primary. Every process that
talks to the primary gets the same connection string, so a cut is one for all. The two
servers start at the same time; the primary comes back with the data that it had.
"""

from __future__ import annotations

import asyncio
import sys
from importlib.util import find_spec
from pathlib import Path

from azure.core.exceptions import AzureError
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus import limits
from twinbus.drill.children import Child, DrillFailed, Line
from twinbus.drill.plan import (
    PRIMARY_NAME,
    SECONDARY_NAME,
    Plan,
    primary_entities,
    secondary_entities,
)
from twinbus.drill.tied import tied
from twinbus.pairing.rules.naming import backlog_index
from twinbus.testing.server_process import ServerDied, ServerProcess

_PROXY = "twinbus.testing.proxy"


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
            prefix=[*prefix, *_wrapper(plan.cast)],
        )
        self._secondary = ServerProcess(
            folder / "secondary",
            secondary_entities(plan),
            name=SECONDARY_NAME,
            prefix=prefix,
        )
        self._proxy: Child | None = None
        self._answers: asyncio.Queue[Line] = asyncio.Queue()
        self._admin: ServiceBusAdministrationClient | None = None
        self.primary_text = self._primary.connection_string

    async def start(self) -> None:
        """Start everything."""
        try:
            await asyncio.gather(
                asyncio.to_thread(self._primary.start),
                asyncio.to_thread(self._secondary.start),
            )
        except ServerDied as error:
            raise DrillFailed(f"A server did not start: {error}") from error
        if self._plan.fault == "cut":
            await self._start_proxy()
        self._admin = ServiceBusAdministrationClient.from_connection_string(
            self._secondary.admin_connection_string,
            connection_verify=self._secondary.ca_file,
        )

    async def _start_proxy(self) -> None:
        proxy = Child("proxy", self._folder, self._heard)
        self._proxy = proxy
        port = str(self._primary.ports["amqp"])
        await proxy.start(self._run, _PROXY, "127.0.0.1", port)
        answer = await self._answer()
        text = self._primary.connection_string_through(answer["port"])
        self.primary_text = text

    def _heard(self, _: Child, line: Line) -> None:
        self._answers.put_nowait(line)

    async def _answer(self) -> Line:
        try:
            return await asyncio.wait_for(
                self._answers.get(), limits.DRILL_PROXY_SECONDS
            )
        except TimeoutError:
            raise DrillFailed("The proxy does not answer.") from None

    async def _ask_proxy(self, *words: str) -> None:
        assert self._proxy is not None
        for word in words:
            self._proxy.tell(do=word)
            answer = await self._answer()
            if not answer.get("ok"):
                raise DrillFailed(f"The proxy says: {answer.get('error')}")

    # -- where things are --------------------------------------------------------------

    def access(self) -> dict[str, str]:
        """What a child needs to find both."""
        return {
            "primary": self.primary_text,
            "secondary": self._secondary.connection_string,
            "secondary_admin": self._secondary.admin_connection_string,
            "ca_file": self._secondary.ca_file,
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
        """Take the primary away."""
        if self._plan.fault == "kill":
            self._primary.kill()
        elif self._plan.fault == "stop":
            self._primary.pause()
        elif self._plan.cut == "refuse":
            await self._ask_proxy("refuse", "cut")
        else:
            await self._ask_proxy("black_hole")

    async def restore_primary(self) -> None:
        """Bring it back."""
        if self._plan.fault == "kill":
            try:
                await asyncio.to_thread(self._primary.start)
            except ServerDied as error:
                raise DrillFailed(f"The primary did not come back: {error}") from error
        elif self._plan.fault == "stop":
            self._primary.resume()
        else:
            await self._ask_proxy("heal")

    async def close(self) -> None:
        """End both servers and the proxy."""
        if self._admin is not None:
            self._admin.close()
        if self._proxy is not None:
            await self._proxy.end()
        await asyncio.gather(
            asyncio.to_thread(self._primary.close),
            asyncio.to_thread(self._secondary.close),
        )
