# Made by tools/async_to_sync.py from client/management.py. DO NOT CHANGE.
"""The sync twin of `client/management.py`, for any number of threads.

The same methods with the same meaning, run in the client's own thread. Each returns
when its async original would, and raises what that would raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from twinbus.client import management as aio
from twinbus.client.message import Message
from twinbus.client.settlement import Settlement
from twinbus.client.transport.loop_thread import LoopThread
from twinbus.core.rule import RuleDescription


class Management:
    """Requests about one entity; made by `Connection.management`."""

    def __init__(self, inner: aio.Management, thread: LoopThread) -> None:
        self._inner = inner
        self._thread = thread

    @property
    def path(self) -> str:
        return self._inner.path

    def peek(
        self,
        count_max: int,
        from_sequence: int = 1,
        session_id: str | None = None,
        timeout_seconds: float | None = None,
    ) -> list[Message]:
        """Look at messages in any state from a number on, without locking them."""
        return self._thread.run(
            lambda: self._inner.peek(
                count_max, from_sequence, session_id, timeout_seconds
            )
        )

    def receive_deferred(
        self,
        sequence_numbers: Sequence[int],
        session_id: str | None = None,
        *,
        deletes: bool = False,
        timeout_seconds: float | None = None,
    ) -> list[Message]:
        """Lock deferred messages by their numbers, or remove them; all or none."""
        return self._thread.run(
            lambda: self._inner.receive_deferred(
                sequence_numbers,
                session_id,
                deletes=deletes,
                timeout_seconds=timeout_seconds,
            )
        )

    def settle(
        self,
        lock_tokens: Sequence[UUID],
        settlement: Settlement,
        session_id: str | None = None,
        timeout_seconds: float | None = None,
    ) -> None:
        """Settle locked messages by their tokens, all or none."""
        self._thread.run(
            lambda: self._inner.settle(
                lock_tokens, settlement, session_id, timeout_seconds
            )
        )

    def renew_locks(
        self, lock_tokens: Sequence[UUID], timeout_seconds: float | None = None
    ) -> list[int]:
        """Move the ends of locks; returns the new ones, in milliseconds."""
        return self._thread.run(
            lambda: self._inner.renew_locks(lock_tokens, timeout_seconds)
        )

    def schedule(
        self, messages: Sequence[bytes], timeout_seconds: float | None = None
    ) -> list[int]:
        """Send messages for later: each says when in `x-opt-scheduled-enqueue-time`.

        Returns their sequence numbers, by which they can be cancelled. All or none.
        """
        return self._thread.run(lambda: self._inner.schedule(messages, timeout_seconds))

    def cancel_scheduled(
        self, sequence_numbers: Sequence[int], timeout_seconds: float | None = None
    ) -> None:
        """Take scheduled messages back; all or none."""
        self._thread.run(
            lambda: self._inner.cancel_scheduled(sequence_numbers, timeout_seconds)
        )

    def delete(
        self,
        count_max: int,
        before_ms: int,
        session_id: str | None = None,
        timeout_seconds: float | None = None,
    ) -> int:
        """Remove the oldest ready messages that came before a time; returns how many.

        The server may remove fewer than it could: ask again until it was none.
        """
        return self._thread.run(
            lambda: self._inner.delete(
                count_max, before_ms, session_id, timeout_seconds
            )
        )

    def add_rule(
        self, rule: RuleDescription, timeout_seconds: float | None = None
    ) -> None:
        """Add a rule to a subscription."""
        self._thread.run(lambda: self._inner.add_rule(rule, timeout_seconds))

    def remove_rule(self, name: str, timeout_seconds: float | None = None) -> None:
        """Remove a rule of a subscription."""
        self._thread.run(lambda: self._inner.remove_rule(name, timeout_seconds))

    def rules(
        self, skip: int = 0, top: int = 100, timeout_seconds: float | None = None
    ) -> list[RuleDescription]:
        """The rules of a subscription, in the order in which they were added."""
        return self._thread.run(lambda: self._inner.rules(skip, top, timeout_seconds))

    def renew_session(
        self, session_id: str, timeout_seconds: float | None = None
    ) -> int:
        """Move the end of a session's lock; returns the new one, in milliseconds."""
        return self._thread.run(
            lambda: self._inner.renew_session(session_id, timeout_seconds)
        )

    def session_state(
        self, session_id: str, timeout_seconds: float | None = None
    ) -> bytes | None:
        """What the session remembers."""
        return self._thread.run(
            lambda: self._inner.session_state(session_id, timeout_seconds)
        )

    def set_session_state(
        self, session_id: str, state: bytes | None, timeout_seconds: float | None = None
    ) -> None:
        """Let the session remember something, or nothing."""
        self._thread.run(
            lambda: self._inner.set_session_state(session_id, state, timeout_seconds)
        )

    def sessions(
        self, skip: int = 0, top: int = 100, timeout_seconds: float | None = None
    ) -> list[str]:
        """Names of sessions that have messages or a state."""
        return self._thread.run(
            lambda: self._inner.sessions(skip, top, timeout_seconds)
        )
