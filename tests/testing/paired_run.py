"""Senders, a syphon and a receiver at work on the paired model.

Owns the workload of the self-test of the paired rules, and the defects that are theirs
rather than a namespace's. See `paired_model.py`.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.testing.paired_model import (
    BACKLOG,
    ENTITIES,
    INTERVAL_MS,
    TTL_MS,
    Away,
    Sent,
    World,
)
from twinbus.testing.history import Event
from twinbus.wire.message.names import PING_CONTENT_TYPE

QUEUES = ("orders", "baskets", "unique", "news/a", "news/b")


class PairedRun:
    """One history."""

    def __init__(self, seed: int, defect: str = "", steps: int = 300) -> None:
        self.random = random.Random(seed)
        self.world = World(defect, random.Random(seed + 1))
        self.has = self.world.has
        self.syphons = 0
        self.sent = 0
        self.failed_over: dict[tuple[str, str], float] = {}
        self.pick: dict[str, str] = {}
        for namespace, most in (("primary", 4), ("secondary", 2)):
            self.world.away[namespace] = self._plan(most)
            for away in self.world.away[namespace]:
                fault = Event("nemesis", "fault", "", away.start_at, away.end_at)
                fault.queue, fault.state = namespace, away.how
                self.world.events.append(fault)
        for _ in range(steps):
            self._step()
        self.world.away = {"primary": [], "secondary": []}
        for _ in range(self.random.choice((0, 5, 500))):
            self._syphon()
        self._look()

    @property
    def events(self) -> list[Event]:
        return self.world.events

    def without_tap(self) -> list[Event]:
        """What applications alone would have written down."""
        return [
            event
            for event in self.events
            if event.op not in ("attempt", "divert")
            and (event.queue not in BACKLOG or event.op in ("drain", "drained"))
        ]

    def _plan(self, most: int) -> list[Away]:
        spans, at = [], 0.0
        for _ in range(self.random.randint(1, most)):
            at += self.random.uniform(100, 2500)
            end = at + self.random.uniform(50, 1500)
            spans.append(Away(at, end, self.random.choice(("refuse", "swallow"))))
            at = end
        return spans

    def _step(self) -> None:
        world = self.world
        world.now += self.random.expovariate(1 / 15)
        self.random.choices(
            (self._send, self._syphon, self._receive, self._ping), (5, 3, 4, 1)
        )[0]()

    # -- sending -------------------------------------------------------------------

    def _send(self) -> None:
        world = self.world
        process = f"p{self.random.randrange(3)}"
        path = self.random.choice(ENTITIES)
        self.sent += 1
        message = Sent(f"{process}-{self.sent}", path, process)
        message.digest = f"d{self.sent}"
        message.session = f"s{self.sent % 3}" if path == "baskets" else ""
        message.ttl_ms = TTL_MS if self.sent % 4 == 0 else 0
        event = world.event(process, "send", message)
        event.queue, event.path, event.diverted_at = path, "", 0
        if self.has("reported before it is sent", 0.1):
            # The application is told now; the message goes on its way all the same.
            world.finish(event)
            world.now += 50
            self._carry(process, message)
        else:
            world.finish(event, self._carry(process, message))
            if self.has("sent again later", 0.05):
                world.now += 100
                world.attempt(process, message)

    def _carry(self, process: str, message: Sent) -> str:
        """Primary or backlog, until one of them takes it."""
        world, name = self.world, (process, message.path)
        if self.has("diverted in health", 0.05):
            return self._divert(process, message)
        away = any(who == process for who, _ in self.failed_over)
        if self.has("one entity moves all") and away:
            return self._divert(process, message)
        suspect_since = 0.0
        while name not in self.failed_over:
            result = world.attempt(process, message)
            if result == "ok":
                if self.has("sent again", 0.05):
                    world.now += 5000
                    world.attempt(process, message)
                if self.has("sent again with another id", 0.05):
                    twin = f"{message.key}-again"
                    world.attempt(process, replace(message, key=twin))
                if suspect_since and not self.has("success forgotten"):
                    world.tell(process, message.path, "recovered")
                return "ok"
            if not suspect_since:
                suspect_since = world.now
                world.tell(process, message.path, "suspect")
            world.now += 40
            patience_ms = 0.0 if self.has("impatient") else INTERVAL_MS
            if world.now >= suspect_since + patience_ms:
                self._fail_over(*name)
        return self._divert(process, message)

    def _fail_over(self, process: str, path: str) -> None:
        self.failed_over[process, path] = self.world.now
        self.world.tell(process, path, "failed over")

    def _divert(self, process: str, message: Sent) -> str:
        world = self.world
        if self.has("body changed", 0.2):
            message = replace(message, digest="other")
        if self.has("accepted and forgotten", 0.2):
            return "ok"
        for _ in range(20):
            queue = self.pick.setdefault(process, self.random.choice(BACKLOG))
            result = world.divert(process, message, queue)
            if result == "ok":
                return "ok"
            del self.pick[process]
            world.now += 100
        return "unknown"

    def _ping(self) -> None:
        """Entities that are back fail back."""
        world = self.world
        for name in list(self.failed_over):
            if not world.mode("primary"):
                if self.has("pings are stored", 0.3):
                    ping = Sent(f"ping-{world.now}", name[1], name[0])
                    ping.content_type = PING_CONTENT_TYPE
                    world.store(ping)
                del self.failed_over[name]
                world.tell(*name, "failed back")

    # -- the syphon ----------------------------------------------------------------

    def _syphon(self) -> None:
        """Bring one message home, or die on the way."""
        world, process = self.world, f"y{self.syphons}"
        queue = self.random.choice(BACKLOG)
        held = world.backlog.get(queue)
        if not held or world.mode("secondary"):
            return
        message = held[-1 if self.has("last first", 0.5) else 0]
        fetch = world.event(process, "receive", message)
        fetch.queue, fetch.token = queue, f"{process}-{world.now}"
        fetch.ttl_ms = 0
        world.finish(fetch)
        if self.has("completed first", 0.3):
            self._complete(fetch, message)
            if self.random.random() < 0.5:
                self._die()
                return
            world.attempt(process, self._restored(message))
            return
        if world.attempt(process, self._restored(message)) != "ok":
            return
        if self.has("brought home twice", 0.2):
            world.now += 5000
            world.attempt(process, self._restored(message))
        if self.random.random() < 0.05:
            self._die()
        else:
            self._complete(fetch, message)

    def _restored(self, message: Sent) -> Sent:
        waited_ms = self.world.now - message.diverted_at
        home = replace(message, diverted_at=0, backlog="")
        if home.ttl_ms:
            home.ttl_ms -= waited_ms
        if self.has("session not restored"):
            home.session = ""
        if self.has("time to live not restored"):
            home.ttl_ms = 0
        return home

    def _complete(self, fetch: Event, message: Sent) -> None:
        world = self.world
        event = world.event(fetch.process, "complete", message)
        event.queue, event.token = fetch.queue, fetch.token
        unknown = self.random.random() < 0.05
        if not unknown or self.random.random() < 0.5:
            world.backlog[fetch.queue].remove(message)
        if unknown:
            self._disturb("cut")
        world.finish(event, "unknown" if unknown else "ok")

    def _die(self) -> None:
        self._disturb("kill")
        self.syphons += 1
        self.world.now += 100

    def _disturb(self, how: str) -> None:
        # Sometimes so much later that the last answer had surely arrived.
        self.world.now += self.random.choice((0, 1500))
        process, at = f"y{self.syphons}", self.world.now
        fault = Event("nemesis", "fault", "", at, at, queue=process)
        fault.state = how
        self.world.events += [Event(process, "detach", "", at, at), fault]

    # -- the receiver --------------------------------------------------------------

    def _receive(self) -> None:
        world = self.world
        queue = self.random.choice(QUEUES)
        waiting = world.primary.get(queue)
        if not waiting:
            return
        message = waiting.pop(0)
        receive = world.event("c0", "receive", message)
        receive.queue, receive.sequence, receive.path = queue, message.sequence, ""
        receive.token = f"{queue}/{message.sequence}"
        receive.diverted_at = 0
        world.finish(receive)
        complete = world.event("c0", "complete", message)
        complete.queue, complete.token, complete.path = queue, receive.token, ""
        world.finish(complete)

    def _look(self) -> None:
        """What is where at the end."""
        world = self.world
        for queue in QUEUES:
            for message in world.primary.get(queue, ()):
                event = world.event("look", "drain", message)
                event.queue, event.sequence, event.path = queue, message.sequence, ""
                event.diverted_at = 0
                world.finish(event)
            world.finish(Event("look", "drained", invoke_at=world.now, queue=queue))
        if self.has("no look into the backlog"):
            return
        for queue in BACKLOG:
            for message in world.backlog.get(queue, ()):
                event = world.event("look", "drain", message)
                event.queue = queue
                world.finish(event)
            world.finish(Event("look", "drained", invoke_at=world.now, queue=queue))
