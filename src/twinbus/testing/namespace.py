"""A namespace inside the test process: started, used, emptied and stopped by a test.

Owns the thread that the server runs in, so that tests with and without an event loop of
their own can use it. It is the real server, on free ports of loopback, with its data in
memory unless a folder is given. With a manual clock the time of messages stands still
until `advance`; tokens go by the real time, since the clients that make them do.

Needs no pytest: `plugin.py` makes fixtures of this. The official clients are imported
only where one is asked for.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import tempfile
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from twinbus import limits
from twinbus.clock import ManualClock, SystemClock
from twinbus.core.durations import format_duration
from twinbus.core.names import parse_address
from twinbus.core.rule import DEFAULT_RULE_NAME
from twinbus.core.sas import DEV_KEY_NAME, DEV_KEY_TEXT
from twinbus.errors import ConfigError
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.broker.directory.maintenance import purge, reset
from twinbus.server.broker.host import Host
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Command, Turn
from twinbus.server.setup.config import load_config, parse_config
from twinbus.server.setup.listener import KINDS, ListenOptions
from twinbus.server.setup.server import Server, ServerOptions

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusClient
    from azure.servicebus.aio import ServiceBusClient as AsyncClient
    from azure.servicebus.aio.management import (
        ServiceBusAdministrationClient as AsyncAdminClient,
    )
    from azure.servicebus.management import ServiceBusAdministrationClient

T = TypeVar("T")

NAME = "testing"
HOST = "localhost"

# What a namespace has at the start: a file for `--config`, or the content of one
# namespace in it, where a plain name stands for an entity without settings, and
# entities may also be given by their names.
Entities = Mapping[str, Any] | Path

# The names of such settings. What a namespace is called is said elsewhere.
SETTINGS = tuple(
    field.name for field in fields(NamespaceConfig) if field.name != "name"
)


class _LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="twinbus-testing", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something that runs over there."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(
            limits.TESTING_CALL_SECONDS_MAX
        )

    def close(self) -> None:
        # Connections that were aborted let go of their sockets a turn later.
        self.run(_turns(3))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class ServedNamespace:
    """A running namespace; `serve_namespace` makes one."""

    def __init__(
        self,
        thread: _LoopThread,
        server: Server,
        ready: Mapping[str, Any],
        clock: ManualClock | None,
    ) -> None:
        self._thread = thread
        self._clock = clock
        ((self.name, port),) = server.ports.items()
        self._host: Host = port.host
        self._config = server.options.namespaces[0]
        self._clients: list[ServiceBusClient | ServiceBusAdministrationClient] = []
        endpoint = ready["namespaces"][self.name]
        # What clients connect with. It also works for everything that takes the
        # connection string of Microsoft's emulator.
        self.connection_string: str = endpoint["connection_string"]
        self.amqp_port: int = endpoint["amqp_port"]
        self.amqps_port: int = endpoint["amqps_port"]
        self.http_port: int = endpoint["http_port"]
        self.https_port: int = endpoint["https_port"]
        # The certificate that signs those of the server.
        self.ca_file: str = ready["ca_file"]

    @property
    def admin_connection_string(self) -> str:
        """What administration clients connect with, over HTTPS."""
        return (
            f"Endpoint=sb://{HOST}:{self.https_port}/;"
            f"SharedAccessKeyName={DEV_KEY_NAME};SharedAccessKey={DEV_KEY_TEXT}"
        )

    # -- the official clients ------------------------------------------------------

    def client(self, **options: Any) -> ServiceBusClient:
        """The official client, which is closed with the namespace if not before."""
        from azure.servicebus import ServiceBusClient

        text = self.connection_string
        client = ServiceBusClient.from_connection_string(text, **options)
        self._clients.append(client)
        return client

    def async_client(self, **options: Any) -> AsyncClient:
        """The official asynchronous client; use it with `async with`."""
        from azure.servicebus.aio import ServiceBusClient

        text = self.connection_string
        return ServiceBusClient.from_connection_string(text, **options)

    def admin_client(self, **options: Any) -> ServiceBusAdministrationClient:
        """The official administration client, over HTTPS and with its checks on."""
        from azure.servicebus.management import ServiceBusAdministrationClient

        client = ServiceBusAdministrationClient.from_connection_string(
            self.admin_connection_string, connection_verify=self.ca_file, **options
        )
        self._clients.append(client)
        return client

    def async_admin_client(self, **options: Any) -> AsyncAdminClient:
        """The asynchronous administration client; use it with `async with`."""
        from azure.servicebus.aio.management import ServiceBusAdministrationClient

        return ServiceBusAdministrationClient.from_connection_string(
            self.admin_connection_string, connection_verify=self.ca_file, **options
        )

    # -- entities ------------------------------------------------------------------

    def create_queue(self, name: str, **settings: Any) -> str:
        """Create a queue and return its name; settings are those of a config file."""
        [queue] = _parse({"queues": [{"name": name, **settings}]}).queues
        self.run(lambda names, turn: names.entities.create(queue, turn.now.wall_ms))
        return name

    def create_topic(self, name: str, **settings: Any) -> str:
        """Create a topic and return its name."""
        [topic] = _parse({"topics": [{"name": name, **settings}]}).topics
        description = topic.description
        self.run(
            lambda names, turn: names.entities.create(description, turn.now.wall_ms)
        )
        for given in _entities(settings.get("subscriptions", ())):
            self.create_subscription(name, given.pop("name"), **given)
        return name

    def create_subscription(self, topic: str, name: str, **settings: Any) -> str:
        """Create a subscription and return its name; without `rules` it gets all."""
        given = {"name": name, **settings}
        [parsed] = _parse(
            {"topics": [{"name": topic, "subscriptions": [given]}]}
        ).topics
        [subscription] = parsed.subscriptions

        def create(namespace: Namespace, turn: Turn) -> None:
            entities = namespace.entities
            now_ms = turn.now.wall_ms
            entity = entities.create(subscription.description, now_ms)
            if settings.get("rules"):
                entities.remove_rule(entity, DEFAULT_RULE_NAME, now_ms)
                for rule in subscription.rules:
                    dated = replace(rule, created_at_ms=now_ms)
                    entities.add_rule(entity, dated, now_ms)

        self.run(create)
        return name

    def delete(self, path: str) -> None:
        """Delete a queue, a topic or `topic/Subscriptions/name` with its messages."""
        self.run(lambda names, turn: names.delete(parse_address(path), turn))

    # -- messages and time ---------------------------------------------------------

    def purge(self, path: str) -> int:
        """Forget all messages of an entity, dead letters included; returns how many.

        The path of a dead-letter queue means that one alone. Locks, sessions and the
        memory of message ids go as well.
        """
        return self.run(lambda names, turn: purge(names, parse_address(path), turn))

    def reset(self) -> None:
        """Forget everything: what is left is as it was at the start, and empty."""
        self.run(lambda names, turn: reset(names, self._config, turn))

    def advance(self, seconds: float) -> None:
        """Let time pass, and return when all that it brings has happened.

        Locks end, messages expire, scheduled ones arrive.
        """
        if self._clock is None:
            raise ConfigError(
                "The clock of this namespace is the real one. Ask for another with "
                "@pytest.mark.servicebus(clock='manual') or manual_clock=True."
            )
        self._thread.run(_advance(self._host, self._clock, round(seconds * 1000)))

    def run(self, work: Command[T]) -> T:
        """Call `work(namespace, turn)` inside the server, in a transaction."""
        return self._thread.run(self._host.run(work))

    def _close_clients(self) -> None:
        for client in self._clients:
            client.close()


async def _advance(host: Host, clock: ManualClock, milliseconds: int) -> None:
    clock.advance(milliseconds)
    host.tick()
    seen: int | None = None
    while True:
        await host.run(lambda _namespace, _turn: None)
        if host.is_looking_at_time:
            continue
        next_ms = host.next_tick_ms
        is_late = next_ms is not None and next_ms <= clock.now_ms()
        # Overdue work that a tick did not change waits for something else than time.
        if not is_late or next_ms == seen:
            return
        seen = next_ms
        host.tick()


@contextmanager
def serve_namespace(
    entities: Entities | None = None,
    *,
    name: str = NAME,
    manual_clock: bool = False,
    data: Path | None = None,
    tls: Path | None = None,
) -> Iterator[ServedNamespace]:
    """Run a namespace until the block ends.

    `data` is a folder to keep it in; without, it lives in memory. `tls` is a folder
    that keeps its certificates, so that the next namespace need not make new ones.
    """
    config = _config(entities, name)
    clock = ManualClock(SystemClock().now().wall_ms) if manual_clock else None
    listen = ListenOptions("127.0.0.1", dict.fromkeys(KINDS, 0))
    with tempfile.TemporaryDirectory(prefix="twinbus-") as folder:
        options = ServerOptions(
            [config],
            data or tls or Path(folder),
            listen,
            dev=True,
            in_memory=data is None,
        )
        thread = _LoopThread()
        try:
            server = Server(options, clock)
            ready = thread.run(_start(server))
            namespace = ServedNamespace(thread, server, ready, clock)
            try:
                yield namespace
            finally:
                namespace._close_clients()
                thread.run(server.stop())
        finally:
            thread.close()


async def _start(server: Server) -> Mapping[str, Any]:
    ready = await server.start()
    for port in server.ports.values():
        port.host.token_clock = SystemClock()
    return ready


# -- what a namespace has at the start -----------------------------------------------


def _config(entities: Entities | None, name: str) -> NamespaceConfig:
    if not isinstance(entities, Path):
        return _parse(entities or {}, name)
    found = load_config(entities)
    named = [config for config in found if config.name.lower() == name.lower()]
    if len(named or found) != 1:
        raise ConfigError(
            f"{entities} has {len(found)} namespaces, and none is called '{name}'. "
            "Say which one you want with name=..."
        )
    return (named or found)[0]


def _parse(entities: Mapping[str, Any], name: str = NAME) -> NamespaceConfig:
    """Read entities as a configuration file is read, with the same refusals."""
    [config] = parse_config(config_text(entities, name), "entities.json")
    return config


def config_text(entities: Mapping[str, Any], name: str = NAME) -> str:
    """A configuration file with these entities."""
    plain = {**entities, "name": name}
    for kind in ("queues", "topics"):
        plain[kind] = _entities(entities.get(kind, ()))
    for topic in plain["topics"]:
        topic["subscriptions"] = _entities(topic.get("subscriptions", ()))
    return json.dumps({"namespaces": [plain]}, default=_plain)


def _entities(given: Any) -> list[dict[str, Any]]:
    """A list of names and descriptions, or descriptions by their names."""
    if isinstance(given, Mapping):
        return [{"name": name, **settings} for name, settings in given.items()]
    return [{"name": each} if isinstance(each, str) else dict(each) for each in given]


def _plain(value: Any) -> Any:
    if isinstance(value, dt.timedelta):
        return format_duration(value // dt.timedelta(milliseconds=1))
    raise ConfigError(f"A setting cannot be of the type {type(value).__name__}.")


__all__ = ["ServedNamespace", "serve_namespace"]
