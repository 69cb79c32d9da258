"""A node that breaks at a chosen step of a turn, or that lacks one of its rules.

Owns how parts of `store/postgres` are replaced in the process of a node. Run it as
`python -m tests.cluster.broken_node RULES STEP ACTION serve ...`. After SIGUSR1 the
next turn that reaches the step does the action, once. Turns that change nothing have no
step but the first.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

from twinbus.cli.main import main
from twinbus.clock import Now
from twinbus.server.broker.host import Host
from twinbus.server.broker.turn import TurnOutcome
from twinbus.store.postgres import database, transaction
from twinbus.store.postgres.pipe import Pipe
from twinbus.store.postgres.transaction import PostgresTransaction
from twinbus.store.postgres.turn_log import LoggedTurn, TurnLog

# The shard is locked; all is written; it is committed; it is durable, not answered.
LOCKED, WRITTEN, COMMITTED, DURABLE = "locked", "written", "committed", "durable"
STEPS = (LOCKED, WRITTEN, COMMITTED, DURABLE)
# In its log when it has got the signal, and when a turn is at the step.
ARMED = "the step is armed"
REACHED = "the step is reached"
# A turn that waits at its step is not ended by the database before this time.
HOLD_SECONDS = 1.0
# How long an early node takes to commit what it has answered.
LATE_SECONDS = 0.5


class Breaking:
    """The action at the step, when it is armed."""

    def __init__(self, step: str, action: str) -> None:
        self._step = step
        self._action = action
        self._is_armed = False
        # Whether the turn in hand has changed something.
        self.in_turn = False
        signal.signal(signal.SIGUSR1, self._arm)

    def _arm(self, *_given: object) -> None:
        self._is_armed = True
        print(ARMED, file=sys.stderr, flush=True)

    def reach(self, step: str, pipe: Pipe) -> None:
        """A turn is at a step."""
        if step != self._step or not self._is_armed:
            return
        if step != LOCKED and not self.in_turn:
            return
        self._is_armed = False
        print(REACHED, file=sys.stderr, flush=True)
        if self._action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self._action == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif self._action == "hold":
            threading.Event().wait(HOLD_SECONDS)
        elif self._action == "cut":
            assert pipe._connection is not None
            with socket.socket(fileno=os.dup(pipe._connection.fileno())) as link:
                link.shutdown(socket.SHUT_RDWR)


def put_steps_in(breaking: Breaking) -> None:
    """Let turns tell of their steps."""
    open_turn, finish = PostgresTransaction._open_turn, PostgresTransaction._finish
    send_sync, finish_synced = Pipe.send_sync, Pipe.finish_synced

    def opened(self: PostgresTransaction) -> None:
        open_turn(self)
        breaking.reach(LOCKED, self._pipe)

    def finished(self: PostgresTransaction, turn: LoggedTurn | None) -> None:
        breaking.in_turn = turn is not None
        breaking.reach(WRITTEN, self._pipe)
        finish(self, turn)

    def committed(self: Pipe) -> None:
        self.finish()
        breaking.reach(COMMITTED, self)
        send_sync(self)

    def synced(self: Pipe) -> None:
        finish_synced(self)
        breaking.reach(DURABLE, self)

    vars_of(PostgresTransaction, _open_turn=opened, _finish=finished)
    vars_of(Pipe, send_sync=committed, finish_synced=synced)


def vars_of(owner: type, **replaced: object) -> None:
    """Replace methods of a class."""
    for name, value in replaced.items():
        setattr(owner, name, value)


# -- rules that are missing ------------------------------------------------------------


def answer_early() -> None:
    """Reply before the commit."""
    commit = Host._commit

    def commit_early(self: Host, outcome: TurnOutcome) -> tuple[TurnOutcome, float]:
        self._thread.call(partial(commit_late, self, outcome), lambda _told: None)
        return outcome, 0.0

    def commit_late(self: Host, outcome: TurnOutcome) -> None:
        threading.Event().wait(LATE_SECONDS)
        commit(self, outcome)

    vars_of(Host, _commit=commit_early)


def believe_all() -> None:
    """Take a commit whose answer is lost as a success."""

    def has_happened(self: PostgresTransaction, turn: LoggedTurn, token: int) -> bool:
        del turn, token
        self._pipe.drop()
        return True

    vars_of(PostgresTransaction, _has_happened=has_happened)


def trust_own_clock() -> None:
    """Tell the time by the machine of the node."""
    real = TurnLog.now

    def now(self: TurnLog, wall_ms: int) -> Now:
        del wall_ms
        return real(self, int(time.time() * 1000))

    vars_of(TurnLog, now=now)


def lock_no_shard() -> None:
    """Begin a turn beside those of other nodes."""
    query = transaction._SQL["lock_shard"]
    transaction._SQL["lock_shard"] = query.replace(" FOR UPDATE", "")


def wait_for_no_standby() -> None:
    """Be content with what the primary alone has on disk."""
    database._SETTINGS["synchronous_commit"] = "local"


def ask_for_no_sync() -> None:
    """Reply after the commit, which does not wait for the disk."""
    vars_of(Pipe, send_sync=lambda _pipe: None)


RULES: dict[str, Callable[[], None]] = {
    "right": lambda: None,
    "early": answer_early,
    "believing": believe_all,
    "own clock": trust_own_clock,
    "no lock": lock_no_shard,
    "no standby": wait_for_no_standby,
    "no sync": ask_for_no_sync,
}


if __name__ == "__main__":
    chosen, step, action = sys.argv[1:4]
    put_steps_in(Breaking(step, action))
    RULES[chosen]()
    sys.argv[1:4] = []
    main()
