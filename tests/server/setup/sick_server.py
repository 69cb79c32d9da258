"""`twinbus serve` that falls sick on demand; supervisor and server are the real ones.

python -m tests.server.setup.sick_server ARGUMENTS...

SIGUSR1 stalls the event loop of the server for ever. The environment says more:

    SICK_VITALS     ... but first, what it measures is put down so often
    SICK_CRASH      the server ends with this exit code as soon as it is ready
    SICK_SEND       sends to this queue fail with an error that quotes the message
    SICK_TURN       turns with commands fail as a whole
    SICK_LIMITS     other limits, as JSON, so that tests need not wait for long ones
"""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
from typing import Any

from twinbus import limits
from twinbus.cli.main import main
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.host import Host
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import TurnOutcome, Work
from twinbus.server.setup.supervised import Supervised


def stalled_for_ever() -> None:
    """What the stacks of a diagnostics bundle show."""
    logging.getLogger("tests.sick").warning("the loop stalls")
    threading.Event().wait()


class SickSupervised(Supervised):
    """Falls sick once it has said that it is ready."""

    _vitals_left = 0

    def tell_ready(self, *said: Any) -> None:
        self._loop.add_signal_handler(signal.SIGUSR1, self._stall)
        super().tell_ready(*said)
        code = os.environ.get("SICK_CRASH")
        if code:
            self._loop.call_later(0, os._exit, int(code))

    def _stall(self) -> None:
        self._vitals_left = int(os.environ.get("SICK_VITALS", "0"))
        if not self._vitals_left:
            stalled_for_ever()

    def _put_vitals(self) -> None:
        super()._put_vitals()
        if self._vitals_left:
            self._vitals_left -= 1
            if not self._vitals_left:
                stalled_for_ever()


def quote_messages(queue: str) -> None:
    """Let a defect put what was sent into the text of its error."""
    send = Namespace.send

    def quoting(self: Namespace, entity: Entity, messages: Any, *rest: Any) -> Any:
        if entity.name == queue:
            raise ValueError([message.bare for message in messages])
        return send(self, entity, messages, *rest)

    setattr(Namespace, "send", quoting)  # noqa: B010


def fail_turns() -> None:
    """Let a defect be where no command is to blame."""
    run_turn = Host.run_turn

    def failing(self: Host, work: Work) -> TurnOutcome:
        outcome = run_turn(self, work)
        assert 1 // (1 - min(1, len(work.commands)))
        return outcome

    setattr(Host, "run_turn", failing)  # noqa: B010


if __name__ == "__main__":
    for name, value in json.loads(os.environ.get("SICK_LIMITS", "{}")).items():
        assert hasattr(limits, name)
        setattr(limits, name, value)
    import twinbus.server.setup.supervised as module

    setattr(module, "Supervised", SickSupervised)  # noqa: B010
    if queue := os.environ.get("SICK_SEND"):
        quote_messages(queue)
    if os.environ.get("SICK_TURN"):
        fail_turns()
    main()
