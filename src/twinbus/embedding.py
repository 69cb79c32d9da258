"""A namespace inside the process, durable in a folder: the local outbox of a service.

It is the real server, in a thread with an event loop of its own (`hosting.py`), so that
it does not stop with what the application's loop does.

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
from typing import TYPE_CHECKING, Any, Self

from twinbus.hosting import NAME, HostingOptions, ServerThread

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient

    from twinbus.pairing.shell import factory as aio_factory
    from twinbus.pairing.sync.factory import MessagingFactory


def _manager(server: ServerThread) -> ServiceBusAdministrationClient:
    from azure.servicebus.management import ServiceBusAdministrationClient

    return ServiceBusAdministrationClient.from_connection_string(
        server.connection_string("https"), connection_verify=server.ca_file
    )


class EmbeddedNamespace:
    """A namespace in this process; made by `twinbus.embedded`."""

    def __init__(self, server: ServerThread) -> None:
        from twinbus.pairing.sync.factory import MessagingFactory

        self._server = server
        # For programs that look at the namespace; it carries the key.
        self.connection_string = server.connection_string()
        # What a pair needs of its secondary.
        self.messaging_factory: MessagingFactory = (
            MessagingFactory.from_connection_string(server.connection_string())
        )
        self.manager: ServiceBusAdministrationClient = _manager(server)

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
        self._where = path, HostingOptions(name)
        self._server: ServerThread | None = None

    async def _start(self) -> Self:
        from twinbus.pairing.shell.factory import MessagingFactory

        if self._server is not None:
            return self
        self._server = server = await asyncio.to_thread(ServerThread, *self._where)
        self.connection_string = server.connection_string()
        self.messaging_factory = MessagingFactory.from_connection_string(
            server.connection_string()
        )
        self.manager = _manager(server)
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


def embedded(path: str | os.PathLike[str], *, name: str = NAME) -> EmbeddedNamespace:
    """Serve a namespace from a folder, inside this process, until it is closed.

    The folder is made if it is not there. `ConfigError` if it cannot be used, or if
    another process has it.
    """
    server = ServerThread(path, HostingOptions(name))
    try:
        return EmbeddedNamespace(server)
    except BaseException:
        server.stop()
        raise


def embedded_async(
    path: str | os.PathLike[str], *, name: str = NAME
) -> AsyncEmbeddedNamespace:
    """Serve a namespace from a folder, inside this process, until it is closed.

    Await the result or enter it with `async with`. Otherwise as `twinbus.embedded`.
    """
    return AsyncEmbeddedNamespace(path, name)
