"""A service with a local outbox, as a process that a test kills.

    python -m tests.pairing.real.till ORDERS

Sends numbered messages to some queues, one after the other to each, and writes down
each send before and after it. Prints `ready`, `sent` for every hundred that were
accepted, and what its pair tells. Ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus.aio import (
    MessagingFactory,
    PairingError,
    PairingEvent,
    SendAvailabilityPairedNamespaceOptions,
)
from twinbus.testing.events import Recorder
from twinbus.testing.history_evidence import record_pairing
from twinbus.testing.traces import digest_of

ATTEMPT_SECONDS = 1.0
BACKLOG_QUEUES = 2
_PAUSE_SECONDS = 0.005
_SENT_MESSAGES = 100


@dataclass(frozen=True, slots=True)
class Orders:
    """Who it is, where the namespaces are, and where to write."""

    process: str
    history: str
    outbox: str
    label: str
    primary: str
    secondary: str
    admin: str
    ca_file: str
    queues: tuple[str, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class Till:
    """The service."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._recorder = Recorder(orders.history)
        self._stopped = asyncio.Event()
        self._sent = 0

    async def run(self) -> None:
        orders = self._orders
        make = partial(
            MessagingFactory.from_connection_string, try_timeout=ATTEMPT_SECONDS
        )
        with ServiceBusAdministrationClient.from_connection_string(
            orders.admin, connection_verify=orders.ca_file
        ) as manager:
            async with (
                make(orders.secondary) as secondary,
                make(orders.primary) as till,
            ):
                options = SendAvailabilityPairedNamespaceOptions(
                    manager,
                    secondary,
                    BACKLOG_QUEUES,
                    failover_interval=0,
                    ping_primary_interval=1,
                    primary_name=orders.label,
                    on_event=self._tell,
                )
                await till.pair_namespace(options, outbox=orders.outbox)
                print("ready", flush=True)
                await asyncio.gather(
                    self._listen(),
                    *(self._send_to(till, each) for each in orders.queues),
                )

    def _tell(self, event: PairingEvent) -> None:
        record_pairing(self._recorder, self._orders.process, event)
        details = "".join(f" {name}={value}" for name, value in event.details.items())
        print(event.kind.value + details, flush=True)

    async def _listen(self) -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        await reader.read()
        self._stopped.set()

    async def _send_to(self, factory: MessagingFactory, queue: str) -> None:
        process, recorder = self._orders.process, self._recorder
        async with factory.get_queue_sender(queue) as sender:
            for number in count():
                key = f"{process}-{queue}-{number}"
                event = recorder.start(
                    process,
                    "send",
                    key=key,
                    queue=queue,
                    link=queue,
                    digest=digest_of(key.encode()),
                )
                recorder.announce(event)
                try:
                    await sender.send_messages(ServiceBusMessage(key, message_id=key))
                except (ServiceBusError, PairingError) as error:
                    recorder.finish(event, "unknown", error=repr(error))
                else:
                    recorder.finish(event)
                    self._count()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopped.wait(), _PAUSE_SECONDS)
                    return

    def _count(self) -> None:
        self._sent += 1
        if self._sent % _SENT_MESSAGES == 0:
            print("sent", flush=True)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    asyncio.run(Till(Orders(**given)).run())
