"""A namespace inside the process, durable in a folder: the local outbox of a service.

It is the real server, in a thread with an event loop of its own, so that it does not
stop with what the application's loop does. It listens on loopback only, on free ports;
its random key is in the folder, for the folder's owner alone. A folder belongs to one
process at a time, and a restart finds all that was accepted.

Stands on top of `pairing`, which knows nothing of it: what it gives to a pair is a
factory and an administration client, as any other secondary has. The latter is the
official one, over verified HTTPS, so that a tool for the backlog finds its methods. It
is the blocking one for asyncio, too: the other needs a library that nothing else here
needs, and a pair takes either.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from twinbus.client.transport.loop_thread import LoopThread
from twinbus.core import sas
from twinbus.errors import ConfigError
from twinbus.server.broker import keys
from twinbus.server.broker.config import NamespaceConfig
from twinbus.server.setup.listener import ListenOptions
from twinbus.server.setup.server import Server, ServerOptions

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient

    from twinbus.pairing.shell import factory as aio_factory
    from twinbus.pairing.sync.factory import MessagingFactory

_HOST = "127.0.0.1"
_KINDS = ("amqp", "https")
_NAME = "embedded"
# What is served stays until it is closed, also if the application keeps only the
# factory of it: a thread ends with the last reference to it.
_serving: set[_ServerThread] = set()


class _ServerThread:
    """The server in its thread, from the start on."""

    def __init__(self, path: str | os.PathLike[str], name: str) -> None:
        listen = ListenOptions(_HOST, dict.fromkeys(_KINDS, 0))
        options = ServerOptions([NamespaceConfig(name)], Path(path), listen)
        self._server = Server(options)
        self._thread = LoopThread("twinbus-embedded")
        try:
            ready = self._thread.run(self._server.start)
        except ConfigError as error:
            self._thread.stop()
            # The server's own users would know it by this name.
            raise ConfigError(error.text.replace("--data", "path")) from None
        except BaseException:
            self._thread.stop()
            raise
        rules = self._server.ports[name].host.namespace.rules
        self._root = keys.find_rule(rules, keys.ROOT_RULE_NAME)
        self._ports: dict[str, Any] = ready["namespaces"][name]
        self._ca_file: str = ready["ca_file"]
        _serving.add(self)

    @property
    def connection_string(self) -> str:
        return self._string("amqp", dev=True)

    def manager(self) -> ServiceBusAdministrationClient:
        from azure.servicebus.management import ServiceBusAdministrationClient

        return ServiceBusAdministrationClient.from_connection_string(
            self._string("https", dev=False), connection_verify=self._ca_file
        )

    def _string(self, kind: str, *, dev: bool) -> str:
        # Without TLS, which is what `dev` says, loopback needs no certificate.
        root, port = self._root, self._ports[f"{kind}_port"]
        key = root.primary_key
        return sas.format_connection_string(_HOST, port, root.name, key, dev=dev)

    def stop(self) -> None:
        """Stop it; in a child process there is none to stop."""
        _serving.discard(self)
        if self._thread.usable:
            try:
                self._thread.run(self._server.stop)
            finally:
                self._thread.stop()


class EmbeddedNamespace:
    """A namespace in this process; made by `twinbus.embedded`."""

    def __init__(self, server: _ServerThread) -> None:
        from twinbus.pairing.sync.factory import MessagingFactory

        self._server = server
        # For programs that look at the namespace; it carries the key.
        self.connection_string = server.connection_string
        # What a pair needs of its secondary.
        self.messaging_factory: MessagingFactory = (
            MessagingFactory.from_connection_string(server.connection_string)
        )
        self.manager: ServiceBusAdministrationClient = server.manager()

    def close(self) -> None:
        """Stop serving; all that was accepted stays in the folder.

        Close the factory that is paired with it first, so that its sends end well.
        """
        try:
            self.messaging_factory.close()
            self.manager.close()
        finally:
            self._server.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncEmbeddedNamespace:
    """A namespace in this process, for asyncio; made by `twinbus.aio.embedded`.

    Await it, or enter it: it is there from then on.
    """

    # For programs that look at the namespace; it carries the key.
    connection_string: str
    # What a pair needs of its secondary.
    messaging_factory: aio_factory.MessagingFactory
    manager: ServiceBusAdministrationClient

    def __init__(self, path: str | os.PathLike[str], name: str) -> None:
        self._where = path, name
        self._server: _ServerThread | None = None

    async def _start(self) -> Self:
        from twinbus.pairing.shell.factory import MessagingFactory

        if self._server is not None:
            return self
        self._server = server = await asyncio.to_thread(_ServerThread, *self._where)
        self.connection_string = server.connection_string
        self.messaging_factory = MessagingFactory.from_connection_string(
            server.connection_string
        )
        self.manager = server.manager()
        return self

    async def close(self) -> None:
        """Stop serving; all that was accepted stays in the folder.

        Close the factory that is paired with it first, so that its sends end well.
        """
        server, self._server = self._server, None
        if server is None:
            return
        try:
            await self.messaging_factory.close()
            self.manager.close()
        finally:
            await asyncio.to_thread(server.stop)

    def __await__(self) -> Generator[Any, None, Self]:
        return self._start().__await__()

    async def __aenter__(self) -> Self:
        return await self._start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def embedded(path: str | os.PathLike[str], *, name: str = _NAME) -> EmbeddedNamespace:
    """Serve a namespace from a folder, inside this process, until it is closed.

    The folder is made if it is not there. `ConfigError` if it cannot be used, or if
    another process has it.
    """
    server = _ServerThread(path, name)
    try:
        return EmbeddedNamespace(server)
    except BaseException:
        server.stop()
        raise


def embedded_async(
    path: str | os.PathLike[str], *, name: str = _NAME
) -> AsyncEmbeddedNamespace:
    """Serve a namespace from a folder, inside this process, until it is closed.

    Await the result or enter it with `async with`. Otherwise as `twinbus.embedded`.
    """
    return AsyncEmbeddedNamespace(path, name)
