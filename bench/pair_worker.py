"""The factory's senders under measurement, in a process of its own.

Holds the same factory twice: alone, and paired with a second namespace, both to one
queue of the same primary. Reads one command per line and answers each with JSON:

    {"do": "compare", "count": N, "size": S, "tasks": T, "parts": P, "ids": B}
        gives {"alone_us": [...], "paired_us": [...]}: processor time of this process
        for each message, of parts that take turns, so that neither the machine nor the
        place of something in memory can favour one of them
    {"do": "send", "count": N, "size": S, "tasks": T, "kind": K}
        gives {"seconds": S, "cpu_seconds": C} of the paired one, as `bench.task_worker`
        does; messages are of the official client (K is "official"), of our own class
        ("light"), or dicts ("dict")

To compare, messages are made before the clock runs, with ids or without (pairing gives
those one each); to send, making them counts, unless `"made": true` is said. Run as
`python -m bench.pair_worker PRIMARY SECONDARY`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from bench.target import QUEUE, Target
from bench.task_worker import (
    Content,
    Make,
    contents,
    prepared,
    send_made,
    share,
)
from twinbus.aio import MessagingFactory, SendAvailabilityPairedNamespaceOptions
from twinbus.aio import ServiceBusMessage as LightMessage


def _message(content: Content) -> ServiceBusMessage:
    return ServiceBusMessage(content.body, message_id=content.message_id)


def _light(content: Content) -> ServiceBusMessage:
    return LightMessage(content.body, message_id=content.message_id)


_KINDS: dict[str, Callable[[Content], Any]] = {
    "official": _message,
    "light": _light,
    "dict": Content._asdict,
}


class PairWorker:
    """Both factories with a sender each."""

    def __init__(self, primary: Target, secondary: Target) -> None:
        text, away = primary.connection_string, secondary.connection_string
        assert text is not None
        assert away is not None
        assert secondary.admin_connection_string is not None
        self._alone = MessagingFactory.from_connection_string(text)
        self._paired = MessagingFactory.from_connection_string(text)
        self._secondary = MessagingFactory.from_connection_string(away)
        self._manager = ServiceBusAdministrationClient.from_connection_string(
            secondary.admin_connection_string, connection_verify=secondary.ca_file
        )

    async def open(self) -> None:
        """Pair, and make the links."""
        options = SendAvailabilityPairedNamespaceOptions(self._manager, self._secondary)
        await self._paired.pair_namespace(options)
        self._senders = {
            "alone": self._alone.get_queue_sender(QUEUE),
            "paired": self._paired.get_queue_sender(QUEUE),
        }

    async def compare(
        self, count: int, size: int, tasks: int, parts: int, ids: bool
    ) -> dict[str, Any]:
        """Processor time of both, part by part."""
        made = [_message(content) for content in contents(count)]
        if not ids:
            made = [ServiceBusMessage(content.body) for content in contents(count)]
        took: dict[str, list[float]] = {"alone_us": [], "paired_us": []}
        for part in range(parts):
            names = ("alone", "paired") if part % 2 else ("paired", "alone")
            for name in names:
                gc.collect()
                worked = time.process_time()
                await _send(self._senders[name], made, size, tasks)
                spent = time.process_time() - worked
                took[f"{name}_us"].append(spent / count * 1e6)
        return took

    async def send(
        self,
        count: int,
        size: int,
        tasks: int,
        kind: str = "official",
        made: bool = False,
    ) -> dict[str, float]:
        """The rate of the paired one, with the making of messages."""
        make: Make = _KINDS[kind]
        given: list[Any] = contents(count)
        if made:
            given, make = prepared(given, make)
        gc.collect()
        started, worked = time.perf_counter(), time.process_time()
        sender = self._senders["paired"]
        parts = share(given, tasks)
        await asyncio.gather(*(send_made(sender, part, size, make) for part in parts))
        return {
            "seconds": time.perf_counter() - started,
            "cpu_seconds": time.process_time() - worked,
        }

    async def close(self) -> None:
        for factory in (self._paired, self._secondary, self._alone):
            await factory.close()
        await self._manager.close()


async def _send(
    sender: Any, messages: Sequence[ServiceBusMessage], size: int, tasks: int
) -> None:
    async def run(part: Sequence[ServiceBusMessage]) -> None:
        if size == 1:
            for message in part:
                await sender.send_messages(message)
            return
        for at in range(0, len(part), size):
            await sender.send_messages(list(part[at : at + size]))

    await asyncio.gather(*(run(part) for part in share(messages, tasks)))


def main() -> None:
    primary, secondary = (Target(**json.loads(text)) for text in sys.argv[1:3])
    with asyncio.Runner() as runner:

        async def start() -> PairWorker:
            worker = PairWorker(primary, secondary)
            await worker.open()
            return worker

        worker = runner.run(start())
        print(json.dumps({"ready": True}), flush=True)
        for line in sys.stdin:
            command = json.loads(line)
            do = worker.compare if command.pop("do") == "compare" else worker.send
            print(json.dumps(runner.run(do(**command))), flush=True)
        runner.run(worker.close())


if __name__ == "__main__":
    main()
