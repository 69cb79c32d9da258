"""The factory: one namespace, its senders and receivers, and what it is paired with.

Takes what the official client takes. Owns the states of a factory and the order in
which things begin and end; how a pair works is `pair.py`, how a message finds its way
`route.py`. Receivers are the official client's own, on this namespace alone. A factory
belongs to one event loop and one process.

| state   | sends                   | leaves by                                       |
|---------|-------------------------|-------------------------------------------------|
| open    | are taken               | `close` -> closing; `fault` -> faulted          |
| closing | that are under way end  | the last one ends -> closed; `fault` -> faulted |
| closed  | are refused             |                                                 |
| faulted | are refused, saying why | `close` frees what is left; the state stays     |
"""

from __future__ import annotations

import asyncio
import enum
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

from twinbus.client.connection import Connection
from twinbus.client.credentials import credential_of
from twinbus.core.names import check_entity_path
from twinbus.core.sas import parse_connection_string
from twinbus.errors import ArgumentError
from twinbus.ledger.schema import CLIENT
from twinbus.pairing.errors import PairingError
from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.pairing.options import (
    FactoryFacts,
    SendAvailabilityPairedNamespaceOptions,
    check_pairing,
)
from twinbus.pairing.rules.naming import primary_label
from twinbus.pairing.sdk.arguments import (
    endpoint_from,
    official_keywords,
    send_settings_from,
)
from twinbus.pairing.shell.backlog_queues import BacklogQueues, BacklogWatch
from twinbus.pairing.shell.counting import FactoryLedger
from twinbus.pairing.shell.joining import Joining
from twinbus.pairing.shell.message_sender import MessageSender
from twinbus.pairing.shell.outbox import open_outbox, outbox_folder
from twinbus.pairing.shell.pair import Pair
from twinbus.pairing.shell.route import DirectRoute, PairedRoute
from twinbus.pairing.shell.syphon import Syphon, Which
from twinbus.pairing.shell.telling import Listener
from twinbus.pairing.status import PairingStatus


class FactoryState(enum.StrEnum):
    """Where a factory stands."""

    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"
    FAULTED = "faulted"


@runtime_checkable
class BlockingFactory(Protocol):
    """A factory for callers that block; `inner` does its work."""

    inner: MessagingFactory


class PairingView:
    """What an application sees of its pair."""

    def __init__(self, pair: Pair, syphon: Callable[[], Syphon | None]) -> None:
        self._pair = pair
        # It may start later than the pair.
        self._syphon = syphon

    @property
    def options(self) -> SendAvailabilityPairedNamespaceOptions:
        """What the pair was made with."""
        return self._pair.options

    def status(self) -> PairingStatus:
        """Every entity and backlog queue: the whole state, for a dashboard."""
        status = self._pair.status()
        syphon = self._syphon()
        if syphon is not None:
            status.syphon = syphon.status()
        return status

    def mark_healthy(self, path: str) -> None:
        """Send to the primary again: the caller knows that the entity is healthy."""
        self._pair.mark_healthy(path)

    def events(self) -> Listener:
        """An async iterator over what happens from now on."""
        return self._pair.telling.events()


