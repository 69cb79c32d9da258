"""Whether an entity has something to receive, as the driver of a stream asks.

A message is received and released at once, uncounted, or a session is accepted and let
go; nothing else tells "ready" from "locked" or "scheduled". The receive waits for a
while, so that an idle stream asks seldom. Rule: a namespace that is away is no error
here, since one would end the query: it is asked again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from twinbus import limits
from twinbus.client.receiver import ReceiveOptions
from twinbus.client.sync.connection import Connection
from twinbus.client.sync.receiver import Receiver
from twinbus.errors import DeadlineExceeded, RemoteError
from twinbus.pairing.rules.classification import Failure, kind_of
from twinbus.spark.checking import explained
from twinbus.spark.connections import ask_until_answered, connection_for
from twinbus.spark.source.browsing import Range, whole
from twinbus.spark.source.settings import SourceSettings

_T = TypeVar("_T")


class EntityWatch:
    """Looks at one entity for the driver."""

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings
        self._receiver: Receiver | None = None
        # With `availableNow`: the last number that was there at the start.
        self._target: int | None = None

    @property
    def connection(self) -> Connection:
        """The connection of this process."""
        return connection_for(self._settings.access)

    def aim(self) -> None:
        """What comes from now on is for another run."""
        management = self.connection.management(self._settings.path)
        everything = Range(1, limits.SEQUENCE_NUMBER_MAX)
        self._target = self.ask(lambda: whole(management, everything)).last

    def has_work(self) -> bool:
        """Whether there is something to receive; waits a little for it."""
        look = self._session_ready if self._settings.sessions else self._ready
        return self.ask(look)

    def close(self) -> None:
        """End the link."""
        if self._receiver is not None:
            self._receiver.close()

    def ask(self, question: Callable[[], _T]) -> _T:
        """Ask until there is an answer; errors that stay say what to change."""
        settings = self._settings
        try:
            return ask_until_answered(question)
        except RemoteError as error:
            raise explained(error, settings.access, settings.path, "Listen") from None

    def _wait_seconds(self, at_once: float) -> float:
        """How long to wait; a run that ends with what is there waits for nothing."""
        return limits.SOURCE_IDLE_SECONDS if self._target is None else at_once

    def _ready(self) -> bool:
        if self._receiver is None:
            self._receiver = self.connection.receiver(self._settings.path)
        found = self._receiver.receive(1, self._wait_seconds(0.0))
        self._receiver.release(found)
        if not found and self._target is not None:
            # The run would end now. Silence is no sign that all is done.
            self.connection.management(self._settings.path).peek(1)
        return any(self._is_due(each.sequence_number) for each in found)

    def _session_ready(self) -> bool:
        wait_seconds = self._wait_seconds(limits.SOURCE_SESSION_SECONDS)
        options = ReceiveOptions(next_session=True, session_seconds=wait_seconds)
        with self.connection.receiver(self._settings.path, options) as receiver:
            try:
                receiver.open()
            except RemoteError as error:
                if _is_answer(error):
                    # No session has anything to receive.
                    return False
                raise
            found = receiver.peek(1)
            return any(self._is_due(each.sequence_number) for each in found)

    def _is_due(self, sequence: int) -> bool:
        return self._target is None or sequence <= self._target


def _is_answer(error: RemoteError) -> bool:
    """Whether the service itself says that the time is over."""
    return kind_of(error) is Failure.TIMEOUT and not isinstance(error, DeadlineExceeded)
