"""Two real servers as processes, with a faulty proxy before each, to be paired.

Owns the servers, the proxies and the look at what lies where. A test breaks what it
likes; `mend` puts everything right for the next one. Queues are made for each test, so
that none meets the messages of another.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio.management import (
    ServiceBusAdministrationClient as AsyncAdmin,
)
from azure.servicebus.management import ServiceBusAdministrationClient

import twinbus
from twinbus.aio import (
    EventKind,
    MessageSender,
    MessagingFactory,
    PairingEvent,
    SendAvailabilityPairedNamespaceOptions,
)
from twinbus.cli.remote import reach
from twinbus.client.sync.connection import Connection
from twinbus.core.sas import DEV_KEY_NAME, DEV_KEY_TEXT
from twinbus.pairing.rules.naming import backlog_path
from twinbus.pairing.status import EntityStatus
from twinbus.testing.proxy import FaultyProxy
from twinbus.testing.server_process import ServerProcess

# One attempt on a namespace that says nothing, and one ping.
ATTEMPT_SECONDS = 1.0
PING_SECONDS = 1.0
# Longer than anything here takes on a busy machine.
PATIENCE_SECONDS = 20.0
QUEUES = 2
# Queues that are there from the start, since no client could ask for them.
SLOW = "slow"
SMALL = "small"
# Keys that give less than everything, by the rights that they give.
KEYS = {"Send": "only-send", "Listen": "only-listen"}
_ENTITIES = {
    "queues": [
        {"name": SLOW, "message_rate_per_second": 1},
        {"name": SMALL, "max_size_in_megabytes": 1},
    ],
    "authorization_rules": [
        {"name": name, "rights": [right], "primary_key": f"key-of-{name}"}
        for right, name in KEYS.items()
    ],
}


class Side:
    """A server and the proxy before it."""

    def __init__(self, folder: Path, name: str, *options: str) -> None:
        self.server = ServerProcess(
            folder, _ENTITIES, name=name, options=("--faults", *options)
        ).start()
        self.proxy = FaultyProxy("127.0.0.1", self.server.ports["amqp"])
        self.admin = ServiceBusAdministrationClient.from_connection_string(
            self.server.admin_connection_string,
            connection_verify=self.server.ca_file,
        )

    @property
    def text(self) -> str:
        """The connection string, through the proxy."""
        return self.server.connection_string_through(self.proxy.port)

    def text_with(self, right: str) -> str:
        """The connection string with a key that gives this right and no other."""
        return with_key(self.text, right)

    def ids(self, path: str) -> list[str]:
        """The message ids of what lies in a queue, in their order."""
        text = self.server.connection_string
        found: list[str] = []
        following = 1
        with Connection.from_connection_string(text) as client:
            management = client.management(path)
            while page := management.peek(250, following):
                found += [str(message.message_id) for message in page]
                following = page[-1].sequence_number + 1
        return found

    def fault(self, kind: str, **limited: Any) -> None:
        """Switch a fault of the server on, as `twinbus fault add` does."""
        self._ask("POST", {"kind": kind, **limited})

    def _ask(self, method: str, body: Any = None) -> Any:
        url = f"http://127.0.0.1:{self.server.ports['http']}"
        return reach(self.server.connection_string, url, None).ask(
            method, "/$faults", body
        )

    def mend(self) -> None:
        self.server.resume()
        self.server.start()
        self.proxy.heal()
        self._ask("DELETE")

    def close(self) -> None:
        self.admin.close()
        self.proxy.close()
        self.server.close()


class RealPair:
    """The primary and the secondary."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.primary = Side(folder / "primary", "primary", *options)
        self.secondary = Side(folder / "secondary", "secondary")
        self.label = ""

    def queue(self, **settings: Any) -> str:
        """A new queue of the primary."""
        name = f"queue-{uuid4().hex[:12]}"
        self.primary.admin.create_queue(name, **settings)
        return name

    def backlog(self) -> list[str]:
        """The message ids in all backlog queues of the last pair."""
        paths = [backlog_path(self.label, index) for index in range(QUEUES)]
        return [each for path in paths for each in self.secondary.ids(path)]

    def mend(self) -> None:
        self.primary.mend()
        self.secondary.mend()

    def close(self) -> None:
        self.primary.close()
        self.secondary.close()

    # -- pairing -------------------------------------------------------------------

    @asynccontextmanager
    async def pair(
        self,
        text: str = "",
        backlog_text: str = "",
        *,
        arguments: dict[str, Any] | None = None,
        **options: Any,
    ) -> AsyncIterator[Paired]:
        """A paired factory, on both proxies unless told otherwise."""
        outbox = options.pop("outbox", None)
        given = {"try_timeout": ATTEMPT_SECONDS, **(arguments or {})}
        backlog_text = backlog_text or self.secondary.text
        make = MessagingFactory.from_connection_string
        async with (
            make(text or self.primary.text, **given) as primary,
            make(backlog_text, try_timeout=ATTEMPT_SECONDS) as secondary,
            AsyncAdmin.from_connection_string(
                self.secondary.server.admin_connection_string,
                connection_verify=self.secondary.server.ca_file,
            ) as manager,
        ):
            paired = Paired(primary)
            named = self._options(options, paired.note)
            await primary.pair_namespace(
                SendAvailabilityPairedNamespaceOptions(manager, secondary, **named),
                outbox=outbox,
            )
            yield paired

    @contextmanager
    def pair_blocking(self, **options: Any) -> Iterator[twinbus.MessagingFactory]:
        """The same for threads."""
        outbox = options.pop("outbox", None)
        make = twinbus.MessagingFactory.from_connection_string
        with (
            make(self.primary.text, try_timeout=ATTEMPT_SECONDS) as primary,
            make(self.secondary.text, try_timeout=ATTEMPT_SECONDS) as secondary,
        ):
            named = self._options(options, None)
            manager = self.secondary.admin
            primary.pair_namespace(
                SendAvailabilityPairedNamespaceOptions(manager, secondary, **named),
                outbox=outbox,
            )
            yield primary

    def _options(self, options: dict[str, Any], on_event: Any) -> dict[str, Any]:
        self.label = options.get("primary_name") or f"p-{uuid4().hex[:12]}"
        return {
            "backlog_queue_count": QUEUES,
            "failover_interval": 0,
            "ping_primary_interval": PING_SECONDS,
            "primary_name": self.label,
            "on_event": on_event,
            **options,
        }


