"""A server that is killed while it spools or drains, or whose spool lacks a rule.

Owns how `spool.py` is replaced in a server process of a test. Run it as `python -m
tests.faults.spool_server SPOOL STEP WHEN serve ...`: before the Nth time that a send is
kept for a sick shard, or that letters are applied or forgotten (`mover_server.py`), the
process kills itself. It carries few rows at a time, so that a drain has many steps.
"""

from __future__ import annotations

import asyncio
import sys

from tests.faults import mover_server
from tests.faults.mover_server import Apply, Death, Take
from twinbus import limits
from twinbus.cli.main import main
from twinbus.errors import StoreFault, TwinbusError
from twinbus.server.broker.commands import Send
from twinbus.server.broker.crossing import mover, spool
from twinbus.server.broker.crossing.spool import ShardSpool, SpoolSend, SpoolState
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.submissions import UNHEARD, Submission
from twinbus.server.broker.turn import Turn
from twinbus.server.setup import namespaces

SPOOL = "spool"
STEPS = (SPOOL, *mover_server.STEPS)
# How long the early one takes to keep what it has acknowledged.
_LATE_SECONDS = 0.05


class Keep(SpoolSend):
    """Keeps a send as it should be done."""

    def __call__(self, namespace: Namespace, turn: Turn) -> dict[int, TwinbusError]:
        mover_server.death.reach(SPOOL)
        return super().__call__(namespace, turn)


class EarlySpool(ShardSpool):
    """Acknowledges a send before it is durable."""

    def submit(self, submission: Submission, send: Send) -> None:
        # Nothing may join it any more.
        submission.taken = True
        reply, submission.reply = submission.reply, UNHEARD
        loop = asyncio.get_running_loop()
        loop.call_later(_LATE_SECONDS, super().submit, submission, send)
        reply.done({})


class OvertakingSpool(ShardSpool):
    """Lets new sends go directly to the shard while it drains."""

    def takes(self, entity: Entity) -> bool:
        return self.state is SpoolState.ON and super().takes(entity)


def answer_busy() -> None:
    """Let a sick shard say that it is busy."""
    StoreFault.condition = "com.microsoft:server-busy"


SPOOLS: dict[str, type[ShardSpool]] = {
    "right": ShardSpool,
    "early": EarlySpool,
    "overtaking": OvertakingSpool,
    "busy": ShardSpool,
}


if __name__ == "__main__":
    chosen, step, when = sys.argv[1:4]
    mover_server.death = Death(step, int(when))
    vars(mover).update(TakePosted=Take, ApplyPosted=Apply)
    vars(spool).update(SpoolSend=Keep)
    vars(namespaces).update(ShardSpool=SPOOLS[chosen])
    vars(limits).update(OUTBOX_ROWS=5, SPOOL_TAIL_ROWS=5)
    if chosen == "busy":
        answer_busy()
    sys.argv[1:4] = []
    main()
