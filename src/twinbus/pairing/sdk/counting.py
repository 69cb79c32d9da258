"""Receivers of the official client that count what they do in a ledger.

Owns two subclasses of the official receivers, blocking and for asyncio, with the same
methods. A receiver that was made by the official client becomes one of them. The size
of a message is that of its body, which is what the official client shows of it. Counts
are made in the event loop of the factory, wherever the caller's thread is.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from azure.servicebus import ServiceBusReceiver
from azure.servicebus.aio import ServiceBusReceiver as AsyncReceiver

from twinbus.ledger.counts import LedgerAccount
from twinbus.ledger.schema import (
    ACCEPTED,
    PEEK,
    POLL,
    RECEIVE,
    REFUSED,
    RENEW,
    SETTLE,
)

# Methods of one message, and what the ledger calls them.
_OF_MESSAGE = {
    "complete_message": SETTLE,
    "abandon_message": SETTLE,
    "defer_message": SETTLE,
    "dead_letter_message": SETTLE,
    "renew_message_lock": RENEW,
}


class ReceiverCounts:
    """Counts for one receiver, from any thread."""

    def __init__(
        self, account: LedgerAccount, loop: asyncio.AbstractEventLoop | None
    ) -> None:
        self._account = account
        # None: the caller is in it.
        self._loop = loop

    def _run(self, call: Callable[[], None]) -> None:
        if self._loop is None:
            call()
            return
        # The factory may have been closed.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    def messages(self, operation: str, received: Iterable[Any], empty: str) -> None:
        """What a call has brought; `empty` is what it is without a message."""
        sizes = [_size(message) for message in received]
        if sizes:
            self._run(partial(self._account.messages_out, operation, sizes))
        else:
            self.call(empty, ACCEPTED)

    def call(self, operation: str, outcome: str) -> None:
        """A call without a message."""
        self._run(partial(self._account.calls, operation, outcome))


def _size(message: Any) -> int:
    body = message.body
    if isinstance(body, bytes | str):
        return len(body)
    try:
        return sum(len(part) for part in body)
    except TypeError:
        return len(str(body))


class CountingReceiver(ServiceBusReceiver):
    """The blocking receiver, which counts."""

    ledger_counts: ReceiverCounts

    def receive_messages(self, *args: Any, **kwargs: Any) -> Any:
        received = super().receive_messages(*args, **kwargs)
        self.ledger_counts.messages(RECEIVE, received, POLL)
        return received

    def receive_deferred_messages(self, *args: Any, **kwargs: Any) -> Any:
        received = super().receive_deferred_messages(*args, **kwargs)
        self.ledger_counts.messages(RECEIVE, received, RECEIVE)
        return received

    def peek_messages(self, *args: Any, **kwargs: Any) -> Any:
        received = super().peek_messages(*args, **kwargs)
        self.ledger_counts.messages(PEEK, received, PEEK)
        return received

    def __iter__(self) -> Any:
        for message in super().__iter__():
            self.ledger_counts.messages(RECEIVE, [message], POLL)
            yield message
        self.ledger_counts.call(POLL, ACCEPTED)

    def __next__(self) -> Any:
        try:
            message = super().__next__()
        except StopIteration:
            self.ledger_counts.call(POLL, ACCEPTED)
            raise
        self.ledger_counts.messages(RECEIVE, [message], POLL)
        return message


class CountingAsyncReceiver(AsyncReceiver):
    """The receiver for asyncio, which counts."""

    ledger_counts: ReceiverCounts

    async def receive_messages(self, *args: Any, **kwargs: Any) -> Any:
        received = await super().receive_messages(*args, **kwargs)
        self.ledger_counts.messages(RECEIVE, received, POLL)
        return received

    async def receive_deferred_messages(self, *args: Any, **kwargs: Any) -> Any:
        received = await super().receive_deferred_messages(*args, **kwargs)
        self.ledger_counts.messages(RECEIVE, received, RECEIVE)
        return received

    async def peek_messages(self, *args: Any, **kwargs: Any) -> Any:
        received = await super().peek_messages(*args, **kwargs)
        self.ledger_counts.messages(PEEK, received, PEEK)
        return received

    async def __aiter__(self) -> Any:
        async for message in super().__aiter__():
            self.ledger_counts.messages(RECEIVE, [message], POLL)
            yield message
        self.ledger_counts.call(POLL, ACCEPTED)

    async def __anext__(self) -> Any:
        try:
            message = await super().__anext__()
        except StopAsyncIteration:
            self.ledger_counts.call(POLL, ACCEPTED)
            raise
        self.ledger_counts.messages(RECEIVE, [message], POLL)
        return message


def _blocking(name: str, operation: str) -> Any:
    def call(self: CountingReceiver, *args: Any, **kwargs: Any) -> Any:
        outcome = REFUSED
        try:
            result = getattr(super(CountingReceiver, self), name)(*args, **kwargs)
            outcome = ACCEPTED
        finally:
            self.ledger_counts.call(operation, outcome)
        return result

    return call


def _awaited(name: str, operation: str) -> Any:
    async def call(self: CountingAsyncReceiver, *args: Any, **kwargs: Any) -> Any:
        outcome = REFUSED
        try:
            method = getattr(super(CountingAsyncReceiver, self), name)
            result = await method(*args, **kwargs)
            outcome = ACCEPTED
        finally:
            self.ledger_counts.call(operation, outcome)
        return result

    return call


for _name, _operation in _OF_MESSAGE.items():
    setattr(CountingReceiver, _name, _blocking(_name, _operation))
    setattr(CountingAsyncReceiver, _name, _awaited(_name, _operation))


def counting(
    receiver: Any, account: LedgerAccount, loop: asyncio.AbstractEventLoop | None
) -> Any:
    """Let a receiver count; `loop` is the factory's, if its caller is elsewhere."""
    is_async = isinstance(receiver, AsyncReceiver)
    receiver.__class__ = CountingAsyncReceiver if is_async else CountingReceiver
    receiver.ledger_counts = ReceiverCounts(account, None if is_async else loop)
    return receiver


__all__ = ["counting"]