class Paired:
    """A paired factory and all that it has told."""

    def __init__(self, factory: MessagingFactory) -> None:
        self.factory = factory
        self.events: list[PairingEvent] = []
        self._news = asyncio.Event()

    def note(self, event: PairingEvent) -> None:
        self.events.append(event)
        self._news.set()

    @property
    def label(self) -> str:
        """What stands for the primary in metrics."""
        return str(self.factory.pairing.options.primary_name)

    def kinds(self, path: str) -> list[EventKind]:
        return [event.kind for event in self.events if event.path == path]

    async def until(self, kind: EventKind, path: str) -> None:
        """Until an event of this kind has come, now or before."""
        await self.until_so(lambda: kind in self.kinds(path))

    async def until_so(
        self, condition: Callable[[], bool], patience: float = PATIENCE_SECONDS
    ) -> None:
        """Until a condition holds, which is asked after every event."""
        async with asyncio.timeout(patience):
            while not condition():
                self._news.clear()
                await self._news.wait()

    def sender(self, path: str) -> MessageSender:
        return self.factory.get_queue_sender(path)

    def status(self, path: str) -> EntityStatus:
        entities = self.factory.pairing.status().entities
        return next(each for each in entities if each.path == path)

    def state(self, path: str) -> str:
        return self.status(path).state


class Leftovers:
    """What runs now, to be compared with what runs when a test is over."""

    def __init__(self) -> None:
        self._tasks = asyncio.all_tasks()
        self._threads = set(threading.enumerate())

    async def check(self) -> None:
        """No task and no thread is left that was not there before.

        A task may need a moment for its end, but an error in it has no reader any more.
        """
        async with asyncio.timeout(PATIENCE_SECONDS):
            while left := asyncio.all_tasks() - self._tasks:
                ended, _ = await asyncio.wait(left)
                errors = [task.exception() for task in ended if not task.cancelled()]
                assert not any(errors), errors
        # Idle workers of the loop's own pool end with the loop.
        ours = {
            thread
            for thread in set(threading.enumerate()) - self._threads
            if not thread.name.startswith("asyncio_")
        }
        for thread in ours:
            # One that has been told to end may need a moment for it.
            await asyncio.to_thread(thread.join, PATIENCE_SECONDS)
        ours = {thread for thread in ours if thread.is_alive()}
        assert not ours, ours

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.check()


def with_key(text: str, right: str) -> str:
    """A connection string with the key that gives this right and no other."""
    name = KEYS[right]
    text = text.replace(f"Name={DEV_KEY_NAME}", f"Name={name}")
    return text.replace(f"Key={DEV_KEY_TEXT}", f"Key=key-of-{name}")


def message(text: str) -> ServiceBusMessage:
    """A message whose id is its text."""
    return ServiceBusMessage(text, message_id=text)
