"""Copies for many subscriptions go on after kills: each of them once, and in order.

A server is killed while it copies, at moments that the machine chooses: as soon as the
messages are accepted, and as soon as it is back. What is asked for is true at all of
them.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from twinbus.client.receiver import ReceiveOptions
from twinbus.client.sync.connection import Connection
from twinbus.testing.server_process import ServerProcess
from twinbus.wire.message.sections import MESSAGE_ID, encode_message, read_properties

SUBSCRIPTIONS = 40
BATCH = 100
_WAIT_SECONDS = 30.0


def _path(number: int) -> str:
    return f"t/subscriptions/s{number}"


def _entities() -> dict[str, object]:
    below = [f"s{number}" for number in range(SUBSCRIPTIONS)]
    return {"topics": {"t": {"subscriptions": below}}}


def _received(connection: Connection, number: int, count: int) -> list[str]:
    """The ids of so many messages of a subscription, which are gone then."""
    receiver = connection.receiver(_path(number), ReceiveOptions(deletes=True))
    found: list[str] = []
    while len(found) < count:
        taken = receiver.receive(count - len(found), _WAIT_SECONDS)
        assert taken, f"{len(found)} of {count} came to s{number}"
        found += [str(read_properties(each.payload)[MESSAGE_ID]) for each in taken]
    receiver.close()
    return found


def _killed_again_and_again(server: ServerProcess, kills: int) -> list[str]:
    """Send batches and kill the server behind each; returns the ids that it took."""
    accepted: list[str] = []
    names = (f"{number:05}" for number in range(kills * BATCH))
    while batch := list(islice(names, BATCH)):
        server.start()
        with Connection.from_connection_string(server.connection_string) as connection:
            messages = [encode_message(b"m", {MESSAGE_ID: name}) for name in batch]
            connection.sender("t").send(messages)
            accepted += batch
            server.kill()
        # It has just begun to go on.
        server.start()
        server.kill()
    return accepted


def _check(folder: Path, kills: int) -> None:
    with ServerProcess(folder, _entities()) as server:
        accepted = _killed_again_and_again(server, kills)
        server.start()
        with Connection.from_connection_string(server.connection_string) as connection:
            for number in range(SUBSCRIPTIONS):
                assert _received(connection, number, len(accepted)) == accepted
            for number in range(SUBSCRIPTIONS):
                assert connection.management(_path(number)).peek(1) == []


def test_copies_go_on_after_kills(tmp_path: Path) -> None:
    _check(tmp_path, 3)


@pytest.mark.campaign
def test_copies_go_on_after_many_kills(tmp_path: Path) -> None:
    _check(tmp_path, 40)
