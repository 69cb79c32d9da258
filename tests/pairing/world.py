"""The world of the simulation: a clock, two namespaces and what goes wrong with them.

Owns simulated time and the models of the primary's entities and of the backlog queues.
They answer, fail, swallow answers and stay silent by a plan that comes from one seed.
Knows nothing about the rules under test.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from twinbus.errors import BusyError, Disconnected, QuotaExceeded, RemoteError

LOCK_MS = 60_000
Answer = Callable[[BaseException | None], None]


class Clock:
    """Runs calls at their times, in order; time passes only between two things."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, time_ms: int, call: Callable[[], None]) -> None:
        self._count += 1
        entry = (max(time_ms, self.now_ms), self._count, call)
        heapq.heappush(self._queue, entry)

    def after(self, delay_ms: int, call: Callable[[], None]) -> None:
        self.at(self.now_ms + delay_ms, call)

    def run(self, until_ms: int) -> None:
        """Go on until nothing is due; `until_ms` is when that is taken for a hang."""
        while self._queue:
            self.now_ms, _, call = heapq.heappop(self._queue)
            assert self.now_ms < until_ms, "The simulation does not come to an end."
            call()


@dataclass
class Fault:
    """From when to when something goes wrong, how, and for which kind of message."""

    start_ms: int
    end_ms: int
    mode: str
    sends: bool = True
    pings: bool = True


# What brings an entity nearer to failover, and what does not.
COUNTED_MODES = ("refuse", "silence", "swallow", "late", "cut", "internal", "slow")
OTHER_MODES = ("busy", "full", "gone", "sluggish")
QUEUE_MODES = ("refuse", "swallow", "cut", "gone", "busy")

_ERRORS: dict[str, Callable[[], BaseException]] = {
    "refuse": ConnectionRefusedError,
    "cut": Disconnected,
    "internal": lambda: RemoteError("amqp:internal-error"),
    "gone": lambda: RemoteError("amqp:not-found"),
    "busy": BusyError,
    "full": QuotaExceeded,
}
# The message is stored although no answer arrives, or not in time.
_STORED = ("swallow", "late", "slow", "sluggish")
# How much later than usual the message is accepted. Sluggish is still healthy.
_LATE_MS = {"late": 45_000, "slow": 6_000, "sluggish": 700}


class Target:
    """Something that takes messages: an entity, or a backlog queue."""

    def __init__(self, clock: Clock, chance: Random, faults: list[Fault]) -> None:
        self.clock = clock
        self.chance = chance
        self.faults = faults

    def mode(self, *, ping: bool = False) -> str | None:
        now_ms = self.clock.now_ms
        for fault in self.faults:
            hit = fault.pings if ping else fault.sends
            if hit and fault.start_ms <= now_ms < fault.end_ms:
                return fault.mode
        return None

    def is_calm(self, start_ms: int, end_ms: int) -> bool:
        """Whether nothing goes wrong between these times."""
        return not any(
            fault.start_ms < end_ms and start_ms < fault.end_ms for fault in self.faults
        )

    def ping(self, answer: Answer) -> None:
        """Take a ping, which is never stored; it fails independently of sends."""
        self._take(lambda: None, answer, ping=True)

    def send(self, store: Callable[[], None], answer: Answer) -> None:
        """Take a message: it arrives a little later, and then the fault decides."""
        self._take(store, answer, ping=False)

    def _take(self, store: Callable[[], None], answer: Answer, *, ping: bool) -> None:
        latency_ms = self.chance.randint(1, 15)

        def arrive() -> None:
            mode = self.mode(ping=ping)
            if mode is None or mode in _STORED or (mode == "cut" and self.coin()):
                store()
            if mode is None:
                self.clock.after(latency_ms, lambda: answer(None))
            elif mode in _LATE_MS:
                self.clock.after(_LATE_MS[mode], lambda: answer(None))
            elif mode in _ERRORS:
                error = _ERRORS[mode]()
                self.clock.after(latency_ms, lambda: answer(error))

        self.clock.after(latency_ms, arrive)

    def coin(self) -> bool:
        return self.chance.random() < 0.5


