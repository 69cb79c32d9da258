"""A request about a partitioned entity: divided over its fragments, replies merged.

Owns which fragment each thing that a request names is in: a sequence number carries its
fragment, a lock its shard, a session or a key leads to it. A part of a request is a
request of its own (`AskedWork`), in a turn of the fragment's host.

Rule: what names things is carried out in all fragments or in none. If there are several
parts, all of them are tried and undone before the first changes something; only a store
that stops in between divides them. What looks through the entity (peek, the names of
sessions, removal) passes over fragments whose shard is stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from twinbus import limits
from twinbus.core.names import SubQueue
from twinbus.core.rights import Operation
from twinbus.errors import (
    ArgumentOutOfRange,
    LockLost,
    MessageNotFound,
    ShardAway,
    StoreFault,
)
from twinbus.server.amqp.management.call import (
    INT_MAX,
    LONG_MAX,
    LONG_MIN,
    Arguments,
    ManagementReply,
    done,
    nothing,
)
from twinbus.server.amqp.management.operations import AskedWork
from twinbus.server.amqp.management.schedule import read_message
from twinbus.server.broker.directory.entity import FRAGMENT_SHIFT, Entity
from twinbus.server.broker.host import Host
from twinbus.server.broker.lock_tokens import lock_of
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.sending.naming import fragment_key
from twinbus.server.broker.turn import Command, Turn
from twinbus.store.base import shard_of_nonce
from twinbus.wire.types import ARRAY_LONG, ARRAY_STRING, ARRAY_TIMESTAMP, Array, Int

T = TypeVar("T")

_NUMBER_MASK = (1 << FRAGMENT_SHIFT) - 1


class _TriedError(Exception):
    """A part could be carried out; undoes it."""


class _Try:
    """Carry a part out and undo it; the result is the reply that it would have."""

    __slots__ = ("_asked",)
    # The part of the turn that is undone is its own.
    divides = True

    def __init__(self, asked: AskedWork) -> None:
        self._asked = asked

    def __call__(self, namespace: Namespace, turn: Turn) -> ManagementReply:
        with contextlib.suppress(_TriedError), namespace.part():
            reply = self._asked(namespace, turn)
            raise _TriedError
        return reply


@dataclass(slots=True)
class _Part:
    """What one fragment has to do with the things that a request names."""

    fragment: Entity
    asked: AskedWork
    # Where they stand in the request.
    places: list[int]


class Division:
    """One request, divided over the fragments of its entity."""

    def __init__(
        self, host: Host, entity: Entity, asked: AskedWork, turns: int
    ) -> None:
        self._hosts = host.hosts
        self._shards = host.namespace.shards
        self._entity = entity
        self._fragments = self._shards.fragments(entity)
        self._asked = asked
        self._arguments = Arguments(asked.body)
        # Which fragment is next for what has no key.
        self._turns = turns
        # How often fragments were looked through, and why some were passed over.
        self._looks = 0
        self._faults: list[StoreFault] = []

    async def carry_out(self) -> ManagementReply:
        """Carry the request out; refusals are raised."""
        return await _WAYS[self._asked.operation](self)

    # -- finding fragments -------------------------------------------------------------

    def _at(self, shard: int) -> Entity:
        for each in self._fragments:
            if each.shard == shard:
                return each
        raise ShardAway(shard)

    def _of_number(self, number: int) -> Entity:
        place = number >> FRAGMENT_SHIFT
        if not 0 <= place < len(self._entity.fragments):
            raise MessageNotFound(
                f"There is no message with the sequence number {number}."
            )
        return self._at(self._entity.fragments[place])

    def _of_token(self, token: UUID) -> Entity:
        shard = shard_of_nonce(lock_of(token).nonce)
        if shard not in self._entity.fragments:
            raise LockLost
        return self._at(shard)

    def _of_session(self, session_id: str) -> Entity:
        return self._shards.fragment_for(self._entity, session_id)

    def _place(self, fragment: Entity) -> int:
        return self._entity.fragments.index(fragment.shard)

    # -- running parts -----------------------------------------------------------------

    async def _run(self, fragment: Entity, command: Command[T]) -> T:
        return await self._hosts[fragment.shard].run(command)

    async def _run_each(
        self, parts: Iterable[tuple[Entity, Command[ManagementReply]]]
    ) -> list[ManagementReply]:
        """Run parts at the same time; raises the first error when all have ended."""
        running = [self._run(fragment, command) for fragment, command in parts]
        replies: list[ManagementReply] = []
        for reply in await asyncio.gather(*running, return_exceptions=True):
            if isinstance(reply, BaseException):
                raise reply
            replies.append(reply)
        return replies

    async def _all_or_none(self, parts: Sequence[_Part]) -> list[ManagementReply]:
        if len(parts) > 1:
            tries = [(part.fragment, _Try(part.asked)) for part in parts]
            _check_size(await self._run_each(tries))
        return await self._run_each((part.fragment, part.asked) for part in parts)

    async def _passing_over(self, fragment: Entity, asked: AskedWork) -> dict[str, Any]:
        """The body of a reply; empty if the fragment's shard is stopped."""
        self._looks += 1
        try:
            reply = await self._run(fragment, asked)
        except StoreFault as fault:
            self._faults.append(fault)
            return {}
        body: dict[str, Any] = reply.body
        return body

    def _check_looks(self) -> None:
        """Refuse to say that there was nothing if all fragments were passed over."""
        if self._faults and len(self._faults) == self._looks:
            raise self._faults[0]

    def _nothing(self) -> ManagementReply:
        self._check_looks()
        return nothing()

    def _parts(
        self, key: str, values: Sequence[Any], fragments: Sequence[Entity]
    ) -> list[_Part]:
        """Divide the values at a key; each has its fragment."""
        places: dict[int, list[int]] = {}
        for place, fragment in enumerate(fragments):
            places.setdefault(fragment.shard, []).append(place)
        return [
            _Part(
                fragments[some[0]],
                self._asked.but({key: [values[place] for place in some]}),
                some,
            )
            for some in places.values()
        ]

    # -- what names things -------------------------------------------------------------

    def _by_number(self) -> list[_Part]:
        numbers = self._arguments.sequences()
        fragments = [self._of_number(number) for number in numbers]
        inner = [number & _NUMBER_MASK for number in numbers]
        return self._parts("sequence-numbers", inner, fragments)

    async def _receive_deferred(self) -> ManagementReply:
        parts = self._by_number()
        replies = await self._all_or_none(parts)
        return done({"messages": _in_order(parts, replies, "messages")})

    async def _cancel(self) -> ManagementReply:
        await self._all_or_none(self._by_number())
        return done()

    def _by_token(self) -> list[_Part]:
        self._arguments.locks()
        tokens = self._arguments.items("lock-tokens")
        return self._parts("lock-tokens", tokens, list(map(self._of_token, tokens)))

    async def _renew_locks(self) -> ManagementReply:
        parts = self._by_token()
        replies = await self._all_or_none(parts)
        ends = _in_order(parts, replies, "expirations")
        return done({"expirations": Array(ARRAY_TIMESTAMP, ends)})

    async def _settle(self) -> ManagementReply:
        await self._all_or_none(self._by_token())
        return done()

    async def _schedule(self) -> ManagementReply:
        items = self._arguments.items("messages")
        # All that have no key go to the same fragment.
        next_one = self._shards.fragment_for(self._entity, None, self._turns)
        keys = [fragment_key(self._entity, read_message(item)) for item in items]
        fragments = [next_one if key is None else self._of_session(key) for key in keys]
        parts = self._parts("messages", items, fragments)
        replies = await self._all_or_none(parts)
        numbers = _in_order(parts, replies, "sequence-numbers")
        return done({"sequence-numbers": Array(ARRAY_LONG, numbers)})

    async def _at_session(self) -> ManagementReply:
        fragment = self._of_session(self._arguments.text("session-id"))
        return await self._run(fragment, self._asked)

    async def _at_home(self) -> ManagementReply:
        home = self._at(self._entity.fragments[0])
        reply = await self._run(home, self._asked)
        host = self._hosts[home.shard]
        changes = self._asked.operation is not Operation.LIST_RULES
        if changes and host.mover is not None:
            # The other fragments know of it before the client goes on.
            await host.mover.settle(host)
        return reply

    # -- what looks through the entity -------------------------------------------------

    async def _peek(self) -> ManagementReply:
        """Fragment after fragment, from the one that the number names."""
        number = self._arguments.integer("from-sequence-number", LONG_MIN, LONG_MAX)
        count = self._arguments.integer("message-count", 1, INT_MAX)
        session = self._arguments.optional_text("session-id")
        first = max(number, 0) >> FRAGMENT_SHIFT
        fragments = self._fragments
        if session is not None:
            fragments = [self._of_session(session)]
        found: list[dict[str, Any]] = []
        size_bytes = 0
        for fragment in fragments:
            left = min(count, limits.PEEK_MESSAGES_MAX) - len(found)
            place = self._place(fragment)
            if not left or place < first:
                continue
            start = max(number, 0) & _NUMBER_MASK if place == first else 1
            values = {"from-sequence-number": start, "message-count": left}
            body = await self._passing_over(fragment, self._asked.but(values))
            for each in body.get("messages", []):
                size_bytes += len(each["message"])
                if found and size_bytes > limits.PEEK_BYTES_MAX:
                    return done({"messages": found})
                found.append(each)
        return done({"messages": found}) if found else self._nothing()

    async def _delete_batch(self) -> ManagementReply:
        """Fragment after fragment, until as many are removed as were asked for."""
        if self._has_sessions and self._arguments.has("session-id"):
            return await self._at_session()
        count = self._arguments.integer("message-count", 1, INT_MAX)
        left = min(count, limits.BATCH_MESSAGES_MAX)
        deleted = 0
        for fragment in self._fragments:
            if deleted < left:
                values = {"message-count": left - deleted}
                body = await self._passing_over(fragment, self._asked.but(values))
                deleted += body.get("message-count", 0)
        if not deleted:
            self._check_looks()
        return done({"message-count": Int(deleted)})

    @property
    def _has_sessions(self) -> bool:
        in_entity = self._asked.path.sub_queue is SubQueue.NONE
        return self._entity.requires_session and in_entity

    async def _list_sessions(self) -> ManagementReply:
        """Names of all fragments, in order; each is in one of them."""
        skip = self._arguments.integer("skip", 0, INT_MAX)
        top = self._arguments.integer("top", 1, INT_MAX)
        end = skip + min(top, limits.SESSIONS_PER_REPLY_MAX)
        page = min(end, limits.SESSIONS_PER_REPLY_MAX)
        streams = [self._names(fragment, page) for fragment in self._fragments]
        heads: list[tuple[str, int]] = []
        names: list[str] = []
        passed = 0
        for place in range(len(streams)):
            await _push(heads, streams, place)
        while heads and passed < end:
            name, place = heapq.heappop(heads)
            if passed >= skip:
                names.append(name)
            passed += 1
            await _push(heads, streams, place)
        if not names:
            return self._nothing()
        return done({"skip": Int(skip), "sessions-ids": Array(ARRAY_STRING, names)})

    async def _names(self, fragment: Entity, page: int) -> AsyncIterator[str]:
        """The names of a fragment, read as they are needed."""
        skip = 0
        while True:
            asked = self._asked.but({"skip": skip, "top": page})
            names = (await self._passing_over(fragment, asked)).get("sessions-ids", [])
            for name in names:
                yield name
            if len(names) < page:
                return
            skip += page


