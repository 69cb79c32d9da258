"""Kill a server with four shards while messages cross them, and judge what arrived.

Owns the experiment: official clients send to topics and dead-letter from a queue, all
of which forwards to one queue in another shard. The server is killed at chosen points,
one after the other, and started again on its data. At the end all that is left goes
its way, and the judge of `suites/crossing.py` compares, for each source, what was
posted with what has arrived. A topic keeps a copy of each message in a subscription,
in the transaction that posts it: that is what was posted, whatever a client was told.

Run one as `python -m tests.faults.mover_points FOLDER MOVER KILL...`.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
)

from tests.faults import mover_server
from tests.faults.kills import (
    LAST,
    NAME,
    NEVER,
    Kill,
    KilledClients,
    KilledServer,
    Outcome,
)
from tests.faults.sdk_story import connect
from tests.suites.crossing import problems
from twinbus.store.shards import open_shards
from twinbus.testing.server_process import ServerDied, ServerProcess

SHARDS = 4
# What clients do in a round at most; most rounds are cut short.
SENDS_MAX = 150
TOGETHER = 3
# So long a client waits for a message that should be there.
_WAIT_SECONDS_MAX = 30
_POLL_SECONDS = 2
_PEEKED_MAX = 1000

# In the order in which they are placed: `t1` and `work` share shard 0, the messages of
# `t0` make two hops.
PLACES = {"work": 0, "mid": 1, "end": 2, "t0": 3, "t1": 0}
CONFIG: dict[str, Any] = {
    "queues": [
        {
            "name": "work",
            "forward_dead_lettered_messages_to": "end",
            "lock_duration": "PT5S",
        },
        {"name": "mid", "forward_to": "end"},
        {"name": "end"},
    ],
    "topics": [
        {
            "name": topic,
            "subscriptions": [{"name": "log"}, {"name": "away", "forward_to": to}],
        }
        for topic, to in (("t0", "mid"), ("t1", "end"))
    ],
}
TOPICS = ("t0", "t1")


class MoverServer(KilledServer):
    """The server with a mover of `mover_server.py`."""

    module = mover_server.__name__
    shards = SHARDS
    config = CONFIG


# -- clients ---------------------------------------------------------------------------


@dataclass
class Memory:
    """What clients know of the whole experiment."""

    accepted: set[str] = field(default_factory=set)
    # Each in the order of its last attempt.
    buried: list[str] = field(default_factory=list)
    surely_buried: set[str] = field(default_factory=set)
    next_number: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def names(self, source: str, count: int) -> list[str]:
        with self.lock:
            self.next_number += count
            first = self.next_number - count
        return [f"{source} {number}" for number in range(first, first + count)]


class Clients(KilledClients):
    """The clients of one round."""

    def __init__(self, server: ServerProcess, memory: Memory, kill: Kill) -> None:
        super().__init__(server, memory.accepted, kill)
        self._memory = memory

    def run(self) -> bool:
        """Work until all is done or the server is dead; True if it died."""
        return self.run_all(
            [*(partial(self._publish, topic) for topic in TOPICS), self._bury]
        )

    def _publish(self, topic: str, client: ServiceBusClient) -> None:
        with client.get_topic_sender(topic) as sender:
            for _ in range(SENDS_MAX):
                if self.broken.is_set():
                    return
                names = self._memory.names(topic, TOGETHER)
                sender.send_messages([ServiceBusMessage(name) for name in names])
                self.note(names)

    def _bury(self, client: ServiceBusClient) -> None:
        with (
            client.get_queue_sender("work") as sender,
            client.get_queue_receiver("work") as receiver,
        ):
            for _ in range(SENDS_MAX):
                if self.broken.is_set():
                    return
                names = self._memory.names("work", 1)
                sender.send_messages(ServiceBusMessage(names[0]))
                self.note(names)
                bury_some(receiver, self._memory)


def bury_some(receiver: ServiceBusReceiver, memory: Memory) -> list[str]:
    """Dead-letter what is there, one by one."""
    names = []
    for message in receiver.receive_messages(1, max_wait_time=_POLL_SECONDS):
        name = str(message)
        if name in memory.buried:
            memory.buried.remove(name)
        memory.buried.append(name)
        receiver.dead_letter_message(message)
        memory.surely_buried.add(name)
        names.append(name)
    return names


# -- the end ---------------------------------------------------------------------------


def run(folder: Path, mover: str, kills: list[Kill]) -> Outcome:
    """Kill, restart, and judge what has arrived."""
    memory = Memory()
    reached = sum(_until_killed(folder, mover, kill, memory) for kill in kills)
    with MoverServer(folder, mover, NEVER) as server:
        with connect(server.connection_string) as client:
            found, arrived = _judge(client, memory)
        server.stop()
    found += [*server.errors(), *_misplaced(folder)]
    return Outcome(found, reached, arrived)


def _until_killed(folder: Path, mover: str, kill: Kill, memory: Memory) -> bool:
    """Let clients work until the server is dead; False if they had done all before."""
    server = MoverServer(folder, mover, kill)
    with suppress(ServerDied), server:
        return Clients(server, memory, kill).run()
    return True


def _judge(client: ServiceBusClient, memory: Memory) -> tuple[list[str], int]:
    with ThreadPoolExecutor() as pool:
        ended = [pool.submit(_end_topic, client, topic) for topic in TOPICS]
        left = pool.submit(_end_work, client, memory).result()
        for each in ended:
            each.result()
        sources = ("work", *TOPICS)
        arriving = pool.submit(_take, client.get_queue_receiver, "end", sources)
        copies = [partial(client.get_subscription_receiver, topic) for topic in TOPICS]
        logs = [
            pool.submit(_take, copy, "log", (topic,))
            for copy, topic in zip(copies, TOPICS, strict=True)
        ]
    arrived = arriving.result()
    found = _judge_work(memory, arrived, left)
    for topic, log in zip(TOPICS, logs, strict=True):
        posted = log.result()
        found += _lost(topic, memory, set(posted))
        found += _compare(topic, posted, arrived)
    return found, len(arrived)


def _judge_work(memory: Memory, arrived: list[str], left: set[str]) -> list[str]:
    """Judge what was dead-lettered, by what the client did and what is left."""
    came = set(arrived)
    sure = memory.surely_buried | came
    found = _lost("work", memory, came | left)
    found += _compare("work", [name for name in memory.buried if name in sure], arrived)
    if twice := came & left:
        found.append(f"work: applied twice, it was also left: {_listed(twice)}")
    return found


def _lost(source: str, memory: Memory, there: set[str]) -> list[str]:
    ours = {name for name in memory.accepted if name.startswith(f"{source} ")}
    lost = ours - there
    return [f"{source}: missing, though accepted: {_listed(lost)}"] if lost else []


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))


def _compare(source: str, posted: list[str], arrived: list[str]) -> list[str]:
    ours = [name for name in arrived if name.startswith(f"{source} ")]
    return [f"{source}: {text}" for text in problems(posted, ours)]


def _end_topic(client: ServiceBusClient, topic: str) -> None:
    with client.get_topic_sender(topic) as sender:
        sender.send_messages(ServiceBusMessage(f"{topic} {LAST}"))


def _end_work(client: ServiceBusClient, memory: Memory) -> set[str]:
    """Dead-letter a last message; returns what is still locked by dead clients."""
    last = f"work {LAST}"
    with (
        client.get_queue_sender("work") as sender,
        client.get_queue_receiver("work") as receiver,
    ):
        sender.send_messages(ServiceBusMessage(last))
        while last not in bury_some(receiver, memory):
            pass
        return set(_peek(receiver))


def _take(
    receiver_of: Callable[..., ServiceBusReceiver], name: str, sources: tuple[str, ...]
) -> list[str]:
    """Take all in their order, up to the last of each source and what is behind it."""
    found: list[str] = []
    missing = {f"{source} {LAST}" for source in sources}
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with receiver_of(name, receive_mode=mode) as receiver:
        while missing:
            messages = receiver.receive_messages(500, max_wait_time=_WAIT_SECONDS_MAX)
            found += [str(message) for message in messages]
            missing.difference_update(found)
            if not messages:
                break
        found += _peek(receiver)
    return found


def _peek(receiver: ServiceBusReceiver) -> list[str]:
    """All that is there. Without a number, a client looks behind what it received."""
    found = receiver.peek_messages(_PEEKED_MAX, sequence_number=1)
    return [str(message) for message in found]


def _misplaced(folder: Path) -> list[str]:
    """Entities that are in another shard than the experiment means them to be."""
    shards = open_shards(folder / "data" / NAME)
    found = {
        row.key: shard.number
        for shard in shards
        if shard.store is not None
        for row in shard.store.entities()
        if row.kind != "subscription"
    }
    for shard in shards:
        if shard.store is not None:
            shard.store.close()
    return [] if found == PLACES else [f"the entities are elsewhere: {found}"]


if __name__ == "__main__":
    _folder, _mover, *_kills = sys.argv[1:]
    outcome = run(Path(_folder), _mover, [Kill.read(text) for text in _kills])
    print(json.dumps(outcome))
