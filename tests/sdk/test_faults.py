"""Rehearsed faults of a real server, as the official client sees them.

Each of the four ways in which an outage looks to an application is here: it cannot
send, cannot receive, cannot manage, cannot contact.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import (
    ServiceBusAuthorizationError,
    ServiceBusError,
    ServiceBusServerBusyError,
)
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.cli.conftest import run as run  # noqa: PLC0414 - a fixture
from tests.cli.run import Run, Served
from tests.sdk.fault_site import FaultSite, admin_text, started, until
from twinbus.client.credentials import credential_of
from twinbus.client.sync.connection import Connection
from twinbus.client.transport.endpoint import endpoint_of
from twinbus.core.sas import parse_connection_string
from twinbus.errors import DeadlineExceeded, RemoteError
from twinbus.wire.message.sections import encode_message

MESSAGE = encode_message(b"", {0: "1"})


class Shop(FaultSite):
    """The site, and what an application does there with the official client."""

    @contextmanager
    def client(self, seconds: float = 5) -> Iterator[ServiceBusClient]:
        """The official client, which tries once."""
        with ServiceBusClient.from_connection_string(
            self.text, retry_total=0, socket_timeout=seconds
        ) as client:
            yield client

    def connection(self) -> Connection:
        """A connection of our own client, in which every wait has a deadline."""
        parsed = parse_connection_string(self.text)
        return Connection(endpoint_of(parsed, None), credential_of(parsed))

    def send(self, queue: str) -> None:
        with self.client() as client, client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("x"), timeout=5)

    def receive(self, queue: str) -> int:
        with self.client() as client, client.get_queue_receiver(queue) as receiver:
            found = receiver.receive_messages(10, 1)
            for message in found:
                receiver.complete_message(message)
            return len(found)

    def manage(self) -> int:
        with ServiceBusAdministrationClient.from_connection_string(
            admin_text(self.started),
            retry_total=0,
            connection_verify=self.started.ready["ca_file"],
        ) as manager:
            return len(list(manager.list_queues()))


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with started(tmp_path_factory.mktemp("faults"), "--faults") as process:
        yield process


@pytest.fixture
def shop(process: Served, run: Run) -> Iterator[Shop]:
    shop = Shop(process, run)
    yield shop
    shop.restore()


@pytest.fixture
def own_shop(tmp_path: Path, run: Run) -> Iterator[Shop]:
    """A server that the test may end."""
    with started(tmp_path, "--faults") as process:
        yield Shop(process, run)


# -- cannot send -------------------------------------------------------------------


def test_send_down_stops_sends_to_one_entity(shop: Shop) -> None:
    shop.send("a")
    shop.fault("add", "send-down", "a")

    with pytest.raises(ServiceBusError, match="rehearsed fault 'send-down a'"):
        shop.send("a")
    shop.send("b")
    assert shop.receive("a") == 1
    assert shop.manage() == 2

    shop.fault("clear")
    shop.send("a")


def test_a_throttled_entity_answers_busy(shop: Shop) -> None:
    shop.fault("add", "throttle", "a")

    with pytest.raises(ServiceBusServerBusyError):
        shop.send("a")


def test_a_full_disk_refuses_sends_and_recovers(shop: Shop) -> None:
    shop.fault("add", "storage-full")

    with pytest.raises(ServiceBusError, match="The disk is full"):
        shop.send("a")
    assert shop.says("The disk is full")

    shop.clear()
    shop.send("a")


def test_a_server_with_a_reserve_can_be_emptied_when_its_disk_is_full(
    tmp_path: Path, run: Run
) -> None:
    with started(tmp_path, "--faults", "--reserve", str(1 << 20)) as process:
        shop = Shop(process, run)
        shop.send("a")
        shop.fault("add", "storage-full")

        with pytest.raises(ServiceBusError, match="disk of the server is nearly full"):
            shop.send("a")
        assert "nearly full" in shop.health()["message"]
        assert shop.receive("a") == 1
        assert shop.manage() == 2

        shop.clear()
        shop.send("a")


def test_a_fault_of_a_disk_strikes_all_shards_or_one(tmp_path: Path, run: Run) -> None:
    with started(tmp_path, "--faults", "--shards", "2") as process:
        shop = Shop(process, run)
        shop.fault("add", "storage-full", "1")
        shop.send("a")
        with pytest.raises(ServiceBusError, match="The disk is full"):
            shop.send("b")
        assert shop.health()["message"] == "Shard 1 of 2 is not healthy."

        shop.fault("add", "storage-full")
        with pytest.raises(ServiceBusError, match="The disk is full"):
            shop.send("a")

        assert "This namespace has 2: 0 to 1." in shop.refused(
            "add", "storage-full", "2"
        )
        shop.clear()
        shop.send("b")


# -- cannot receive ----------------------------------------------------------------


def test_receive_down_stops_receives_from_one_entity(shop: Shop) -> None:
    shop.send("a")
    shop.send("b")
    shop.fault("add", "receive-down", "a")

    with pytest.raises(ServiceBusError):
        shop.receive("a")
    shop.send("a")
    assert shop.receive("b") == 1

    shop.fault("clear")
    assert shop.receive("a") == 2


# -- cannot manage -----------------------------------------------------------------


def test_management_down_stops_administration_alone(shop: Shop) -> None:
    shop.fault("add", "management-down")

    with pytest.raises(HttpResponseError, match="management-down"):
        shop.manage()
    shop.send("a")
    assert shop.receive("a") == 1

    shop.fault("clear")
    assert shop.manage() == 2


def test_unauthorized_takes_every_right_away_but_that_to_end_it(shop: Shop) -> None:
    shop.fault("add", "unauthorized")

    with pytest.raises(ServiceBusAuthorizationError):
        shop.send("a")
    with pytest.raises(HttpResponseError):
        shop.manage()

    shop.fault("clear")
    shop.send("a")


# -- cannot contact ----------------------------------------------------------------


def test_refuse_resets_connections(shop: Shop) -> None:
    shop.send("a")
    shop.fault("add", "refuse")

    with pytest.raises(ServiceBusError):
        shop.send("a")

    shop.fault("clear")
    assert shop.receive("a") == 1


def test_silence_answers_neither_old_connections_nor_new_ones(shop: Shop) -> None:
    # Not the official client: it waits for minutes, whatever its timeouts are.
    with (
        shop.connection() as other,
        shop.connection() as connection,
        connection.sender("a") as sender,
    ):
        sender.send(MESSAGE, 5)
        shop.fault("add", "silence")

        with pytest.raises(RemoteError):
            sender.send(MESSAGE, 0.5)
        with pytest.raises(DeadlineExceeded):
            other.open(0.5)
        shop.fault("clear")

    assert shop.receive("a") == 1


# -- slow, stalled, dead -----------------------------------------------------------


def test_slow_and_storage_slow_delay_answers(shop: Shop) -> None:
    for kind in ("slow", "storage-slow"):
        shop.fault("add", kind, "--delay", 1)
        begun = time.monotonic()
        shop.send("a")
        assert time.monotonic() - begun >= 1
        shop.fault("clear")


def test_a_stalled_server_goes_on_and_a_crashed_one_is_gone(own_shop: Shop) -> None:
    own_shop.fault("add", "stall", "--delay", 1)
    own_shop.send("a")

    own_shop.fault("add", "crash")

    assert own_shop.started.process.wait(10) == -signal.SIGKILL


# -- the switchboard ---------------------------------------------------------------


def test_faults_end_by_themselves_and_are_loud_until_then(own_shop: Shop) -> None:
    added = own_shop.fault("add", "send-down", "a", "--for", "PT1S", "--share", 0.5)

    assert own_shop.health()["faults"] == ["send-down a"]
    assert own_shop.fault("list") == [added]
    until(lambda: "faults" not in own_shop.health())
    assert own_shop.fault("list") == []
    err = own_shop.started.stop().err
    assert "fault on: send-down on a of shop" in err
    assert "fault over: send-down on a of shop" in err


def test_a_restart_ends_all_faults(tmp_path: Path, run: Run) -> None:
    for _ in range(2):
        with started(tmp_path, "--faults") as process:
            shop = Shop(process, run)
            assert shop.fault("list") == []
            shop.fault("add", "send-down")


def test_one_of_several_faults_is_cleared(shop: Shop) -> None:
    first = shop.fault("add", "send-down", "a")
    second = shop.fault("add", "storage-slow", "0", "--delay", 0.01)

    assert shop.fault("clear", first["id"]) == [first]
    assert shop.fault("list") == [second]


BAD_INPUT = (
    (("meltdown",), "There is no fault 'meltdown'. Choose one of throttle, slow"),
    (("send-down", "c"), "There is no entity 'c'."),
    (("storage-full", "7"), "There is no shard '7'. This namespace has "),
    (("refuse", "a"), "refuse is for the namespace."),
    (("send-down", "a", "--for", "0"), "--for 0 must be above 0"),
    (("send-down", "a", "--for", "inf"), "at most 86400"),
    (("send-down", "a", "--for", "soon"), "--for soon"),
    (("send-down", "a", "--share", "2"), "share must be above 0, and at most 1."),
    (("send-down", "a", "--delay", "1"), "send-down delays nothing."),
    (("refuse", "--share", "0.5"), "refuse strikes all requests"),
    (("crash", "--for", "1"), "crash happens once."),
)


def test_bad_input_is_one_clear_line(shop: Shop) -> None:
    for args, text in BAD_INPUT:
        assert text in shop.refused("add", *args)
    assert shop.fault("list") == []


def test_an_unknown_fault_is_not_cleared(shop: Shop) -> None:
    assert "There is no fault 7." in shop.refused("clear", 7)


def test_a_server_without_the_option_has_no_faults(tmp_path: Path, run: Run) -> None:
    with started(tmp_path) as process:
        shop = Shop(process, run)

        assert "started without --faults" in shop.refused("add", "send-down")
        shop.send("a")
