"""Runs a program that ends with the drill, whatever becomes of the drill.

    python -m twinbus.drill.tied RUN PROGRAM ARGUMENTS...

Owns the two ties: the kernel kills the program when its parent dies, and the name of
the run stands in its environment, so that `children.leftovers` finds it and all that it
may have started. Linux only, like the server.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

RUN = "TWINBUS_DRILL_RUN"
_PR_SET_PDEATHSIG = 1


def tied(run: str) -> list[str]:
    """The words to put before a command."""
    return [sys.executable, "-m", "twinbus.drill.tied", run]


def main(run: str, *command: str) -> None:
    """Tie this process, and become the program."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.environ[RUN] = run
    os.execvp(command[0], command)  # noqa: S606 - the drill's own command


if __name__ == "__main__":
    main(*sys.argv[1:])
