"""A server that writes its log into the file whenever it is idle for a moment.

Run it as `python -m tests.faults.idle_server serve ...`. So a short story has many
checkpoints in which the server can be killed.
"""

from __future__ import annotations

from twinbus import limits
from twinbus.cli.main import main

if __name__ == "__main__":
    limits.CHECKPOINT_WORK_MIN = 1
    limits.CHECKPOINT_IDLE_SECONDS = 0.002
    main()
