"""A sender without a pair retries as the official client does, by the same options."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from time import monotonic
from typing import Any

import pytest
from azure.core.pipeline.policies import RetryMode
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError, ServiceBusServerBusyError

from tests.client.peer import PeerConnection, peering
from twinbus import MessagingFactory
from twinbus.client.transport.loop_thread import LoopThread
from twinbus.pairing.sdk.arguments import send_settings_from
from twinbus.wire.events import Delivered
from twinbus.wire.performatives import Error, Rejected
from twinbus.wire.types import Symbol

CLIENTS: list[Callable[..., Any]] = [
    ServiceBusClient.from_connection_string,
    MessagingFactory.from_connection_string,
]


class Refusing:
    """A service that refuses every message with one condition."""

    def __init__(self, port: int, condition: str) -> None:
        self.text = (
            f"Endpoint=sb://127.0.0.1:{port}/;SharedAccessKeyName=any;"
            "SharedAccessKey=any;UseDevelopmentEmulator=true"
        )
        # When each attempt came, in seconds.
        self.times: list[float] = []
        self._error = Error(Symbol(condition), "refused")

    def refuse(self, _connection: PeerConnection, delivery: Delivered) -> bool:
        self.times.append(monotonic())
        number = delivery.delivery_id
        delivery.link.session.answer(number, number, Rejected(self._error))
        return False


@contextmanager
def refusing(condition: str) -> Iterator[Refusing]:
    thread = LoopThread()
    context = peering()
    peer = thread.run(context.__aenter__)
    service = Refusing(peer.port, condition)
    peer.on_message = service.refuse
    try:
        yield service
    finally:
        thread.run(lambda: context.__aexit__(None, None, None))
        thread.stop()


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("condition", ["amqp:internal-error", "com.microsoft:timeout"])
@pytest.mark.parametrize(
    ("mode", "pauses"), [("exponential", [0.1, 0.2, 0.3]), ("fixed", [0.05] * 3)]
)
def test_transient_errors_are_retried_after_the_pauses_of_the_options(
    client: Callable[..., Any], condition: str, mode: str, pauses: list[float]
) -> None:
    options = {
        "retry_total": 3,
        "retry_mode": mode,
        "retry_backoff_factor": 0.05,
        "retry_backoff_max": 0.3,
    }
    with refusing(condition) as service:
        with (
            client(service.text, **options) as namespace,
            namespace.get_queue_sender("orders") as sender,
            pytest.raises(ServiceBusError),
        ):
            sender.send_messages(ServiceBusMessage("m"))

        found = [later - sooner for sooner, later in pairwise(service.times)]

    assert len(found) == len(pauses)
    assert all(a >= b for a, b in zip(found, pauses, strict=True)), found


def test_errors_that_are_not_transient_are_raised_at_once() -> None:
    with refusing("amqp:resource-limit-exceeded") as service:
        with (
            MessagingFactory.from_connection_string(service.text) as factory,
            pytest.raises(ServiceBusError),
        ):
            factory.get_queue_sender("orders").send_messages(ServiceBusMessage("m"))

        assert len(service.times) == 1


def test_a_busy_service_is_not_asked_again_before_ten_seconds() -> None:
    """The caller does not have ten seconds, so it is told at once."""
    with refusing("com.microsoft:server-busy") as service:
        options = {"retry_mode": "fixed", "retry_backoff_factor": 0}
        with (
            MessagingFactory.from_connection_string(service.text, **options) as factory,
            factory.get_queue_sender("orders") as sender,
            pytest.raises(ServiceBusServerBusyError),
        ):
            sender.send_messages(ServiceBusMessage("m"), timeout=9)

        assert len(service.times) == 1
    settings = send_settings_from(options)
    assert settings.pause_ms(1, busy=True) == 10_000
    assert send_settings_from({}).pause_ms(5, busy=True) == 25_600


def test_the_pauses_are_those_of_the_official_client() -> None:
    usual = send_settings_from({})
    fixed = send_settings_from({"retry_mode": RetryMode.Fixed})
    short = send_settings_from({"retry_backoff_max": 2})

    assert usual.retries == 3
    pauses = [usual.pause_ms(failures, busy=False) for failures in (1, 2, 3, 4, 10)]
    assert pauses == [1_600, 3_200, 6_400, 12_800, 120_000]
    assert [fixed.pause_ms(failures, busy=False) for failures in (1, 9)] == [800, 800]
    assert [short.pause_ms(failures, busy=False) for failures in (1, 9)] == [1600, 2000]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retry_total", -1),
        ("retry_mode", "sometimes"),
        ("retry_backoff_factor", -1),
        ("retry_backoff_factor", "1"),
        ("retry_backoff_max", float("inf")),
    ],
)
def test_an_option_with_a_wrong_value_is_named(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        send_settings_from({name: value})
