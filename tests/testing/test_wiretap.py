"""A tap writes down what crossed the wire, and how it was answered."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from twinbus.aio import MessagingFactory, SendAvailabilityPairedNamespaceOptions
from twinbus.client.connection import Connection
from twinbus.errors import RemoteError
from twinbus.pairing.rules.naming import backlog_path
from twinbus.testing.events import Event, Recorder, load
from twinbus.testing.namespace import ServedNamespace, serve_namespace
from twinbus.testing.proxy import Fault, FaultyProxy
from twinbus.testing.wiretap import Wiretap
from twinbus.wire.message.sections import MESSAGE_ID, encode_message

QUEUE = "orders"


class Site:
    """A namespace behind a proxy with a tap."""

    def __init__(self, namespace: ServedNamespace, history: Path) -> None:
        self.namespace = namespace
        self._history = history
        self._recorder = Recorder(history)
        self.proxies: list[FaultyProxy] = []

    def proxy(self, process: str, *, backlog: bool = False) -> FaultyProxy:
        tap = Wiretap(self._recorder, process, backlog)
        proxy = FaultyProxy("127.0.0.1", self.namespace.amqp_port, tap=tap)
        self.proxies.append(proxy)
        return proxy

    def text(self, proxy: FaultyProxy) -> str:
        text, port = self.namespace.connection_string, self.namespace.amqp_port
        return text.replace(f":{port}", f":{proxy.port}")

    def client(self, proxy: FaultyProxy) -> Connection:
        return Connection.from_connection_string(self.text(proxy), timeout_seconds=2)

    def events(self, *ops: str) -> list[Event]:
        """What was written until all connections had ended."""
        for proxy in self.proxies:
            proxy.wait_until(lambda proxy: not proxy.open_connections)
        return [event for event in load(self._history) if event.op in ops]

    def close(self) -> None:
        for proxy in self.proxies:
            proxy.close()
        self._recorder.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    entities = {"queues": [QUEUE, {"name": "small", "max_size_in_megabytes": 1}]}
    with serve_namespace(entities, tls=tmp_path) as namespace:
        made = Site(namespace, tmp_path / "history")
        yield made
        made.close()


def _message(name: str, size: int = 10) -> bytes:
    return encode_message(b"x" * size, {MESSAGE_ID: name})


async def _fill(client: Connection) -> None:
    for number in range(10):
        await client.sender("small").send(_message(f"s{number}", 250_000))


def _told(events: list[Event]) -> list[tuple[str, str, str]]:
    return [(event.op, event.key, event.result) for event in events]


async def test_sends_and_their_answers(site: Site) -> None:
    proxy = site.proxy("p")
    async with site.client(proxy) as client:
        sender = client.sender(QUEUE)
        await sender.send(_message("one"))
        await sender.send([_message("two"), _message("three")])
        # More than fits into a frame.
        await sender.send(_message("large", 200_000))
        with pytest.raises(RemoteError):
            await _fill(client)

    events = site.events("attempt")
    assert _told(events)[:4] == [
        ("attempt", name, "ok") for name in ("one", "two", "three", "large")
    ]
    assert {event.queue for event in events[:4]} == {QUEUE}
    assert events[-1].queue == "small"
    assert events[-1].result == "fail"
    assert all(0 < event.invoke_at <= event.end_at for event in events)
    assert len(site.events("detach")) == 1


async def test_what_is_not_answered_is_unknown(site: Site) -> None:
    proxy = site.proxy("p")
    async with site.client(proxy) as client:
        sender = client.sender(QUEUE)
        await sender.send(_message("one"))
        proxy.inject(Fault("silence", "client"))
        with pytest.raises(RemoteError):
            await sender.send(_message("two"))
        proxy.heal()
        # This one never leaves the proxy as a whole, so it was never sent.
        await sender.send(_message("three"))
        fault = Fault("reset", "server", after_frame="transfer", inside=True)
        proxy.inject(fault)
        with pytest.raises(RemoteError):
            await sender.send(_message("four"))

    assert _told(site.events("attempt")) == [
        ("attempt", "one", "ok"),
        ("attempt", "two", "unknown"),
        ("attempt", "three", "ok"),
    ]


async def test_a_diverted_message_tells_where_it_goes(site: Site) -> None:
    proxy = site.proxy("p", backlog=True)
    with socket.socket() as nowhere:
        # Bound, so that no other process gets it, and not listening.
        nowhere.bind(("127.0.0.1", 0))
        port = nowhere.getsockname()[1]
        text = site.text(proxy).replace(f":{proxy.port}", f":{port}")
        async with (
            MessagingFactory.from_connection_string(text) as primary,
            MessagingFactory.from_connection_string(site.text(proxy)) as secondary,
            site.namespace.async_admin_client() as manager,
        ):
            options = SendAvailabilityPairedNamespaceOptions(
                manager, secondary, 1, 0, primary_name="home"
            )
            await primary.pair_namespace(options)
            diverted = ServiceBusMessage("body", message_id="m", session_id="s")
            await primary.get_queue_sender(QUEUE).send_messages(diverted)
    async with site.client(proxy) as client:
        receiver = client.receiver(backlog_path("home", 0))
        [found] = await receiver.receive(1, 2)
        await receiver.complete(found)

    divert, receive, complete = site.events("divert", "receive", "complete")
    assert (divert.key, divert.path, divert.session) == ("m", QUEUE, "s")
    assert (divert.queue, divert.result) == (backlog_path("home", 0), "ok")
    assert divert.diverted_at > 0
    assert (receive.key, receive.path, receive.sequence) == ("m", QUEUE, 1)
    assert (complete.token, complete.result) == (receive.token, "ok")
    assert receive.end_at <= complete.invoke_at


async def test_what_is_no_amqp_passes_unread(site: Site) -> None:
    proxy = site.proxy("p")
    proxy.target = ("127.0.0.1", site.namespace.http_port)
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")

    assert (await reader.read()).startswith(b"HTTP/1.1")

    writer.close()
    await writer.wait_closed()
    assert site.events("attempt", "receive") == []
