"""The way of a send without a pair: to the entity, and nowhere else.

A fault of the connection is tried again, at once and then with a growing pause, as
often as the official client would; a busy service is asked again after ten seconds if
the caller's time allows. Everything else is the caller's at once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from twinbus import limits
from twinbus.client.sender import Sender
from twinbus.pairing.rules.classification import Kind, kind_of
from twinbus.pairing.rules.send_call import retry_pause_ms
from twinbus.pairing.shell.outgoing import Outgoing


class DirectRoute:
    """The way of the sends of one unpaired sender."""

    __slots__ = ("_attempt_seconds", "_check", "_retries", "_sender")

    def __init__(
        self,
        sender: Sender,
        check: Callable[[], None],
        retries: int,
        attempt_seconds: float,
    ) -> None:
        self._sender = sender
        # Raises once the factory takes no more sends.
        self._check = check
        self._retries = retries
        self._attempt_seconds = attempt_seconds

    @property
    def sender(self) -> Sender:
        return self._sender

    async def send(self, work: Outgoing, within_seconds: float | None) -> bool:
        """Bring it across, or raise why not."""
        loop = asyncio.get_running_loop()
        end = None if within_seconds is None else loop.time() + within_seconds
        failures = 0
        while True:
            seconds = self._attempt_seconds
            if end is not None:
                seconds = min(seconds, max(end - loop.time(), 0))
            try:
                await work.submit(self._sender, seconds)
            except Exception as error:
                work.failed(error)
                failures += 1
                pause_seconds = _pause_seconds(kind_of(error), failures)
                if pause_seconds is None or failures > self._retries:
                    raise
                if end is not None and loop.time() + pause_seconds >= end:
                    raise
            else:
                return True
            await asyncio.sleep(pause_seconds)
            self._check()


def _pause_seconds(kind: Kind, failures: int) -> float | None:
    """How long to wait before another attempt; None: there is none."""
    if kind is Kind.CONNECTION:
        chance = random.random()  # noqa: S311
        return retry_pause_ms(failures, at_once=True, chance=chance) / 1000
    if kind is Kind.BUSY:
        return limits.SERVER_BUSY_PAUSE_MS / 1000
    return None
