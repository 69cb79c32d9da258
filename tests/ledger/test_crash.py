"""A server that is killed loses the last minute of its ledger, and says so."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.ledger.reading import gaps, totals
from tests.ledger.site import MINUTE_MS, NOON_MS

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning")


class Child:
    """A server that can be killed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.connection_string = self._read()

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def pass_minute(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{MINUTE_MS}\n")
        self.process.stdin.flush()
        assert self._read() == "written"

    def send(self, count: int) -> None:
        with (
            ServiceBusClient.from_connection_string(self.connection_string) as client,
            client.get_queue_sender("orders") as sender,
        ):
            sender.send_messages([ServiceBusMessage("x") for _ in range(count)])

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(30) == 0


@contextmanager
def running(folder: Path, start_ms: int) -> Iterator[Child]:
    command = [sys.executable, "-m", "tests.ledger.child", str(folder), str(start_ms)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Child(process)
        finally:
            process.kill()


def test_a_killed_server_loses_the_last_minute_and_says_so(tmp_path: Path) -> None:
    with running(tmp_path, NOON_MS) as child:
        child.send(3)
        child.pass_minute()
        child.send(5)
        child.process.kill()
    with running(tmp_path, NOON_MS + 10 * MINUTE_MS) as child:
        child.send(7)
        child.stop()

    ledger = tmp_path / "ledger"
    assert totals(ledger, "operation", "minute") == {
        ("send", datetime(2026, 11, 15, 12, 0, tzinfo=UTC)): 3,
        ("send", datetime(2026, 11, 15, 12, 10, tzinfo=UTC)): 7,
    }
    (gap,) = gaps(ledger)
    assert gap["minute"] == datetime(2026, 11, 15, 12, 1, tzinfo=UTC)
    assert gap["gap_minutes"] == 9
    assert gap["namespace"] == "contoso"


def test_a_server_that_is_stopped_loses_nothing(tmp_path: Path) -> None:
    for start in range(2):
        with running(tmp_path, NOON_MS + start * MINUTE_MS) as child:
            child.send(3)
            child.stop()

    ledger = tmp_path / "ledger"
    assert totals(ledger, "operation") == {("send",): 6}
    assert gaps(ledger) == []
