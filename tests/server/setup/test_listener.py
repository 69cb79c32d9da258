"""Ports: which there are, what goes in clear text, and what a refusal says."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import ssl
import warnings
from pathlib import Path

import pytest

from tests.server.strangers import until
from twinbus import limits
from twinbus.clock import SystemClock
from twinbus.errors import ConfigError
from twinbus.server.access.entrance import WaitingSockets
from twinbus.server.access.port import is_loopback
from twinbus.server.setup import listener
from twinbus.server.setup.certificates import TlsOptions, prepare
from twinbus.server.setup.listener import ListenOptions


class Echo(asyncio.Protocol):
    """Says back what it hears."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


def options(**ports: int) -> ListenOptions:
    return ListenOptions("127.0.0.1", ports)


def test_the_next_namespaces_count_up_from_the_first() -> None:
    plan = listener.plan_ports(options(amqp=5672, http=5300), ["a", "b", "c"])

    assert plan == {
        "a": {"amqp": 5672, "http": 5300},
        "b": {"amqp": 5673, "http": 5301},
        "c": {"amqp": 5674, "http": 5302},
    }


def test_zero_stays_zero_for_every_namespace() -> None:
    plan = listener.plan_ports(options(amqp=0, http=0), ["a", "b"])

    assert plan == {"a": {"amqp": 0, "http": 0}, "b": {"amqp": 0, "http": 0}}


def test_ports_that_would_collide_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"Port 5672 would be both .* choose another"):
        listener.plan_ports(options(amqp=5672, amqps=5671), ["a", "b"])


@pytest.mark.parametrize("port", [-1, 65536, 65535])
def test_a_port_out_of_range_is_refused(port: int) -> None:
    with pytest.raises(ConfigError, match="not between 0 and 65535"):
        listener.plan_ports(options(amqp=port), ["a", "b"])


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.1", False),
        ("localhost.example.com", False),
    ],
)
def test_loopback_is_known(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize("kind", ["amqp", "http"])
def test_clear_text_beyond_loopback_must_be_asked_for(kind: str) -> None:
    with pytest.raises(ConfigError, match="--allow-plaintext"):
        listener.check_plaintext(ListenOptions("0.0.0.0", {kind: 0}))

    listener.check_plaintext(ListenOptions("0.0.0.0", {kind: 0}, allow_plaintext=True))
    listener.check_plaintext(ListenOptions("0.0.0.0", {"amqps": 0, "https": 0}))
    listener.check_plaintext(ListenOptions("127.0.0.1", {kind: 0}))


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        with pytest.raises(
            ConfigError, match=rf"127.0.0.1:{port} is in use.*--amqp-port"
        ):
            listener.bind("127.0.0.1", port, "amqp")


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(ConfigError, match="no address of this machine"):
        listener.bind("192.0.2.1", 0, "amqp")


def test_a_name_that_does_not_resolve_is_refused() -> None:
    with pytest.raises(ConfigError, match="--host"):
        listener.bind("no such host", 0, "amqp")


def test_only_one_of_two_sockets_on_a_port_can_listen() -> None:
    first = listener.bind("127.0.0.1", 0, "amqp")
    port = first.getsockname()[1]
    second = listener.bind("127.0.0.1", port, "http")

    with first, second:
        listener.queue(first, "amqp")
        with pytest.raises(ConfigError, match=f"{port} is in use.*--http-port"):
            listener.queue(second, "http")


async def test_a_client_gets_a_protocol_of_its_own() -> None:
    bound = listener.bind("127.0.0.1", 0, "amqp")
    server = listener.listen(bound, "amqp", Echo, None)
    port = bound.getsockname()[1]

    with contextlib.closing(server):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        writer.close()
        await writer.wait_closed()


async def test_tls_clients_that_trust_the_authority_are_served(
    tmp_path: Path,
) -> None:
    # Real time: clients compare it with the certificate's.
    now_ms = SystemClock().now_ms()
    tls, ca_file = prepare(tmp_path, ["contoso"], TlsOptions(), now_ms)
    bound = listener.bind("127.0.0.1", 0, "amqps")
    server = listener.listen(bound, "amqps", Echo, tls)
    port = bound.getsockname()[1]
    trusting = ssl.create_default_context(cafile=str(ca_file))
    strict = ssl.create_default_context(cafile=str(ca_file))
    strict.verify_flags |= ssl.VERIFY_X509_STRICT
    old = ssl.create_default_context(cafile=str(ca_file))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.maximum_version = ssl.TLSVersion.TLSv1_1

    with contextlib.closing(server):
        for context in (trusting, strict):
            for name in ("localhost", "127.0.0.1", "contoso.localhost"):
                assert await said_back(port, context, name) == b"hello"
        for context, name in (
            (ssl.create_default_context(), "localhost"),
            (trusting, "evil.example"),
            (old, "localhost"),
        ):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await said_back(port, context, name)


async def said_back(port: int, context: ssl.SSLContext, name: str) -> bytes:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname=name
    )
    writer.write(b"hello")
    data = await reader.readexactly(5)
    writer.close()
    await writer.wait_closed()
    return data


async def test_a_tls_port_does_not_answer_clear_text(tmp_path: Path) -> None:
    tls, _ = prepare(tmp_path, [], TlsOptions(), SystemClock().now_ms())
    bound = listener.bind("127.0.0.1", 0, "amqps")
    server = listener.listen(bound, "amqps", Echo, tls)

    with contextlib.closing(server):
        reader, writer = await asyncio.open_connection(*bound.getsockname())
        writer.write(b"AMQP\x00\x01\x00\x00")
        assert b"AMQP" not in await reader.read()
        writer.close()
        await writer.wait_closed()


class Counted(Echo):
    """Counts those who came in."""

    entered = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        type(self).entered += 1


