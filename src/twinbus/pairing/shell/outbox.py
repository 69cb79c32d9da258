"""The third tier of a pair: an outbox on local disk, for what no backlog queue takes.

Owns the namespace in a folder that belongs to the pair: it opens and closes with it. It
has one queue, with the name of the first backlog queue, so that the tools for a backlog
find their way in it, and messages in it have the form of those in a backlog.

Also owns moving them on, which always runs in this process, since no other can reach
the folder. The pump is that of the syphon, and each message goes where the pair's own
rules send a message of the application, but for the outbox itself: to the primary, or
to a backlog queue while its entity has failed over. While neither takes it, it stays.
Decides nothing itself.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from twinbus import limits
from twinbus.client.connection import Connection
from twinbus.client.sender import Sender
from twinbus.core.entity import QueueDescription
from twinbus.errors import (
    ConfigError,
    Disconnected,
    RemoteError,
    SendRefused,
    TwinbusError,
)
from twinbus.pairing.errors import MessageTooLargeForBacklog, OutboxUnusable
from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.pairing.pump.pump import PumpSettings
from twinbus.pairing.rules.classification import Verdict, kind_of
from twinbus.pairing.rules.naming import MIDDLE, backlog_path
from twinbus.pairing.rules.policy import entity_key
from twinbus.pairing.rules.retry import OUTBOX_BACKOFF
from twinbus.pairing.shell.pair import Pair
from twinbus.pairing.shell.route import PairedRoute, SendWork
from twinbus.pairing.shell.syphon import Syphon, SyphonWay
from twinbus.pairing.status import OutboxStatus

if TYPE_CHECKING:
    from twinbus.hosting import QueueFigures, ServerThread

_INDEX = 0
# The outboxes of this process: which pair has which folder.
_taken: dict[Path, str] = {}


# -- the way out -------------------------------------------------------------------


class _KeptWork(SendWork):
    """Messages of the outbox on their way, and which of them are left."""

    __slots__ = ("places",)

    def __init__(self, messages: list[bytes]) -> None:
        super().__init__(messages)
        self.places = list(range(len(messages)))

    def failed(self, error: BaseException) -> None:
        if isinstance(error, SendRefused):
            self.places = [self.places[place] for place in sorted(error.failures)]
        super().failed(error)


class _RoutedSender:
    """Sends messages of the outbox by the rules of the pair."""

    def __init__(self, route: PairedRoute) -> None:
        self._route = route

    @property
    def batch_bytes_max(self) -> int:
        """As much as the entity takes; a batch for the backlog may be split."""
        return self._route.entity.sender.batch_bytes_max

    async def send(
        self, messages: bytes | Sequence[bytes], timeout_seconds: float | None = None
    ) -> None:
        """Send to the primary or to a backlog queue."""
        several = [messages] if isinstance(messages, bytes) else list(messages)
        work = _KeptWork(several)
        try:
            await self._route.send(work, timeout_seconds)
        except Exception as error:
            cause = _as_remote(error)
            if len(work.places) == len(several):
                raise cause from error
            raise SendRefused(dict.fromkeys(work.places, cause)) from error


def _as_remote(error: Exception) -> RemoteError:
    """The error in the words of a namespace, which a pump understands."""
    if isinstance(error, SendRefused):
        return error.failures[min(error.failures)]
    if isinstance(error, RemoteError):
        return error
    if isinstance(error, MessageTooLargeForBacklog):
        # The primary takes it, so it stays until that is back.
        return Disconnected(error.text)
    if isinstance(error, TwinbusError):
        last = "" if error.__cause__ is None else f" Last: {error.__cause__}"
        return RemoteError(error.condition, error.text + last)
    if kind_of(error).verdict is Verdict.COUNTED:
        return Disconnected(str(error))
    raise error


class RoutedTarget:
    """Where messages of the outbox go (`destinations.PumpTarget`)."""

    def __init__(self, pair: Pair, check: Callable[[], None]) -> None:
        self._pair = pair
        self._check = check
        # What comes out of the outbox must not go into it.
        self._rules = replace(pair.rules, outbox=False)
        self._senders: dict[str, _RoutedSender] = {}

    @contextmanager
    def use(self, path: str) -> Iterator[_RoutedSender]:
        """The sender for an entity; it keeps to one backlog queue, and so its order."""
        key = entity_key(path)
        found = self._senders.get(key)
        if found is None:
            route = PairedRoute(self._pair, path, self._check, self._rules)
            found = self._senders[key] = _RoutedSender(route)
        yield found

    async def close(self) -> None:
        """Nothing to close: the links are those of the pair."""


# -- the outbox --------------------------------------------------------------------


class Outbox:
    """The outbox of one pair; made by `open_outbox`."""

    def __init__(self, pair: Pair, folder: Path, server: ServerThread) -> None:
        self._pair = pair
        self._folder = folder
        self._server = server
        self._path = backlog_path(pair.label, _INDEX)
        self._connection = Connection.from_connection_string(server.connection_string())
        # Takes diverted messages.
        self.sender: Sender = self._connection.sender(self._path)
        self._syphon: Syphon | None = None
        self._looking: asyncio.Task[None] | None = None
        self._figures: QueueFigures
        # Taken since they were last counted, and in all.
        self._fresh = 0
        self._accepted = 0
        self._news = asyncio.Event()
        self._closed = False

    # -- life ----------------------------------------------------------------------

    async def open(self) -> None:
        """See what is in it; `OutboxUnusable` if that is for another primary."""
        queues = await asyncio.to_thread(self._server.queues)
        self._figures = queues.pop(self._path.lower())
        for path, figures in queues.items():
            primary, found, _ = path.partition(f"/{MIDDLE}/")
            if found and figures.messages:
                raise OutboxUnusable(
                    f"The outbox '{self._folder}' has {figures.messages} messages for "
                    f"another primary, '{primary}'. Choose another folder, or give "
                    f"primary_name='{primary}' if it is the same namespace."
                )
        await self.sender.open()
        if self._messages:
            self._tell(EventKind.OUTBOX_IN, {"messages": self._messages})
            self._news.set()

    def start(self, check: Callable[[], None]) -> None:
        """Begin to move messages on. `check` raises once the factory is faulted."""
        pair = self._pair
        settings = PumpSettings(
            ttl_rule=pair.options.ttl,
            lock_seconds=limits.OUTBOX_LOCK_MS / 1000,
            send_seconds=limits.OUTBOX_ATTEMPTS_MAX * pair.rules.attempt_ms / 1000,
            rest=OUTBOX_BACKOFF,
            clock=pair.clock,
            on_event=self._pumped,
        )
        way = SyphonWay(self._connection, RoutedTarget(pair, check))
        self._syphon = Syphon(pair, _one_queue, _fault_none, settings, way)
        self._syphon.start()
        self._looking = asyncio.get_running_loop().create_task(self._look())

    async def stop(self) -> None:
        """Move no more messages on; what is on its way may still be answered."""
        if self._looking is not None:
            self._looking.cancel()
        if self._syphon is not None:
            await self._syphon.stop()

    async def close(self) -> None:
        """Stop, say how many messages are left, and give the folder back."""
        if self._closed:
            return
        self._closed = True
        try:
            await self.stop()
            await self._count()
            details = {"messages": self._messages}
            if self._figures.dead_lettered:
                details["dead_lettered"] = self._figures.dead_lettered
            self._tell(EventKind.OUTBOX_CLOSED, details)
            await self._connection.close()
        finally:
            _taken.pop(self._folder, None)
            await asyncio.to_thread(self._server.stop)

    # -- messages in it ------------------------------------------------------------

    def taken(self, count: int) -> None:
        """The outbox has accepted messages."""
        if not self._messages:
            cause = self._pair.rotation.last_cause
            self._tell(EventKind.OUTBOX_IN, {}, cause)
        self._fresh += count
        self._accepted += count
        self._news.set()

    @property
    def _messages(self) -> int:
        return self._figures.messages + self._fresh

    async def _look(self) -> None:
        """Count while there are messages, and tell when the last has left."""
        while True:
            await self._news.wait()
            while self._messages or self._news.is_set():
                self._news.clear()
                await asyncio.sleep(limits.OUTBOX_LOOK_SECONDS)
                await self._count()
            self._tell(EventKind.OUTBOX_OUT, {"moved": self._moved})

    async def _count(self) -> None:
        try:
            queues = await asyncio.to_thread(self._server.queues)
        except TwinbusError:
            # Its disk fails. Sends say so; the last figures stay.
            return
        self._figures = queues[self._path.lower()]
        self._fresh = 0

    @property
    def _moved(self) -> int:
        return 0 if self._syphon is None else self._syphon.status().total.moved

    def status(self) -> OutboxStatus:
        """What there is to know, for a dashboard."""
        oldest_ms = self._figures.oldest_ms
        wall_ms = self._pair.clock.now().wall_ms
        age_ms = 0 if oldest_ms is None else max(wall_ms - oldest_ms, 0)
        return OutboxStatus(
            folder=str(self._folder),
            messages=self._messages,
            oldest_seconds=age_ms / 1000,
            dead_lettered=self._figures.dead_lettered,
            accepted=self._accepted,
            moved=self._moved,
        )

    # -- telling -------------------------------------------------------------------

    def _pumped(self, event: PairingEvent) -> None:
        """The pump speaks of a syphon; applications should not look for one."""
        if event.kind is EventKind.SYPHON_BACKS_OFF:
            details = {"because": event.details.get("because", "error")}
            event = replace(event, kind=EventKind.OUTBOX_BACKS_OFF, details=details)
            self._pair.telling.tell(event)

    def _tell(
        self,
        kind: EventKind,
        details: dict[str, int],
        cause: BaseException | None = None,
    ) -> None:
        now_ms = self._pair.clock.now_ms()
        event = PairingEvent(kind, str(self._folder), now_ms, cause, dict(details))
        self._pair.telling.tell(event)


async def _one_queue() -> tuple[int, ...]:
    return (_INDEX,)


def _fault_none(*_: object) -> None:
    """The outbox has no partner that could be faulted."""


# -- opening -----------------------------------------------------------------------


def outbox_folder(outbox: object) -> Path:
    """The folder that the caller means; raises if that is none."""
    if not isinstance(outbox, str | os.PathLike):
        raise TypeError("outbox must be the path of a folder.")
    if not os.fspath(outbox):
        raise ValueError("outbox must be the path of a folder, not an empty text.")
    return Path(os.fspath(outbox)).resolve()


async def open_outbox(pair: Pair, folder: Path) -> Outbox:
    """Serve the folder for this pair. `OutboxUnusable` if that cannot be."""
    if folder in _taken:
        raise OutboxUnusable(
            f"The outbox '{folder}' belongs to another pair of this process, that of "
            f"'{_taken[folder]}'. Give each pair a folder of its own."
        )
    _taken[folder] = pair.label
    try:
        async with _served(pair, folder) as server:
            made = Outbox(pair, folder, server)
            await made.open()
    except BaseException:
        _taken.pop(folder, None)
        raise
    return made


@asynccontextmanager
async def _served(pair: Pair, folder: Path) -> AsyncIterator[ServerThread]:
    """The server of the folder; it is stopped if the block raises."""
    starting = asyncio.ensure_future(asyncio.to_thread(_serve, folder, pair.label))
    try:
        yield await asyncio.shield(starting)
    except BaseException:
        # Also if the pairing was cancelled while the server started.
        await asyncio.wait((starting,))
        if starting.exception() is None:
            await asyncio.to_thread(starting.result().stop)
        raise


def _serve(folder: Path, label: str) -> ServerThread:
    # Not above: a server comes with it, which few applications need.
    from twinbus.hosting import HostingOptions, ServerThread

    queue = QueueDescription(
        backlog_path(label, _INDEX),
        lock_duration_ms=limits.OUTBOX_LOCK_MS,
        max_size_in_megabytes=limits.OUTBOX_QUEUE_MEGABYTES,
        max_delivery_count=limits.DELIVERY_COUNT_MAX,
        max_message_size_in_kilobytes=limits.MESSAGE_KILOBYTES_MAX,
    )
    options = HostingOptions(kinds=("amqp",), queues=(queue,), parameter="outbox")
    try:
        return ServerThread(folder, options)
    except ConfigError as error:
        raise OutboxUnusable(error.text) from None
