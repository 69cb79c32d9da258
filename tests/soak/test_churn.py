"""Connections, links, sessions, entities and rules come and go; the server stays lean.

A round is what a short-lived client does: connect, send, receive, complete, hold a
session, and leave. Every tenth round makes a queue, a topic, a subscription and a rule,
uses them, and deletes them.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus.client.connection import Connection
from twinbus.client.receiver import ReceiveOptions
from twinbus.core.filters import SqlFilter
from twinbus.core.rule import RuleDescription
from twinbus.testing.server_process import ServerProcess
from twinbus.wire.message.sections import GROUP_ID, encode_message

ENTITIES: dict[str, Any] = {
    "queues": ["orders", {"name": "rooms", "requires_session": True}]
}
# A client each three and a half seconds for eight hours.
EIGHT_HOURS = 8_000
# Rounds until caches, pools and the allocator have their size.
WARM = 1_000
GROWTH_BYTES_MAX = 8 * 1024 * 1024


class Churn:
    """A server, and clients that come and go."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._admin = ServiceBusAdministrationClient.from_connection_string(
            server.admin_connection_string, connection_verify=server.ca_file
        )

    def close(self) -> None:
        self._admin.close()

    async def round(self, number: int) -> None:
        connection = Connection.from_connection_string(self._server.connection_string)
        await self._use(connection, "orders")
        await self._hold_session(connection, f"s{number}")
        if number % 10 == 0:
            await self._make_and_delete(connection, number)
        await connection.close()

    async def _use(self, connection: Connection, path: str, source: str = "") -> None:
        sender = connection.sender(path)
        await sender.send([encode_message(b"x" * 1_000)] * 3)
        receiver = connection.receiver(source or path)
        left = 3
        while left:
            got = await receiver.receive(left, 30)
            assert got
            await receiver.complete(got)
            left -= len(got)
        await receiver.close()
        await sender.close()

    async def _hold_session(self, connection: Connection, name: str) -> None:
        await connection.sender("rooms").send(encode_message(b"x", {GROUP_ID: name}))
        receiver = connection.receiver("rooms", ReceiveOptions(session_id=name))
        await receiver.complete(await receiver.receive(1, 30))
        await connection.management("rooms").set_session_state(name, b"state")
        await connection.management("rooms").set_session_state(name, None)
        await receiver.close()

    async def _make_and_delete(self, connection: Connection, number: int) -> None:
        queue, topic = f"q{number}", f"t{number}"
        place = f"{topic}/Subscriptions/s"
        admin = self._admin
        await asyncio.to_thread(admin.create_queue, queue)
        await asyncio.to_thread(admin.create_topic, topic)
        await asyncio.to_thread(admin.create_subscription, topic, "s")
        rule = RuleDescription("r", SqlFilter("sys.Label LIKE '%a%' OR a > 1"))
        await connection.management(place).add_rule(rule)
        await self._use(connection, queue)
        await self._use(connection, topic, place)
        await connection.management(place).remove_rule("r")
        await asyncio.to_thread(admin.delete_queue, queue)
        await asyncio.to_thread(admin.delete_topic, topic)


def measured(server: ServerProcess) -> tuple[int, int]:
    """The memory of the server in bytes, and its open files."""
    process = Path(f"/proc/{server.pid}")
    pages = int((process / "statm").read_text().split()[1])
    files = len(list((process / "fd").iterdir()))
    return pages * os.sysconf("SC_PAGE_SIZE"), files


def churned(folder: Path, rounds: int, warm: int) -> tuple[int, int]:
    """How much memory and how many open files so many rounds have added."""

    async def run(churn: Churn, numbers: range) -> None:
        for number in numbers:
            await churn.round(number)

    with ServerProcess(folder, ENTITIES) as server, closing(Churn(server)) as churn:
        asyncio.run(run(churn, range(warm)))
        before = measured(server)
        asyncio.run(run(churn, range(warm, warm + rounds)))
        after = measured(server)
        assert server.stop() == 0
    print(f"{rounds} rounds: before {before}, after {after}")
    return after[0] - before[0], after[1] - before[1]


def test_what_clients_leave_behind_is_closed(tmp_path: Path) -> None:
    _, files = churned(tmp_path, rounds=20, warm=10)

    assert files <= 0


@pytest.mark.campaign
def test_eight_hours_of_churn_leave_memory_and_files_flat(tmp_path: Path) -> None:
    memory, files = churned(tmp_path, EIGHT_HOURS, WARM)

    assert files <= 0
    assert memory < GROWTH_BYTES_MAX
