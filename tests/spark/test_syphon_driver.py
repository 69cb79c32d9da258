"""The driver's decisions, on a real secondary: work, wait, or drained."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.spark.syphon_pair import (
    PRIMARY,
    Pair,
    Place,
    Shape,
    filled,
    inside,
    serving,
)
from twinbus import limits
from twinbus.client.management import Management
from twinbus.client.receiver import Receiver
from twinbus.errors import RemoteError
from twinbus.pairing.pump.settling import Receipt
from twinbus.pairing.rules.naming import backlog_path
from twinbus.spark.syphon_job import journal
from twinbus.spark.syphon_job.access import close_worker
from twinbus.spark.syphon_job.driver import SyphonDriver
from twinbus.spark.syphon_job.job import prepare
from twinbus.spark.syphon_job.journal import QueueJournal
from twinbus.spark.syphon_job.reports import BUDGET, EMPTY, Report, Reports
from twinbus.spark.syphon_job.storage import storage_at
from twinbus.spark.syphon_job.task import run_task


@dataclass
class Site:
    """A pair, a driver on it, and the reports of its run."""

    pair: Pair[Place]
    driver: SyphonDriver
    reports: Reports
    calls: Counter[str] = field(default_factory=Counter)

    def has_work(self, epoch: int, *, until_empty: bool = True) -> bool:
        return self.driver.has_work(epoch, None, until_empty=until_empty)

    def run_tasks(self, epoch: int) -> list[Report]:
        return [run_task(task) for task in self.driver.tasks(epoch)]


SHAPE = Shape(backlog_queues=2)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with inside(tmp_path, SHAPE) as pair, driving(pair) as made:
        _count(made.calls, monkeypatch)
        yield made


@contextmanager
def driving(pair: Pair[Place]) -> Iterator[Site]:
    """A driver on a pair, until the block ends."""
    job, _ = prepare(pair.options, "local")
    settings = job.settings
    storage = storage_at(settings.journal)
    reports = Reports(storage, settings.pair_folder, settings.run)
    reports.begin()
    driver = SyphonDriver(settings, job.primary, job.secondary)
    try:
        yield Site(pair, driver, reports)
    finally:
        driver.close()
        close_worker()


def _count(calls: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Count what is charged; everything goes on as before."""

    def counted(kind: type[Any], name: str) -> None:
        real: Callable[..., Any] = getattr(kind, name)

        def call(self: Any, *args: Any, **given: Any) -> Any:
            calls[name] += 1
            return real(self, *args, **given)

        monkeypatch.setattr(kind, name, call)

    counted(Receiver, "receive")
    counted(Management, "_ask")


def report(epoch: int, index: int, ended: str, moved: int = 0) -> Report:
    made = Report(
        epoch=epoch,
        index=index,
        slice=0,
        attempt="a",
        queue=backlog_path(PRIMARY, index),
        host="here",
        pid=1,
        started_ms=0,
        updated_ms=1,
        ended=ended,
    )
    made.counts.moved = moved
    return made


def test_an_empty_backlog_is_no_work(site: Site) -> None:
    assert not site.has_work(0)


def test_the_driver_plans_tasks_until_the_backlog_is_drained(site: Site) -> None:
    filled(site.pair, 200, seed=1)
    epoch = 0

    while site.has_work(epoch):
        epoch += 1
        site.run_tasks(epoch)

    totals = site.reports.read_totals()
    assert sum(queue.counts.moved for queue in totals.queues) == 200
    assert site.driver.status() == {"epoch": epoch, "depth": {"0": 0, "1": 0}}
    assert site.reports.read() == []


def test_queues_are_not_asked_while_tasks_use_up_their_time(site: Site) -> None:
    filled(site.pair, 40, seed=2)
    assert site.has_work(0)
    site.calls.clear()

    for epoch in (1, 2, 3):
        site.reports.write(report(epoch, 0, BUDGET, moved=1))
        site.reports.write(report(epoch, 1, EMPTY))
        assert site.has_work(epoch)

    assert not site.calls


