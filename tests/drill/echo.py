"""A child that answers each command with the same; for `test_children.py`."""

from __future__ import annotations

import sys

from twinbus.drill.roles.stage import Line, Stage, act, say


async def play(stage: Stage, job: Line) -> None:
    print("no JSON at all", flush=True)
    say(job=job)
    while (line := await stage.hear()) is not None:
        if line.get("do") == "die":
            sys.exit("what it wrote last")
        say(heard=line)


if __name__ == "__main__":
    act(play)
