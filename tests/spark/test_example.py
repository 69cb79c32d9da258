"""The example of the documentation does what it says."""

from __future__ import annotations

import datetime as dt
import json
import runpy
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.bus import Bus, body_of, message
from tests.spark.conftest import ROOT
from twinbus.client.receiver import ReceiveOptions

# A session takes long to start where others are at work.
pytestmark = pytest.mark.timeout(300)

START = dt.datetime(2024, 5, 1, 10, 0, tzinfo=dt.UTC)


def order(number: int) -> bytes:
    """One order every ten seconds, in two regions by turns."""
    placed_at = START + dt.timedelta(seconds=10 * number)
    content = {
        "placed_at": placed_at.isoformat(),
        "region": ("north", "south")[number % 2],
        "amount": number,
    }
    return message(f"order-{number}", json.dumps(content).encode())


def test_orders_become_totals(
    bus: Bus, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus.namespace.create_queue("orders")
    bus.namespace.create_topic("totals", subscriptions=["all"])
    # Five whole minutes, and an order that is late enough to end them.
    bus.send("orders", [order(number) for number in [*range(30), 42]])
    monkeypatch.setattr(sys, "argv", ["orders.py", str(tmp_path)])

    runpy.run_path(str(ROOT / "docs" / "examples" / "orders.py"))

    assert bus.held("orders") == 0
    options = ReceiveOptions(deletes=True)
    with bus.connection.receiver("totals/Subscriptions/all", options) as receiver:
        found = receiver.receive(100, 5.0)
    totals = [json.loads(body_of(each)) for each in found]
    assert [(each["region"], each["orders"]) for each in totals] == [
        ("north", 3),
        ("south", 3),
    ] * 5
    assert sum(each["amount"] for each in totals) == sum(range(30))
    first = found[0]
    assert first.message_id == f"{int(START.timestamp())}/north"
    assert first.application_properties == {"orders": 3}
