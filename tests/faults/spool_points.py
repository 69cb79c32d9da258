"""Kill a server while it keeps sends for a shard that is away, or brings them home.

Owns the experiment: official clients send to queues of one of two shards, each message
once. In each round the folder of that shard is there, or is missing, or comes back in
the middle, and the server is killed at a chosen point. At the end the shard is there,
and the judge of `suites/crossing.py` compares what was accepted with what has arrived.

Run one as `python -m tests.faults.spool_points FOLDER SPOOL ROUND...`.
"""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.faults import spool_server
from tests.faults.kills import (
    LAST,
    NAME,
    NEVER,
    Kill,
    KilledClients,
    KilledServer,
    Outcome,
)
from tests.faults.sdk_story import BROKEN, connect
from tests.faults.sick_shard import QUEUES, Probes, take_all
from tests.suites.crossing import problems
from twinbus.testing.server_process import ServerDied, ServerProcess

CONFIG: dict[str, Any] = {"queues": [{"name": name} for name in QUEUES]}
# Senders, and the queue of each; all queues are in the shard that goes away.
SENDERS = {"x": "a", "y": "a", "z": "b"}
# What a client sends in a round; one with a shard that returns, after it has returned.
SENDS_MAX = 60

# Where the folder of the shard is in a round.
AWAY, BACK, RETURNS = "away", "back", "returns"


class Round(NamedTuple):
    """One start of the server, and how it ends."""

    kill: Kill
    folder: str

    def __str__(self) -> str:
        return f"{self.kill}/{self.folder}"

    @classmethod
    def read(cls, text: str) -> Round:
        kill, folder = text.split("/")
        return cls(Kill.read(kill), folder)


class SpoolServer(KilledServer):
    """The server with a spool of `spool_server.py`."""

    module = spool_server.__name__
    shards = 2
    config = CONFIG


# -- clients ---------------------------------------------------------------------------


@dataclass
class Memory:
    """What clients know of the whole experiment."""

    # All that was sent, by sender and in order; a message is sent once.
    sent: dict[str, list[str]] = field(default_factory=lambda: {s: [] for s in SENDERS})
    accepted: set[str] = field(default_factory=set)


class Clients(KilledClients):
    """The clients of one round."""

    def __init__(self, server: ServerProcess, memory: Memory, this: Round) -> None:
        super().__init__(server, memory.accepted, this.kill)
        self._memory = memory
        # Set when enough is spooled for every kill while it comes home.
        self._spooled = threading.Event()
        # Set when the shard is there.
        self.is_back = threading.Event()
        if this.folder != RETURNS:
            self.is_back.set()

    def run(self) -> bool:
        """Send until all is sent or the server is dead; True if it died."""
        try:
            return self.run_all([partial(self._send_all, name) for name in SENDERS])
        finally:
            self._spooled.set()

    def _send_all(self, name: str, client: ServiceBusClient) -> None:
        left = SENDS_MAX
        with client.get_queue_sender(SENDERS[name]) as sender:
            while left > 0 and not self.broken.is_set():
                sent = self._memory.sent[name]
                sent.append(f"{name} {len(sent)}")
                sender.send_messages(ServiceBusMessage("", message_id=sent[-1]))
                self.note(sent[-1:])
                if self._count >= SENDS_MAX:
                    self._spooled.set()
                # Until the shard is back there is always more to send.
                left -= 1 if self.is_back.is_set() else 0

    def wait_for_return(self, folder: Path) -> None:
        """Let the folder of the shard come back, and wait until the shard is well."""
        self._spooled.wait()
        _bring_back(folder)
        client = ServiceBusClient.from_connection_string(
            self._server.connection_string, retry_total=4, retry_backoff_max=1
        )
        # A client gives up after some seconds; a busy machine may take longer.
        while not (self.is_back.is_set() or self.broken.is_set()):
            with suppress(*BROKEN), client.get_queue_receiver("a") as receiver:
                receiver.peek_messages()
                self.is_back.set()
        client.close()


def _shard_folder(folder: Path) -> Path:
    return folder / "data" / NAME / "shard-1"


def _take_away(folder: Path) -> None:
    here = _shard_folder(folder)
    if here.exists():
        here.rename(folder / "away")


def _bring_back(folder: Path) -> None:
    if (folder / "away").exists():
        (folder / "away").rename(_shard_folder(folder))


# -- the experiment --------------------------------------------------------------------


def run(folder: Path, spool: str, rounds: list[Round]) -> Outcome:
    """Kill, restart, and judge what has arrived."""
    memory = Memory()
    with SpoolServer(folder, spool, NEVER) as server:
        server.stop()
    reached = sum(_until_killed(folder, spool, each, memory) for each in rounds)
    _bring_back(folder)
    with SpoolServer(folder, spool, NEVER) as server:
        found, arrived = _judge(server, memory)
    errors = [line for line in server.errors() if "is not open" not in line]
    return Outcome([*found, *errors], reached, arrived)


def _until_killed(folder: Path, spool: str, this: Round, memory: Memory) -> bool:
    """Let clients work until the server is dead; False if they had done all before."""
    if this.folder == BACK:
        _bring_back(folder)
    else:
        _take_away(folder)
    server = SpoolServer(folder, spool, this.kill)
    with suppress(ServerDied), server, ThreadPoolExecutor(1) as pool:
        clients = Clients(server, memory, this)
        if this.folder == RETURNS:
            pool.submit(clients.wait_for_return, folder)
        return clients.run()
    return True


def _judge(server: ServerProcess, memory: Memory) -> tuple[list[str], int]:
    """Send a last message of each sender, and compare what has arrived by then."""
    queues = list(dict.fromkeys(SENDERS.values()))
    with connect(server.connection_string) as client, ThreadPoolExecutor() as pool:
        list(pool.map(partial(_send_last, client, memory), SENDERS))
        arrived = list(pool.map(partial(_arrived, client), queues))
    found = [
        text
        for name, queue in SENDERS.items()
        for text in _compare(name, memory, arrived[queues.index(queue)])
    ]
    return found, sum(map(len, arrived))


def _send_last(client: ServiceBusClient, memory: Memory, name: str) -> None:
    last = f"{name} {LAST}"
    with client.get_queue_sender(SENDERS[name]) as sender:
        sender.send_messages(ServiceBusMessage("", message_id=last))
    memory.sent[name].append(last)
    memory.accepted.add(last)


def _arrived(client: ServiceBusClient, queue: str) -> list[str]:
    lasts = {f"{name} {LAST}" for name in SENDERS if SENDERS[name] == queue}
    return take_all(client, queue, lasts)


def _compare(name: str, memory: Memory, arrived: list[str]) -> list[str]:
    """Compare what one sender has sent with what has arrived of it."""
    ours = [each for each in arrived if each.startswith(f"{name} ")]
    # A send without an answer may have happened or not.
    there = memory.accepted | set(ours)
    posted = [each for each in memory.sent[name] if each in there]
    return [f"{name}: {text}" for text in problems(posted, ours)]


def not_refused(folder: Path, spool: str) -> dict[str, str]:
    """Ask a shard that is away for what is no send (`Probes.not_refused`)."""
    with SpoolServer(folder, spool, NEVER) as server:
        server.stop()
        _take_away(folder)
        server.start()
        probes = Probes(server, "probed", locked=False)
        found = probes.not_refused()
        probes.close()
    return found


if __name__ == "__main__":
    _folder, _spool, *_rounds = sys.argv[1:]
    outcome = run(Path(_folder), _spool, [Round.read(text) for text in _rounds])
    print(json.dumps(outcome))
