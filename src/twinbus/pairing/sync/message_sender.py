# Made by tools/async_to_sync.py from pairing/shell/message_sender.py. DO NOT CHANGE.
"""The sync twin of `pairing/shell/message_sender.py`, for any number of threads.

The same methods with the same meaning, run in the client's own thread. Each returns
when its async original would, and raises what that would raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Self

from twinbus.client.transport.loop_thread import LoopThread
from twinbus.pairing.sdk.batch import MessageBatch
from twinbus.pairing.shell import message_sender as aio


class MessageSender:
    """Sends to one queue or topic, from any number of tasks at once.

    Made by `MessagingFactory.get_queue_sender` and `get_topic_sender`. Paired, a send
    that returns is durable: in the entity, or in a backlog queue on its way there.
    """

    def __init__(self, inner: aio.MessageSender, thread: LoopThread) -> None:
        self._inner = inner
        self._thread = thread

    @property
    def entity_name(self) -> str:
        return self._inner.entity_name

    @property
    def fully_qualified_namespace(self) -> str:
        """The host name of the primary."""
        return self._inner.fully_qualified_namespace

    @property
    def client_identifier(self) -> str:
        """What this sender is called."""
        return self._inner.client_identifier

    @property
    def paired(self) -> bool:
        """Whether sends go to the backlog while the entity is away."""
        return self._inner.paired

    def send_messages(
        self, message: Any, *, timeout: float | None = None, **kwargs: Any
    ) -> None:
        """Send a message, a list of them or a batch; returns when they are accepted.

        Without a timeout, a paired sender holds what the primary does not take until
        the primary is well again or a backlog queue has taken it.
        """
        self._thread.run(
            lambda: self._inner.send_messages(message, timeout=timeout, **kwargs)
        )

    def schedule_messages(
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
        return self._thread.run(
            lambda: self._inner.schedule_messages(
                messages, schedule_time_utc, timeout=timeout, **kwargs
            )
        )

    def cancel_scheduled_messages(
        self,
        sequence_numbers: int | Sequence[int],
        *,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> None:
        """Take scheduled messages back. Only the primary can."""
        self._thread.run(
            lambda: self._inner.cancel_scheduled_messages(
                sequence_numbers, timeout=timeout, **kwargs
            )
        )

    def create_message_batch(
        self, max_size_in_bytes: int | None = None
    ) -> MessageBatch:
        """A batch to fill; never needs the primary.

        Its size is the last known limit of the entity, 256 KB before any is known.
        """
        return self._thread.run(
            lambda: self._inner.create_message_batch(max_size_in_bytes)
        )

    def close(self) -> None:
        """No more sends through this sender; the factory and its links stay."""
        if not self._thread.usable:
            return
        self._thread.run(self._inner.close)

    def __str__(self) -> str:
        return str(self._inner)

    def __enter__(self) -> Self:
        self._thread.run(self._inner.__aenter__)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
