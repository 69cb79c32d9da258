"""A server whose mover is killed at a chosen step, or lacks one of its rules.

Owns how the commands of `outbox.py` are replaced in a server process of a test. Run it
as `python -m tests.faults.mover_server MOVER STEP WHEN serve ...`: before the Nth time
that letters are applied, or that they are forgotten after that, the process kills
itself. The movers are those of `suites/crossing.py`, in the real server.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from itertools import count

from twinbus.cli.main import main
from twinbus.server.broker.crossing import mover, parcels
from twinbus.server.broker.crossing.outbox import ApplyPosted, TakePosted
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.store.base import Posted

APPLY, FORGET = "apply", "forget"
STEPS = (APPLY, FORGET)


class Death:
    """Kills this process at the chosen step."""

    def __init__(self, step: str, when: int) -> None:
        self._step = step
        self._when = when
        self._times = count(1)
        # The pairs of shards whose letters were applied and not forgotten yet.
        self.applied: set[tuple[int, int]] = set()

    def reach(self, step: str) -> None:
        if step == self._step and next(self._times) == self._when:
            os.kill(os.getpid(), signal.SIGKILL)


death = Death("", 0)


class Take(TakePosted):
    """Takes as it should be done."""

    def __call__(self, namespace: Namespace, turn: Turn) -> list[Posted]:
        pair = (namespace.shard, self._target)
        if pair in death.applied:
            death.applied.discard(pair)
            death.reach(FORGET)
        return super().__call__(namespace, turn)


class LosingTake(Take):
    """Forgets rows before the target has applied them."""

    def __call__(self, namespace: Namespace, turn: Turn) -> list[Posted]:
        found = super().__call__(namespace, turn)
        if found:
            namespace.store.forget_posted(self._target, found[-1].number)
        return found


class Apply(ApplyPosted):
    """Applies as it should be done."""

    def __call__(self, namespace: Namespace, turn: Turn) -> int:
        if any(parcels.is_letter(row.kind) for row in self._posted):
            death.reach(APPLY)
            death.applied.add((self._source, namespace.shard))
        return self.apply(namespace, turn)

    def apply(self, namespace: Namespace, turn: Turn) -> int:
        return super().__call__(namespace, turn)


class UncheckedApply(Apply):
    """Applies the rows that it chooses, without a look at their numbers."""

    def apply(self, namespace: Namespace, turn: Turn) -> int:
        applied = namespace.store.applied(self._source)
        for row in self.choose(applied):
            self._apply(row, namespace, turn)
        last = max(applied, *(row.number for row in self._posted))
        if last > applied:
            namespace.store.put_applied(self._source, last)
        return last

    def choose(self, applied: int) -> Sequence[Posted]:
        return [row for row in self._posted if row.number > applied]


class DoublingApply(UncheckedApply):
    """Does not ask what was applied."""

    def choose(self, applied: int) -> Sequence[Posted]:
        return self._posted


class TurningApply(UncheckedApply):
    """Applies rows in the wrong order."""

    def choose(self, applied: int) -> Sequence[Posted]:
        return super().choose(applied)[::-1]


MOVERS: dict[str, tuple[type[Take], type[Apply]]] = {
    "right": (Take, Apply),
    "doubling": (Take, DoublingApply),
    "losing": (LosingTake, UncheckedApply),
    "turning": (Take, TurningApply),
}


if __name__ == "__main__":
    chosen, step, when = sys.argv[1:4]
    death = Death(step, int(when))
    take, apply = MOVERS[chosen]
    vars(mover).update(TakePosted=take, ApplyPosted=apply)
    sys.argv[1:4] = []
    main()