@pytest.mark.parametrize("busy", [True, False])
async def test_connections_are_admitted_one_by_one_while_clients_work(
    busy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each after a pause; if no client works, all without one."""
    monkeypatch.setattr(limits, "NEWCOMER_MS", 50)
    monkeypatch.setattr(Counted, "entered", 0)
    bound = listener.bind("127.0.0.1", 0, "amqp")
    port = bound.getsockname()[1]
    loop = asyncio.get_running_loop()
    with contextlib.closing(
        listener.listen(bound, "amqp", Counted, None, lambda: busy)
    ):
        peers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        start = loop.time()
        for _, writer in peers:
            writer.write(b"hello")
        seen: list[int] = []
        for answer in asyncio.as_completed([r.readexactly(5) for r, _ in peers]):
            assert await asyncio.wait_for(answer, 10) == b"hello"
            seen.append(Counted.entered)
        took = loop.time() - start
        for _, writer in peers:
            writer.close()
            await writer.wait_closed()

    if busy:
        assert seen == [1, 2, 3, 4, 5]
        assert took > 0.15
    assert Counted.entered == 5


async def test_a_closed_entrance_admits_no_client() -> None:
    bound = listener.bind("127.0.0.1", 0, "amqp")
    port = bound.getsockname()[1]
    listener.listen(bound, "amqp", Echo, None).close()

    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_clients_wait_when_file_descriptors_run_out() -> None:
    """They are let in when there are some again; nothing else is disturbed."""
    bound = listener.bind("127.0.0.1", 0, "amqp")
    port = bound.getsockname()[1]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.closing(listener.listen(bound, "amqp", Echo, None)):
        # The client's socket is the last one that can be had.
        client = socket.socket()
        client.setblocking(False)
        resource.setrlimit(resource.RLIMIT_NOFILE, (client.fileno() + 1, hard))
        try:
            loop = asyncio.get_running_loop()
            await loop.sock_connect(client, ("127.0.0.1", port))
            await loop.sock_sendall(client, b"hello")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(loop.sock_recv(client, 5), 0.1)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

        assert await asyncio.wait_for(loop.sock_recv(client, 5), 10) == b"hello"
        client.close()


def test_addresses_alternate_and_so_do_the_oldest_and_newest_connection() -> None:
    room = WaitingSockets()
    sockets = {name: socket.socket() for name in ("a1", "a2", "a3", "a4", "b1", "b2")}
    for name, waiting in sockets.items():
        room.add(name[0], waiting)
    names = {waiting: name for name, waiting in sockets.items()}

    taken = [names[room.take()] for _ in range(5)]
    late = socket.socket()
    room.add("c", late)

    assert taken == ["a4", "b1", "a3", "b2", "a2"]
    assert len(room) == 2
    room.close()
    assert len(room) == 0
    assert late.fileno() == -1
    for waiting in sockets.values():
        waiting.close()


@pytest.mark.parametrize("extra", [-1, 0, 1])
async def test_the_number_of_waiting_connections_is_bounded(
    extra: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When there are too many, those who have waited longest are sent away."""
    most = 40
    monkeypatch.setattr(limits, "NEWCOMERS_WAITING_MAX", most)
    # Only the first is admitted.
    monkeypatch.setattr(limits, "NEWCOMER_MS", 60_000)
    bound = listener.bind("127.0.0.1", 0, "amqp")
    port = bound.getsockname()[1]
    entrance = listener.listen(bound, "amqp", Echo, None, lambda: True)
    with contextlib.closing(entrance):
        count = most + extra + 1
        peers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
        await until(lambda: len(entrance._room) >= min(most + extra, most - 15))
        if extra > 0:
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(peers[1][0].read(), 10) == b""
        else:
            await until(lambda: len(entrance._room) == most + extra)
        kept = len(entrance._room)
        for _, writer in peers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    assert kept == (most + extra if extra <= 0 else most - 15)


async def test_many_connections_of_one_address_do_not_delay_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "NEWCOMER_MS", 20)
    bound = listener.bind("127.0.0.1", 0, "amqp")
    port = bound.getsockname()[1]
    with contextlib.closing(listener.listen(bound, "amqp", Echo, None, lambda: True)):
        storm = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
        loop = asyncio.get_running_loop()
        start = loop.time()
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, local_addr=("127.0.0.2", 0)
        )
        writer.write(b"hello")
        assert await asyncio.wait_for(reader.readexactly(5), 10) == b"hello"
        took = loop.time() - start
        for _, each in [*storm, (reader, writer)]:
            each.close()

    # All before it would have taken four seconds.
    assert took < 2


async def test_a_connection_closed_while_waiting_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "NEWCOMER_MS", 20)
    monkeypatch.setattr(Counted, "entered", 0)
    bound = listener.bind("127.0.0.1", 0, "amqp")
    port = bound.getsockname()[1]
    with contextlib.closing(
        listener.listen(bound, "amqp", Counted, None, lambda: True)
    ):
        peers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
        for _, writer in peers:
            writer.transport.abort()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello")
        assert await asyncio.wait_for(reader.readexactly(5), 10) == b"hello"
        writer.close()
        await writer.wait_closed()

    assert Counted.entered < 50


async def test_pending_connections_are_closed_with_the_entrance() -> None:
    """Its task never begins then; the socket is closed all the same."""
    bound = listener.bind("127.0.0.1", 0, "amqp")
    entrance = listener.listen(bound, "amqp", Echo, None)
    with socket.create_connection(bound.getsockname()) as client:
        client.setblocking(False)
        entrance._accept()
        assert len(entrance._entering) == 1
        entrance.close()

        loop = asyncio.get_running_loop()
        assert await asyncio.wait_for(loop.sock_recv(client, 1), 10) == b""
