"""The first sender answers "accepted" at once, sends a second later, and then dies."""

from __future__ import annotations

import asyncio

from tests.drill.broken.dying import die_once, may_die
from twinbus.drill.roles import sender
from twinbus.drill.roles.stage import Line, Stage, act
from twinbus.pairing.rules.send_call import NextStep, TryBacklog
from twinbus.pairing.shell.route import Flight

_LATE_SECONDS = 1.0
# Long enough for some messages to be accepted and not sent.
_LIFE_SECONDS = 2.0


def acknowledge_early() -> None:
    """Replace the way into the backlog."""
    honest = Flight._try_backlog
    late: set[asyncio.Task[None]] = set()

    async def send_later(flight: Flight, step: TryBacklog) -> None:
        await asyncio.sleep(_LATE_SECONDS)
        await honest(flight, step)

    async def to_backlog(flight: Flight, step: TryBacklog) -> NextStep:
        loop = asyncio.get_running_loop()
        if not late:
            loop.call_later(_LIFE_SECONDS, die_once)
        late.add(loop.create_task(send_later(flight, step)))
        return flight.call.backlog_accepted(flight._pair.clock.now_ms())

    setattr(Flight, "_try_backlog", to_backlog)  # noqa: B010


async def play(stage: Stage, job: Line) -> None:
    may_die(job)
    if job["number"] == 0:
        acknowledge_early()
    await sender.play(stage, job)


if __name__ == "__main__":
    act(play)
