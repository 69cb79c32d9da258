"""What a shard with too much to do denies over AMQP, and what it never denies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.desk import BODY, Desk, desk_at
from twinbus.client.connection import Connection
from twinbus.core.entity import QueueDescription
from twinbus.core.sas import DEV_KEY_NAME, DEV_KEY_TEXT
from twinbus.errors import StoreFault
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.broker.load.facets import FULL
from twinbus.wire.events import Detached
from twinbus.wire.performatives import Rejected

BUSY = "com.microsoft:server-busy"
QUEUES = (QueueDescription("q"), QueueDescription("s", requires_session=True))


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with desk_at(tmp_path, NamespaceConfig("contoso", queues=QUEUES)) as started:
        yield started


def fill_memory(desk: Desk) -> None:
    """From now on the process has more memory than it may have."""
    load = desk.server.host.load
    memory = load.facets[-1]
    assert memory.name == "memory"
    memory.first = memory.second = 1
    memory.set(2, 0)
    load.look(0, 0)
    assert load.level == FULL


async def test_a_send_is_denied_with_the_facet_and_the_time_to_wait(
    desk: Desk,
) -> None:
    fill_memory(desk)

    denied = await desk.send("q", BODY)

    assert isinstance(denied, Rejected)
    assert denied.error is not None
    assert denied.error.condition == BUSY
    assert "memory is 0.0 MiB" in str(denied.error.description)
    assert "Wait 10 seconds" in str(denied.error.description)
    assert desk.counts("q").active == 0


async def test_work_in_hand_goes_on_meanwhile(desk: Desk) -> None:
    text = (
        f"Endpoint=sb://127.0.0.1:{desk.server.port};SharedAccessKeyName={DEV_KEY_NAME}"
        f";SharedAccessKey={DEV_KEY_TEXT};UseDevelopmentEmulator=true;"
    )
    await desk.send("q", BODY)
    async with Connection.from_connection_string(text) as connection:
        receiver = connection.receiver("q")
        (message,) = await receiver.receive(1)
        fill_memory(desk)

        assert len(await receiver.peek(1)) == 1
        await receiver.renew([message])
        await receiver.complete([message])

    assert desk.counts("q").active == 0


@pytest.mark.parametrize("address", ["q", "q/$DeadLetterQueue"])
async def test_a_new_receiver_is_refused_as_busy(desk: Desk, address: str) -> None:
    fill_memory(desk)

    await desk.client.receiver(desk.session, address)

    detached: Any = await desk.client.wait(Detached)
    assert detached.error.condition == BUSY


async def test_a_receiver_that_is_there_goes_on_receiving(desk: Desk) -> None:
    await desk.send("q", BODY)
    await desk.send("q", BODY)
    receiver = await desk.client.receiver(desk.session, "q")
    fill_memory(desk)

    receiver.grant(2)
    desk.client.flush()
    await desk.server.host.run(lambda _namespace, _turn: None)

    assert desk.counts("q").active == 2
    entity = desk.server.host.namespace.entities.find("q")
    assert entity is not None
    assert entity.delivered == 2


async def test_a_shard_with_a_fault_is_not_busy(desk: Desk) -> None:
    fill_memory(desk)
    desk.server.host.fault = StoreFault("The disk is gone.")
    try:
        failed = await desk.send("q", BODY)
    finally:
        desk.server.host.fault = None

    assert isinstance(failed, Rejected)
    assert failed.error is not None
    assert failed.error.condition == "amqp:internal-error"
