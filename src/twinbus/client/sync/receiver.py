# Made by tools/async_to_sync.py from client/receiver.py. DO NOT CHANGE.
"""The sync twin of `client/receiver.py`, for any number of threads.

The same methods with the same meaning, run in the client's own thread. Each returns
when its async original would, and raises what that would raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from twinbus.client import receiver as aio
from twinbus.client.message import Message
from twinbus.client.receiver import Messages
from twinbus.client.transport.loop_thread import LoopThread


class Receiver:
    """Receives from one entity; made by `Connection.receiver`, links when used."""

    def __init__(self, inner: aio.Receiver, thread: LoopThread) -> None:
        self._inner = inner
        self._thread = thread

    @property
    def path(self) -> str:
        return self._inner.path

    @property
    def session_id(self) -> str | None:
        return self._inner.session_id

    @property
    def session_locked_until_ms(self) -> int | None:
        return self._inner.session_locked_until_ms

    def open(self, timeout_seconds: float | None = None) -> None:
        """Link now; a session receiver has its session when this returns."""
        self._thread.run(lambda: self._inner.open(timeout_seconds))

    def receive(
        self, count_max: int = 1, wait_seconds: float | None = None
    ) -> list[Message]:
        """What there is, `count_max` at most, as soon as there is something.

        Empty if nothing came within `wait_seconds`; the time to connect and link is
        counted apart, with the connection's own timeout.
        """
        return self._thread.run(lambda: self._inner.receive(count_max, wait_seconds))

    def peek(
        self,
        count_max: int = 1,
        from_sequence: int = 1,
        timeout_seconds: float | None = None,
    ) -> list[Message]:
        """Look at messages without locking them; a session receiver at its own."""
        return self._thread.run(
            lambda: self._inner.peek(count_max, from_sequence, timeout_seconds)
        )

    def receive_deferred(
        self, sequence_numbers: Sequence[int], timeout_seconds: float | None = None
    ) -> list[Message]:
        """Get deferred messages by their numbers; all or none."""
        return self._thread.run(
            lambda: self._inner.receive_deferred(sequence_numbers, timeout_seconds)
        )

    def complete(
        self, messages: Messages, timeout_seconds: float | None = None
    ) -> None:
        """Remove messages; returns when they are gone for good."""
        self._thread.run(lambda: self._inner.complete(messages, timeout_seconds))

    def abandon(
        self,
        messages: Messages,
        properties: dict[str, Any] | None = None,
        timeout_seconds: float | None = None,
    ) -> None:
        """Give messages back; the delivery counts."""
        self._thread.run(
            lambda: self._inner.abandon(messages, properties, timeout_seconds)
        )

    def defer(
        self,
        messages: Messages,
        properties: dict[str, Any] | None = None,
        timeout_seconds: float | None = None,
    ) -> None:
        """Put messages aside; `receive_deferred` brings them back by their numbers."""
        self._thread.run(
            lambda: self._inner.defer(messages, properties, timeout_seconds)
        )

    def dead_letter(
        self,
        messages: Messages,
        reason: str | None = None,
        description: str | None = None,
        properties: dict[str, Any] | None = None,
        timeout_seconds: float | None = None,
    ) -> None:
        """Move messages to the dead-letter queue."""
        self._thread.run(
            lambda: self._inner.dead_letter(
                messages, reason, description, properties, timeout_seconds
            )
        )

    def release(self, messages: Messages) -> None:
        """Give messages back as if they had never been delivered; no reply follows.

        Without their link they return by themselves when their lock ends.
        """
        self._thread.run(lambda: self._inner.release(messages))

    def renew(self, messages: Messages, timeout_seconds: float | None = None) -> None:
        """Move the ends of the locks; `locked_until_ms` tells the new ones."""
        self._thread.run(lambda: self._inner.renew(messages, timeout_seconds))

    def renew_session(self, timeout_seconds: float | None = None) -> int:
        """Move the end of the session's lock; returns it, in milliseconds."""
        return self._thread.run(lambda: self._inner.renew_session(timeout_seconds))

    def session_state(self, timeout_seconds: float | None = None) -> bytes | None:
        """What the session remembers."""
        return self._thread.run(lambda: self._inner.session_state(timeout_seconds))

    def set_session_state(
        self, state: bytes | None, timeout_seconds: float | None = None
    ) -> None:
        """Let the session remember something, or nothing."""
        self._thread.run(lambda: self._inner.set_session_state(state, timeout_seconds))

    def close(self, timeout_seconds: float | None = None) -> None:
        """Give back what was not handed out, and end the link."""
        if not self._thread.usable:
            return
        self._thread.run(lambda: self._inner.close(timeout_seconds))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
