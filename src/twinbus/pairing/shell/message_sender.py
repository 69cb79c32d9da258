"""What an application sends with: the official sender's methods, on our transport.

Owns the surface: arguments in, encoded messages on, errors out as the official client
raises them. Where a message goes is `route.py`.
Entering the context needs no namespace: a sender links when it first sends.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from azure.servicebus.exceptions import ServiceBusConnectionError

from twinbus.client.sender import Sender
from twinbus.errors import CallerError, TwinbusError
from twinbus.pairing.errors import PairingError
from twinbus.pairing.rules.policy import EntityState
from twinbus.pairing.sdk.batch import MessageBatch
from twinbus.pairing.sdk.conversion import payloads_of
from twinbus.pairing.sdk.errors import as_sdk_error
from twinbus.pairing.shell.route import DirectRoute, PairedRoute, Scheduled, SendWork

if TYPE_CHECKING:
    from twinbus.pairing.shell.factory import MessagingFactory


class MessageSender:
    """Sends to one queue or topic, from any number of tasks at once.

    Made by `MessagingFactory.get_queue_sender` and `get_topic_sender`. Paired, a send
    that returns is durable: in the entity, or in a backlog queue on its way there.
    """

    def __init__(
        self, factory: MessagingFactory, path: str, client_identifier: str | None
    ) -> None:
        self.entity_name = path
        self._factory = factory
        self._identifier = client_identifier or f"MessageSender-{uuid4()}"
        self._route: PairedRoute | DirectRoute | None = factory.route(path)
        self._closed = False

    @property
    def fully_qualified_namespace(self) -> str:
        """The host name of the primary."""
        return self._factory.fully_qualified_namespace

    @property
    def client_identifier(self) -> str:
        """What this sender is called."""
        return self._identifier

    @property
    def paired(self) -> bool:
        """Whether sends go to the backlog while the entity is away."""
        return isinstance(self._route, PairedRoute)

    # -- sending -----------------------------------------------------------------------

    async def send_messages(
        self, message: Any, *, timeout: float | None = None, **kwargs: Any
    ) -> None:
        """Send a message, a list of them or a batch; returns when they are accepted.

        Without a timeout, a paired sender holds what the primary does not take until
        the primary is well again or a backlog queue has taken it.
        """
        route = self._route
        if route is None or kwargs or timeout is not None or self._closed:
            route = await self._begin(timeout, kwargs)
        self._factory.check_open()
        payloads = payloads_of(message, isinstance(route, PairedRoute))
        # Freed now, its memory is still in the processor's cache.
        del message
        if not payloads:
            return
        try:
            await route.send(SendWork(payloads), timeout)
        except TwinbusError as error:
            raise _for_caller(error) from error

    async def schedule_messages(
        self,
        messages: Any,
        schedule_time_utc: datetime,
        *,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> list[int | None]:
        """Send messages for a later time; returns the numbers to cancel them by.

        A message that went to the backlog has no number: None in its place.
        """
        route = await self._begin(timeout, kwargs)
        payloads = payloads_of(messages, isinstance(route, PairedRoute))
        if not payloads:
            return []
        each = [payloads] if isinstance(payloads, bytes) else payloads
        time_ms = _milliseconds(schedule_time_utc)
        management = self._factory.connection.management(self.entity_name)
        work = Scheduled(each, time_ms, management)
        try:
            primary = await route.send(work, timeout)
        except TwinbusError as error:
            raise _for_caller(error) from error
        return list(work.numbers) if primary else [None] * len(each)

    async def cancel_scheduled_messages(
        self,
        sequence_numbers: int | Sequence[int],
        *,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> None:
        """Take scheduled messages back. Only the primary can."""
        route = await self._begin(timeout, kwargs)
        if isinstance(sequence_numbers, int):
            sequence_numbers = [sequence_numbers]
        if any(not isinstance(each, int) for each in sequence_numbers):
            raise TypeError(
                "sequence_numbers must be whole numbers. A message that went to the "
                "backlog has none, and cannot be cancelled."
            )
        if not sequence_numbers:
            return
        if isinstance(route, PairedRoute):
            _check_primary(route)
        management = self._factory.connection.management(self.entity_name)
        seconds = self._factory.settings.attempt_seconds
        if timeout is not None:
            seconds = min(seconds, timeout)
        try:
            await management.cancel_scheduled(sequence_numbers, seconds)
        except TwinbusError as error:
            raise _for_caller(error) from error

    async def create_message_batch(
        self, max_size_in_bytes: int | None = None
    ) -> MessageBatch:
        """A batch to fill; never needs the primary.

        Its size is the last known limit of the entity, 256 KB before any is known.
        """
        route = await self._begin(None, {})
        most = _sender(route).batch_bytes_max
        if max_size_in_bytes and max_size_in_bytes > most:
            raise ValueError(
                f"Max message size: {max_size_in_bytes} is too large, "
                f"acceptable max batch size is: {most} bytes."
            )
        return MessageBatch(max_size_in_bytes or most, with_ids=self.paired)

    # -- life --------------------------------------------------------------------------

    async def close(self) -> None:
        """No more sends through this sender; the factory and its links stay."""
        self._closed = True

    async def __aenter__(self) -> Self:
        if self._closed:
            raise _closed()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __str__(self) -> str:
        return f"Sender client id: {self._identifier}, entity: {self.entity_name}"

    async def _begin(
        self, timeout: float | None, unknown: dict[str, Any]
    ) -> PairedRoute | DirectRoute:
        """Check the arguments, and wait for a pairing that was under way."""
        if unknown:
            warnings.warn(f"Unsupported keyword args: {unknown}", stacklevel=3)
        if timeout is not None and timeout <= 0:
            raise ValueError("The timeout must be greater than 0.")
        if self._closed:
            raise _closed()
        self._factory.check_open()
        if self._route is None:
            async with asyncio.timeout(timeout):
                await self._factory.pairing_ended()
            self._route = self._factory.route(self.entity_name)
            assert self._route is not None
        return self._route


def _sender(route: PairedRoute | DirectRoute) -> Sender:
    return route.entity.sender if isinstance(route, PairedRoute) else route.sender


def _check_primary(route: PairedRoute) -> None:
    policy = route.entity.policy
    if policy.state is EntityState.FAILED_OVER:
        raise ServiceBusConnectionError(
            message=f"Only the primary can cancel scheduled messages, and "
            f"'{policy.path}' has failed over. Try again when it has failed back."
        )


def _closed() -> ValueError:
    return ValueError(
        "The sender has already been closed. Make another with get_queue_sender or "
        "get_topic_sender."
    )


def _milliseconds(moment: datetime) -> int:
    if moment.tzinfo is None:
        # As the official client: a time without a zone is UTC.
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def _for_caller(error: TwinbusError) -> Exception:
    # Misuse of a factory (wrong loop, wrong pair) has no error in the official client.
    if isinstance(error, PairingError) or type(error) is CallerError:
        return error
    return as_sdk_error(error)
