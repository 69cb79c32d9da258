"""A client with many tasks under measurement, in a process of its own.

Reads one command per line and answers each with one line of JSON:

    {"do": "send", "count": N, "size": S, "tasks": T}   S messages a call, T tasks
    {"do": "receive", "count": N}

gives `{"seconds": S, "cpu_seconds": C}`. The clock runs from bodies and ids in memory
until the last message is accepted or completed, so what a client does to build messages
counts, and log-in does not. With `"made": true` it runs from messages that are made.
Run as `python -m bench.task_worker KIND TARGET`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from bench.messages import BODY_BYTES
from bench.target import Target

_T = TypeVar("_T")

BATCH = 100
WAIT_SECONDS = 30
_SEED = 20_260_101


class Content(NamedTuple):
    """What an application has before there is a message."""

    body: bytes
    message_id: str


# From what is given to a message.
Make = Callable[[Any], Any]


class Client(Protocol):
    """What is measured."""

    async def open(self, tasks: int) -> None: ...

    def message(self, content: Content) -> Any:
        """What it sends."""

    async def send(
        self, given: Sequence[Any], make: Make, size: int, tasks: int
    ) -> None:
        """Make messages of what is given, and send them."""

    async def receive(self, count: int) -> None: ...

    async def close(self) -> None: ...


def share(items: Sequence[_T], tasks: int) -> list[Sequence[_T]]:
    """The part of each task: neighbours, as many for each as for the others."""
    size = -(-len(items) // tasks)
    return [items[at : at + size] for at in range(0, len(items), size)]


async def send_made(sender: Any, given: Sequence[Any], size: int, make: Make) -> None:
    """Send with a sender of the official client, or one like it."""
    if size == 1:
        for each in given:
            await sender.send_messages(make(each))
        return
    for at in range(0, len(given), size):
        batch = await sender.create_message_batch()
        for each in given[at : at + size]:
            batch.add_message(make(each))
        await sender.send_messages(batch)


def contents(count: int) -> list[Content]:
    """The same for every client."""
    source = random.Random(_SEED)
    return [Content(source.randbytes(BODY_BYTES), f"{n:016x}") for n in range(count)]


def prepared(contents: Sequence[Content], make: Make) -> tuple[list[Any], Make]:
    """Messages that are made, and how they are made of themselves."""
    return [make(content) for content in contents], lambda message: message


def client_of(kind: str, target: Target) -> Client:
    """The client of that name; only its own library is loaded."""
    if kind == "sdk":
        from bench.sdk_client import SdkClient

        return SdkClient(target)
    from bench.our_client import OurClient

    return OurClient(target)


async def _do(client: Client, command: dict[str, Any]) -> dict[str, float]:
    count = int(command["count"])
    tasks = int(command.get("tasks", 1))
    given: list[Any] = []
    make: Make = client.message
    if command["do"] == "send":
        given = contents(count)
        if command.get("made"):
            given, make = prepared(given, make)
        await client.open(tasks)
    gc.collect()
    started, worked = time.perf_counter(), time.process_time()
    if command["do"] == "send":
        await client.send(given, make, int(command["size"]), tasks)
    else:
        await client.receive(count)
    return {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - worked,
    }


def main() -> None:
    with asyncio.Runner() as runner:
        kind, target = sys.argv[1], Target(**json.loads(sys.argv[2]))

        async def start() -> Client:
            return client_of(kind, target)

        client = runner.run(start())
        print(json.dumps({"ready": True}), flush=True)
        for line in sys.stdin:
            print(json.dumps(runner.run(_do(client, json.loads(line)))), flush=True)
        runner.run(client.close())


if __name__ == "__main__":
    main()
