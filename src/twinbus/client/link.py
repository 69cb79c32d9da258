"""The client's end of a link: its attach, and how it ends.

A link has a session of its own, so that nothing that happens to another can end it;
only the two links of a `RequestPair` share one. It is attached once, and when it has
ended its `failure` says why. A caller that needs it again attaches another.
"""

from __future__ import annotations

import asyncio
import itertools

from twinbus.client.live import LiveConnection
from twinbus.client.transport.deadline import Deadline, answer
from twinbus.errors import DeadlineExceeded, RemoteError
from twinbus.ledger.counts import LedgerAccount
from twinbus.wire.events import Answered, Delivered
from twinbus.wire.link import Link
from twinbus.wire.performatives import Attach
from twinbus.wire.session import Session

_numbers = itertools.count(1)


class LiveLink:
    """A link that lives, or has ended for a reason."""

    sends = False
    # Whether the server answers at once, so that its silence tells something.
    prompt = True

    def __init__(self, live: LiveConnection, session: Session | None = None) -> None:
        self.live = live
        # Where its operations are counted; None without a ledger.
        self.account: LedgerAccount | None = None
        # Why the link is no longer there.
        self.failure: RemoteError | None = None
        self.link: Link
        self._session = session
        loop = asyncio.get_running_loop()
        self._attached: asyncio.Future[None] = loop.create_future()
        self._gone: asyncio.Future[None] = loop.create_future()

    async def attach(self, attach: Attach, name: str | None = None) -> None:
        """Ask for the link; raises the reason of a refusal. Cancelled, it is undone."""
        live = self.live
        session = self._session or live.begin()
        live.links.add(self)
        name = name or f"{live.engine.container_id}-{next(_numbers)}"
        self.link = session.attach(name, self.sends, attach)
        self.link.owner = self
        live.flush_soon()
        try:
            await self._attached
        except asyncio.CancelledError:
            if self.prompt:
                live.missed()
            self.drop("The link was given up.")
            raise

    async def close(self, deadline: Deadline) -> None:
        """End the link and its session, in time whatever the server does."""
        if self.failure is not None:
            return
        self.link.detach()
        self.live.give_up(self.link.session)
        try:
            await answer(self._gone, deadline, "detach")
        except DeadlineExceeded:
            self.live.missed()
        finally:
            self.drop("The link is closed.")

    def drop(self, why: str) -> None:
        """End the link without waiting for the server."""
        self.live.links.discard(self)
        self.live.give_up(self.link.session)
        self.on_ended(RemoteError("amqp:link:detach-forced", why))

    # -- events ------------------------------------------------------------------------

    def on_attached(self) -> None:
        """The server's attach. One to nowhere is a refusal: its reason follows."""
        said = self.link.peer_attach
        terminus = said.target if self.sends else said.source
        if terminus is not None and not self._attached.done():
            self._attached.set_result(None)

    def on_ended(self, failure: RemoteError) -> None:
        """The link is gone."""
        if self.failure is None:
            self.failure = failure
        if not self._attached.done():
            self._attached.set_exception(failure)
        if not self._gone.done():
            self._gone.set_result(None)

    def on_flow(self) -> None:
        """Credit changed, or the server reads again."""

    def on_delivered(self, delivery: Delivered) -> None:
        """A message came."""

    def on_answered(self, event: Answered) -> None:
        """The server's answer to what we said about its deliveries."""
