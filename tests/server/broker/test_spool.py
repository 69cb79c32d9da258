"""Sends to a sick shard are kept by another one and come home in order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.server.broker.sharded_site import ShardedSite, sharded
from twinbus import limits
from twinbus.core.entity import QueueDescription
from twinbus.core.names import EntityPath
from twinbus.errors import QuotaExceeded, SpoolFull, StorageFull, StoreFault
from twinbus.server.broker.commands import Send
from twinbus.server.broker.crossing.recovery import SlowTurn
from twinbus.server.broker.crossing.spool import SpoolState
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.store.base import DiskFault
from twinbus.wire.message import sections
from twinbus.wire.message.bundle import bundled
from twinbus.wire.message.sections import PING_CONTENT_TYPE, parse


@pytest.fixture
async def site() -> AsyncIterator[ShardedSite]:
    async with sharded(None, shards=2) as running:
        await running.create(QueueDescription("well"), shard=0)
        await running.create(QueueDescription("a"), shard=1)
        await running.create(QueueDescription("b"), shard=1)
        await running.settle()
        yield running


async def send(site: ShardedSite, name: str, *bodies: str) -> None:
    """Send as clients do: as the command that a link hands in."""
    fields = {sections.MESSAGE_ID: "x"}
    for body in bodies:
        message = parse(sections.encode_message(body.encode(), fields))
        command = Send(site.find(name), [message])
        for error in (await site.host(name).run(command)).values():
            raise error


def spool_of(site: ShardedSite, name: str) -> SpoolState:
    spool = site.host(name).spool
    assert spool is not None
    return spool.state


async def fail(site: ShardedSite, kind: str = "down") -> None:
    """Let shard 1 fail; the sends of the turn that fails are refused."""
    site.hosts[1].namespace.store.rehearse(DiskFault(kind))
    with pytest.raises(StoreFault):
        await send(site, "a", "refused")


async def heal(site: ShardedSite) -> None:
    site.hosts[1].namespace.store.rehearse(None)
    await site.hosts[1].recovery.attempt()
    await site.settle()


@pytest.mark.parametrize("kind", ["down", "full"])
async def test_sends_to_a_failing_shard_are_kept_and_come_home(
    site: ShardedSite, kind: str
) -> None:
    await send(site, "a", "before")
    await fail(site, kind)

    await send(site, "a", "1", "2")
    await send(site, "b", "3")
    await send(site, "a", "4")
    assert spool_of(site, "a") is SpoolState.ON
    with pytest.raises(StoreFault):
        await site.bodies("a")
    await send(site, "well", "beside")
    assert await site.bodies("well") == ["beside"]

    await heal(site)
    assert await site.bodies("a") == ["before", "1", "2", "4"]
    assert await site.bodies("b") == ["3"]
    assert spool_of(site, "a") is SpoolState.OFF
    await send(site, "a", "5")
    assert (await site.bodies("a"))[-1] == "5"


async def test_a_bundle_to_a_failing_shard_is_kept_message_by_message(
    site: ShardedSite,
) -> None:
    await fail(site)
    texts = [f"m{number}" for number in range(limits.PACK_MESSAGES_MIN)]
    payloads = [
        sections.encode_message(text.encode(), {sections.MESSAGE_ID: text})
        for text in texts
    ]
    bundle = bundled(list(map(parse, payloads)), is_batch=False)
    assert bundle is not None

    assert await site.host("a").run(Send(site.find("a"), bundle)) == {}
    await heal(site)

    assert await site.bodies("a") == texts


async def test_a_shard_that_hangs_is_sick_and_comes_back(
    site: ShardedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SICK_TURN_SECONDS", 0.05)
    store = site.hosts[1].namespace.store
    commit, go_on = store.commit, threading.Event()

    def hang() -> None:
        go_on.wait()
        commit()

    monkeypatch.setattr(store, "commit", hang)
    with pytest.raises(StoreFault, match="has not answered"):
        await send(site, "a", "in the turn that hangs")

    await send(site, "a", "1", "2")
    with pytest.raises(StoreFault):
        await site.bodies("b")
    await send(site, "well", "beside")
    assert await site.bodies("well") == ["beside"]

    go_on.set()
    await site.hosts[1].recovery.attempt()
    await site.settle()
    # The turn that hung has happened after all: its client was told that it is unknown.
    assert await site.bodies("a") == ["in the turn that hangs", "1", "2"]


async def test_a_process_that_was_stopped_for_a_while_has_no_sick_shard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[Callable[[], None]] = []
    loop = asyncio.get_running_loop()

    def call_later(_seconds: float, look: Callable[[], None]) -> asyncio.TimerHandle:
        looks.append(look)
        return asyncio.TimerHandle(0, look, (), loop)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "call_later", call_later)
        sick: list[bool] = []
        SlowTurn(lambda: sick.append(True))
        # Whatever time has passed since, one look is one look.
        for count in range(1, limits.SICK_TURN_LOOKS + 1):
            assert len(looks) == count
            assert sick == []
            looks[-1]()

    assert sick == [True]


async def test_a_defect_does_not_end_the_tries_of_a_sick_shard(
    site: ShardedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fail(site)
    await send(site, "a", "kept")
    store, spool = site.hosts[1].namespace.store, site.hosts[1].spool
    assert spool is not None
    monkeypatch.setattr(limits, "STORE_RECOVERY_SECONDS", 0.01)
    ended = asyncio.Event()
    monkeypatch.setattr(spool.waiting_bytes, "clear", ended.set)

    def recover() -> bool:
        raise RuntimeError("rehearsed")

    with monkeypatch.context() as patch:
        patch.setattr(store, "recover", recover)
        await site.hosts[1].recovery.attempt()
    store.rehearse(None)

    async with asyncio.timeout(10):
        await ended.wait()
    assert await site.bodies("a") == ["kept"]


async def test_new_sends_queue_behind_what_is_on_its_way(
    site: ShardedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OUTBOX_ROWS", 1)
    monkeypatch.setattr(limits, "SPOOL_TAIL_ROWS", 3)
    await fail(site)
    await send(site, "a", *(str(k) for k in range(10)))

    site.hosts[1].namespace.store.rehearse(None)
    await site.hosts[1].recovery.attempt()
    assert spool_of(site, "a") is SpoolState.DRAINING
    # Those of the other entity have nothing before them.
    await send(site, "b", "direct")
    assert await site.bodies("b") == ["direct"]
    later = [asyncio.ensure_future(send(site, "a", str(k))) for k in range(10, 30)]
    await asyncio.gather(*later)
    await site.settle()

    found = [int(body) for body in await site.bodies("a")]
    assert found[:10] == list(range(10))
    assert sorted(found) == list(range(30))
    assert spool_of(site, "a") is SpoolState.OFF


async def test_the_checks_of_a_send_are_made(site: ShardedSite) -> None:
    await fail(site)

    def shrink(entity_bytes: int) -> None:
        limit = site.find("a").size_bytes_max
        spool = site.host("a").spool
        assert spool is not None
        spool.add("a", limit - entity_bytes)

    shrink(5_000)
    await send(site, "a", "x" * 100)
    with pytest.raises(QuotaExceeded):
        await send(site, "a", "x" * 200, *("y" * 200 for _ in range(40)))


async def test_a_full_spool_refuses(
    site: ShardedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SPOOL_BYTES_MAX", 2_000)
    await fail(site)
    with pytest.raises(SpoolFull):
        await send(site, "a", *("x" * 200 for _ in range(40)))
    assert await well_rows(site) > 0


async def well_rows(site: ShardedSite) -> int:
    counts = site.hosts[0].namespace.store.outbox()
    return counts[1].rows


async def test_without_a_healthy_shard_sends_are_refused(site: ShardedSite) -> None:
    await fail(site)
    site.hosts[0].namespace.store.rehearse(DiskFault("down"))
    for _ in range(2):
        with pytest.raises(StoreFault):
            await send(site, "a", "x")


async def test_sends_are_kept_by_a_shard_that_is_back(site: ShardedSite) -> None:
    for name, host in zip(("well", "a"), site.hosts, strict=True):
        host.namespace.store.rehearse(DiskFault("down"))
        with pytest.raises(StoreFault):
            await send(site, name, "refused")
    with pytest.raises(StoreFault):
        await send(site, "a", "refused as well")

    site.hosts[0].namespace.store.rehearse(None)
    await site.hosts[0].recovery.attempt()
    await send(site, "a", "kept")

    await heal(site)
    assert await site.bodies("a") == ["kept"]


async def test_a_ping_proves_a_write_where_the_message_would_be(
    site: ShardedSite,
) -> None:
    await fail(site)
    fields = {sections.CONTENT_TYPE: PING_CONTENT_TYPE}
    command = Send(site.find("a"), [parse(sections.encode_message(b"", fields))])
    assert await site.host("a").run(command) == {}
    assert await well_rows(site) == 0

    site.hosts[0].namespace.store.rehearse(DiskFault("down"))
    command = Send(site.find("a"), [parse(sections.encode_message(b"", fields))])
    with pytest.raises(StoreFault):
        await site.host("a").run(command)


async def test_what_is_kept_for_a_deleted_entity_is_set_aside(
    site: ShardedSite,
) -> None:
    await fail(site)
    await send(site, "a", "lost?")
    site.hosts[1].namespace.store.rehearse(None)
    mover = site.hosts[1].mover
    for host in site.hosts:
        host.mover = None
    await site.hosts[1].recovery.attempt()

    def delete(namespace: Namespace, turn: Turn) -> None:
        namespace.delete(EntityPath("a"), turn)

    await site.hosts[1].run(delete)
    for host in site.hosts:
        host.mover = mover
    await site.settle()
    assert site.hosts[0].namespace.store.quarantined() == 1


async def test_a_nearly_full_disk_lets_receivers_go_on(
    site: ShardedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(site, "a", "before")
    store = site.hosts[1].namespace.store
    monkeypatch.setattr(store, "is_nearly_full", lambda: True)
    with pytest.raises(StorageFull):
        await send(site, "a", "refused")

    await send(site, "a", "kept")
    assert await site.bodies("a") == ["before"]

    monkeypatch.setattr(store, "is_nearly_full", lambda: False)
    await site.hosts[1].run(lambda _namespace, _turn: None)
    await site.settle()
    assert await site.bodies("a") == ["before", "kept"]


async def test_a_disk_that_a_checkpoint_fills_is_spooled_for_at_once(
    site: ShardedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CHECKPOINT_WORK_MIN", 1)
    monkeypatch.setattr(limits, "CHECKPOINT_IDLE_SECONDS", 0)
    host = site.host("a")
    store = host.namespace.store
    done = asyncio.Event()

    def checkpoint() -> None:
        monkeypatch.setattr(store, "is_nearly_full", lambda: True)
        host._loop.call_soon_threadsafe(done.set)

    monkeypatch.setattr(store, "checkpoint", checkpoint)
    await send(site, "a", "1")
    await done.wait()
    await host.turn_over()

    await send(site, "a", "2")

    assert spool_of(site, "a") is not SpoolState.OFF


async def test_a_nearly_full_disk_is_looked_at_without_a_client(
    site: ShardedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STORE_RECOVERY_SECONDS", 0.01)
    store = site.hosts[1].namespace.store
    monkeypatch.setattr(store, "is_nearly_full", lambda: True)
    with pytest.raises(StorageFull):
        await send(site, "a", "refused")
    await send(site, "a", "kept")

    spool, ended = site.hosts[1].spool, asyncio.Event()
    assert spool is not None
    monkeypatch.setattr(spool.waiting_bytes, "clear", ended.set)
    monkeypatch.setattr(store, "is_nearly_full", lambda: False)
    async with asyncio.timeout(10):
        await ended.wait()
    assert await site.bodies("a") == ["kept"]


async def test_nothing_is_carried_to_a_disk_that_is_nearly_full(
    site: ShardedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OUTBOX_ROWS", 1)
    await fail(site)
    await send(site, "a", "1", "2", "3", "4")
    kept_bytes = site.hosts[0].namespace.store.outbox()[1].size_bytes
    store, queue = site.hosts[1].namespace.store, site.find("a").id
    with monkeypatch.context() as patch:
        patch.setattr(store, "is_nearly_full", lambda: store.counts(queue).active > 1)
        await heal(site)
        assert await site.bodies("a") == ["1", "2"]
        assert spool_of(site, "a") is SpoolState.ON
        # Only what is left counts for the size of the entity.
        spool = site.hosts[1].spool
        assert spool is not None
        assert spool.waiting_bytes["a"] == kept_bytes // 2 > 0

    await site.hosts[1].run(lambda _namespace, _turn: None)
    await site.settle()
    assert await site.bodies("a") == ["1", "2", "3", "4"]


async def test_the_order_survives_a_restart(tmp_path: Path) -> None:
    async with sharded(tmp_path, shards=2) as site:
        await site.create(QueueDescription("a"), shard=1)
        await site.settle()
        await fail(site)
        await send(site, "a", "1", "2")
    folder = tmp_path / "contoso" / "shard-1"
    away = folder.rename(folder.with_name("away"))

    async with sharded(tmp_path, shards=None) as site:
        assert spool_of(site, "a") is SpoolState.ON
        await send(site, "a", "3")
        away.rename(folder)
        await site.hosts[1].recovery.attempt()
        await send(site, "a", "4")
        await site.settle()
        assert await site.bodies("a") == ["1", "2", "3", "4"]


async def test_after_a_restart_the_same_shard_keeps_what_is_sent(
    tmp_path: Path,
) -> None:
    async with sharded(tmp_path, shards=3) as site:
        await site.create(QueueDescription("a"), shard=1)
        await site.create(QueueDescription("big"), shard=2)
        forwards = QueueDescription("forwards", forward_to="a")
        await site.create(forwards, shard=2)
        await site.settle()
        await send(site, "big", "more than shard 0 has")
        await fail(site)
        await send(site, "a", "1", "2")
        await send(site, "forwards", *"abcdef")
        assert [_rows_for_1(site, shard) for shard in (0, 2)] == [2, 6]
        kept_bytes = site.hosts[0].namespace.store.outbox()[1].size_bytes
    folder = tmp_path / "contoso" / "shard-1"
    folder.rename(folder.with_name("away"))

    async with sharded(tmp_path, shards=None) as site:
        spool = site.hosts[1].spool
        assert spool is not None
        assert spool.waiting_bytes == {"a": kept_bytes}

        await send(site, "a", "3")

        assert [_rows_for_1(site, shard) for shard in (0, 2)] == [3, 6]


def _rows_for_1(site: ShardedSite, shard: int) -> int:
    return site.hosts[shard].namespace.store.outbox()[1].rows


async def test_a_send_that_is_being_kept_is_not_overtaken(site: ShardedSite) -> None:
    await fail(site)
    store = site.hosts[1].namespace.store
    store.rehearse(None)
    assert await site.hosts[1].in_place(store.recover)
    # Handed in while the shard is sick, and not kept yet when it is well.
    first = asyncio.ensure_future(send(site, "a", "1"))
    await asyncio.sleep(0)
    site.hosts[1].resume()
    second = asyncio.ensure_future(send(site, "a", "2"))
    await asyncio.gather(first, second)
    await site.settle()

    assert await site.bodies("a") == ["1", "2"]
