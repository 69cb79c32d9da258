"""Sending rows: until they are accepted, or can never be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.spark.bus import Bus, message
from twinbus.client.sync.connection import Connection
from twinbus.errors import OperationTimeout, RemoteError, TwinbusError
from twinbus.spark.sink.sending import RowMessage, RowSender, WaitBudget
from twinbus.testing.namespace import ServedNamespace, serve_namespace


class Outcome:
    """What was done beside sending."""

    def __init__(self) -> None:
        self.bad: list[str] = []
        self.pauses: list[float] = []
        self.renewed = 0

    def refuse(self, letter: RowMessage, entity: str, error: TwinbusError) -> None:
        self.bad.append(f"{letter.key} {entity} {error.condition}")

    def renew(self) -> None:
        self.renewed += 1


@contextmanager
def sending(
    connection: Connection, outcome: Outcome, seconds: float = 100.0
) -> Iterator[RowSender]:
    made = RowSender(
        connection,
        WaitBudget(seconds, outcome.pauses.append),
        outcome.refuse,
        outcome.renew,
    )
    yield made
    made.close()


def letters(count: int, size_bytes: int = 10) -> list[RowMessage]:
    return [
        RowMessage(f"row-{at}", message(f"row-{at}", b"x" * size_bytes), at)
        for at in range(count)
    ]


def test_rows_leave_in_their_order(bus: Bus, queue: str) -> None:
    outcome = Outcome()

    with sending(bus.connection, outcome) as made:
        made.send(queue, letters(3000))

    assert bus.take(queue, 3000) == [f"row-{at}" for at in range(3000)]
    assert outcome.bad == []


def test_a_message_that_is_too_large_is_a_bad_row(bus: Bus, queue: str) -> None:
    outcome = Outcome()
    rows = letters(5)
    rows[2] = RowMessage("large", message("large", b"x" * 300_000), 2)

    with sending(bus.connection, outcome) as made:
        made.send(queue, rows)

    assert outcome.bad == [f"large {queue} amqp:link:message-size-exceeded"]
    assert bus.take(queue, 5) == ["row-0", "row-1", "row-3", "row-4"]


def test_a_wrong_message_is_found_in_its_batch(bus: Bus, queue: str) -> None:
    """The server refuses a batch whole; all others of it must go."""
    outcome = Outcome()
    rows = letters(64)
    rows[37] = RowMessage("wrong", b"\x00\x53\x75\xa0\xff", 37)

    with sending(bus.connection, outcome) as made:
        made.send(queue, rows)

    assert [each.split()[:2] for each in outcome.bad] == [["wrong", queue]]
    assert sorted(bus.take(queue, 64)) == sorted(
        f"row-{at}" for at in range(64) if at != 37
    )


def test_all_rows_of_a_missing_entity_are_bad(bus: Bus) -> None:
    outcome = Outcome()

    with sending(bus.connection, outcome) as made:
        made.send("nowhere", letters(3))

    assert outcome.bad == [f"row-{at} nowhere amqp:not-found" for at in range(3)]


def test_without_the_right_the_write_fails() -> None:
    rules = [{"name": "listen", "rights": ["Listen"], "primary_key": "k" * 44}]
    entities = {"queues": ["orders"], "authorization_rules": rules}
    with serve_namespace(entities) as namespace:
        text = (
            f"Endpoint=sb://localhost:{namespace.amqp_port}/;"
            f"SharedAccessKeyName=listen;SharedAccessKey={'k' * 44};"
            "UseDevelopmentEmulator=true"
        )
        outcome = Outcome()
        with (
            Connection.from_connection_string(text) as connection,
            sending(connection, outcome) as made,
            pytest.raises(RemoteError, match="Send") as caught,
        ):
            made.send("orders", letters(1))
        assert caught.value.condition == "amqp:unauthorized-access"
        assert outcome.bad == []


@pytest.fixture
def throttled() -> Iterator[ServedNamespace]:
    """Ten messages at once, then none until a clock is moved."""
    queue = {"name": "orders", "message_rate_per_second": 10}
    with serve_namespace({"queues": [queue]}, manual_clock=True) as namespace:
        yield namespace


def test_a_busy_service_is_asked_again_after_ten_seconds(
    throttled: ServedNamespace,
) -> None:
    outcome = Outcome()

    def pause(seconds: float) -> None:
        outcome.pauses.append(seconds)
        throttled.advance(seconds)

    with Connection.from_connection_string(throttled.connection_string) as connection:
        made = RowSender(
            connection, WaitBudget(300, pause), outcome.refuse, outcome.renew
        )
        for _ in range(4):
            made.send("orders", letters(10))
        made.close()
        bus = Bus(throttled, {"connectionString": throttled.connection_string})

    assert outcome.pauses == [10.0] * 3
    assert outcome.renewed == 3
    assert bus.held("orders") == 40


def test_the_write_fails_when_the_tasks_wait_budget_is_spent(
    throttled: ServedNamespace,
) -> None:
    outcome = Outcome()
    with (
        Connection.from_connection_string(throttled.connection_string) as connection,
        sending(connection, outcome, seconds=25) as made,
    ):
        made.send("orders", letters(10))
        with pytest.raises(OperationTimeout, match="'taskBudgetSeconds'"):
            made.send("orders", letters(10))

    assert outcome.pauses == [10.0, 10.0]


def test_a_namespace_that_is_away_is_waited_for() -> None:
    outcome = Outcome()
    with serve_namespace({"queues": ["orders"]}) as namespace:
        connection = Connection.from_connection_string(namespace.connection_string)
        with sending(connection, outcome, seconds=20) as made:
            made.send("orders", letters(2))
    with connection, pytest.raises(OperationTimeout, match="cannot be reached"):
        made.send("orders", letters(1))

    assert outcome.pauses == [0.5, 1.0, 2.0, 4.0, 8.0]
