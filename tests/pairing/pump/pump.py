"""The syphon of the simulation: one pump for each backlog queue, and the outbox's.

Owns receiving, sending and completing, in simulated time, and dying in between.
What to do with a message is decided by the rules under test alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.pairing.world import LOCK_MS, Answer, BacklogQueue, Stored
from twinbus.errors import Disconnected
from twinbus.pairing.rules.syphon_rules import (
    DeadLetter,
    DestinationStates,
    Held,
    SendToPrimary,
    after_failure,
    sort_chunk,
)
from twinbus.wire.message import sections

if TYPE_CHECKING:
    from tests.pairing.rules.simulation import Simulation

CHUNK = 5
IDLE_MS = 5_000
ATTEMPT_MS = 30_000
# Stands for the outbox among the indexes of backlog queues.
OUTBOX = -1


def id_of(payload: bytes) -> str:
    return str(sections.parse(payload).message_id)


class Pump:
    """Drains one backlog queue, and may die at any step."""

    def __init__(self, simulation: Simulation, queue: BacklogQueue) -> None:
        self.simulation = simulation
        self.clock = simulation.clock
        self.queue = queue
        self.index = (*simulation.queues, queue).index(queue)
        self.states = DestinationStates(f"queue {self.index}")
        # Groups of the chunk in hand that are not finished.
        self.groups = 0
        self.dead = False

    def start(self) -> None:
        self.clock.after(self.simulation.chance.randint(0, IDLE_MS), self.receive)

    def dies(self) -> bool:
        """Whether it dies here; then another one starts, and the locks stay."""
        simulation = self.simulation
        if not simulation.syphons_die or simulation.is_over():
            return False
        if simulation.chance.random() > 0.1:
            return False
        simulation.figures["syphon deaths"] += 1
        self.dead = True
        type(self)(simulation, self.queue).start()
        return True

    def receive(self) -> None:
        if self.simulation.is_over() and not self.queue.messages:
            return
        chunk = self.queue.receive(CHUNK)
        if not chunk:
            self.clock.after(IDLE_MS, self.receive)
            return
        if self.dies():
            return
        messages = [
            (Held(each.number, each.locked_until_ms), each.payload) for each in chunk
        ]
        result = sort_chunk(self.states, messages, self.clock.now_ms)
        for held, outcome in result.dead:
            self._dead_letter(held, outcome)
        self.groups = len(result.to_send)
        for group in result.to_send.values():
            self._send_next(list(group))
        if not self.groups:
            self.clock.after(1, self.receive)

    def _dead_letter(self, held: Held, outcome: DeadLetter) -> None:
        assert outcome.reason == "TTLExpiredException", outcome
        self._set_aside(held)

    def _set_aside(self, held: Held) -> None:
        stored = self.queue.messages.pop(held.sequence)
        self.simulation.dead_lettered.add(id_of(stored.payload))

    def _send_next(self, group: list[tuple[Held, SendToPrimary]]) -> None:
        """Send the messages for one destination, one after the other."""
        if not group:
            self._group_ended()
            return
        held, to_send = group[0]
        stored = self.queue.messages[held.sequence]
        # Its lock is renewed while it is in hand.
        for each, _ in group:
            self.queue.messages[each.sequence].locked_until_ms = 2**62
        message_id = id_of(stored.payload)
        assert id_of(to_send.payload) == message_id
        ended: list[bool] = []

        def end(error: BaseException | None) -> None:
            if not ended:
                ended.append(True)
                self._ended(group, stored, error)

        self._deliver(to_send, held.sequence, end)

    def _deliver(self, to_send: SendToPrimary, number: int, end: Answer) -> None:
        entity = self.simulation.entities[to_send.key]
        message_id = id_of(to_send.payload)
        entity.send(lambda: entity.store_home(message_id, self.index, number), end)
        self.clock.after(ATTEMPT_MS, lambda: end(TimeoutError()))

    def _ended(
        self,
        group: list[tuple[Held, SendToPrimary]],
        stored: Stored,
        error: BaseException | None,
    ) -> None:
        message_id = id_of(stored.payload)
        _, to_send = group[0]
        until_ms = self.clock.now_ms + LOCK_MS
        for each, _ in group:
            self.queue.messages[each.sequence].locked_until_ms = until_ms
        if self._is_unknown(error):
            self.simulation.unknown[message_id] += 1
        if self.dead or self.dies():
            # It was sent, perhaps, and no pump is left to complete it.
            self.simulation.unknown[message_id] += error is None
            return
        if error is None:
            self.states.accepted(to_send.key)
            del self.queue.messages[stored.number]
            self.simulation.figures["moved"] += 1
            self._send_next(group[1:])
            return
        rest = after_failure(to_send.path, error)
        if isinstance(rest, DeadLetter):
            # The entity is missing: an administrator finds the message.
            assert rest.reason == "DestinationNotFound", rest
            self._set_aside(group[0][0])
            self._send_next(group[1:])
            return
        parked = [Held(each.sequence, until_ms) for each, _ in group]
        self.states.failed(to_send.path, rest, parked, error, self.clock.now_ms)
        self.simulation.figures["parked"] += len(parked)
        self._group_ended()

    def _is_unknown(self, error: BaseException | None) -> bool:
        return isinstance(error, TimeoutError | Disconnected)

    def _group_ended(self) -> None:
        self.groups -= 1
        if self.groups == 0:
            self.clock.after(1, self.receive)


class OutboxPump(Pump):
    """Empties the outbox: the rules of the pair say where each message goes."""

    def _deliver(self, to_send: SendToPrimary, number: int, end: Answer) -> None:
        # A move may end at once; the pump expects its answers later.
        def later(error: BaseException | None) -> None:
            self.clock.after(0, lambda: end(error))

        self.simulation.move(to_send, number, later)

    def _is_unknown(self, error: BaseException | None) -> bool:
        # The move has counted what it did not learn.
        return False