class MessagingFactory:
    """Makes senders and receivers for one namespace, and pairs it with another."""

    def __init__(
        self,
        fully_qualified_namespace: str,
        credential: Any,
        *,
        ledger: str | os.PathLike[str] | None = None,
        **kwargs: Any,
    ) -> None:
        self.endpoint = endpoint_from(fully_qualified_namespace, kwargs)
        self.settings = send_settings_from(kwargs)
        self.connection = Connection(
            self.endpoint, credential, timeout_seconds=self.settings.attempt_seconds
        )
        # Counts what is done with the namespace; None if no folder is given.
        self._ledger = FactoryLedger.at(ledger, self.endpoint)
        self._credential = credential
        if self._ledger is not None:
            self._ledger.count(self.connection, credential)
        # As the official client says it: with the port only where there is no TLS.
        plain = self.endpoint.tls is None
        self.fully_qualified_namespace = (
            self.endpoint.authority if plain else self.endpoint.host
        )
        self._entity_name: str | None = kwargs.get("entity_name")
        # How to make the official client for receivers, and that client.
        self._sdk_arguments = (fully_qualified_namespace, credential, kwargs)
        self._sdk_text: str | None = None
        self._sdk: Any = None
        self._state = FactoryState.OPEN
        self._fault: BaseException | None = None
        self._pair: Pair | None = None
        self._syphon: Syphon | None = None
        self._watch: BacklogWatch | None = None
        self._joining: Joining | None = None
        # Ends the work of a factory that was faulted.
        self._ending: asyncio.Task[None] | None = None
        self._partner: MessagingFactory | None = None
        self._is_secondary = False
        self._pairing: asyncio.Future[None] | None = None

    @classmethod
    def from_connection_string(
        cls,
        conn_str: str,
        *,
        ledger: str | os.PathLike[str] | None = None,
        **kwargs: Any,
    ) -> Self:
        """A factory for the namespace that a connection string names.

        `ledger` is a folder in which billable operations are counted.
        """
        try:
            given = parse_connection_string(conn_str)
        except ArgumentError as error:
            raise ValueError(error.text) from None
        host = f"[{given.host}]" if ":" in given.host else given.host
        if given.port is not None:
            host = f"{host}:{given.port}"
        keywords = {**kwargs, "use_tls": not given.dev}
        if given.entity_path is not None:
            keywords["entity_name"] = given.entity_path
        made = cls(host, credential_of(given), ledger=ledger, **keywords)
        made._sdk_text = conn_str
        made._sdk_arguments = ("", None, kwargs)
        return made

    @property
    def has_ledger(self) -> bool:
        """Whether it counts billable operations."""
        return self._ledger is not None

    # -- senders and receivers ---------------------------------------------------------

    def get_queue_sender(
        self, queue_name: str, *, client_identifier: str | None = None, **_: Any
    ) -> MessageSender:
        """A sender to a queue; paired if the factory is."""
        return self._sender("queue", queue_name, client_identifier)

    def get_topic_sender(
        self, topic_name: str, *, client_identifier: str | None = None, **_: Any
    ) -> MessageSender:
        """A sender to a topic; paired if the factory is."""
        return self._sender("topic", topic_name, client_identifier)

    def get_queue_receiver(self, queue_name: str, **kwargs: Any) -> Any:
        """The official client's receiver, on this namespace alone."""
        made = self._receivers().get_queue_receiver(queue_name, **kwargs)
        return self._counted(made)

    def get_subscription_receiver(
        self, topic_name: str, subscription_name: str, **kwargs: Any
    ) -> Any:
        """The official client's receiver, on this namespace alone."""
        made = self._receivers().get_subscription_receiver(
            topic_name, subscription_name, **kwargs
        )
        return self._counted(made)

    def _counted(self, receiver: Any) -> Any:
        """The receiver, which counts what it does if there is a ledger."""
        return self.count_receiver(receiver)

    def count_receiver(
        self, receiver: Any, loop: asyncio.AbstractEventLoop | None = None
    ) -> Any:
        """Let a receiver count; `loop` is the factory's, for callers that block."""
        account = self.connection.account(receiver.entity_path, CLIENT)
        if account is None:
            return receiver
        from twinbus.pairing.sdk.counting import counting

        return counting(receiver, account, loop)

    def _sender(self, what: str, path: str, identifier: str | None) -> MessageSender:
        if self._entity_name and path != self._entity_name:
            raise ValueError(
                f"The {what} name provided does not match the EntityPath in the "
                "connection string used to construct the MessagingFactory."
            )
        self.check_open()
        try:
            check_entity_path(path)
        except ArgumentError:
            # Not said: it may be a key, or a connection string with one. Names are in
            # logs, metrics and events.
            raise ValueError(
                f"The {what} name is not one that a {what} can have: letters, digits "
                "and . - _ ~ / are allowed. Give the name, not a connection string."
            ) from None
        return MessageSender(self, path, identifier)

    def _receivers(self) -> Any:
        self.check_open()
        if self._sdk is None:
            self._sdk = self._make_sdk()
        return self._sdk

    def _make_sdk(self) -> Any:
        from azure.servicebus.aio import ServiceBusClient

        return self.sdk_client(ServiceBusClient)

    def sdk_client(self, kind: Any) -> Any:
        """The official client, with the arguments that this factory was made with.

        It connects to the host and the port that the senders connect to.
        """
        namespace, credential, given = self._sdk_arguments
        kwargs = official_keywords(self.endpoint, given)
        if self._sdk_text is not None:
            return kind.from_connection_string(self._sdk_text, **kwargs)
        return kind(namespace, credential, **kwargs)

    # -- pairing -----------------------------------------------------------------------

    async def pair_namespace(
        self,
        options: SendAvailabilityPairedNamespaceOptions,
        *,
        outbox: str | os.PathLike[str] | None = None,
    ) -> None:
        """Pair with a secondary; returns when all of it works, or raises why not.

        Senders that were made before stay unpaired. `outbox` is a folder on local disk
        for what no backlog queue takes; with it the pairing succeeds while the
        secondary is away, and goes on with its queues when it is back.
        """
        if not isinstance(options, SendAvailabilityPairedNamespaceOptions):
            raise TypeError("options must be SendAvailabilityPairedNamespaceOptions.")
        folder = None if outbox is None else outbox_folder(outbox)
        secondary = options.secondary_messaging_factory
        if isinstance(secondary, BlockingFactory):
            secondary = secondary.inner
        if not isinstance(secondary, MessagingFactory):
            raise TypeError("messaging_factory must be a MessagingFactory of twinbus.")
        self.check_open()
        secondary.check_open()
        check_pairing(self.facts, secondary.facts, options)
        self._pairing = asyncio.get_running_loop().create_future()
        secondary._is_secondary = True
        try:
            await self._join(options, secondary, folder)
        except BaseException:
            secondary._is_secondary = False
            await self._unpair()
            options.set_usable(frozenset())
            raise
        finally:
            self._pairing.set_result(None)
            self._pairing = None

    async def _join(
        self,
        options: SendAvailabilityPairedNamespaceOptions,
        secondary: MessagingFactory,
        folder: Path | None,
    ) -> None:
        label = options.primary_name
        if label is None:
            label = primary_label(*self._place)
        self._pair = pair = Pair(
            self.connection,
            secondary.connection,
            options,
            label,
            self.settings.attempt_ms,
        )
        queues = BacklogQueues(options.secondary_namespace_manager, label)
        self._joining = Joining(pair, queues, lambda: self._joined(secondary, queues))
        if self._ledger is not None:
            pair.telling.ledger = self._ledger
            if secondary._ledger is None:
                self._ledger.count(secondary.connection, secondary._credential)
        if folder is None:
            await self._joining.join()
        else:
            pair.add_outbox(await open_outbox(pair, folder))
            await self._joining.join_or_go_on(self.settings.attempt_seconds)
        if pair.outbox is not None:
            pair.outbox.start(self.check_alive)
        self._partner = secondary

    def _joined(self, secondary: MessagingFactory, queues: BacklogQueues) -> None:
        """There are backlog queues: drain them, or look whether they are drained."""
        assert self._pair is not None
        if self._ledger is not None:
            self._ledger.paired(secondary.endpoint)
        if self._pair.options.enable_syphon:
            self._syphon = self._start_syphon(self._pair, queues)
            secondary._syphon = self._syphon
        else:
            self._watch = BacklogWatch(self._pair, queues.waiting)

    async def _unpair(self) -> None:
        """A pairing has failed: nothing of it stays."""
        pair, self._pair = self._pair, None
        if pair is not None:
            pair.stop()
            if pair.outbox is not None:
                await pair.outbox.close()

    def _start_syphon(self, pair: Pair, queues: BacklogQueues) -> Syphon:
        syphon = Syphon(pair, queues.found, self._fault_partner)
        syphon.start()
        return syphon

    def _fault_partner(self, which: Which, cause: PairingError) -> None:
        """The syphon has waited long enough for the other factory to end."""
        partner = self if which is Which.PRIMARY else self._partner
        if partner is not None:
            partner.fault(cause)

    @property
    def _place(self) -> tuple[str, int]:
        """What tells this namespace from others, also behind one gateway."""
        return self.endpoint.host, self.endpoint.target[1]

    @property
    def facts(self) -> FactoryFacts:
        """What pairing has to know about this factory."""
        host, port = self._place
        paired = self._pair is not None or self._pairing is not None
        return FactoryFacts(host, port, paired, self._is_secondary)

    @property
    def pairing(self) -> PairingView:
        """The pair at work; raises if there is none."""
        if self._pair is None or self._pairing is not None:
            raise PairingError("The factory is not paired. Call pair_namespace first.")
        return PairingView(self._pair, lambda: self._syphon)

    async def pairing_ended(self) -> None:
        """Wait for a pairing that is under way."""
        if self._pairing is not None:
            await asyncio.shield(self._pairing)

    def route(self, path: str) -> PairedRoute | DirectRoute | None:
        """The way to an entity; None while pairing is under way."""
        if self._pairing is not None:
            return None
        if self._pair is not None:
            return PairedRoute(self._pair, path, self.check_alive)
        sender = self.connection.sender(path)
        return DirectRoute(sender, self.check_alive, self.settings)

    # -- life --------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """open, closing, closed or faulted."""
        return self._state.value

    def check_open(self) -> None:
        """Refuse what begins after the factory has ended."""
        if self._state is not FactoryState.OPEN:
            self.check_alive()
            raise ValueError(f"The factory is {self._state}. Make another.")

    def check_alive(self) -> None:
        """Refuse to go on once the factory is faulted."""
        if self._fault is not None:
            raise self._fault.with_traceback(None)

    def fault(self, error: BaseException) -> None:
        """Refuse all sends from now on, because of this error."""
        if self._state in (FactoryState.FAULTED, FactoryState.CLOSED):
            return
        self._state = FactoryState.FAULTED
        self._fault = error
        pair = self._pair
        if pair is not None:
            now_ms = pair.clock.now_ms()
            pair.telling.tell(
                PairingEvent(EventKind.FAULTED, self.endpoint.host, now_ms, error)
            )
            pair.break_off()
            if pair.outbox is not None:
                # The folder stays open until `close`.
                self._ending = asyncio.ensure_future(pair.outbox.stop())
            self._stop_pair(pair)
        self._tell_syphon()

    async def close(self) -> None:
        """Let the sends under way end, stop all else, and disconnect.

        Closes the secondary, too, if the syphon was on.
        """
        if self._state is FactoryState.CLOSED:
            return
        self.connection.check_place(asyncio.get_running_loop())
        if self._joining is not None:
            self._joining.stop()
        pair, syphon = self._pair, self._syphon
        if self._state is FactoryState.OPEN:
            self._state = FactoryState.CLOSING
            if pair is not None:
                await self._let_sends_end(pair)
        if pair is not None:
            if pair.outbox is not None:
                await pair.outbox.close()
            self._stop_pair(pair)
        if pair is None or self._partner is None:
            self._tell_syphon()
        elif pair.options.enable_syphon:
            if syphon is not None:
                await syphon.stop()
            await self._partner.close()
        else:
            self._partner._is_secondary = False
        await self.connection.close()
        if self._sdk is not None:
            await self._close_sdk(self._sdk)
        if self._ledger is not None:
            await self._ledger.close()
        if self._state is FactoryState.CLOSING:
            self._state = FactoryState.CLOSED

    async def _let_sends_end(self, pair: Pair) -> None:
        """Wait for the application's sends; those out of the outbox are cut short."""
        pair.stop_pings()
        if pair.outbox is not None:
            await pair.outbox.stop()
        await pair.sends_ended()

    def _stop_pair(self, pair: Pair) -> None:
        if self._joining is not None:
            self._joining.stop()
        if self._watch is not None:
            self._watch.stop()
        pair.stop()

    async def _close_sdk(self, sdk: Any) -> None:
        await sdk.close()

    def _tell_syphon(self) -> None:
        """The syphon looks after the partner of a factory that has ended."""
        if self._syphon is not None:
            which = Which.SECONDARY if self._partner is None else Which.PRIMARY
            self._syphon.factory_ended(which)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