def test_a_locked_message_is_waited_for(site: Site) -> None:
    filled(site.pair, 1, seed=3)
    [index] = [each for each in (0, 1) if _lock_one(site.pair, each)]
    assert site.has_work(0)
    assert [each.counts.received for each in site.run_tasks(1)] == [0]

    # Its lock ends after five seconds; then there is work again.
    assert site.has_work(1)
    [done] = [each for each in site.run_tasks(2) if each.index == index]

    assert (done.counts.moved, done.counts.redelivered) == (1, 1)
    assert not site.has_work(2)


def _lock_one(pair: Pair[Place], index: int) -> bool:
    async def lock() -> bool:
        async with pair.secondary.connection() as connection:
            receiver = connection.receiver(backlog_path(PRIMARY, index))
            return bool(await receiver.receive(1, 0.3))

    return asyncio.run(lock())


def test_idling_costs_one_receive_for_each_queue_and_nothing_else(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SYPHON_POLL_SECONDS", 0.2)
    assert not site.has_work(0, until_empty=False)
    site.calls.clear()

    for _ in range(4):
        assert not site.has_work(0, until_empty=False)

    # A real round lasts 15 minutes: with ten queues forty receives an hour.
    assert site.calls == {"receive": 4 * 2}


def test_an_idle_driver_wakes_for_a_message_and_leaves_it_there(site: Site) -> None:
    filler = threading.Timer(0.5, filled, (site.pair, 1, 4))
    filler.start()

    assert site.has_work(0, until_empty=False)

    filler.join()
    done = site.run_tasks(1)
    assert sum(each.counts.moved for each in done) == 1
    assert sum(each.counts.redelivered for each in done) == 0


def test_a_queue_that_is_made_later_is_found(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SYPHON_POLL_SECONDS", 0.2)
    assert not site.has_work(0, until_empty=False)
    found = site.driver._states.pop(1)
    assert found is not None

    site.has_work(0, until_empty=False)

    assert set(site.driver._states) == {0, 1}


def test_a_secondary_that_goes_away_is_waited_for(tmp_path: Path) -> None:
    with serving(tmp_path, SHAPE) as pair, driving(pair) as site:
        assert not site.has_work(0)
        pair.secondary.stop()
        starter = threading.Timer(1.0, pair.secondary.start)
        starter.start()

        assert not site.has_work(0)

        starter.join()


def test_a_right_that_is_taken_away_is_an_error(site: Site) -> None:
    job, _ = prepare(
        {
            **site.pair.options,
            "secondaryConnectionString": site.pair.secondary.connection_string.replace(
                "SharedAccessKeyName=", "SharedAccessKeyName=not-"
            ),
        },
        "local",
    )
    driver = SyphonDriver(job.settings, job.primary, job.secondary)

    with pytest.raises(RemoteError):
        driver.has_work(0, None, until_empty=True)
    driver.close()


def test_no_task_begins_after_a_stop_was_asked_for(site: Site) -> None:
    filled(site.pair, 5, seed=5)
    assert site.has_work(0)
    site.reports.ask_stop()

    done = site.run_tasks(1)

    assert {each.ended for each in done} == {"stopped"}
    assert sum(each.counts.received for each in done) == 0
    assert not site.has_work(1)


def test_receipts_of_empty_queues_are_packed(site: Site) -> None:
    storage = storage_at(str(site.pair.options["journalLocation"]))
    folder = journal.receipts_folder(site.pair.journal_pair, 1)
    old = QueueJournal(storage, folder, "old")
    asyncio.run(old.record([Receipt(1, 2, "orders", 3)]))
    old.close()

    assert not site.has_work(0)

    assert storage.entries(folder) == []
    assert len(journal.all_receipts(storage, site.pair.journal_pair)[1]) == 1
