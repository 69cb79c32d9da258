"""A server as a whole: what a start makes, what a failed one leaves, what a stop does.

Connections are echoes here, but for those tests that are about them.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from twinbus.client.connection import Connection
from twinbus.client.credentials import SasKey
from twinbus.client.transport.endpoint import Endpoint
from twinbus.clock import ManualClock, SystemClock
from twinbus.core.names import EntityPath
from twinbus.core.sas import DEV_KEY_TEXT, parse_connection_string
from twinbus.errors import ConfigError
from twinbus.server.access.port import NamespacePort
from twinbus.server.broker.directory import keys
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.setup.config import parse_config
from twinbus.server.setup.listener import ListenOptions
from twinbus.server.setup.namespaces import open_namespace
from twinbus.server.setup.server import Server, ServerOptions

ALL_FREE = {"amqp": 0, "amqps": 0, "http": 0, "https": 0}


class Echo(asyncio.Protocol):
    """Says back what it hears, with the name of its namespace."""

    def __init__(self, port: NamespacePort) -> None:
        self.name = port.host.namespace.name

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(self.name.encode() + b" " + data)
        self.transport.close()


def options(data: Path, *names: str, **changes: Any) -> ServerOptions:
    given: dict[str, Any] = {
        "namespaces": [NamespaceConfig(name) for name in names or ("contoso",)],
        "data": data,
        "listen": ListenOptions("127.0.0.1", {"amqp": 0}),
        "dev": True,
    }
    return ServerOptions(**{**given, **changes})


def configured(text: str) -> list[NamespaceConfig]:
    return parse_config(text, "test.yaml")


@asynccontextmanager
async def running(asked: ServerOptions) -> AsyncIterator[tuple[Server, Any]]:
    server = Server(asked, ManualClock(), Echo)
    ready = await server.start()
    try:
        yield server, ready
    finally:
        await server.stop()


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


async def say(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_each_namespace_has_ports_and_a_folder_of_its_own(tmp_path: Path) -> None:
    async with running(options(tmp_path, "Contoso", "fabrikam")) as (_, ready):
        for name in ("Contoso", "fabrikam"):
            port = ready["namespaces"][name]["amqp_port"]
            assert await say(port, b"hello") == f"{name} hello".encode()

    assert files_in(tmp_path) == {"contoso", "fabrikam"}


async def test_the_ready_line_names_every_port(tmp_path: Path) -> None:
    listen = ListenOptions("127.0.0.1", ALL_FREE)
    async with running(options(tmp_path, listen=listen)) as (_, ready):
        described = ready["namespaces"]["contoso"]
        ports = [described[f"{kind}_port"] for kind in ALL_FREE]

        assert ready["ready"] is True
        assert ready["ca_file"] == str(tmp_path / "tls" / "ca.pem")
        assert all(ports)
        assert len(set(ports)) == 4
        parsed = parse_connection_string(described["connection_string"])
        assert parsed.dev
        assert (parsed.host, parsed.port) == ("127.0.0.1", described["amqp_port"])
        assert parsed.key is not None
        assert parsed.key.reveal() == DEV_KEY_TEXT


async def test_the_certificate_names_the_address_that_is_listened_on(
    tmp_path: Path,
) -> None:
    listen = ListenOptions("127.0.0.7", {"amqps": 0})
    server = Server(options(tmp_path, listen=listen), SystemClock(), Echo)
    ready = await server.start()
    trusting = ssl.create_default_context(cafile=ready["ca_file"])
    port = ready["namespaces"]["contoso"]["amqps_port"]

    reader, writer = await asyncio.open_connection("127.0.0.7", port, ssl=trusting)
    writer.write(b"hello")
    assert await reader.read() == b"contoso hello"

    writer.close()
    await writer.wait_closed()
    await server.stop()


async def test_a_listener_that_is_off_has_no_port(tmp_path: Path) -> None:
    async with running(options(tmp_path)) as (_, ready):
        described = ready["namespaces"]["contoso"]

        assert described["amqps_port"] is described["http_port"] is None
        assert ready["ca_file"] is None


async def test_without_dev_no_key_leaves_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with running(options(tmp_path, dev=False)) as (server, ready):
        host = server.ports["contoso"].host
        (root,) = host.namespace.rules_of("")

        assert root.primary_key.reveal() not in f"{ready} {caplog.text}"
        assert DEV_KEY_TEXT not in [key.reveal() for key in root.keys if key]
        assert (
            "SharedAccessKey="
            not in ready["namespaces"]["contoso"]["connection_string"]
        )


async def test_keys_and_entities_survive_a_restart(tmp_path: Path) -> None:
    asked = options(tmp_path, dev=False)
    async with running(asked) as (server, _):
        before = server.ports["contoso"].host.namespace.rules_of("")
    async with running(asked) as (server, _):
        after = server.ports["contoso"].host.namespace.rules_of("")

    assert before == after


async def test_rules_come_from_the_namespace_and_from_entities(tmp_path: Path) -> None:
    text = """
    namespaces:
      - name: contoso
        queues:
          - name: Orders
            authorization_rules: [{name: q, rights: [Send], primary_key: a}]
        topics: [{name: events, subscriptions: [{name: all}]}]
        authorization_rules: [{name: n, rights: [Listen], primary_key: b}]
    """
    asked = options(tmp_path, namespaces=configured(text))
    async with running(asked) as (server, _):
        host = server.ports["contoso"].host

        def found(key: str) -> list[str]:
            return [rule.name for rule in host.namespace.rules_of(key)]

        assert found("") == [keys.ROOT_RULE_NAME, "n"]
        assert found("orders") == ["q"]
        assert found("events/subscriptions/all") == found("unknown") == []


async def test_the_host_name_chooses_the_namespace(tmp_path: Path) -> None:
    async with running(options(tmp_path, "Contoso", "fabrikam")) as (server, _):
        first, second = server.ports.values()

        assert first.choose("FABRIKAM.bus.example") is second.host
        assert second.choose("contoso.bus.example") is first.host
        assert second.choose("localhost") is second.host
        assert second.choose(None) is second.host


async def test_each_namespace_says_its_own_http_ports(tmp_path: Path) -> None:
    names = ("contoso", "fabrikam")
    listen = ListenOptions("127.0.0.1", ALL_FREE)
    asked = options(tmp_path, *names, listen=listen)
    server = Server(asked)
    ready = (await server.start())["namespaces"]
    try:
        # By the port that it came through, and by the host name that it asks for.
        for through, hostname, name in (
            ("contoso", "127.0.0.1", "contoso"),
            ("fabrikam", "127.0.0.1", "fabrikam"),
            ("contoso", "fabrikam.example.org", "fabrikam"),
        ):
            address = ("127.0.0.1", ready[through]["amqp_port"])
            endpoint = Endpoint(hostname, address=address)
            async with Connection(endpoint, SasKey("n", "k")) as client:
                await client.open()
                said = client.properties

                assert client.container_id == name
            assert said["twinbus:http-port"] == ready[name]["http_port"]
            assert said["twinbus:https-port"] == ready[name]["https_port"]
            assert said["twinbus:instance"] == server.ports[name].host.instance
    finally:
        await server.stop()


async def test_a_configured_rate_wins_over_the_general_one(tmp_path: Path) -> None:
    text = "namespaces: [{name: a, message_rate_per_second: 5}, {name: b}]"
    asked = options(tmp_path, namespaces=configured(text), message_rate=7)
    async with running(asked) as (server, _):
        rates = {
            name: getattr(port.host.namespace._bucket, "rate", None)
            for name, port in server.ports.items()
        }

    assert rates == {"a": 5, "b": 7}


async def test_a_refused_configuration_leaves_nothing_behind(tmp_path: Path) -> None:
    async with running(options(tmp_path, namespaces=configured(ONE_QUEUE))):
        pass
    wrong = configured(
        "namespaces: [{name: contoso, queues: [{name: new}, "
        "{name: orders, requires_session: true}]}]"
    )

    server = Server(options(tmp_path, namespaces=wrong), ManualClock(), Echo)
    with pytest.raises(ConfigError, match="requires_session"):
        await server.start()

    namespace = open_namespace(tmp_path, "contoso").first
    assert [entity.name for entity in namespace.entities] == ["orders"]
    namespace.store.close()


ONE_QUEUE = "namespaces: [{name: contoso, queues: [{name: orders}]}]"


async def test_a_folder_in_use_is_refused_and_its_ports_are_given_back(
    tmp_path: Path,
) -> None:
    async with running(options(tmp_path)):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            free = probe.getsockname()[1]
        listen = ListenOptions("127.0.0.1", {"amqp": free})
        second = Server(options(tmp_path, listen=listen), ManualClock(), Echo)

        with pytest.raises(ConfigError, match="in use by process"):
            await second.start()

        with socket.socket() as again:
            again.bind(("127.0.0.1", free))


async def test_a_port_in_use_is_refused_and_the_folder_is_given_back(
    tmp_path: Path,
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        listen = ListenOptions("127.0.0.1", {"http": 0, "amqp": other.getsockname()[1]})
        server = Server(options(tmp_path, listen=listen), ManualClock(), Echo)

        with pytest.raises(ConfigError, match="--amqp-port"):
            await server.start()

    async with running(options(tmp_path)):
        pass


async def test_a_bad_name_is_refused(tmp_path: Path) -> None:
    server = Server(options(tmp_path, "../evil"), ManualClock(), Echo)

    with pytest.raises(Exception, match="namespace name"):
        await server.start()

    assert files_in(tmp_path) == set()


async def test_stopping_twice_is_allowed(tmp_path: Path) -> None:
    server = Server(options(tmp_path), ManualClock(), Echo)
    await server.start()

    await server.stop()
    await server.stop()


async def test_a_stopped_server_refuses_and_closes_connections(tmp_path: Path) -> None:
    # The real connection: it must be told, and the socket must end.
    server = Server(options(tmp_path), ManualClock())
    ready = await server.start()
    port = ready["namespaces"]["contoso"]["amqp_port"]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"AMQP\x03\x01\x00\x00")
    assert await reader.readexactly(8) == b"AMQP\x03\x01\x00\x00"

    await server.stop()

    await reader.read()
    writer.close()
    await writer.wait_closed()
    with pytest.raises(ConnectionError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_configured_entity_can_be_found(tmp_path: Path) -> None:
    asked = options(tmp_path, namespaces=configured(ONE_QUEUE))
    async with running(asked) as (server, _):
        entities = server.ports["contoso"].host.namespace.entities

        assert entities.get(EntityPath("ORDERS")).name == "orders"


async def test_a_namespace_knows_when_it_was_made(tmp_path: Path) -> None:
    """At its first start, although it has no entity; and it stays so."""
    clock = ManualClock()
    first_ms = clock.now_ms()
    for _ in range(2):
        server = Server(options(tmp_path), clock, Echo)
        await server.start()
        namespace = server.ports["contoso"].host.namespace
        created_ms = namespace.created_ms(clock.now_ms())
        await server.stop()
        clock.advance(86_400_000)

        assert created_ms == first_ms
