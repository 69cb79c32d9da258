"""Runs the command of a server in this process, with the defect.

python -m tests.drill.broken.deliver_pings.server PYTHON -m MODULE ARGUMENTS...
"""

from __future__ import annotations

import runpy
import sys

from twinbus.server.broker import namespace


def main(*command: str) -> None:
    # No message has this type, so none is taken for a ping.
    setattr(namespace, "PING_CONTENT_TYPE", "-")  # noqa: B010
    _python, _m, module, *arguments = command
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
