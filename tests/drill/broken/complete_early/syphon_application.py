"""The application's syphon with the defect."""

from __future__ import annotations

from tests.drill.broken.complete_early.pump import complete_early
from tests.drill.broken.dying import may_die
from twinbus.drill.roles import syphon_application
from twinbus.drill.roles.stage import Line, Stage, act


async def play(stage: Stage, job: Line) -> None:
    may_die(job)
    complete_early()
    await syphon_application.play(stage, job)


if __name__ == "__main__":
    act(play)