class Entity(Target):
    """A queue of the primary: the ids that it has, in order, and who sent them."""

    def __init__(self, clock: Clock, chance: Random, faults: list[Fault]) -> None:
        super().__init__(clock, chance, faults)
        self.copies: dict[str, int] = {}
        # By backlog queue or outbox: the numbers of what came home from it.
        self.home: dict[int, list[int]] = {}

    def store(self, message_id: str) -> None:
        self.copies[message_id] = self.copies.get(message_id, 0) + 1

    def store_home(self, message_id: str, queue: int, number: int) -> None:
        self.store(message_id)
        numbers = self.home.setdefault(queue, [])
        if number not in numbers:
            numbers.append(number)


@dataclass
class Stored:
    """A message in a backlog queue."""

    number: int
    payload: bytes
    locked_until_ms: int = 0


class BacklogQueue(Target):
    """A queue of the secondary, with locks."""

    def __init__(self, clock: Clock, chance: Random, faults: list[Fault]) -> None:
        super().__init__(clock, chance, faults)
        self.messages: dict[int, Stored] = {}
        self.count = 0
        # By entity: the numbers that messages from the outbox had there.
        self.moved: dict[str, list[int]] = {}

    def note_moved(self, key: str, number: int) -> None:
        """A message has come from the outbox."""
        numbers = self.moved.setdefault(key, [])
        if number not in numbers:
            numbers.append(number)

    def store(self, payload: bytes) -> None:
        self.count += 1
        self.messages[self.count] = Stored(self.count, payload)

    def receive(self, most: int) -> list[Stored]:
        """Lock the first messages that are free."""
        now_ms = self.clock.now_ms
        free = [m for m in self.messages.values() if m.locked_until_ms <= now_ms]
        chunk = sorted(free, key=lambda message: message.number)[:most]
        for message in chunk:
            message.locked_until_ms = now_ms + LOCK_MS
        return chunk


# Which of sends and pings a fault hits. Links that open while sends fail are the rule,
# not the exception.
HITS = ((True, True), (True, True), (True, False), (True, False), (False, True))


def plan_faults(
    chance: Random, start_ms: int, modes: tuple[str, ...], most: int
) -> list[Fault]:
    """Some faults, one after the other, within the first minutes."""
    faults = []
    at_ms = start_ms
    for _ in range(chance.randint(0, most)):
        if chance.random() < 0.7:
            at_ms += int(chance.expovariate(1 / 15_000))
        duration_ms = int(chance.expovariate(1 / chance.choice([500, 20_000, 90_000])))
        fault = Fault(at_ms, at_ms + duration_ms, chance.choice(modes))
        fault.sends, fault.pings = chance.choice(HITS)
        faults.append(fault)
        at_ms += duration_ms
    return faults


def make_entity(clock: Clock, chance: Random) -> Entity:
    """An entity with faults of its own."""
    kind = chance.random()
    modes: tuple[str, ...] = COUNTED_MODES if kind < 0.6 else OTHER_MODES
    if kind < 0.2:
        modes += OTHER_MODES
    most = 0 if kind > 0.9 else 3
    faults = plan_faults(chance, clock.now_ms, modes, most)
    if faults and chance.random() < 0.1:
        # It is deleted in an outage, and made again some time later.
        last_ms = faults[-1].end_ms
        faults.append(Fault(last_ms, last_ms + 90_000, "gone"))
    return Entity(clock, chance, faults)


def make_queue(clock: Clock, chance: Random) -> BacklogQueue:
    """A backlog queue, or an outbox, with faults of its own."""
    most = chance.choice([0, 0, 2])
    faults = plan_faults(chance, clock.now_ms, QUEUE_MODES, most)
    return BacklogQueue(clock, chance, faults)


def take_away(chance: Random, queues: list[BacklogQueue]) -> None:
    """Let a whole secondary fail for a minute or two, soon after the start."""
    start_ms = queues[0].clock.now_ms + chance.randint(0, 20_000)
    end_ms = start_ms + chance.randint(30_000, 120_000)
    fault = Fault(start_ms, end_ms, chance.choice(QUEUE_MODES))
    for queue in queues:
        queue.faults = [fault]
