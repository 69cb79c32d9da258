"""`twinbus serve` as a supervisor: the same command again, as its child.

Owns which command that is. Imports as little as it can: a server is ready this much
later, and the supervisor must not fail with what it watches.
"""

from __future__ import annotations

import sys

from twinbus.cli.server.logs import log_to_stderr
from twinbus.server.setup.supervisor import Supervisor

NO_SUPERVISOR = "--no-supervisor"


def child_command() -> list[str]:
    """The command of this process, with the option that serves without supervisor."""
    words = sys.argv[1:]
    before = sys.orig_argv[1 : -len(words)]
    if sys.orig_argv[-len(words) :] != words:
        # Called by another program: the path must be that of this package.
        before = ["-m", "twinbus.cli.main"]
    return [sys.executable, *before, *words, NO_SUPERVISOR]


def supervise() -> int:
    """Run `twinbus serve` under a supervisor; returns the exit code."""
    return Supervisor(child_command(), log_to_stderr).run()
