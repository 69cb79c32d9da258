"""Clients that use the model broker at random and write down what they saw.

Owns the workload of the checker's self-test: several processes, operations that take
time and overlap, lost links, restarts and outcomes that stay unknown. The same seed
gives the same history.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tests.testing.model import DEAD, QUEUES, Broker, LockLost, Message
from twinbus.testing.history import Event

_TARGETS = ("plain", "plain", "sessions", "unique", "fast", "topic")
_OUTCOMES = ("complete",) * 5 + ("abandon",) * 4 + ("defer", "dead_letter", "release")


@dataclass(slots=True)
class Held:
    """A delivery that a client has not settled, as far as it knows."""

    queue: str
    message: Message
    link: str


@dataclass(slots=True)
class Client:
    name: str
    free_at: float = 0
    sent: int = 0
    links: int = 0
    session: str = ""
    held: list[Held] = field(default_factory=list)
    settled: list[tuple[Held, str]] = field(default_factory=list)
    deferred: list[tuple[str, int]] = field(default_factory=list)
    scheduled: list[tuple[str, str]] = field(default_factory=list)
    again: list[tuple[str, Message, float]] = field(default_factory=list)

    @property
    def link(self) -> str:
        return f"{self.name}/{self.links}"


class Run:
    """One history: `steps` operations of four clients."""

    def __init__(self, seed: int, defect: str = "", steps: int = 400) -> None:
        self.random = random.Random(seed)
        self.broker = Broker(defect, random.Random(seed + 1))
        self.clients = [Client(f"c{number}") for number in range(4)]
        self.events: list[Event] = []
        self.now = 0.0
        for _ in range(steps):
            self._step()
        self.now += self.random.choice((100.0, 5000.0))
        self._look()

    def _step(self) -> None:
        self.now += self.random.expovariate(1 / 15)
        self.broker.now = self.now
        self.broker.tick()
        if self.random.random() < 0.01:
            self._restart()
        idle = [client for client in self.clients if client.free_at <= self.now]
        if idle:
            client = self.random.choice(idle)
            self.random.choices(
                (self._send, self._receive, self._settle, self._rarely), (4, 4, 5, 1)
            )[0](client)

    def _begin(self, client: Client, op: str, **known: object) -> Event:
        began_at = max(client.free_at, self.now - self.random.uniform(0, 20))
        event = Event(client.name, op, invoke_at=began_at, link=client.link)
        event = replace(event, **known)  # type: ignore[arg-type]
        event.end_at = client.free_at = self.now + self.random.uniform(0, 20)
        self.events.append(event)
        return event

    def _try(self, event: Event, action: Callable[[], None]) -> bool:
        """Do it, unless the link breaks first; the client may not learn which."""
        if self.random.random() < 0.04:
            event.result = "unknown"
            if self.random.random() < 0.5:
                return False
        try:
            action()
        except LockLost:
            if event.result == "ok":
                event.result = "fail"
                event.error = "message-lock-lost"
            return False
        return event.result == "ok"

    # -- sending -------------------------------------------------------------------

    def _send(self, client: Client) -> None:
        if client.again and self.random.random() < 0.2:
            queue, message, ttl_ms = client.again.pop()
        else:
            queue, message, ttl_ms = self._new_message(client)
        if queue == "unique":
            client.again.append((queue, message, ttl_ms))
        event = self._begin(client, "send", key=message.key, queue=queue)
        event.session, event.digest = message.session, message.digest
        event.not_before, event.ttl_ms = message.not_before, ttl_ms
        if self.random.random() < 0.03:
            event.result = "fail"
            if self.broker.has("refused but stored"):
                self.broker.send(queue, replace(message))
            return
        dies_at = max(self.now, message.not_before) + (ttl_ms or float("inf"))
        done = self._try(
            event, lambda: self.broker.send(queue, replace(message, dies_at=dies_at))
        )
        if not done and queue != "unique":
            client.again.append((queue, message, ttl_ms))
        if message.not_before and event.result == "ok":
            client.scheduled.append((queue, message.key))

    def _new_message(self, client: Client) -> tuple[str, Message, float]:
        client.sent += 1
        message = Message(f"{client.name}-{client.sent}", 0)
        message.digest = f"d{self.random.randrange(1_000_000)}"
        queue = self.random.choice(_TARGETS)
        ttl_ms = 0.0
        if queue == "sessions":
            message.session = f"s{self.random.randrange(3)}"
        elif queue == "plain" and self.random.random() < 0.1:
            message.not_before = self.now + self.random.uniform(200, 2000)
        elif queue == "plain" and self.random.random() < 0.1:
            ttl_ms = self.random.uniform(600, 6000)
        return queue, message, ttl_ms

    # -- receiving -----------------------------------------------------------------

    def _receive(self, client: Client) -> None:
        queue = self.random.choice(QUEUES)
        if self.random.random() < 0.1:
            queue += DEAD
        if queue == "sessions":
            self._receive_from_session(client)
        elif queue == "fast":
            self._take(client, queue, "receive_and_delete")
        else:
            self._take(client, queue)

    def _receive_from_session(self, client: Client) -> None:
        if not client.session:
            client.links += 1
            event = self._begin(client, "accept", queue="sessions")

            def accept() -> None:
                client.session = self.broker.accept(client.link)

            if not self._try(event, accept):
                self._leave(client)
                return
            event.session = client.session
            event.lock_until = self.broker.holders[client.session][1]
        else:
            self._take(client, "sessions")

    def _take(self, client: Client, queue: str, mode: str = "") -> None:
        event = self._begin(client, "receive", queue=queue, mode=mode)
        found: list[Message] = []

        def take() -> None:
            if mode:
                message = self.broker.receive_and_delete(queue)
            elif queue == "sessions":
                message = self.broker.receive_from(client.session, client.link)
            else:
                message = self.broker.receive(queue)
            if message:
                found.append(message)

        if not self._try(event, take):
            event.credit = 1
            if queue == "sessions":
                self._leave(client)
            else:
                self._detach(client)
        elif found:
            self._delivered(client, event, found[0])

    def _delivered(self, client: Client, event: Event, message: Message) -> None:
        event.key, event.sequence = message.key, message.sequence
        event.session, event.digest = message.session, message.digest
        event.delivery_count = message.count
        if event.mode != "receive_and_delete":
            event.token, event.lock_until = message.token, message.lock_until
            client.held.append(Held(event.queue, message, client.link))

    # -- settling ------------------------------------------------------------------

    def _settle(self, client: Client) -> None:
        if not client.held:
            return
        held = client.held.pop(self.random.randrange(len(client.held)))
        op = self.random.choice(_OUTCOMES)
        if held.message.session or held.queue.endswith(DEAD):
            op = self.random.choice(("complete", "abandon"))
        if self.random.random() < 0.15 and not held.message.session:
            self._renew(client, held)
        elif self._settle_as(client, held, op):
            client.settled.append((held, op))
            if op == "defer":
                client.deferred.append((held.queue, held.message.sequence))

    def _settle_as(self, client: Client, held: Held, op: str) -> bool:
        event = self._begin(client, op, queue=held.queue, token=held.message.token)
        event.key, event.link = held.message.key, held.link
        return self._try(
            event, lambda: self.broker.settle(held.queue, held.message, op)
        )

    def _renew(self, client: Client, held: Held) -> None:
        event = self._begin(client, "renew", queue=held.queue, token=held.message.token)

        def renew() -> None:
            event.lock_until = self.broker.renew(held.queue, held.message)

        if self._try(event, renew):
            client.held.append(held)

    # -- rare ----------------------------------------------------------------------

    def _rarely(self, client: Client) -> None:
        self.random.choice(
            (
                self._detach,
                self._receive_deferred,
                self._settle_again,
                self._cancel,
                self._renew_session,
            )
        )(client)

    def _receive_deferred(self, client: Client) -> None:
        if not client.deferred:
            return
        queue, sequence = client.deferred.pop()
        event = self._begin(client, "receive", queue=queue, mode="deferred")
        message = self.broker.receive_deferred(queue, sequence)
        if message:
            self._delivered(client, event, message)

    def _settle_again(self, client: Client) -> None:
        """A repeat, or a change of mind that must be refused."""
        if client.settled:
            held, op = client.settled.pop()
            self._settle_as(client, held, self.random.choice((op, "abandon")))

    def _cancel(self, client: Client) -> None:
        if client.scheduled:
            queue, key = client.scheduled.pop()
            event = self._begin(client, "cancel", queue=queue, key=key)
            self._try(event, lambda: self.broker.cancel(queue, key))

    def _renew_session(self, client: Client) -> None:
        if client.session:
            session = client.session
            event = self._begin(client, "renew", queue="sessions", session=session)

            def renew() -> None:
                event.lock_until = self.broker.renew_session(session, client.link)

            self._try(event, renew)

    def _detach(self, client: Client) -> None:
        event = Event(client.name, "detach", invoke_at=self.now, end_at=self.now)
        self.events.append(event)
        self.broker.detach({held.message.token for held in client.held})
        self._leave(client)

    def _leave(self, client: Client) -> None:
        client.held = [held for held in client.held if not held.message.session]
        if client.session:
            event = Event(client.name, "detach", invoke_at=self.now, end_at=self.now)
            event.link = client.link
            self.events.append(event)
            if self.broker.holders.get(client.session, ("", 0))[0] == client.link:
                self.broker.leave(client.session)
            client.session = ""

    def _restart(self) -> None:
        self.events.append(
            Event("nemesis", "restart", invoke_at=self.now, end_at=self.now)
        )
        self.broker.restart()
        for client in self.clients:
            self._leave(client)

    def _look(self) -> None:
        """What is where at the end, and in which state."""
        self.broker.now = self.now
        self.broker.tick()
        for queue in QUEUES:
            for name in (queue, queue + DEAD):
                for message in self.broker.queues[name]:
                    event = Event("look", "drain", message.key, self.now, self.now)
                    event.queue, event.sequence = queue, message.sequence
                    event.state = "dead" if name != queue else message.state
                    event.digest, event.session = message.digest, message.session
                    self.events.append(event)
            done = Event("look", "drained", "", self.now, self.now, queue=queue)
            self.events.append(done)
