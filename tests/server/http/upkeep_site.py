"""A server with AMQP and HTTP, whose keys, messages and entities a test changes.

Owns how a test asks for upkeep and signs. The clock stands still until a test moves it.
Decides nothing about rights.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.server.cbs import NEVER_S, Cbs, connect
from tests.server.http.rest_site import Answer, Caller
from tests.server.raw import RawClient, RawServer
from twinbus.clock import ManualClock
from twinbus.core.rights import AuthorizationRule
from twinbus.core.sas import Secret, make_token
from twinbus.server.broker.directory import keys
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.setup.listener import ListenOptions
from twinbus.server.setup.server import Server, ServerOptions

ROOT = keys.ROOT_RULE_NAME


@dataclass
class UpkeepSite:
    """The server."""

    server: RawServer
    http_port: int

    @property
    def rules(self) -> dict[str, AuthorizationRule]:
        """The rules of the namespace as they are now."""
        return {rule.name: rule for rule in self.server.host.namespace.rules}

    @property
    def authority(self) -> str:
        return f"localhost:{self.http_port}"

    def signed(
        self, name: str = ROOT, key: Secret | None = None, path: str = ""
    ) -> str:
        """A token of a rule; of its first key, unless another is given."""
        key = key or self.rules[name].primary_key
        return make_token(f"http://{self.authority}/{path}", name, key, NEVER_S)

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        token: str | None = None,
        **headers: str,
    ) -> Answer:
        """Send a request on a connection of its own, signed by the root key."""
        # Refusals cost the address something; let it be paid.
        self.server.clock.advance(1000)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.http_port)
        caller = Caller(reader, writer)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {name.replace("_", "-"): text for name, text in headers.items()}
        given = {"Host": self.authority, **given}
        given["Authorization"] = self.signed() if token is None else token
        caller.ask(method, path, given, b"" if body is None else data)
        try:
            return await asyncio.wait_for(caller.answer(), 10)
        finally:
            await caller.hang_up()

    async def regenerate(self, name: str, which: str = "PrimaryKey") -> dict[str, str]:
        """Give a rule another key; returns its keys."""
        path = f"/$authorizationRules/{name}/regenerateKeys"
        answer = await self.ask("POST", path, {"keyType": which})
        assert answer.status == 200, answer
        found: dict[str, str] = json.loads(answer.body)
        return found

    async def desk(self) -> tuple[RawClient, Cbs]:
        """A client over AMQP, and its desk at `$cbs`."""
        client = await connect(self.server.port)
        return client, await Cbs.open(client)


@asynccontextmanager
async def serving(
    folder: Path,
    config: NamespaceConfig,
    *,
    dev: bool = False,
    shards: int | None = None,
) -> AsyncIterator[UpkeepSite]:
    """Serve a namespace over AMQP and HTTP."""
    clock = ManualClock()
    listen = ListenOptions("127.0.0.1", {"amqp": 0, "http": 0})
    options = ServerOptions([config], folder, listen, dev=dev, shards=shards)
    server = Server(options, clock)
    ready = (await server.start())["namespaces"][config.name]
    try:
        raw = RawServer(server, clock, ready["amqp_port"])
        yield UpkeepSite(raw, ready["http_port"])
    finally:
        await server.stop()


__all__ = ["ROOT", "UpkeepSite", "serving"]
