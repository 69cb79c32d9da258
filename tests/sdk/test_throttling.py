"""A server with a slow disk denies sends, and which ones, to the official client.

The disk is slow by a rehearsed fault, between the threshold and what counts as sick. A
test waits for what the server shows, never for time.
"""

from __future__ import annotations

import http.client
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusServerBusyError
from prometheus_client.parser import text_string_to_metric_families

from tests.sdk.fault_site import until
from twinbus.cli.remote import reach
from twinbus.testing.server_process import ServerProcess

# Far from both levels of the server, which are 0.3 and 1.2 s, on a machine with other
# work too. Two commits are within the time of a health probe.
SLOW_SECONDS = 0.6
OPTIONS = ("--faults", "--throttle-commit", "0.3")
LARGE = "x" * 200_000
QUEUES = [{"name": "flooder"}, {"name": "neighbour"}]
# What a client waits that was denied: long enough for the level to be left.
RETRY_SECONDS = 3
# So many make the flooder remembered for longer than the rest of a test takes.
DENIED = 30


class Shop:
    """The server, and what an application does there."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self.text = server.connection_string

    @contextmanager
    def client(self, **options: Any) -> Iterator[ServiceBusClient]:
        """The official client, which tries once unless told otherwise."""
        given = {"retry_total": 0, **options}
        with ServiceBusClient.from_connection_string(self.text, **given) as client:
            yield client

    def _ask(self, method: str, body: Any = None) -> None:
        url = f"http://127.0.0.1:{self._server.ports['http']}"
        reach(self.text, url, None).ask(method, "/$faults", body)

    @contextmanager
    def slow_disk(self) -> Iterator[None]:
        self._ask("POST", {"kind": "storage-slow", "delay_seconds": SLOW_SECONDS})
        try:
            yield
        finally:
            self.mend()

    def mend(self) -> None:
        self._ask("DELETE")

    def flood(self, queue: str, **named: Any) -> int:
        """Send without a pause until some in a row are denied; returns all that were.

        A scrape may be older than that: it serves for a second.
        """
        with self.client() as client, client.get_queue_sender(queue) as sender:
            denied = in_a_row = 0
            while in_a_row < DENIED:
                is_one = is_denied(sender, ServiceBusMessage(LARGE, **named))
                denied += is_one
                in_a_row = in_a_row + 1 if is_one else 0
        return denied

    def read(self, path: str) -> str:
        """What a page says, asked again while the answer is that it is too often."""
        while (text := self._read_once(path)) is None:
            pass
        return text

    def _read_once(self, path: str) -> str | None:
        connection = http.client.HTTPConnection("127.0.0.1", self._server.ports["http"])
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return None if answer.status == 429 else answer.read().decode()
        finally:
            connection.close()

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples with these labels."""
        families = text_string_to_metric_families(self.read("/metrics"))
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == f"twinbus_{name}"
            and labels.items() <= sample.labels.items()
        )

    def denied(self, queue: str) -> float:
        return self.metric(
            "messages_denied_total", entity=queue, facet="commit_latency"
        )


def is_denied(sender: Any, message: ServiceBusMessage) -> bool:
    try:
        sender.send_messages(message)
    except ServiceBusServerBusyError as error:
        found = str(error)
    else:
        return False
    assert "commit latency" in found
    assert "Wait 10 seconds" in found
    return True


@pytest.fixture(params=[1, pytest.param(4, marks=pytest.mark.campaign)])
def shop(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Shop]:
    entities = {"queues": QUEUES, "shards": request.param}
    if request.param == 4:
        # The first of each round of four is in the first shard, whose disk is slow.
        names = ["flooder", "b", "c", "d", "neighbour"]
        entities = {"queues": [{"name": name} for name in names], "shards": 4}
    with ServerProcess(tmp_path, entities, options=OPTIONS) as server:
        yield Shop(server)


def send_on(shop: Shop, queue: str, enough: Event) -> int:
    """Send small messages, one after the other; none may be denied."""
    sent = 0
    with shop.client() as client, client.get_queue_sender(queue) as sender:
        while not enough.is_set():
            sender.send_messages(ServiceBusMessage("small"))
            sent += 1
    return sent


def test_the_flooder_is_denied_and_its_neighbour_is_served(shop: Shop) -> None:
    enough = Event()
    with (
        shop.client() as client,
        client.get_queue_sender("flooder") as loud,
        client.get_queue_receiver("flooder") as receiver,
        ThreadPoolExecutor(1) as pool,
    ):
        loud.send_messages(ServiceBusMessage("before"))
        (held,) = receiver.receive_messages(1, 5)
        with shop.slow_disk():
            neighbour = pool.submit(send_on, shop, "neighbour", enough)
            try:
                shop.flood("flooder")
                # Work in hand ends meanwhile, and one more receiver may help.
                receiver.renew_message_lock(held)
                receiver.complete_message(held)
                with client.get_queue_receiver("neighbour") as other:
                    assert other.receive_messages(1, 5)

                assert is_denied(loud, ServiceBusMessage(LARGE))
                assert '"status":"throttled"' in shop.read("/health")
                assert shop.metric("throttle_level", facet="commit_latency") == 1
                assert shop.metric("throttle_value", facet="commit_latency") > 0.3
            finally:
                enough.set()
            assert neighbour.result() > 0
        until(lambda: '"status":"healthy"' in shop.read("/health"))
        assert shop.denied("flooder") > DENIED
        assert shop.denied("neighbour") == 0


def test_a_denied_send_is_accepted_when_it_is_tried_again_later(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, {"queues": QUEUES}, options=OPTIONS) as server:
        shop = Shop(server)
        patient = {
            "retry_mode": "fixed",
            "retry_backoff_factor": RETRY_SECONDS,
            "retry_total": 10,
        }

        def send() -> float:
            with (
                shop.client(**patient) as client,
                client.get_queue_sender("flooder") as sender,
            ):
                begun = time.monotonic()
                sender.send_messages(ServiceBusMessage("patient", message_id="p"))
                return time.monotonic() - begun

        with ThreadPoolExecutor(1) as pool, shop.slow_disk():
            before = shop.flood("flooder")
            sending = pool.submit(send)
            until(lambda: shop.denied("flooder") > before)
            shop.mend()

            assert sending.result() >= RETRY_SECONDS


def test_a_partitioned_queue_goes_round_the_shard_that_is_throttled(
    tmp_path: Path,
) -> None:
    entities = {"queues": [{"name": "parted", "enable_partitioning": True}]}
    # The fragment of this key is the first one, in the shard whose disk is slow.
    key = next(text for text in "abcdefgh" if zlib.crc32(text.encode()) % 4 == 0)
    with ServerProcess(tmp_path, {**entities, "shards": 4}, options=OPTIONS) as server:
        shop = Shop(server)
        with (
            shop.slow_disk(),
            shop.client() as client,
            client.get_queue_sender("parted") as sender,
        ):
            # With a key it is as an ordinary queue of that shard.
            flooded = shop.flood("parted", partition_key=key)
            bound = ServiceBusMessage(LARGE, partition_key=key)
            denied = [is_denied(sender, bound) for _ in range(20)]
            spread = [is_denied(sender, ServiceBusMessage(LARGE)) for _ in range(20)]

        assert all(denied)
        assert not any(spread)
        until(lambda: shop.denied("parted") == flooded + 20)
