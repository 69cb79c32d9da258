"""How an entity of the simulation may fail over and back: never again and again.

Owns what may follow what, from the events of one entity and the sends that are on trial
while it is on probation.
"""

from __future__ import annotations

from collections.abc import Callable

from twinbus.pairing.events import EventKind, PairingEvent


class Flaps:
    """What is allowed to follow what, for one entity."""

    def __init__(self, ping_ms: int, backlog_takes: Callable[[], bool]) -> None:
        self._ping_ms = ping_ms
        # Without a backlog queue, every send is on trial.
        self.backlog_takes = backlog_takes
        # Failed back, and no send was accepted since.
        self.on_probation = False
        self.relapses = 0
        self._relapsed_ms = 0
        # The last ping was answered so.
        self.refused = False
        # Attempts of this probation that have no answer.
        self.on_trial: set[object] = set()

    @property
    def pause_ms(self) -> int:
        """How long the first ping after the last relapse waits."""
        if not self.relapses:
            return 0
        return min(self._ping_ms << (self.relapses - 1), max(self._ping_ms, 300_000))

    def note(self, event: PairingEvent) -> None:
        kind = event.kind
        if kind is EventKind.REFUSED:
            self.refused = True
        elif kind is not EventKind.PING_FAILED:
            self.refused = False
        if kind in (EventKind.SUSPECT, EventKind.FAILED_OVER):
            assert not self.on_probation, "no send was accepted since it failed back"
        elif kind is EventKind.RELAPSED:
            self.relapses += 1
            self._relapsed_ms = event.at_ms
            self.on_probation = False
            self.on_trial.clear()
        elif kind is EventKind.FAILED_BACK:
            self.on_probation = True
            early = event.at_ms < self._relapsed_ms + self.pause_ms
            assert not early, "failed back before the pause after a relapse was over"
        elif kind is EventKind.RECOVERED:
            self.on_probation = False
            self.relapses = 0
            self.on_trial.clear()

    def begin(self, attempt: object) -> None:
        """A send to the primary begins."""
        if self.on_probation:
            alone = not (self.relapses and self.on_trial)
            assert alone or not self.backlog_takes(), "two sends are on trial"
            self.on_trial.add(attempt)

    def end(self, attempt: object) -> None:
        """It has an answer, or its caller has left."""
        self.on_trial.discard(attempt)
