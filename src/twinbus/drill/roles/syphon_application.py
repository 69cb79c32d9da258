"""A child that runs the syphon inside an application, as receivers are told to.

Owns the second way to bring the backlog home; the first is `syphon_spark.py`. This
syphon works until it is stopped, so the parent looks whether the backlog is empty.
"""

from __future__ import annotations

import asyncio

from twinbus import limits
from twinbus.aio import SendAvailabilityPairedNamespaceOptions
from twinbus.drill.roles.stage import Line, Stage, act, ledger_of, plan_of, say
from twinbus.drill.site.access import NamespaceAccess


async def play(stage: Stage, job: Line) -> None:
    """Wait for the word, then bring home whatever comes."""
    access, secondary = (
        NamespaceAccess(**job["primary"]),
        NamespaceAccess(**job["secondary"]),
    )
    seconds = limits.DRILL_ATTEMPT_SECONDS
    say(ready=True)
    if await stage.hear() is None:
        return
    # The syphon was on, so closing the primary's factory closes both.
    ledger = ledger_of(job)
    async with access.factory(try_timeout=seconds, ledger=ledger) as primary:
        options = SendAvailabilityPairedNamespaceOptions(
            secondary.admin(),
            secondary.factory(try_timeout=seconds),
            limits.DRILL_BACKLOG_QUEUES,
            limits.DRILL_FAILOVER_SECONDS,
            enable_syphon=True,
            ping_primary_interval=limits.DRILL_PING_SECONDS,
            primary_name=plan_of(job).primary_name,
        )
        await primary.pair_namespace(options)
        over = asyncio.create_task(stage.over())
        while not over.done():
            status = primary.pairing.status().syphon
            say(moved=status.total.moved if status else 0)
            await asyncio.wait((over,), timeout=limits.DRILL_SAY_SECONDS)


if __name__ == "__main__":
    act(play)
