"""A library and a server that are broken on purpose, to show that the drill notices.

Owns three defects. Each is put into a process of the drill from outside; the product
knows nothing of them:

    acknowledge-early   a sender says "accepted" before the backlog has the message, and
                        then its process dies
    complete-early      the syphon takes a message out of the backlog before it has sent
                        it home, and then its process dies
    deliver-pings       the primary keeps pings like any other message

A process that dies does so once in a drill. `python -m twinbus.drill.broken DEFECT`
before a command runs the command with the defect; as the module of Spark's Python
daemon this breaks every worker.
"""

from __future__ import annotations

import asyncio
import os
import runpy
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Where a process of this drill has died already; also tells Spark's workers.
DIED = "TWINBUS_DRILL_DIED"
# Half of it is enough for some messages to be neither here nor there.
_LATE_SECONDS = 1.0
_LIFE_SECONDS = 2.0


def apply(defect: str, part: str, job: Mapping[str, Any]) -> None:
    """Break this process, if the defect is one of this part."""
    os.environ[DIED] = str(Path(job["folder"]) / "died")
    if (defect, part) == ("acknowledge-early", "sender") and job["number"] == 0:
        _acknowledge_early()
    elif (defect, part) == ("complete-early", "syphon"):
        complete_early()


def die_once() -> None:
    """Die as a process dies whose machine fails; the next one lives."""
    try:
        Path(os.environ[DIED]).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def _acknowledge_early() -> None:
    from twinbus.pairing.rules.send_call import TryBacklog, Turn
    from twinbus.pairing.shell.route import Flight

    honest = Flight._to_backlog
    late: set[asyncio.Task[None]] = set()

    async def send_later(flight: Flight, step: TryBacklog) -> None:
        await asyncio.sleep(_LATE_SECONDS)
        await honest(flight, step)

    async def to_backlog(flight: Flight, step: TryBacklog) -> Turn:
        loop = asyncio.get_running_loop()
        if not late:
            loop.call_later(_LIFE_SECONDS, die_once)
        late.add(loop.create_task(send_later(flight, step)))
        return flight.call.backlog_accepted(flight._pair.clock.now_ms())

    setattr(Flight, "_to_backlog", to_backlog)  # noqa: B010


def complete_early() -> None:
    """Break the pump, which both syphons use."""
    from twinbus.client.sender import Sender
    from twinbus.pairing.pump.destinations import Destination
    from twinbus.pairing.pump.locks import Item
    from twinbus.pairing.pump.pump import Pump
    from twinbus.pairing.pump.settling import Settler

    honest = Destination._attempt

    async def attempt(
        destination: Destination, sender: Sender, items: list[Item]
    ) -> Any:
        pump = destination._owner
        assert isinstance(pump, Pump)
        await pump._receiver.complete([item.message for item in items])
        die_once()
        return await honest(destination, sender, items)

    async def complete(settler: Settler, items: list[Item]) -> None:
        settler._gone(items)

    setattr(Destination, "_attempt", attempt)  # noqa: B010
    setattr(Settler, "_complete", complete)  # noqa: B010


def _deliver_pings() -> None:
    from twinbus.server.broker import namespace

    # No message has this type, so none is taken for a ping.
    setattr(namespace, "PING_CONTENT_TYPE", "-")  # noqa: B010


def main(defect: str, *command: str) -> None:
    """Run `PYTHON -m MODULE ARGUMENTS...` in this process, broken."""
    assert defect == "deliver-pings", "the other two break processes of the drill"
    _deliver_pings()
    _python, _m, module, *arguments = command
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
