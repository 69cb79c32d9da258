"""One destination of a pump: messages leave one batch after the other, in their order.

Owns what a refusal means for the neighbours of a message. A batch is taken whole or not
at all, so one that was refused because of a message in it is halved until that message
is alone. When the destination rests, all that waits for it is parked. Only one batch is
under way at a time, since two could be taken in the wrong order.

Where messages go is a `PumpTarget`. The syphon's is `Senders`: the primary, with one
sender for each destination, shared by all pumps of a process; only so many links stay
open, and one in use is never closed. Knows nothing about the backlog queue.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from twinbus import limits
from twinbus.client.connection import Connection
from twinbus.client.sender import Sender
from twinbus.core.names import check_entity_path, strip_uri
from twinbus.errors import (
    CallerError,
    MessageTooLarge,
    OutcomeUnknown,
    RemoteError,
    SendRefused,
    TwinbusError,
)
from twinbus.ledger.schema import SEND, SYPHON
from twinbus.pairing.pump.locks import Item
from twinbus.pairing.rules.envelope import REASON_ALIAS
from twinbus.pairing.rules.retry import halves, is_of_one_message
from twinbus.pairing.rules.syphon_rules import DeadLetter, Rest, after_failure


class Owner(Protocol):
    """The pump, which is told what became of the messages."""

    def accepted(self, destination: Destination, items: Sequence[Item]) -> None: ...

    def refused(self, items: Sequence[Item], verdict: DeadLetter) -> None: ...

    def rests(
        self,
        destination: Destination,
        rest: Rest,
        items: Sequence[Item],
        cause: BaseException,
    ) -> None: ...

    def unsure(self, items: Sequence[Item]) -> None: ...

    def lost(self, items: Sequence[Item]) -> None:
        """The lock of the first of these may have ended before it was sent."""

    def holding_since_ms(self) -> int:
        """What was locked after this is still locked."""


class TargetSender(Protocol):
    """What takes the messages of one destination; `client.sender.Sender` is one."""

    @property
    def batch_bytes_max(self) -> int: ...

    async def send(
        self, messages: bytes | Sequence[bytes], timeout_seconds: float | None = None
    ) -> None:
        """Return when they are accepted; raises what a `Sender` raises."""


class PumpTarget(Protocol):
    """Where the messages of a pump go."""

    def use(self, path: str) -> AbstractContextManager[TargetSender]:
        """What takes the messages for this path, inside the block."""

    async def close(self) -> None: ...


class Destination:
    """Sends to one entity of the primary; `unsent` is what waits for it.

    Whether it rests is known by the rules (`syphon_rules.DestinationStates`).
    """

    def __init__(
        self, owner: Owner, target: PumpTarget, path: str, send_seconds: float
    ) -> None:
        self.path = path
        # Messages that were not sent yet.
        self.unsent: deque[Item] = deque()
        self._owner = owner
        self._target = target
        self._send_seconds = send_seconds

    async def work(self) -> None:
        """Send until nothing is left."""
        invalid = _invalid(self.path)
        if invalid is not None:
            self._owner.refused(self._clear(), invalid)
        while self.unsent:
            with self._target.use(self.path) as sender:
                batch = self._batch(sender.batch_bytes_max)
                if not batch:
                    self._owner.lost(self._clear())
                    return
                await self._send(sender, batch)

    def _clear(self) -> list[Item]:
        items = list(self.unsent)
        self.unsent.clear()
        return items

    def _batch(self, bytes_max: int) -> list[Item]:
        """As many unsent messages as fit into one batch, up to one that is not held."""
        unsent = self.unsent
        since_ms = self._owner.holding_since_ms()
        left_bytes = bytes_max - limits.BATCH_ENVELOPE_BYTES
        batch: list[Item] = []
        for item in unsent:
            left_bytes -= len(item.to_send.payload) + limits.BATCH_SECTION_BYTES
            if (left_bytes < 0 and batch) or item.locked_ms <= since_ms:
                break
            batch.append(item)
            if len(batch) == limits.BATCH_MESSAGES_MAX:
                break
        for _ in batch:
            unsent.popleft()
        return batch

    async def _send(self, sender: TargetSender, batch: list[Item]) -> None:
        """Send a batch; the parts of one that was refused go one after the other."""
        parts = deque([batch])
        while parts:
            part = parts.popleft()
            failures = await self._attempt(sender, part)
            if not failures:
                self._owner.accepted(self, part)
                continue
            taken = [item for at, item in enumerate(part) if at not in failures]
            if taken:
                self._owner.accepted(self, taken)
            refused = [part[at] for at in sorted(failures)]
            error = failures[min(failures)]
            if isinstance(error, OutcomeUnknown):
                self._owner.unsure(refused)
            verdict = self._verdict(error)
            if isinstance(verdict, Rest):
                left = [item for each in parts for item in each]
                waiting = [*refused, *left, *self._clear()]
                self._owner.rests(self, verdict, waiting, error)
                return
            if len(refused) > 1 and is_of_one_message(error):
                parts.extendleft(reversed(halves(refused)))
            else:
                # Alone, or refused by the entity, which would refuse the others too.
                self._owner.refused(refused, verdict)

    async def _attempt(
        self, sender: TargetSender, items: list[Item]
    ) -> dict[int, RemoteError | MessageTooLarge]:
        """Send these once; returns why some were not taken, by their places."""
        payloads = [item.to_send.payload for item in items]
        try:
            await sender.send(
                payloads[0] if len(payloads) == 1 else payloads, self._send_seconds
            )
        except SendRefused as error:
            return dict(error.failures)
        except (RemoteError, MessageTooLarge) as error:
            return dict.fromkeys(range(len(items)), error)
        return {}

    def _verdict(self, error: BaseException) -> Rest | DeadLetter:
        if isinstance(error, OutcomeUnknown):
            # It may be there. What is sent again is the same message, and the next
            # attempt tells what is wrong with the entity.
            return Rest.AWAY
        return after_failure(self.path, error)


def _invalid(path: str) -> DeadLetter | None:
    """A path that no entity has. It must not reach a node that takes requests."""
    try:
        check_entity_path(strip_uri(path), "x-ms-path")
    except CallerError as error:
        return DeadLetter(REASON_ALIAS, error.text)
    return None


class _Entry:
    __slots__ = ("sender", "users")

    def __init__(self, sender: Sender) -> None:
        self.sender = sender
        self.users = 0


class Senders:
    """The senders of one connection, by the path of their entity."""

    def __init__(
        self, connection: Connection, open_max: int = limits.SYPHON_SENDERS_MAX
    ) -> None:
        self._connection = connection
        self._open_max = open_max
        # The one that was used last is at the end.
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    @contextmanager
    def use(self, path: str) -> Iterator[Sender]:
        """The sender to an entity; it stays open inside the block."""
        address = strip_uri(path)
        key = address.lower()
        entry = self._entries.get(key)
        if entry is None:
            sender = self._connection.sender(address)
            sender.counted_as = SYPHON, SEND
            entry = self._entries[key] = _Entry(sender)
        self._entries.move_to_end(key)
        entry.users += 1
        try:
            yield entry.sender
        finally:
            entry.users -= 1
            if len(self._entries) > self._open_max:
                self._close_oldest()

    async def close(self) -> None:
        """Close all links; a later use makes new ones."""
        entries, self._entries = self._entries, OrderedDict()
        closing = [_close(entry.sender) for entry in entries.values()]
        await asyncio.gather(*closing, *self._closing)

    def _close_oldest(self) -> None:
        idle = (key for key, entry in self._entries.items() if not entry.users)
        key = next(idle, None)
        if key is not None:
            sender = self._entries.pop(key).sender
            task = asyncio.get_running_loop().create_task(_close(sender))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


async def _close(sender: Sender) -> None:
    try:
        await sender.close()
    except TwinbusError:
        # The connection is gone, and the link with it.
        return
