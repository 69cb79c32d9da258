"""How long one send takes: from the message's turn until it is accepted.

A client on Qpid Proton's engine, in a process of its own. `awaited` keeps a number of
sends of one connection on their way. `crowd` has many connections, each of which sends
at a steady rate: a send that is late because the server was slow is counted from when
it should have been sent. Run as `python -m bench.latency_worker TARGET`.
"""

from __future__ import annotations

import json
import math
import select
import sys
import time
from collections.abc import Callable
from typing import Any

from bench.messages import contents
from bench.proton_engine import ACCEPTED, ProtonConnection, Tag, encode
from bench.proton_worker import log_in, tag
from bench.target import QUEUE, Target

# A server that cannot keep up at the rate needs its time.
_SETTLE_SECONDS_MAX = 300.0


class Sends:
    """The sends of one connection that are on their way, and since when."""

    def __init__(self, target: Target) -> None:
        self.connection = ProtonConnection(target)
        log_in(self.connection, target, QUEUE)
        address = target.address.format(QUEUE)
        self._link = self.connection.link(address, sends=True)
        self._since: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._since)

    def has_credit(self) -> bool:
        """Whether the server takes one more."""
        return bool(self.connection.pn.link_credit(self._link) > 0)

    def send(self, name: Tag, message: bytes, since: float) -> None:
        """Hand one to the engine."""
        pn = self.connection.pn
        delivery = pn.delivery(self._link, name)
        pn.link_send(self._link, message, len(message))
        pn.link_advance(self._link)
        self._since[delivery] = since

    def settle(self) -> list[float]:
        """How long those took whose outcome has come; a denied one took forever."""
        pn, took = self.connection.pn, []
        while (delivery := pn.work_head(self.connection.handle)) is not None:
            since = self._since.pop(delivery)
            is_accepted = pn.delivery_remote_state(delivery) == ACCEPTED
            took.append(time.perf_counter() - since if is_accepted else math.inf)
            pn.delivery_settle(delivery)
        self.connection.check(self._link)
        return took


def awaited(target: Target, count: int, at_once: int) -> list[float]:
    """Seconds of each of a number of sends, so many of them on their way at once."""
    messages = [(tag(n), encode(*each)) for n, each in enumerate(contents(count))]
    messages.reverse()
    sends = Sends(target)
    took: list[float] = []
    while messages or sends:
        while messages and len(sends) < at_once and sends.has_credit():
            sends.send(*messages.pop(), time.perf_counter())
        sends.connection.pump(blocks=True)
        took += sends.settle()
    sends.connection.close()
    return took


class Crowd:
    """Many connections that are open at the same time."""

    def __init__(self, target: Target, connections: int) -> None:
        self._all = [Sends(target) for _ in range(connections)]
        self._by_file = {each.connection.fileno(): each for each in self._all}
        self._poll = select.epoll()
        for number in self._by_file:
            self._poll.register(number, select.EPOLLIN)

    def send(self, count: int, per_second: float) -> list[float]:
        """Send in turns at a rate over all of them; seconds that each send took."""
        names = [tag(number) for number in range(count)]
        _, message = next((each, encode(*each)) for each in contents(1))
        took: list[float] = []
        started = time.perf_counter()
        for number, name in enumerate(names):
            since = started + number / per_second
            self._read_until(since, took)
            sends = self._all[number % len(self._all)]
            self._read_while(lambda: not sends.has_credit(), took)  # noqa: B023
            sends.send(name, message, since)
            sends.connection.pump(blocks=False)
            took += sends.settle()
        self._read_while(lambda: len(took) < count, took)
        return took

    def close(self) -> None:
        """End all connections."""
        for each in self._all:
            each.connection.drop()
        self._poll.close()

    def _read_until(self, when: float, took: list[float]) -> None:
        while (left := when - time.perf_counter()) > 0:
            self._read(left, took)

    def _read_while(self, waits: Callable[[], bool], took: list[float]) -> None:
        end = time.perf_counter() + _SETTLE_SECONDS_MAX
        while waits():
            assert time.perf_counter() < end, "the server is silent"
            self._read(1.0, took)

    def _read(self, seconds: float, took: list[float]) -> None:
        for number, _ in self._poll.poll(seconds):
            sends = self._by_file[number]
            sends.connection.pump(blocks=False)
            took += sends.settle()


def main() -> None:
    target = Target(**json.loads(sys.argv[1]))
    crowds: list[Crowd] = []

    def do(command: dict[str, Any]) -> dict[str, Any]:
        if command["do"] == "awaited":
            took = awaited(target, command["count"], command["at_once"])
        elif command["do"] == "open":
            crowds.append(Crowd(target, command["connections"]))
            return {}
        elif command["do"] == "close":
            crowds.pop().close()
            return {}
        else:
            took = crowds[-1].send(command["count"], command["per_second"])
        accepted = [1000 * each for each in took if each < math.inf]
        return {"milliseconds": accepted, "denied": len(took) - len(accepted)}

    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(do(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
