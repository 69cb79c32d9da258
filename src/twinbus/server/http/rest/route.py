"""The REST data plane: send, receive and settle messages over HTTP.

Owns the verbs. A request was admitted (`http/route.py`) before its entity is looked up,
and only then is its body read, up to the entity's limit. Every verb is a command or a
consumer of the host, so an answer leaves after the commit. Status codes are the
documented ones.
A message in HTTP is in `messages.py`, waiting for one in `receiving.py`.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import urllib.parse
from functools import partial
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from twinbus import limits
from twinbus.clock import Now
from twinbus.core.names import SubQueue
from twinbus.core.rights import Claim, Right, RulesOf, standing
from twinbus.errors import (
    ArgumentError,
    BusyError,
    CallerError,
    EntityDisabled,
    EntityNotFound,
    LockLost,
    MessageNotFound,
    MessageTooLarge,
    TwinbusError,
    Unauthorized,
)
from twinbus.ledger.counts import LedgerAccount
from twinbus.ledger.schema import POLL, RECEIVE, RENEW, SEND, SETTLE
from twinbus.server.access.port import NamespacePort
from twinbus.server.broker import answers
from twinbus.server.broker.accounting import count_sent
from twinbus.server.broker.commands import Send
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.directory.placement import (
    get_entity,
    rules_of,
    unwatch_rules,
    watch_rules,
)
from twinbus.server.broker.host import Host
from twinbus.server.broker.load.admission import check_receiver, send_denial
from twinbus.server.broker.lock_tokens import lock_of, uuid_of
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.nodes import catch_up
from twinbus.server.broker.sending.naming import fragment_key
from twinbus.server.broker.turn import Turn
from twinbus.server.http import route
from twinbus.server.http.admin.xml import ERROR_TYPE, write_error
from twinbus.server.http.auth import Asked
from twinbus.server.http.rest.messages import (
    BATCH_TYPE,
    Shown,
    locked_until,
    read_batch,
    read_single,
)
from twinbus.server.http.rest.paths import RestAction, RestRequest, find_rest
from twinbus.server.http.rest.receiving import (
    PendingReceive,
    ReceivePlace,
    TakenMessage,
)
from twinbus.server.http.route import Exchange, SurfaceRoute, read_body
from twinbus.store.base import Lock, Stored, shard_of_nonce
from twinbus.wire.message import sections
from twinbus.wire.message.sections import Incoming

# Where `http/server.py` leaves the headers with the names as the client wrote them.
HEADERS_AS_SENT = "headers_as_sent"

# Which fragment is next for what has no key.
_TURNS = itertools.count()
_SECONDS = re.compile(r"[0-9]{1,9}")

# As documented.
STATUSES = route.STATUSES | {EntityNotFound: 410}


class RestRoute(SurfaceRoute):
    """Takes the requests whose paths are those of the data plane."""

    def __init__(self, port: NamespacePort) -> None:
        self._pending: set[PendingReceive] = set()
        exchange = partial(RestExchange, pending=self._pending)
        super().__init__(port, find_rest, exchange)

    def close(self) -> None:
        """The server stops: receives that wait are refused."""
        for receive in list(self._pending):
            receive.refuse(BusyError("The server is shutting down. Try again."))


class RestExchange(Exchange):
    """One request of the data plane."""

    def __init__(
        self, port: NamespacePort, request: Request, pending: set[PendingReceive]
    ) -> None:
        super().__init__(port, request)
        self._pending = pending
        self._wanted: RestRequest = self.found
        # What was sent or received, for the ledger.
        self._sent: list[Incoming] = []
        self._received: TakenMessage | None = None

    def asked(self) -> Asked:
        """What the path says."""
        wanted = self._wanted
        return Asked(
            wanted.action.operation, wanted.path, wanted.spelled, self.authority
        )

    async def answer(self, claim: Claim) -> Response:
        """Find the entity and carry the request out; refusals are raised."""
        wanted = self._wanted
        try:
            entity = get_entity(self.host, wanted.path)
        except EntityNotFound:
            # Another node may have made it just now.
            await catch_up(self.host)
            entity = get_entity(self.host, wanted.path)
        if wanted.action is RestAction.SEND:
            return await self._send(entity)
        if not entity.gives_messages(wanted.path.sub_queue):
            raise CallerError(
                f"'{wanted.path.text}' is a topic. Use one of its subscriptions."
            )
        if wanted.action in (RestAction.PEEK_LOCK, RestAction.RECEIVE_AND_DELETE):
            return await self._receive(entity, claim)
        return await self._settle(entity)

    def refusal(self, error: TwinbusError) -> Response:
        """The answer that an error becomes."""
        status = answers.status_of(error, STATUSES)
        text = answers.text_of(error)
        tracker = f"{self.host.namespace.name}:{self._wanted.path.text}"
        body = write_error(status, text, tracker, self.host.clock.now().wall_ms)
        headers = {"Content-Type": ERROR_TYPE}
        if status == 503:
            headers["Retry-After"] = str(limits.RETRY_AFTER_SECONDS)
        if self._wanted.action is RestAction.SEND:
            # The body may not have been read, so the connection cannot be used again.
            headers["Connection"] = "close"
        return Response(body, status, headers)

    def count(self, account: LedgerAccount, outcome: str, response: Response) -> None:
        """Count a send, a receive or a settlement."""
        del response
        action = self._wanted.action
        if action is RestAction.SEND and self._sent:
            count_sent(account, outcome, self._sent, self._body_bytes)
        elif action is RestAction.SEND:
            # Refused before it was read.
            account.messages_in(SEND, outcome, [self._body_bytes])
        elif action in (RestAction.PEEK_LOCK, RestAction.RECEIVE_AND_DELETE):
            if self._received is None:
                account.calls(POLL, outcome)
            else:
                account.messages_out(RECEIVE, [len(self._received.stored.bare)])
        elif action is RestAction.RENEW:
            account.calls(RENEW, outcome)
        else:
            account.calls(SETTLE, outcome)

    # -- send --------------------------------------------------------------------------

    async def _send(self, entity: Entity) -> Response:
        path = self._wanted.path
        if path.sub_queue is not SubQueue.NONE or entity.kind == "subscription":
            raise CallerError(
                f"'{path.text}' cannot be sent to. Send to the queue or topic itself."
            )
        places = [(self._host_of(each), each) for each in self._fragments(entity)]
        # Its size is not known yet.
        denials = [send_denial(host, each, 0) for host, each in places]
        if all(denial is not None for denial in denials):
            raise denials[0] or BusyError()
        await _room(
            min((host for host, _ in places), key=lambda h: h.pending.size_bytes)
        )
        body = await self._body(entity)
        content_type = self.request.headers.get("content-type", "")
        if content_type.partition(";")[0].strip().lower() == BATCH_TYPE:
            messages = read_batch(body)
        else:
            state: dict[str, Any] = self.request.scope.get("state", {})
            headers = state.get(HEADERS_AS_SENT, self.request.headers.raw)
            messages = [read_single(headers, body)]
        self._sent = messages
        if len(entity.fragments) > 1:
            entity = self._fragment_for(entity, messages)
            await _room(self._host_of(entity))
        send = Send(entity, messages)
        refused = await self._host_of(entity).run(send, len(body))
        for error in refused.values():
            raise error
        headers_out = {"Content-Type": content_type} if content_type else {}
        return Response(status_code=201, headers=headers_out)

    def _fragment_for(self, entity: Entity, messages: list[Incoming]) -> Entity:
        """The fragment of a partitioned entity that takes a batch as a whole."""
        keys = {fragment_key(entity, message) for message in messages} - {None}
        if len(keys) > 1:
            raise ArgumentError(
                f"'{entity.name}' is partitioned: give all messages of a batch the "
                "same session id or partition key, or send them one by one."
            )
        key = keys.pop() if keys else None
        shards = self.host.namespace.shards
        return shards.fragment_for(entity, key, next(_TURNS))

    async def _body(self, entity: Entity) -> bytes:
        bytes_max = entity.message_bytes_max
        too_large = MessageTooLarge(
            f"The body has more than {bytes_max} bytes, the most that "
            f"'{entity.name}' takes."
        )
        body = await read_body(self.request, bytes_max, too_large)
        self._body_bytes = len(body)
        return body

    # -- receive -----------------------------------------------------------------------

    async def _receive(self, entity: Entity, claim: Claim) -> Response:
        path = self._wanted.path
        if entity.requires_session and path.sub_queue is SubQueue.NONE:
            raise CallerError(
                f"'{path.text}' requires sessions, which HTTP does not have. Use AMQP."
            )
        if not entity.description.status.can_receive:
            raise EntityDisabled(f"'{entity.name}' is disabled for receiving.")
        locks = self._wanted.action is RestAction.PEEK_LOCK
        places = [
            ReceivePlace(self._host_of(each), each, each.container(path.sub_queue))
            for each in self._fragments(entity)
        ]
        check_receiver([place.host for place in places])
        receive = PendingReceive(places, locks)
        # A receive ends with its token at the latest.
        left_seconds = claim.expires_s - self.host.token_clock.now().wall_ms / 1000
        wait_seconds = min(self._wait_seconds(), left_seconds)
        # After an empty body the next event is that the client disconnects.
        too_large = ArgumentError("A receive has no body. Leave it out.")
        await read_body(self.request, limits.HANDSHAKE_BYTES_MAX, too_large)
        gone: asyncio.Future[Any] = asyncio.ensure_future(self._gone())
        holder = _ReceiveClaim(receive, claim, partial(rules_of, self.host))
        watch_rules(self.host, holder)
        self._pending.add(receive)
        receive.open(wait_seconds)
        try:
            waiting: set[asyncio.Future[Any]] = {receive.done, gone}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                if receive.done.done() and (taken := receive.done.result()) is not None:
                    receive.give_back(taken)
                raise ClientDisconnect
            taken = receive.done.result()
        finally:
            gone.cancel()
            unwatch_rules(self.host, holder)
            self._pending.discard(receive)
            receive.close()
        self._received = taken
        return Response(status_code=204) if taken is None else self._shown(taken)

    async def _gone(self) -> None:
        """Return when the client has disconnected."""
        while (await self.request.receive())["type"] != "http.disconnect":
            pass

    def _wait_seconds(self) -> int:
        text = self.request.query_params.get("timeout")
        if text is None:
            return limits.REST_WAIT_SECONDS_MAX
        if not _SECONDS.fullmatch(text):
            raise ArgumentError("The timeout must be a whole number of seconds.")
        return min(int(text), limits.REST_WAIT_SECONDS_MAX)

    def _shown(self, taken: TakenMessage) -> Response:
        shown = Shown(*taken)
        response = Response(shown.body, 200 if taken.lock is None else 201)
        if taken.lock is not None:
            number = taken.number_base | taken.lock.sequence
            response.headers["Location"] = self._location(number, taken.lock)
        for name, value in shown.headers:
            # Names of properties keep their capital letters.
            response.raw_headers.append((name.encode("ascii"), value.encode("ascii")))
        return response

    def _location(self, number: int, lock: Lock) -> str:
        scheme = self.request.scope["scheme"]
        path = urllib.parse.quote(self._wanted.path.text, safe="/$~")
        root = f"{scheme}://{self.authority}"
        return f"{root}/{path}/messages/{number}/{uuid_of(lock)}"

    # -- settle ------------------------------------------------------------------------

    async def _settle(self, entity: Entity) -> Response:
        wanted = self._wanted
        lock = lock_of(wanted.token)
        if len(entity.fragments) > 1:
            entity = self._locked_in(entity, lock)
        container = entity.container(wanted.path.sub_queue)
        names = (str(entity.number_base | lock.sequence), wanted.message)

        def work(namespace: Namespace, turn: Turn) -> int | None:
            if namespace.entities.find(entity.key) is not entity:
                raise EntityNotFound(entity.name)
            stored = _held(namespace, container, lock, names, turn.now)
            if wanted.action is RestAction.COMPLETE:
                namespace.complete([lock], turn)
            elif wanted.action is RestAction.UNLOCK:
                namespace.abandon(lock, None, turn)
            else:
                return _renew(namespace, entity, lock, stored, turn.now)
            return None

        until_ms = await self._host_of(entity).run(work)
        headers = {}
        if until_ms is not None:
            headers["BrokerProperties"] = locked_until(until_ms)
        return Response(status_code=200, headers=headers)

    # -- fragments ---------------------------------------------------------------------

    def _host_of(self, entity: Entity) -> Host:
        return self.host.hosts[entity.shard]

    def _fragments(self, entity: Entity) -> list[Entity]:
        """The fragments of a partitioned entity; any other one is alone."""
        if len(entity.fragments) < 2:
            return [entity]
        return self.host.namespace.shards.fragments(entity)

    def _locked_in(self, entity: Entity, lock: Lock) -> Entity:
        """The fragment that has made a lock."""
        shard = shard_of_nonce(lock.nonce)
        for each in self._fragments(entity):
            if each.shard == shard:
                return each
        raise MessageNotFound("There is no message with that lock token here.")


async def _room(host: Host) -> None:
    """Wait until the store has caught up."""
    while host.crowded:
        room = asyncio.Event()
        host.on_room.append(room.set)
        await room.wait()


class _ReceiveClaim:
    """The claim of a receive that waits (`host.ClaimHolder`)."""

    def __init__(
        self, receive: PendingReceive, claim: Claim, rules_of: RulesOf
    ) -> None:
        self._receive = receive
        self._claim = claim
        self._rules_of = rules_of

    def rules_changed(self) -> None:
        """Refuse the receive if the claim has lost its key or its right."""
        left = standing(self._claim, self._rules_of)
        if left is None or Right.LISTEN not in left.rights:
            self._receive.refuse(Unauthorized("The key of the token is gone."))


def _held(
    namespace: Namespace, container: int, lock: Lock, names: tuple[str, str], now: Now
) -> Stored:
    """The message that the lock holds, if it is the one that the path names.

    `names` are its number as clients see it, and what the path says.
    """
    if lock.container != container:
        raise MessageNotFound("There is no message with that lock token here.")
    stored = namespace.store.held(lock, now)
    if stored is None:
        if namespace.store.find(container, [lock.sequence]):
            raise LockLost
        raise MessageNotFound("There is no message with that lock token.")
    message_id = sections.read_properties(stored.bare)[sections.MESSAGE_ID]
    number, message = names
    if message not in (number, str(message_id)):
        raise MessageNotFound(
            "The lock token belongs to a message with another id and sequence number."
        )
    return stored


def _renew(
    namespace: Namespace, entity: Entity, lock: Lock, stored: Stored, now: Now
) -> int:
    if stored.session is not None:
        raise CallerError(
            "A message of a session is locked with its session. Use AMQP to renew it."
        )
    until_ms = now.steady_ms + entity.lock_ms
    namespace.store.renew(lock, until_ms, now)
    return now.shown(until_ms)
