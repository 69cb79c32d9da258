"""Two namespaces in the test process, with a proxy before the primary, to be paired.

The proxy is what makes the primary fail: a test refuses and cuts its connections, and
heals them again. Intervals are short, and tests wait for events, never for time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from azure.servicebus import ServiceBusReceivedMessage

from twinbus.aio import MessagingFactory, SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.pairing.shell.telling import Listener
from twinbus.testing.namespace import ServedNamespace, serve_namespace
from twinbus.testing.proxy import FaultyProxy


class PairSite:
    """Two namespaces and the proxy between the application and the first."""

    def __init__(
        self, home: ServedNamespace, away: ServedNamespace, proxy: FaultyProxy
    ) -> None:
        self.home = home
        self.away = away
        self.proxy = proxy

    @property
    def primary_text(self) -> str:
        """The primary's connection string, through the proxy."""
        text = self.home.connection_string
        return text.replace(f":{self.home.amqp_port}", f":{self.proxy.port}")

    def queue(self, **settings: Any) -> str:
        """A new queue of the primary."""
        return self.home.create_queue(f"queue-{uuid4().hex}", **settings)

    def fail(self) -> None:
        """Let the primary be gone."""
        self.proxy.refuse()
        self.proxy.cut()

    def messages(self, path: str, count: int) -> list[ServiceBusReceivedMessage]:
        """Take so many messages from the primary, or as many as there are."""
        with (
            self.home.client() as client,
            client.get_queue_receiver(path) as receiver,
        ):
            found: list[ServiceBusReceivedMessage] = []
            while len(found) < count:
                chunk = receiver.receive_messages(count - len(found), 5)
                if not chunk:
                    break
                for message in chunk:
                    receiver.complete_message(message)
                found += chunk
            return found

    def count(self, path: str) -> int:
        """How many messages a queue of the primary has."""
        found = self.home.admin_client().get_queue_runtime_properties(path)
        return found.total_message_count or 0

    def backlog(self, label: str) -> int:
        """How many messages wait in the backlog queues of one primary."""
        admin = self.away.admin_client()
        return sum(
            admin.get_queue_runtime_properties(queue.name).active_message_count or 0
            for queue in admin.list_queues()
            if queue.name.startswith(f"{label}/")
        )

    @asynccontextmanager
    async def pair(self, **keywords: Any) -> AsyncIterator[MessagingFactory]:
        """A paired factory; its secondary is closed with it."""
        given = {
            "backlog_queue_count": 2,
            "failover_interval": 0,
            "ping_primary_interval": 1,
            "primary_name": f"home-{uuid4().hex}",
            **keywords,
        }
        async with (
            MessagingFactory.from_connection_string(
                self.primary_text, try_timeout=5
            ) as primary,
            MessagingFactory.from_connection_string(
                self.away.connection_string
            ) as secondary,
            self.away.async_admin_client() as manager,
        ):
            options = SendAvailabilityPairedNamespaceOptions(
                manager, secondary, **given
            )
            await primary.pair_namespace(options)
            yield primary


@contextmanager
def pair_site(folder: Path) -> Iterator[PairSite]:
    """Both namespaces, until the block ends."""
    with (
        serve_namespace(tls=folder / "home", name="home") as home,
        serve_namespace(tls=folder / "away", name="away") as away,
        FaultyProxy("127.0.0.1", home.amqp_port) as proxy,
    ):
        yield PairSite(home, away, proxy)


async def wait_for(events: Listener, kind: EventKind) -> PairingEvent:
    """The next event of a kind."""
    async for event in events:
        if event.kind is kind:
            return event
    raise AssertionError(f"The pair ended without '{kind.value}'.")
