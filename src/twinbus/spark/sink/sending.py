"""Sending the rows of one task: until they are accepted, or can never be.

| the service says                   | what follows                                |
|------------------------------------|---------------------------------------------|
| busy, or full                      | a pause of ten seconds, then again          |
| nothing: away, silent, broken      | a short pause, then again with the same ids |
| this message is wrong or too large | alone a bad row; in a batch looked for      |
| there is no such entity            | all rows for that entity are bad rows       |
| no right, entity disabled          | the write fails                             |

All pauses of a task together are limited; then the write fails with the last reason.
A bad row fails the write too, unless there is a place for bad rows. Rows for one
entity leave in their order, as long as none has to be sent again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from twinbus.client.sync.connection import Connection
from twinbus.client.sync.sender import Sender
from twinbus.errors import (
    MessageTooLarge,
    OperationTimeout,
    RemoteError,
    SendRefused,
    TwinbusError,
)
from twinbus.pairing.rules.classification import Failure, kind_of
from twinbus.pairing.rules.retry import (
    SPARK_BACKOFF,
    halves,
    is_of_one_message,
    is_transient,
)

# A full entity is treated as a busy one: both take messages again later.
_BUSY = (Failure.BUSY, Failure.FULL)


class RowRefused(TwinbusError):
    """A row can never be sent."""

    condition = "com.microsoft:argument-error"


class RowMessage(NamedTuple):
    """One row on its way."""

    # How a person finds the row again.
    key: str
    payload: bytes
    # Its place in the partition.
    row: int


class WaitBudget:
    """How long a task may still wait for a namespace."""

    def __init__(
        self, seconds: float, pause: Callable[[float], object] | None = None
    ) -> None:
        self._left_seconds = seconds
        self._pause = pause or threading.Event().wait
        self._failures = 0

    def wait(self, reason: TwinbusError) -> None:
        """Pause before another attempt, or give up and say why."""
        busy = kind_of(reason) in _BUSY
        self._failures += not busy
        seconds = SPARK_BACKOFF.pause_ms(self._failures, busy=busy) / 1000
        if self._left_seconds < seconds:
            raise OperationTimeout(
                "The task's time to wait is over (option 'taskBudgetSeconds'). The "
                f"last answer was: {reason.text}"
            )
        self._left_seconds -= seconds
        self._pause(seconds)

    def restore(self) -> None:
        """Something was accepted: the next failure starts with a short pause."""
        self._failures = 0


class RowSender:
    """Sends messages; `on_bad` takes what can never be sent, or raises."""

    def __init__(
        self,
        connection: Connection,
        budget: WaitBudget,
        on_bad: Callable[[RowMessage, str, TwinbusError], None],
        on_pause: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._budget = budget
        self._on_bad = on_bad
        self._on_pause = on_pause
        self._senders: dict[str, Sender] = {}

    def send(self, entity: str, messages: Sequence[RowMessage]) -> None:
        """Return when every message was accepted or given to `on_bad`."""
        pending = list(messages)
        while pending:
            failures = self._attempt(entity, pending)
            if len(failures) < len(pending):
                self._budget.restore()
            pending = self._judge(entity, pending, failures)

    def close(self) -> None:
        """End the links; the connection stays for the next task."""
        for sender in self._senders.values():
            sender.close()

    def _sender(self, entity: str) -> Sender:
        sender = self._senders.get(entity)
        if sender is None:
            sender = self._senders[entity] = self._connection.sender(entity)
        return sender

    def _attempt(
        self, entity: str, messages: Sequence[RowMessage]
    ) -> dict[int, TwinbusError]:
        """Send once; returns the failures by the place of their messages."""
        sender = self._sender(entity)
        places = range(len(messages))
        try:
            # What the entity takes is known only once there is a link.
            sender.open()
            most = sender.message_bytes_max
            large: dict[int, TwinbusError] = {
                place: _too_large(messages[place], most)
                for place in places
                if len(messages[place].payload) > most
            }
            fitting = [place for place in places if place not in large]
            if fitting:
                failures = self._send(sender, [messages[at].payload for at in fitting])
                large |= {fitting[at]: error for at, error in failures.items()}
            return large
        except RemoteError as error:
            return dict.fromkeys(places, error)

    def _send(self, sender: Sender, payloads: list[bytes]) -> dict[int, TwinbusError]:
        try:
            sender.send(payloads)
        except SendRefused as error:
            return dict(error.failures)
        except RemoteError as error:
            return dict.fromkeys(range(len(payloads)), error)
        return {}

    def _judge(
        self,
        entity: str,
        messages: Sequence[RowMessage],
        failures: dict[int, TwinbusError],
    ) -> list[RowMessage]:
        """Deal with failures; returns the messages to try again, in their order."""
        again: dict[int, TwinbusError] = {}
        for error, places in _by_error(failures):
            kind = kind_of(error)
            if kind in _BUSY or is_transient(error):
                again |= dict.fromkeys(places, error)
            elif kind is Failure.MISSING or (
                is_of_one_message(error) and len(places) == 1
            ):
                for place in places:
                    self._on_bad(messages[place], entity, error)
            elif is_of_one_message(error):
                for part in halves(places):
                    self.send(entity, [messages[place] for place in part])
            else:
                raise error
        if again:
            reason = again[min(again)]
            self._on_pause()
            self._budget.wait(reason)
        return [messages[place] for place in sorted(again)]


def _too_large(message: RowMessage, most: int) -> MessageTooLarge:
    size_bytes = len(message.payload)
    return MessageTooLarge(
        f"The message has {size_bytes} bytes; the entity takes at most {most}."
    )


def _by_error(
    failures: dict[int, TwinbusError],
) -> Iterable[tuple[TwinbusError, list[int]]]:
    """Failures with their places in order; those of one batch share their error."""
    found: dict[int, tuple[TwinbusError, list[int]]] = {}
    for place in sorted(failures):
        error = failures[place]
        found.setdefault(id(error), (error, []))[1].append(place)
    return found.values()