async def _push(
    heads: list[tuple[str, int]], streams: Sequence[AsyncIterator[str]], place: int
) -> None:
    name = await anext(streams[place], None)
    if name is not None:
        heapq.heappush(heads, (name, place))


def _in_order(
    parts: Sequence[_Part], replies: Sequence[ManagementReply], key: str
) -> list[Any]:
    """What parts have answered, in the order of the request."""
    found: dict[int, Any] = {}
    for part, reply in zip(parts, replies, strict=True):
        found.update(zip(part.places, reply.body[key], strict=True))
    return [found[place] for place in sorted(found)]


def _check_size(replies: Sequence[ManagementReply]) -> None:
    """Refuse what is small enough in each fragment, and too large together."""
    messages = [each for reply in replies for each in reply.body.get("messages", [])]
    size_bytes = sum(len(each["message"]) for each in messages)
    if size_bytes > limits.DEFERRED_BYTES_MAX:
        raise ArgumentOutOfRange(
            "The messages of 'sequence-numbers' are too large for one reply. "
            "Ask for fewer."
        )


_WAYS: dict[Operation, Callable[[Division], Awaitable[ManagementReply]]] = {
    Operation.RENEW_LOCK: Division._renew_locks,
    Operation.PEEK: Division._peek,
    Operation.RECEIVE_BY_SEQUENCE: Division._receive_deferred,
    Operation.UPDATE_DISPOSITION: Division._settle,
    Operation.BATCH_DELETE: Division._delete_batch,
    Operation.SCHEDULE: Division._schedule,
    Operation.CANCEL_SCHEDULED: Division._cancel,
    Operation.RENEW_SESSION_LOCK: Division._at_session,
    Operation.GET_SESSION_STATE: Division._at_session,
    Operation.SET_SESSION_STATE: Division._at_session,
    Operation.LIST_SESSIONS: Division._list_sessions,
    Operation.ADD_RULE: Division._at_home,
    Operation.REMOVE_RULE: Division._at_home,
    Operation.LIST_RULES: Division._at_home,
}
