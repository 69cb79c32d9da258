"""A receiver: messages from one entity, in chunks, and what becomes of them.

Without a prefetch the server sends only while `receive` waits. With one, messages come
ahead and their locks run while they wait here. A message is settled on the link that
brought it; when that link is gone, through `$management` by its lock token. A session
belongs to its link, so when that is gone the receiver is done, and says why.
Any number of tasks may use a receiver; chunks are handed out one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from twinbus import limits
from twinbus.client import settlement as decisions
from twinbus.client.live import LiveConnection
from twinbus.client.message import Message
from twinbus.client.metering import outcome_of
from twinbus.client.receiving import ReceiveLink
from twinbus.client.settlement import COMPLETE, Settlement
from twinbus.client.transport.deadline import Deadline, limit
from twinbus.client.transport.shared import Shared
from twinbus.errors import (
    ArgumentError,
    DeadlineExceeded,
    RemoteError,
    SettleRefused,
)
from twinbus.ledger.counts import LedgerAccount
from twinbus.ledger.schema import ACCEPTED, CLIENT, POLL, RECEIVE, SETTLE
from twinbus.wire.link import LinkState
from twinbus.wire.performatives import (
    RCV_FIRST,
    RCV_SECOND,
    SND_SETTLED,
    SND_UNSETTLED,
    Attach,
    Source,
    Target,
)
from twinbus.wire.types import Symbol, UInt

if TYPE_CHECKING:
    from twinbus.client.connection import Connection

_SESSION_FILTER = Symbol("com.microsoft:session-filter")
_LOCKED_UNTIL = "com.microsoft:locked-until-utc"
_TIMEOUT = Symbol("com.microsoft:timeout")
_RECEIVER_NAME = Symbol("com.microsoft:receiver-name")
_TICKS_EPOCH = 621_355_968_000_000_000
_TICKS_PER_MS = 10_000
_SESSION_LOST = "com.microsoft:session-lock-lost"

Messages = Message | Sequence[Message]


@dataclass(frozen=True, slots=True)
class ReceiveOptions:
    """How to receive."""

    # Messages that may come before they are asked for.
    prefetch: int = 0
    # Messages are gone when they are sent, and need no settlement.
    deletes: bool = False
    # Receive from one session: by its id, or from the next one that has messages.
    session_id: str | None = None
    next_session: bool = False
    # How long the server looks for a next session.
    session_seconds: float = limits.CLIENT_TIMEOUT_SECONDS

    @property
    def by_session(self) -> bool:
        """Whether this is about a session."""
        return self.next_session or self.session_id is not None


class _SessionLink(ReceiveLink):
    """A link whose attach may have to wait for a session."""

    prompt = False


class Receiver:
    """Receives from one entity; made by `Connection.receiver`, links when used."""

    # What the ledger calls the source of its receives.
    counted_as = CLIENT

    def __init__(
        self, connection: Connection, path: str, options: ReceiveOptions
    ) -> None:
        self.path = path
        # The session that the server gave; None before, and without sessions.
        self.session_id: str | None = None
        self.session_locked_until_ms: int | None = None
        self._connection = connection
        self._options = options
        self._management = connection.management(path)
        self._link: ReceiveLink | None = None
        self._attaching = Shared(self._attach)
        self._turn = asyncio.Lock()

    async def open(self, timeout_seconds: float | None = None) -> None:
        """Link now; a session receiver has its session when this returns."""
        if timeout_seconds is None and self._options.next_session:
            timeout_seconds = self._connection.timeout_seconds
            timeout_seconds += self._options.session_seconds
        await self._linked(self._connection.deadline(timeout_seconds))

    # -- messages ----------------------------------------------------------------------

    async def receive(
        self, count_max: int = 1, wait_seconds: float | None = None
    ) -> list[Message]:
        """What there is, `count_max` at most, as soon as there is something.

        Empty if nothing came within `wait_seconds`; the time to connect and link is
        counted apart, with the connection's own timeout.
        """
        if count_max < 1:
            raise ArgumentError("'count_max' must be at least 1.")
        if self._link is None or self._link.failure is not None:
            await self.open()
        deadline = self._connection.deadline(wait_seconds)
        try:
            async with limit(deadline, "turn"):
                await self._turn.acquire()
        except DeadlineExceeded:
            return []
        try:
            link = await self._linked(self._connection.deadline(None))
            return await self._chunk(link, count_max, deadline)
        finally:
            self._turn.release()

    async def _chunk(
        self, link: ReceiveLink, count_max: int, deadline: Deadline
    ) -> list[Message]:
        if self._options.prefetch:
            await link.arrival(deadline)
        elif not link.buffer:
            link.grant(count_max)
            try:
                await link.arrival(deadline)
                if link.link.credit > 0:
                    await link.drain(Deadline(limits.CLIENT_DRAIN_SECONDS))
            except BaseException:
                link.revoke()
                raise
        taken = link.take(count_max)
        if link.account is not None and taken:
            link.account.messages_out(RECEIVE, [len(each.payload) for each in taken])
        elif link.account is not None:
            link.account.calls(POLL, ACCEPTED)
        self._top_up(link)
        return taken

    def _top_up(self, link: ReceiveLink) -> None:
        """Keep the prefetch full; told to the server when half of it is used."""
        prefetch = self._options.prefetch
        if not prefetch or link.failure is not None:
            return
        if max(link.link.credit, 0) + len(link.buffer) <= prefetch // 2:
            link.grant(prefetch - len(link.buffer))

    async def peek(
        self,
        count_max: int = 1,
        from_sequence: int = 1,
        timeout_seconds: float | None = None,
    ) -> list[Message]:
        """Look at messages without locking them; a session receiver at its own."""
        return await self._management.peek(
            count_max, from_sequence, self.session_id, timeout_seconds
        )

    async def receive_deferred(
        self, sequence_numbers: Sequence[int], timeout_seconds: float | None = None
    ) -> list[Message]:
        """Get deferred messages by their numbers; all or none."""
        return await self._management.receive_deferred(
            sequence_numbers,
            self.session_id,
            deletes=self._options.deletes,
            timeout_seconds=timeout_seconds,
        )

    # -- settlement --------------------------------------------------------------------

    async def complete(
        self, messages: Messages, timeout_seconds: float | None = None
    ) -> None:
        """Remove messages; returns when they are gone for good."""
        await self._settle(messages, COMPLETE, timeout_seconds)

    async def abandon(
        self,
        messages: Messages,
        properties: dict[str, Any] | None = None,
        timeout_seconds: float | None = None,
    ) -> None:
        """Give messages back; the delivery counts."""
        await self._settle(messages, decisions.abandon(properties), timeout_seconds)

    async def defer(
        self,
        messages: Messages,
        properties: dict[str, Any] | None = None,
        timeout_seconds: float | None = None,
    ) -> None:
        """Put messages aside; `receive_deferred` brings them back by their numbers."""
        await self._settle(messages, decisions.defer(properties), timeout_seconds)

    async def dead_letter(
        self,
        messages: Messages,
        reason: str | None = None,
        description: str | None = None,
        properties: dict[str, Any] | None = None,
        timeout_seconds: float | None = None,
    ) -> None:
        """Move messages to the dead-letter queue."""
        decision = decisions.dead_letter(reason, description, properties)
        await self._settle(messages, decision, timeout_seconds)

    async def release(self, messages: Messages) -> None:
        """Give messages back as if they had never been delivered; no reply follows.

        Without their link they return by themselves when their lock ends.
        """
        link = self._link
        if link is not None and link.failure is None:
            link.release([each for each in _listed(messages) if each.link is link])

    async def renew(
        self, messages: Messages, timeout_seconds: float | None = None
    ) -> None:
        """Move the ends of the locks; `locked_until_ms` tells the new ones."""
        listed = [each for each in _listed(messages) if each.lock_token is not None]
        tokens = [each.lock_token for each in listed if each.lock_token is not None]
        if not tokens:
            return
        ends_ms = await self._management.renew_locks(tokens, timeout_seconds)
        for message, end_ms in zip(listed, ends_ms, strict=False):
            message.locked_until_ms = end_ms

    async def _settle(
        self, messages: Messages, decision: Settlement, timeout_seconds: float | None
    ) -> None:
        """Settle where it is possible, and raise what was refused."""
        listed = _listed(messages)
        deadline = self._connection.deadline(timeout_seconds)
        by_link: dict[ReceiveLink | None, list[int]] = {}
        for place, message in enumerate(listed):
            link = message.link
            if link is not None and link.failure is not None:
                link = None
            by_link.setdefault(link, []).append(place)
        failures: dict[int, RemoteError] = {}
        for link, places in by_link.items():
            part = [listed[place] for place in places]
            if link is not None:
                found = await link.settle(part, decision.state(), deadline)
                if link.account is not None:
                    _count_settled(link.account, len(part), found)
            else:
                found = await self._settle_by_token(part, decision, deadline)
            failures.update({places[at]: error for at, error in found.items()})
        if failures and len(listed) == 1:
            raise failures.popitem()[1]
        if failures:
            raise SettleRefused(failures)

    async def _settle_by_token(
        self, messages: list[Message], decision: Settlement, deadline: Deadline
    ) -> dict[int, RemoteError]:
        if self._options.by_session and self._session_failure() is not None:
            lost = RemoteError(_SESSION_LOST, "The session's link is gone.")
            return dict.fromkeys(range(len(messages)), lost)
        tokens = [each.lock_token for each in messages if each.lock_token is not None]
        if len(tokens) < len(messages):
            raise ArgumentError("A message without a lock cannot be settled.")
        try:
            left_seconds = deadline.left_seconds()
            await self._management.settle(
                tokens, decision, self.session_id, left_seconds
            )
        except RemoteError as error:
            return dict.fromkeys(range(len(messages)), error)
        return {}

    # -- the session -------------------------------------------------------------------

    async def renew_session(self, timeout_seconds: float | None = None) -> int:
        """Move the end of the session's lock; returns it, in milliseconds."""
        session_id = self._held_session()
        end_ms = await self._management.renew_session(session_id, timeout_seconds)
        self.session_locked_until_ms = end_ms
        return end_ms

    async def session_state(self, timeout_seconds: float | None = None) -> bytes | None:
        """What the session remembers."""
        session_id = self._held_session()
        return await self._management.session_state(session_id, timeout_seconds)

    async def set_session_state(
        self, state: bytes | None, timeout_seconds: float | None = None
    ) -> None:
        """Let the session remember something, or nothing."""
        session_id = self._held_session()
        await self._management.set_session_state(session_id, state, timeout_seconds)

    def _held_session(self) -> str:
        failure = self._session_failure()
        if failure is not None:
            raise failure.with_traceback(None)
        if self.session_id is None:
            raise ArgumentError("There is no session yet: open the receiver first.")
        return self.session_id

    def _session_failure(self) -> RemoteError | None:
        return None if self._link is None else self._link.failure

    # -- life --------------------------------------------------------------------------

    async def close(self, timeout_seconds: float | None = None) -> None:
        """Give back what was not handed out, and end the link."""
        link, self._link = self._link, None
        if link is None or link.failure is not None:
            return
        deadline = self._connection.deadline(timeout_seconds)
        try:
            if not self._options.deletes and link.revoked:
                # What is on its way uses this up, so that the drain waits for it.
                link.grant(link.revoked)
            if not self._options.deletes and link.link.credit > 0:
                await link.drain(deadline)
        except asyncio.CancelledError:
            _give_back(link)
            link.drop("The receiver was closed.")
            raise
        _give_back(link)
        await link.close(deadline)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- the link ----------------------------------------------------------------------

    async def _linked(self, deadline: Deadline) -> ReceiveLink:
        link = self._link
        if link is None or link.failure is not None:
            link = await self._attaching.get(deadline)
        return link

    async def _attach(self) -> ReceiveLink:
        old = self._link
        if old is not None and old.failure is not None and self._options.by_session:
            raise old.failure.with_traceback(None)
        return await self._connection.link(self.path, self._attaching, self._attach_to)

    async def _attach_to(self, live: LiveConnection) -> ReceiveLink:
        options = self._options
        link = _SessionLink(live) if options.next_session else ReceiveLink(live)
        link.account = self._connection.account(self.path, self.counted_as)
        self._management.counted_as = self.counted_as
        name = f"{live.engine.container_id}-receiver"
        source = Source(address=self.path)
        properties: dict[Any, Any] = {_RECEIVER_NAME: name}
        if options.by_session:
            source.filter = {_SESSION_FILTER: options.session_id}
            wait_ms = int(options.session_seconds * 1000)
            properties[_TIMEOUT] = UInt(min(wait_ms, 0xFFFFFFFF))
        await link.attach(
            Attach(
                snd_settle_mode=SND_SETTLED if options.deletes else SND_UNSETTLED,
                rcv_settle_mode=RCV_FIRST if options.deletes else RCV_SECOND,
                source=source,
                target=Target(address=name),
                properties=properties,
            )
        )
        if options.by_session:
            self._note_session(link)
        if self._link is not None:
            # Their locks hold without the link that brought them.
            link.buffer.extend(self._link.take(len(self._link.buffer)))
        self._link = link
        self._top_up(link)
        return link

    def _note_session(self, link: ReceiveLink) -> None:
        answer = link.link.peer_attach
        assert answer.source is not None
        self.session_id = (answer.source.filter or {}).get(_SESSION_FILTER)
        ticks = (answer.properties or {}).get(_LOCKED_UNTIL)
        if isinstance(ticks, int):
            self.session_locked_until_ms = (ticks - _TICKS_EPOCH) // _TICKS_PER_MS


def _give_back(link: ReceiveLink) -> None:
    """Release what has come and was not handed out."""
    if link.link.state is LinkState.ATTACHED and link.buffer:
        link.release([each for each in link.buffer if each.delivery_id >= 0])


def _listed(messages: Messages) -> list[Message]:
    return [messages] if isinstance(messages, Message) else list(messages)


def _count_settled(
    account: LedgerAccount, count: int, failures: Mapping[int, RemoteError]
) -> None:
    """Count settlements, and those that failed apart."""
    if count > len(failures):
        account.calls(SETTLE, ACCEPTED, count - len(failures))
    for error in failures.values():
        account.calls(SETTLE, outcome_of(error))
