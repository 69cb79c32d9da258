"""Kill a server with four shards while messages cross them, and judge what arrived.

Owns the experiment: official clients send to topics and dead-letter from a queue, all
of which forwards to one queue in another shard. The server is killed at chosen points,
one after the other, and started again on its data. At the end all that is left goes
its way, and the judge of `suites/crossing.py` compares, for each source, what was
posted with what has arrived. A topic keeps a copy of each message in a subscription,
in the transaction that posts it: that is what was posted, whatever a client was told.

Run one as `python -m tests.faults.mover_points FOLDER MOVER KILL...`. An experiment is
a process of its own: the official client leaves sockets and threads behind when a
server dies under it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
)

from tests.faults.mover_server import STEPS
from tests.faults.sdk_story import BROKEN, connect
from tests.suites.crossing import problems
from twinbus.store.shards import open_shards
from twinbus.testing.server_process import ServerDied, ServerProcess

SHARDS = 4
NAME = "n"
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
LAST = "last"


class Kill(NamedTuple):
    """When the server is killed.

    `kind` is a step of the mover (see `mover_server.py`), a system call on the log of
    the database of a shard, or `sends`: after so many messages were accepted.
    """

    kind: str
    when: int
    shard: int = 0

    def __str__(self) -> str:
        return f"{self.kind}-{self.when}-{self.shard}"

    @classmethod
    def read(cls, text: str) -> Kill:
        kind, when, shard = text.split("-")
        return cls(kind, int(when), int(shard))


NEVER = Kill("never", 0)


class Outcome(NamedTuple):
    """What an experiment has found."""

    # What is wrong; empty is good.
    problems: list[str]
    # How many of the kills came before the clients had done all.
    reached: int
    # How many messages have arrived.
    arrived: int


def experiment(folder: Path, mover: str, kills: list[Kill]) -> Outcome:
    """Run one experiment in a process of its own and a folder of its own."""
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", __name__, str(folder), mover, *map(str, kills)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{kills} in {folder}:\n{done.stderr}")
    return Outcome(*json.loads(done.stdout.splitlines()[-1]))


class MoverServer(ServerProcess):
    """The server with a mover of `mover_server.py`."""

    def __init__(self, folder: Path, mover: str, kill: Kill) -> None:
        options = ("--shards", str(SHARDS))
        prefix = _under_strace(folder, kill)
        super().__init__(folder, CONFIG, name=NAME, options=options, prefix=prefix)
        step = (kill.kind, str(kill.when)) if kill.kind in STEPS else ("never", "0")
        at = self._command.index("twinbus.cli.main")
        self._command[at : at + 1] = ["tests.faults.mover_server", mover, *step]


def _under_strace(folder: Path, kill: Kill) -> list[str]:
    if kill.kind in (*STEPS, "sends", NEVER.kind):
        return []
    at = folder / "data" / NAME
    log = (at / f"shard-{kill.shard}" if kill.shard else at) / "messages.db-wal"
    inject = f"inject={kill.kind}:signal=SIGKILL:when={kill.when}"
    options = ["-f", "-o", "/dev/null", "-e", "signal=none"]
    options += ["-e", f"trace={kill.kind}", "-e", inject, "-P", str(log)]
    return ["strace", *options, "--"]


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


class Clients:
    """The clients of one round."""

    def __init__(self, server: ServerProcess, memory: Memory, kill: Kill) -> None:
        self._server = server
        self._memory = memory
        self._kill_after = kill.when if kill.kind == "sends" else 0
        self._accepted = 0
        self.broken = threading.Event()

    def run(self) -> None:
        """Work until all is done or the server is dead."""
        jobs: list[Callable[[ServiceBusClient], None]] = [
            *(partial(self._publish, topic) for topic in TOPICS),
            self._bury,
        ]
        with ThreadPoolExecutor(len(jobs)) as pool:
            list(pool.map(self._try, jobs))

    def _try(self, job: Callable[[ServiceBusClient], None]) -> None:
        try:
            with connect(self._server.connection_string) as client:
                job(client)
        except BROKEN:
            self.broken.set()

    def _publish(self, topic: str, client: ServiceBusClient) -> None:
        with client.get_topic_sender(topic) as sender:
            for _ in range(SENDS_MAX):
                if self.broken.is_set():
                    return
                names = self._memory.names(topic, TOGETHER)
                sender.send_messages([ServiceBusMessage(name) for name in names])
                self._note(names)

    def _note(self, names: list[str]) -> None:
        with self._memory.lock:
            self._memory.accepted.update(names)
            self._accepted += len(names)
            is_time = 0 < self._kill_after <= self._accepted
        if is_time:
            self._server.kill()

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
                self._note(names)
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
    errors = [line for line in server.log.read_text().splitlines() if " ERROR " in line]
    return Outcome([*found, *errors, *_misplaced(folder)], reached, arrived)


def _until_killed(folder: Path, mover: str, kill: Kill, memory: Memory) -> bool:
    """Let clients work until the server is dead; False if they had done all before."""
    server = MoverServer(folder, mover, kill)
    with suppress(ServerDied), server:
        clients = Clients(server, memory, kill)
        clients.run()
        if not clients.broken.is_set():
            return False
        assert server.died(), "clients broke off, but the server lives"
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
