"""A disk that is full or fails: acceptance stops, nothing accepted is lost.

The full disk is a small file system of its own; the failing one is strace answering a
sync or a write with an error. Both need what a test machine gives to root.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.small_disk import fill, mounted
from tests.server.raw import RawClient, RawServer, serving
from twinbus.clock import Now
from twinbus.core.entity import QueueDescription
from twinbus.pairing.rules.ping import ping_message
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.testing.server_process import ServerProcess
from twinbus.wire.events import Delivered
from twinbus.wire.link import Link
from twinbus.wire.message import sections
from twinbus.wire.performatives import Accepted, Rejected

CONFIG = NamespaceConfig("n", queues=(QueueDescription("q"),))
_BODY = b"x" * 50_000


def _payload(name: str) -> bytes:
    return sections.encode_message(_BODY, {sections.MESSAGE_ID: name})


async def _sender(client: RawClient) -> Link:
    session = await client.session()
    assert await client.authorize(session) == 202
    return await client.sender(session, "q")


async def _drain(client: RawClient, count: int) -> list[str]:
    """The ids of all messages, in order; there must be exactly so many."""
    session = await client.session()
    await client.receiver(session, "q", credit=count + 1)
    deliveries = [await client.wait(Delivered) for _ in range(count)]
    return [str(sections.parse(each.payload).message_id) for each in deliveries]


# -- a full disk ---------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", "3m") as folder:
        yield folder


def _grow(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True)


async def _send_until_refused(client: RawClient, sender: Link) -> tuple[list[str], str]:
    accepted: list[str] = []
    for number in range(200):
        name = f"m{number}"
        outcome = await client.send(sender, _payload(name))
        if isinstance(outcome, Rejected):
            assert outcome.error is not None
            text = outcome.error.description or ""
            assert "disk is full" in text
            assert "/" not in text, "a client is told no path of the server"
            return accepted, str(outcome.error.condition)
        assert isinstance(outcome, Accepted)
        accepted.append(name)
    raise AssertionError("the disk never filled")


async def test_a_full_disk_refuses_with_a_counted_condition_and_recovers(
    small_disk: Path,
) -> None:
    async with serving(small_disk, CONFIG) as server:
        client = await RawClient.connect(server.port)
        sender = await _sender(client)

        accepted, condition = await _send_until_refused(client, sender)
        assert accepted
        # Never quota exceeded: the caller cannot act on a full disk.
        assert condition == "amqp:internal-error"
        refused = await client.send(sender, _payload("again"))
        assert isinstance(refused, Rejected)

        _grow(small_disk)
        await server.host.recovery.attempt()
        assert isinstance(await client.send(sender, _payload("after")), Accepted)

        assert await _drain(client, len(accepted) + 1) == [*accepted, "after"]
        client.abort()


async def test_what_was_accepted_before_the_disk_was_full_survives_a_restart(
    small_disk: Path,
) -> None:
    async with serving(small_disk, CONFIG) as server:
        client = await RawClient.connect(server.port)
        accepted, _ = await _send_until_refused(client, await _sender(client))
        client.abort()
    _grow(small_disk)

    async with serving(small_disk, CONFIG) as server:
        client = await RawClient.connect(server.port)
        await _sender(client)
        assert await _drain(client, len(accepted)) == accepted
        client.abort()


async def test_a_full_disk_refuses_a_ping_like_a_send(small_disk: Path) -> None:
    """The ping comes first: no send has found out yet that the disk is full."""
    with ServerProcess(small_disk, {"queues": {"q": {}}}) as server:
        client = await RawClient.connect(server.ports["amqp"])
        sender = await _sender(client)
        assert isinstance(await client.send(sender, ping_message("s", "1")), Accepted)
        fill(small_disk)

        ping = await client.send(sender, ping_message("s", "2"))
        send = await client.send(sender, _payload("m"))

        assert isinstance(ping, Rejected)
        assert ping.error is not None
        assert "disk is full" in (ping.error.description or "")
        assert ping == send
        client.abort()


# -- a failing disk --------------------------------------------------------------------


@contextmanager
def _failing(folder: Path, call: str, when: str) -> Iterator[int]:
    """A server process whose system call fails from the Nth time on; gives its port."""
    config = folder / "config.json"
    config.write_text(json.dumps({"namespaces": [{"name": "n", "queues": [_QUEUE]}]}))
    inject = f"inject={call}:error=EIO:when={when}"
    process = subprocess.Popen(
        [
            *("strace", "-f", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject),
            *("--", sys.executable, "-m", "twinbus.cli.main", "serve", "--dev"),
            *("--namespace", "n", "--data", str(folder / "data")),
            *("--amqp-port", "0", "--http-port", "0", "--config", str(config)),
            "--no-supervisor",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # One group, so that strace and the server are killed together.
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, "the server died before it was ready"
        yield int(json.loads(line)["namespaces"]["n"]["amqp_port"])
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        # The pipe ends when the last of the group is gone.
        process.stdout.read()
        process.stdout.close()
        process.wait()


_QUEUE = {"name": "q"}


@pytest.mark.parametrize(("call", "when"), [("fdatasync", "30+"), ("pwrite64", "120+")])
async def test_after_an_error_of_the_disk_nothing_more_is_accepted(
    tmp_path: Path, call: str, when: str
) -> None:
    accepted: list[str] = []
    refused = 0
    with _failing(tmp_path, call, when) as port:
        client = await RawClient.connect(port)
        sender = await _sender(client)
        for number in range(60):
            outcome = await client.send(sender, _payload(f"m{number}"))
            if isinstance(outcome, Accepted):
                assert refused == 0, "accepted after a failed sync"
                accepted.append(f"m{number}")
            else:
                refused += 1
        client.abort()
    assert accepted
    assert refused

    async with serving(tmp_path / "data", CONFIG) as server:
        client = await RawClient.connect(server.port)
        await _sender(client)
        found = await _stored(server)
        assert set(accepted) <= set(found)
        client.abort()


async def test_no_ping_is_accepted_after_a_failed_sync(tmp_path: Path) -> None:
    outcomes = []
    with _failing(tmp_path, "fdatasync", "20+") as port:
        client = await RawClient.connect(port)
        sender = await _sender(client)
        for number in range(30):
            ping = ping_message("s", str(number))
            outcomes.append(type(await client.send(sender, ping)))
        client.abort()

    failed = outcomes.index(Rejected)
    assert failed > 0
    assert set(outcomes[failed:]) == {Rejected}


async def _stored(server: RawServer) -> list[str]:
    store = server.host.namespace.store
    entity = server.host.namespace.entities.find("q")
    assert entity is not None
    rows = store.peek(entity.id, 0, 1000, Now.at(server.clock.now_ms()), None)
    return [str(sections.read_properties(row.bare)[0]) for row in rows]
