"""The blocking factory: the async one, run in a thread that all factories share.

Two factories of a pair talk to each other, so they have to be on one event loop; that
is why there is one thread for all of them. It starts with the first factory that is
used and ends when the last one is closed. What a method does is said in
`pairing/shell/factory.py`; here are only the ways across. Callbacks run in the thread,
and must not block it: a blocking call from there is refused.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from typing import Any, Self

from azure.servicebus import ServiceBusClient

from twinbus.client.transport.loop_thread import LoopThread
from twinbus.pairing.events import PairingEvent
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.shell import factory as aio
from twinbus.pairing.shell.message_sender import MessageSender as AsyncSender
from twinbus.pairing.shell.telling import Listener
from twinbus.pairing.status import PairingStatus
from twinbus.pairing.sync.message_sender import MessageSender


class _SharedThread:
    """One thread for all factories of a process, as long as there is one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._pid = 0
        self._thread: LoopThread | None = None

    def take(self) -> LoopThread:
        """The thread, for one more factory."""
        with self._lock:
            if self._thread is None or self._pid != os.getpid():
                self._thread = LoopThread("twinbus-factories")
                self._users, self._pid = 0, os.getpid()
            self._users += 1
            return self._thread

    def give_back(self, thread: LoopThread) -> None:
        """A factory is closed; the last one ends the thread."""
        with self._lock:
            if thread is not self._thread:
                return
            self._users -= 1
            if self._users:
                return
            self._thread = None
        thread.stop()


_SHARED = _SharedThread()


class _Inner(aio.MessagingFactory):
    """The async factory, whose receivers are the blocking ones."""

    def _make_sdk(self) -> Any:
        return self.sdk_client(ServiceBusClient)

    def _counted(self, receiver: Any) -> Any:
        """Left to the blocking factory, which knows the thread."""
        return receiver

    async def _close_sdk(self, sdk: Any) -> None:
        """Left to `close_receivers`: it blocks, and must not block the thread."""

    def close_receivers(self) -> None:
        """Close the official client's receivers, in the caller's own thread."""
        if self._sdk is not None:
            self._sdk.close()


class PairingView:
    """What an application sees of its pair."""

    def __init__(self, inner: aio.PairingView, thread: LoopThread) -> None:
        self.inner = inner
        self._thread = thread

    @property
    def options(self) -> SendAvailabilityPairedNamespaceOptions:
        """What the pair was made with."""
        return self.inner.options

    def status(self) -> PairingStatus:
        """Every entity and backlog queue: the whole state, for a dashboard."""

        async def status() -> PairingStatus:
            return self.inner.status()

        return self._thread.run(status)

    def mark_healthy(self, path: str) -> None:
        """Send to the primary again: the caller knows that the entity is well."""

        async def mark_healthy() -> None:
            self.inner.mark_healthy(path)

        self._thread.run(mark_healthy)

    def events(self) -> Iterator[PairingEvent]:
        """What happens from now on, one event after the other; ends with the pair."""

        async def listen() -> Listener:
            return self.inner.events()

        listener = self._thread.run(listen)
        return self._read(listener)

    def _read(self, listener: Listener) -> Iterator[PairingEvent]:
        while True:
            try:
                yield self._thread.run(listener.__anext__)
            except StopAsyncIteration:
                return


class MessagingFactory:
    """Makes senders and receivers for one namespace, and pairs it with another."""

    def __init__(
        self, fully_qualified_namespace: str, credential: Any, **kwargs: Any
    ) -> None:
        self._begin(_Inner(fully_qualified_namespace, credential, **kwargs))

    @classmethod
    def from_connection_string(cls, conn_str: str, **kwargs: Any) -> Self:
        """A factory for the namespace that a connection string names."""
        made = cls.__new__(cls)
        made._begin(_Inner.from_connection_string(conn_str, **kwargs))
        return made

    def _begin(self, inner: _Inner) -> None:
        # The async factory that does the work.
        self.inner = inner
        self._thread = _SHARED.take()
        self._lock = threading.Lock()
        self._ended = False

    @property
    def fully_qualified_namespace(self) -> str:
        """The host name of the namespace."""
        return self.inner.fully_qualified_namespace

    # -- senders and receivers ---------------------------------------------------------

    def get_queue_sender(
        self, queue_name: str, *, client_identifier: str | None = None, **_: Any
    ) -> MessageSender:
        """A sender to a queue; paired if the factory is."""

        async def make() -> AsyncSender:
            return self.inner.get_queue_sender(
                queue_name, client_identifier=client_identifier
            )

        return MessageSender(self._thread.run(make), self._thread)

    def get_topic_sender(
        self, topic_name: str, *, client_identifier: str | None = None, **_: Any
    ) -> MessageSender:
        """A sender to a topic; paired if the factory is."""

        async def make() -> AsyncSender:
            return self.inner.get_topic_sender(
                topic_name, client_identifier=client_identifier
            )

        return MessageSender(self._thread.run(make), self._thread)

    def get_queue_receiver(self, queue_name: str, **kwargs: Any) -> Any:
        """The official client's receiver, on this namespace alone."""
        return self._counted(self.inner.get_queue_receiver(queue_name, **kwargs))

    def get_subscription_receiver(
        self, topic_name: str, subscription_name: str, **kwargs: Any
    ) -> Any:
        """The official client's receiver, on this namespace alone."""
        made = self.inner.get_subscription_receiver(
            topic_name, subscription_name, **kwargs
        )
        return self._counted(made)

    def _counted(self, receiver: Any) -> Any:
        """The receiver, which counts what it does if there is a ledger."""

        async def count() -> Any:
            return self.inner.count_receiver(receiver, asyncio.get_running_loop())

        return self._thread.run(count) if self.inner.has_ledger else receiver

    # -- pairing -----------------------------------------------------------------------

    def pair_namespace(
        self,
        options: SendAvailabilityPairedNamespaceOptions,
        *,
        outbox: str | os.PathLike[str] | None = None,
    ) -> None:
        """Pair with a secondary; returns when all of it works, or raises why not.

        Senders that were made before stay unpaired. `outbox` is a folder on local disk
        for what no backlog queue takes; with it the pairing succeeds while the
        secondary is away, and goes on with its queues when it is back.
        """
        self._thread.run(lambda: self.inner.pair_namespace(options, outbox=outbox))

    @property
    def pairing(self) -> PairingView:
        """The pair at work; raises if there is none."""
        return PairingView(self.inner.pairing, self._thread)

    # -- life --------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """open, closing, closed or faulted."""
        return self.inner.state

    def fault(self, error: BaseException) -> None:
        """Refuse all sends from now on, because of this error."""

        async def fault() -> None:
            self.inner.fault(error)

        self._thread.run(fault)

    def close(self) -> None:
        """Let the sends under way end, stop all else, and let go of the namespace.

        Closes the secondary, too, if the syphon was on.
        """
        with self._lock:
            if self._ended or not self._thread.usable:
                return
            self._ended = True
        try:
            self._thread.run(self.inner.close)
            self.inner.close_receivers()
        finally:
            _SHARED.give_back(self._thread)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
