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
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from twinbus import limits
from twinbus.client.batch import Parcel, Room, pack
from twinbus.client.deadline import Deadline
from twinbus.client.live import LiveConnection
from twinbus.client.sending import Sending, SendLink
from twinbus.client.shared import Shared
from twinbus.errors import RemoteError, SendRefused
from twinbus.wire.performatives import Attach, Source, Target

if TYPE_CHECKING:
    from twinbus.client.connection import Connection

_BATCH_PROPERTY = "com.microsoft:max-message-batch-size"
# Batches stay below this where an entity takes larger messages, as in the SDKs.
_BATCH_BYTES_MAX = 1024 * 1024


class Sender:
    """Sends to one entity; made by `Connection.sender`, links when first used."""

    def __init__(self, connection: Connection, path: str) -> None:
        self.path = path
        self._connection = connection
        self._link: SendLink | None = None
        self._attaching = Shared(self._attach)
        self._room = Room(limits.MESSAGE_BYTES_MAX, limits.MESSAGE_BYTES_MAX)

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
        deadline = self._connection.deadline(timeout_seconds)
        link = self._link
        if link is None or link.failure is not None:
            link = await self._linked(deadline)
        if isinstance(messages, bytes):
            if len(messages) <= self._room.message_bytes_max:
                await link.outcome(link.submit(messages), deadline)
                return
            messages = (messages,)
        parcels = list(pack(messages, self._room))
        sendings = [link.submit(each.payload, each.form) for each in parcels]
        await _outcomes(link, parcels, sendings, deadline)

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
        name = f"{live.engine.container_id}-sender"
        await link.attach(
            Attach(
                snd_settle_mode=0,
                source=Source(address=name),
                target=Target(address=self.path),
            )
        )
        self._room = _room(link)
        self._link = link
        return link


def _room(link: SendLink) -> Room:
    """What the server said that it takes."""
    answer = link.link.peer_attach
    most = answer.max_message_size or limits.MESSAGE_BYTES_CEILING
    batch = (answer.properties or {}).get(_BATCH_PROPERTY)
    if not isinstance(batch, int) or batch <= 0:
        batch = min(most, _BATCH_BYTES_MAX)
    return Room(most, min(int(batch), most))


async def _outcomes(
    link: SendLink, parcels: list[Parcel], sendings: list[Sending], deadline: Deadline
) -> None:
    """Wait for the outcomes of several transfers, all under one deadline."""
    failures: dict[int, RemoteError] = {}
    try:
        for parcel, sending in zip(parcels, sendings, strict=True):
            try:
                await link.outcome(sending, deadline)
            except RemoteError as error:
                places = range(parcel.first, parcel.first + parcel.length)
                failures.update(dict.fromkeys(places, error))
    finally:
        # Cancelled: what was not sent yet will not be, the rest is forgotten.
        for sending in sendings:
            link.forget(sending)
    if failures and len(sendings) == 1:
        raise failures.popitem()[1]
    if failures:
        raise SendRefused(failures)
