"""A shard that is replaced by an older copy: later forwards arrive exactly once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.server.broker.sharded_site import ShardedSite, sharded
from twinbus.core.entity import QueueDescription

SOURCE, TARGET = 1, 2


def place(folder: Path, shard: int) -> Path:
    return folder / "contoso" / f"shard-{shard}"


def keep(folder: Path, shard: int) -> None:
    """Copy a shard aside."""
    shutil.copytree(place(folder, shard), folder / f"copy-{shard}")


def restore(folder: Path, shard: int) -> None:
    """Put the copy in the place of the shard."""
    shutil.rmtree(place(folder, shard))
    shutil.copytree(folder / f"copy-{shard}", place(folder, shard))


async def make(folder: Path) -> None:
    """A queue that forwards to one in another shard, and two messages on that way."""
    async with sharded(folder) as site:
        await site.create(QueueDescription("to"), TARGET)
        await site.settle()
        await site.create(QueueDescription("from", forward_to="to"), SOURCE)
        await send(site, "a", "b")


async def send(site: ShardedSite, *bodies: str) -> None:
    await site.send("from", *bodies)
    await site.settle()


async def work(folder: Path, *bodies: str) -> None:
    async with sharded(folder) as site:
        await send(site, *bodies)


async def grow_old(folder: Path, shard: int) -> None:
    """Send more, and put a copy from before that in the place of a shard."""
    await make(folder)
    keep(folder, shard)
    await work(folder, "c", "d", "e")
    restore(folder, shard)


async def check_later(
    folder: Path, caplog: pytest.LogCaptureFixture, bodies: str
) -> None:
    """What is sent after the next start arrives too, and no copy is found old."""
    caplog.clear()
    await work(folder, "h")
    async with sharded(folder) as site:
        assert await site.bodies("to") == [*bodies]
    assert "older copy" not in caplog.text


async def test_an_older_source_loses_nothing_that_it_sends_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await grow_old(tmp_path, SOURCE)

    async with sharded(tmp_path) as site:
        await send(site, "f", "g")
        assert await site.bodies("to") == [*"abcdefg"]

    assert "shard 1 of contoso was replaced by an older copy: shard 2" in caplog.text
    assert "numbers 3 to 5" in caplog.text
    await check_later(tmp_path, caplog, "abcdefgh")


async def test_what_waited_in_an_older_source_is_not_applied_again(
    tmp_path: Path,
) -> None:
    await make(tmp_path)
    away = place(tmp_path, TARGET)
    away.rename(tmp_path / "away")
    async with sharded(tmp_path) as site:
        await site.send("from", "c", "d")
    keep(tmp_path, SOURCE)
    (tmp_path / "away").rename(away)
    await work(tmp_path, "e")
    restore(tmp_path, SOURCE)

    async with sharded(tmp_path) as site:
        await send(site, "f")
        assert await site.bodies("to") == [*"abcdef"]


async def test_an_older_target_goes_on_with_what_there_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await grow_old(tmp_path, TARGET)

    async with sharded(tmp_path) as site:
        assert "shard 2 of contoso misses numbers 3 to 5 of shard 1" in caplog.text
        await send(site, "f", "g")
        assert await site.bodies("to") == [*"abfg"]

    await check_later(tmp_path, caplog, "abfgh")


@pytest.mark.parametrize(("shard", "arrived"), [(SOURCE, "abcdef"), (TARGET, "abf")])
async def test_an_older_copy_may_come_while_the_others_serve(
    tmp_path: Path, shard: int, arrived: str
) -> None:
    await make(tmp_path)
    keep(tmp_path, shard)
    await work(tmp_path, "c", "d", "e")
    shutil.rmtree(place(tmp_path, shard))

    async with sharded(tmp_path) as site:
        late = site.hosts[shard]
        assert late.fault is not None
        shutil.copytree(tmp_path / f"copy-{shard}", place(tmp_path, shard))
        await late.recovery.attempt()
        await send(site, "f")
        assert await site.bodies("to") == [*arrived]


async def test_an_older_source_goes_on_above_a_target_that_comes_late(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await grow_old(tmp_path, SOURCE)
    place(tmp_path, TARGET).rename(tmp_path / "away")

    async with sharded(tmp_path) as site:
        (tmp_path / "away").rename(place(tmp_path, TARGET))
        await site.hosts[TARGET].recovery.attempt()
        await site.settle()
        assert "numbers 3 to 5" in caplog.text
        await send(site, "f")
        assert await site.bodies("to") == [*"abcdef"]
