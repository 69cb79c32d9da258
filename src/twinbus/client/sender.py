"""A sender: messages to one entity, for any number of tasks at once.

The way of a message: `send` sees to a link (`connection.py` opens what is missing),
packs (`batch.py`), submits to the link (`sending.py`), and waits for the outcome. A
send is tried once. What it raises says whether trying again may send twice:

| raised             | the message                                                    |
|--------------------|----------------------------------------------------------------|
| `OutcomeUnknown`   | was sent; it may have been accepted                            |
| `DeadlineExceeded` | was not sent: no connection, link or credit in time            |
| `Disconnected`     | was not sent: the connection broke before                      |
| `RemoteError`      | was refused, or the link was; the condition says why           |
| `MessageTooLarge`  | was not sent: the entity does not take as much                 |
| `SendRefused`      | one of several transfers had one of these fates; it says which |

`submit` is `send` without the wait. It returns at once, raises only what is the fault
of the caller, and its `Outcome` (`outcome.py`) ends as `send` would:

    outcome = sender.submit(messages, timeout_seconds)   # same arguments as `send`
    await outcome                  # as `await sender.send(...)`, at the same cost
    outcome.done(), outcome.exception(), outcome.add_done_callback(call)
    outcome.future                 # a real future, for `asyncio.wait` and the like
    outcome.begun                  # whether any of it may have been sent
    outcome.cancel()               # taken back if it was not sent, else forgotten; a
                                   # task that is cancelled while it awaits does this
    late = outcome.leave(reason)   # who awaits it is raised `reason`; the send
                                   # goes on until its own deadline, and `late`, another
                                   # future, ends as it does. Look at its exception.

All of it is for the event loop of the connection. `leave` returns `outcome.future` as
it is if that has ended. `TaskOutcome(coroutine)` is an outcome of anything else that is
awaited, such as `management.schedule(...)`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Self

from twinbus import limits
from twinbus.client.live import LiveConnection
from twinbus.client.outcome import Outcome, TaskOutcome
from twinbus.client.sending import DeliveryOutcome, SendLink
from twinbus.client.transport.deadline import Deadline
from twinbus.client.transport.shared import Shared
from twinbus.errors import RemoteError, SendRefused
from twinbus.ledger.schema import CLIENT, SEND
from twinbus.wire.message.batch import LinkLimits, Parcel, pack
from twinbus.wire.performatives import SND_UNSETTLED, Attach, Source, Target

if TYPE_CHECKING:
    from twinbus.client.connection import Connection

_BATCH_PROPERTY = "com.microsoft:max-message-batch-size"


class Sender:
    """Sends to one entity; made by `Connection.sender`, links when first used."""

    # What the ledger calls its sends: the source, and the operation.
    counted_as = CLIENT, SEND

    def __init__(self, connection: Connection, path: str) -> None:
        self.path = path
        self._connection = connection
        self._link: SendLink | None = None
        self._attaching = Shared(self._attach)
        self._room = LinkLimits(limits.MESSAGE_BYTES_MAX, limits.MESSAGE_BYTES_MAX)

    @property
    def message_bytes_max(self) -> int:
        """The largest message that the entity takes, as far as is known."""
        return self._room.message_bytes_max

    @property
    def batch_bytes_max(self) -> int:
        """The largest batch that the entity takes, as far as is known."""
        return self._room.batch_bytes_max

    async def open(self, timeout_seconds: float | None = None) -> None:
        """Link now; shows whether the entity can be sent to."""
        await self._linked(self._connection.deadline(timeout_seconds))

    async def send(
        self,
        messages: bytes | Sequence[bytes],
        timeout_seconds: float | None = None,
    ) -> None:
        """Send encoded messages, and return when they are accepted.

        Several go as batches, each as full as the entity allows: the server takes all
        of a batch or none. A task that is cancelled here leaves nothing half done.
        """
        link = self._link
        if link is None or link.failure is not None:
            await self._send(messages, self._connection.deadline(timeout_seconds))
        else:
            await self.submit(messages, timeout_seconds).future

    def submit(
        self,
        messages: bytes | Sequence[bytes],
        timeout_seconds: float | None = None,
    ) -> Outcome:
        """Send without waiting: see the top of the file."""
        deadline = self._connection.deadline(timeout_seconds)
        link = self._link
        if link is None or link.failure is not None:
            return _Linking(self, messages, deadline)
        if type(messages) is bytes and len(messages) <= self._room.message_bytes_max:
            return link.submit(messages, 0, deadline)
        return self._submit(link, messages, deadline)

    def _submit(
        self, link: SendLink, messages: bytes | Sequence[bytes], deadline: Deadline
    ) -> Outcome:
        if isinstance(messages, bytes):
            messages = (messages,)
        parcels = list(pack(messages, self._room))
        sendings = [link.submit(each.payload, each.form, deadline) for each in parcels]
        if link.account is not None:
            for parcel, sending in zip(parcels, sendings, strict=True):
                held = messages[parcel.first : parcel.first + parcel.length]
                sending.sizes = [len(each) for each in held]
        return sendings[0] if len(sendings) == 1 else _Several(parcels, sendings)

    async def _send(
        self, messages: bytes | Sequence[bytes], deadline: Deadline
    ) -> None:
        link = await self._linked(deadline)
        await self._submit(link, messages, deadline)

    async def close(self, timeout_seconds: float | None = None) -> None:
        """End the link; a later send makes another."""
        link, self._link = self._link, None
        if link is not None:
            await link.close(self._connection.deadline(timeout_seconds))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- the link ----------------------------------------------------------------------

    async def _linked(self, deadline: Deadline) -> SendLink:
        link = self._link
        if link is None or link.failure is not None:
            link = await self._attaching.get(deadline)
        return link

    async def _attach(self) -> SendLink:
        return await self._connection.link(self.path, self._attaching, self._attach_to)

    async def _attach_to(self, live: LiveConnection) -> SendLink:
        link = SendLink(live)
        source, link.operation = self.counted_as
        link.account = self._connection.account(self.path, source)
        name = f"{live.engine.container_id}-sender"
        await link.attach(
            Attach(
                snd_settle_mode=SND_UNSETTLED,
                source=Source(address=name),
                target=Target(address=self.path),
            )
        )
        self._room = _room(link)
        self._link = link
        return link


def _room(link: SendLink) -> LinkLimits:
    """What the server said that it takes."""
    answer = link.link.peer_attach
    most = answer.max_message_size or limits.MESSAGE_BYTES_CEILING
    batch = (answer.properties or {}).get(_BATCH_PROPERTY)
    if not isinstance(batch, int) or batch <= 0:
        batch = min(most, limits.CLIENT_BATCH_BYTES_MAX)
    return LinkLimits(most, min(int(batch), most))


class _Linking(TaskOutcome):
    """A send that has to wait for its link."""

    __slots__ = ("_inner",)

    def __init__(
        self, sender: Sender, messages: bytes | Sequence[bytes], deadline: Deadline
    ) -> None:
        self._inner: Outcome | None = None
        super().__init__(self._send(sender, messages, deadline))

    async def _send(
        self, sender: Sender, messages: bytes | Sequence[bytes], deadline: Deadline
    ) -> None:
        link = await sender._linked(deadline)
        self._inner = sender._submit(link, messages, deadline)
        await self._inner

    @property
    def begun(self) -> bool:
        return self._inner is not None and self._inner.begun


class _Several(Outcome):
    """Several deliveries with one outcome: that of all of them."""

    __slots__ = ("_failures", "_left", "_parcels", "_sendings")

    def __init__(self, parcels: list[Parcel], sendings: list[DeliveryOutcome]) -> None:
        super().__init__()
        self._parcels = parcels
        self._sendings = sendings
        self._failures: dict[int, RemoteError] = {}
        self._left = len(sendings)
        for number, sending in enumerate(sendings):
            sending.future.add_done_callback(partial(self._decided, number))
        self.future.add_done_callback(self._ended)
        if not sendings:
            self.end(None)

    @property
    def begun(self) -> bool:
        return any(sending.begun for sending in self._sendings)

    def leave(self, reason: BaseException) -> asyncio.Future[None]:
        late = super().leave(reason)
        late.add_done_callback(self._ended)
        return late

    def _decided(self, number: int, one: asyncio.Future[None]) -> None:
        error = None if one.cancelled() else one.exception()
        if isinstance(error, RemoteError):
            parcel = self._parcels[number]
            places = range(parcel.first, parcel.first + parcel.length)
            self._failures.update(dict.fromkeys(places, error))
        self._left -= 1
        if not self._left:
            self.end(SendRefused(self._failures) if self._failures else None)

    def _ended(self, all_of_them: asyncio.Future[None]) -> None:
        if all_of_them.cancelled():
            for sending in self._sendings:
                sending.cancel()
