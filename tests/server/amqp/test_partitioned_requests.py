"""Requests of `$management` about partitioned entities, in four shards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from tests.server.amqp.management_desk import annotations_of, body_of, message
from tests.server.broker.sharded_site import ShardedSite, sharded
from twinbus import limits
from twinbus.core.entity import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.core.names import parse_address
from twinbus.core.rights import Operation
from twinbus.errors import (
    ArgumentError,
    ArgumentOutOfRange,
    LockLost,
    MessageNotFound,
    SessionLockLost,
    StoreFault,
)
from twinbus.server.amqp.management.operations import AskedWork
from twinbus.server.amqp.management.partitioned import Division
from twinbus.server.broker.commands import SessionKey
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.lock_tokens import uuid_of
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.store.base import Lock, SessionGrant, State
from twinbus.wire.message.sections import parse
from twinbus.wire.types import Timestamp

HOUR_MS = 3_600_000
BASES = [place << 48 for place in range(4)]


class Desk:
    """A partitioned queue `q` with its home in shard 1, and one with sessions."""

    def __init__(self, site: ShardedSite) -> None:
        self.site = site
        self.grants: dict[SessionKey, SessionGrant] = {}
        self.turns = 0

    async def ask(self, address: str, operation: Operation, body: Any) -> Any:
        """Hand a request in; returns the body of its reply."""
        path = parse_address(address)
        entity = self.site.find(path.key)
        asked = AskedWork(operation, path, body, self.grants)
        host = self.site.hosts[entity.shard]
        reply = await Division(host, entity, asked, self.turns).carry_out()
        return reply.body

    def fragments(self, name: str = "q") -> list[Entity]:
        return self.site.first.namespace.shards.fragments(self.site.find(name))

    async def keep(self, fragment: Entity, *texts: str, session: str = "") -> None:
        """Let a fragment hold messages."""
        encoded = [message(text, session=session or None) for text in texts]
        host = self.site.hosts[fragment.shard]
        messages = [parse(each) for each in encoded]
        await host.run(lambda n, t: list(n.send(fragment, messages, t)))

    async def lock(self, fragment: Entity, count: int = 1) -> list[UUID]:
        """Lock messages of a fragment; returns the tokens."""

        def work(namespace: Namespace, turn: Turn) -> list[UUID]:
            until_ms = turn.now.steady_ms + 30_000
            store = namespace.store
            nonce, found = store.lock(fragment.id, count, until_ms, turn.now)
            return [uuid_of(Lock(stored.id, nonce)) for stored in found]

        return await self.site.hosts[fragment.shard].run(work)

    async def defer_one_each(self, name: str = "q") -> list[int]:
        """Defer a message of each fragment; returns the numbers as clients see them."""
        for place, fragment in enumerate(self.fragments(name)):
            await self.keep(fragment, f"d{place}")
            tokens = await self.lock(fragment)
            body = {"disposition-status": "defered", "lock-tokens": tokens}
            await self.ask(name, Operation.UPDATE_DISPOSITION, body)
        return [base | 1 for base in BASES]

    async def states(self, name: str = "q") -> list[list[State]]:
        """The states of what each fragment holds."""
        found = []
        for fragment in self.fragments(name):
            peek = partial(_states, fragment.id)
            found.append(await self.site.hosts[fragment.shard].run(peek))
        return found


def _states(container: int, namespace: Namespace, turn: Turn) -> list[State]:
    kept = namespace.store.peek(container, 1, 100, turn.now, None)
    return [State(stored.state) for stored in kept]


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with sharded(None) as site:
        queue = QueueDescription("q", enable_partitioning=True)
        await site.create(queue, shard=1)
        sessions = QueueDescription(
            "s", enable_partitioning=True, requires_session=True
        )
        await site.create(sessions, shard=2)
        await site.settle()
        yield Desk(site)


def peeked(body: Any) -> list[tuple[int, str]]:
    """Numbers and texts of messages."""
    found = [each["message"] for each in body.get("messages", [])]
    return [
        (annotations_of(each)["x-opt-sequence-number"], body_of(each)) for each in found
    ]


# -- peek ------------------------------------------------------------------------------


async def peek(desk: Desk, number: int, count: int = 10, **more: Any) -> Any:
    body = {"from-sequence-number": number, "message-count": count, **more}
    return peeked(await desk.ask("q", Operation.PEEK, body))


async def test_peek_goes_from_fragment_to_fragment_with_their_numbers(
    desk: Desk,
) -> None:
    for place, fragment in enumerate(desk.fragments()):
        if place != 2:
            await desk.keep(fragment, f"{place}a", f"{place}b")
    expected = [
        (base | number, f"{place}{letter}")
        for place, base in enumerate(BASES)
        for number, letter in ((1, "a"), (2, "b"))
        if place != 2
    ]

    assert await peek(desk, 0) == expected
    assert await peek(desk, -5) == expected

    pages = []
    number = 0
    while page := await peek(desk, number, 1):
        pages += page
        number = page[-1][0] + 1
    assert pages == expected
    assert await peek(desk, 4 << 48) == []


async def test_peek_keeps_the_bounds_of_one_reply(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PEEK_BYTES_MAX", 5000)
    for fragment in desk.fragments():
        await desk.keep(fragment, "x" * 2000)
    assert len(await peek(desk, 0)) == 2

    monkeypatch.setattr(limits, "PEEK_MESSAGES_MAX", 1)
    assert len(await peek(desk, 0)) == 1


async def test_peek_of_a_session_asks_its_fragment_alone(desk: Desk) -> None:
    shards = desk.site.first.namespace.shards
    fragment = shards.fragment_for(desk.site.find("s"), "blue")
    await desk.keep(fragment, "one", "two", session="blue")

    body = {"from-sequence-number": 0, "message-count": 9, "session-id": "blue"}
    found = peeked(await desk.ask("s", Operation.PEEK, body))

    assert [text for _, text in found] == ["one", "two"]
    assert found[0][0] == fragment.number_base | 1
    body["from-sequence-number"] = found[0][0] + 1
    assert peeked(await desk.ask("s", Operation.PEEK, body)) == found[1:]


# -- numbers ---------------------------------------------------------------------------


async def test_deferred_messages_come_in_the_order_of_their_numbers(desk: Desk) -> None:
    numbers = await desk.defer_one_each()
    wanted = [numbers[place] for place in (3, 0, 2, 1)]

    body = {"sequence-numbers": wanted, "receiver-settle-mode": 1}
    reply = await desk.ask("q", Operation.RECEIVE_BY_SEQUENCE, body)

    assert [number for number, _ in peeked(reply)] == wanted
    assert [text for _, text in peeked(reply)] == ["d3", "d0", "d2", "d1"]
    tokens = [each["lock-token"] for each in reply["messages"]]
    body = {"disposition-status": "completed", "lock-tokens": tokens}
    await desk.ask("q", Operation.UPDATE_DISPOSITION, body)
    assert await desk.states() == [[], [], [], []]


@pytest.mark.parametrize("wrong", [BASES[2] | 7, 9, 4 << 48 | 1, -1])
async def test_a_number_that_is_missing_leaves_all_as_it_was(
    desk: Desk, wrong: int
) -> None:
    numbers = await desk.defer_one_each()

    body = {"sequence-numbers": [*numbers, wrong], "receiver-settle-mode": 0}
    with pytest.raises(MessageNotFound, match=f" {wrong}\\."):
        await desk.ask("q", Operation.RECEIVE_BY_SEQUENCE, body)

    assert await desk.states() == [[State.DEFERRED]] * 4
    body["sequence-numbers"] = numbers
    reply = await desk.ask("q", Operation.RECEIVE_BY_SEQUENCE, body)
    assert len(reply["messages"]) == 4
    assert await desk.states() == [[], [], [], []]


async def test_deferred_messages_too_large_together_are_refused(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = await desk.defer_one_each()
    monkeypatch.setattr(limits, "DEFERRED_BYTES_MAX", 100)

    body = {"sequence-numbers": numbers, "receiver-settle-mode": 0}
    with pytest.raises(ArgumentOutOfRange, match="Ask for fewer"):
        await desk.ask("q", Operation.RECEIVE_BY_SEQUENCE, body)

    assert await desk.states() == [[State.DEFERRED]] * 4


# -- schedules -------------------------------------------------------------------------


def scheduled(desk: Desk, text: str, key: str | None = None) -> dict[str, Any]:
    due_ms = desk.site.clock.now().wall_ms + HOUR_MS
    return {"message": message(text, session=key, due_ms=due_ms)}


async def test_schedules_go_by_key_and_answer_in_order(desk: Desk) -> None:
    shards = desk.site.first.namespace.shards
    keys = ["a", "b", "c", "d", "e"]
    items = [scheduled(desk, key, key) for key in keys]

    body = {"messages": items}
    reply = await desk.ask("s", Operation.SCHEDULE, body)

    numbers = reply["sequence-numbers"]
    wanted = [shards.fragment_for(desk.site.find("s"), key) for key in keys]
    assert len({fragment.shard for fragment in wanted}) > 1
    assert [number >> 48 << 48 for number in numbers] == [f.number_base for f in wanted]

    cancel = {"sequence-numbers": [*numbers, wanted[0].number_base | 99]}
    with pytest.raises(MessageNotFound, match=f" {wanted[0].number_base | 99}\\."):
        await desk.ask("s", Operation.CANCEL_SCHEDULED, cancel)
    assert sum(map(len, await desk.states("s"))) == 5

    await desk.ask("s", Operation.CANCEL_SCHEDULED, {"sequence-numbers": numbers})
    assert await desk.states("s") == [[], [], [], []]


async def test_schedules_without_a_key_take_turns_by_request(desk: Desk) -> None:
    places = []
    for turns in range(4):
        desk.turns = turns
        body = {"messages": [scheduled(desk, "x"), scheduled(desk, "y")]}
        reply = await desk.ask("q", Operation.SCHEDULE, body)
        places.append([number >> 48 for number in reply["sequence-numbers"]])
    assert places == [[0, 0], [1, 1], [2, 2], [3, 3]]


async def test_a_schedule_with_one_bad_message_keeps_none(desk: Desk) -> None:
    large = "x" * (desk.site.find("s").message_bytes_max + 1)
    items = [scheduled(desk, text, text) for text in "abcde"]
    items.append(scheduled(desk, large, "f"))
    with pytest.raises(Exception, match="takes at most"):
        await desk.ask("s", Operation.SCHEDULE, {"messages": items})
    with pytest.raises(ArgumentError, match="cannot be read"):
        await desk.ask("s", Operation.SCHEDULE, {"messages": [{"message": b"?"}]})
    assert await desk.states("s") == [[], [], [], []]


# -- locks -----------------------------------------------------------------------------


async def lock_one_each(desk: Desk) -> list[UUID]:
    tokens = []
    for place, fragment in enumerate(desk.fragments()):
        await desk.keep(fragment, f"m{place}")
        tokens += await desk.lock(fragment)
    return tokens


async def test_locks_of_all_fragments_are_renewed_together(desk: Desk) -> None:
    tokens = await lock_one_each(desk)
    body = {"lock-tokens": [*tokens, tokens[0]]}
    reply = await desk.ask("q", Operation.RENEW_LOCK, body)
    assert len(reply["expirations"]) == 5

    strange = UUID(int=77)
    with pytest.raises(LockLost):
        await desk.ask("q", Operation.RENEW_LOCK, {"lock-tokens": [*tokens, strange]})


async def test_settling_with_one_lost_lock_settles_none(desk: Desk) -> None:
    tokens = await lock_one_each(desk)
    body = {"disposition-status": "completed", "lock-tokens": tokens[3:]}
    await desk.ask("q", Operation.UPDATE_DISPOSITION, body)

    body["lock-tokens"] = tokens
    with pytest.raises(LockLost):
        await desk.ask("q", Operation.UPDATE_DISPOSITION, body)
    assert [len(each) for each in await desk.states()] == [1, 1, 1, 0]

    body["lock-tokens"] = tokens[:3]
    await desk.ask("q", Operation.UPDATE_DISPOSITION, body)
    assert await desk.states() == [[], [], [], []]


# -- sessions --------------------------------------------------------------------------


async def keep_sessions(desk: Desk, count: int) -> list[str]:
    shards = desk.site.first.namespace.shards
    names = [f"session-{number:02}" for number in range(count)]
    for name in names:
        fragment = shards.fragment_for(desk.site.find("s"), name)
        await desk.keep(fragment, "x", session=name)
    return names


async def accept(desk: Desk, name: str) -> None:
    entity = desk.site.find("s")
    fragment = desk.site.first.namespace.shards.fragment_for(entity, name)

    def work(namespace: Namespace, turn: Turn) -> SessionGrant | None:
        until_ms = turn.now.steady_ms + 30_000
        return namespace.store.accept_session(fragment.id, name, until_ms, turn.now)

    grant = await desk.site.hosts[fragment.shard].run(work)
    assert grant is not None
    desk.grants[SessionKey(fragment.shard, fragment.id, name)] = grant


async def test_state_and_lock_of_a_session_are_in_its_fragment(desk: Desk) -> None:
    names = await keep_sessions(desk, 8)
    for name in names:
        await accept(desk, name)
        body: dict[str, Any] = {"session-id": name, "session-state": name.encode()}
        await desk.ask("s", Operation.SET_SESSION_STATE, body)
    for name in names:
        body = {"session-id": name}
        reply = await desk.ask("s", Operation.GET_SESSION_STATE, body)
        assert reply == {"session-state": name.encode()}
        assert await desk.ask("s", Operation.RENEW_SESSION_LOCK, body)
    body = {"session-id": "unknown"}
    with pytest.raises(SessionLockLost):
        await desk.ask("s", Operation.RENEW_SESSION_LOCK, body)


@pytest.mark.parametrize("page", [3, 1000])
async def test_names_of_sessions_are_merged_in_order(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    names = await keep_sessions(desk, 20)
    monkeypatch.setattr(limits, "SESSIONS_PER_REPLY_MAX", page)

    found: list[str] = []
    while True:
        body = {
            "last-updated-time": Timestamp(limits.TIME_MS_MAX),
            "skip": len(found),
            "top": 7,
        }
        reply = await desk.ask("s", Operation.LIST_SESSIONS, body)
        if not reply:
            break
        assert reply["skip"] == len(found)
        assert len(reply["sessions-ids"]) <= min(page, 7)
        found += reply["sessions-ids"]
    assert found == names


# -- rules and removal -----------------------------------------------------------------


async def test_rules_are_known_in_all_fragments_when_the_answer_comes(
    desk: Desk,
) -> None:
    await desk.site.create(TopicDescription("t", enable_partitioning=True), shard=3)
    await desk.site.create(SubscriptionDescription("t", "s"))
    await desk.site.settle()
    address = "t/subscriptions/s"
    rule = {"sql-filter": {"expression": "a = 1"}}

    body = {"rule-name": "new", "rule-description": rule}
    await desk.ask(address, Operation.ADD_RULE, body)
    rules = [list(each.rules) for each in desk.fragments(address)]
    assert rules == [["$default", "new"]] * 4

    await desk.ask(address, Operation.REMOVE_RULE, {"rule-name": "$Default"})
    assert [list(each.rules) for each in desk.fragments(address)] == [["new"]] * 4
    reply = await desk.ask(address, Operation.LIST_RULES, {"skip": 0, "top": 9})
    assert len(reply["rules"]) == 1


async def test_batch_delete_goes_on_until_the_count_is_reached(desk: Desk) -> None:
    for fragment in desk.fragments():
        await desk.keep(fragment, "a", "b", "c")
    later_ms = desk.site.clock.now().wall_ms + HOUR_MS
    body = {"message-count": 7, "enqueued-time-utc": Timestamp(later_ms)}

    assert await desk.ask("q", Operation.BATCH_DELETE, body) == {"message-count": 7}
    assert [len(each) for each in await desk.states()] == [0, 0, 2, 3]
    assert await desk.ask("q", Operation.BATCH_DELETE, body) == {"message-count": 5}
    assert await desk.ask("q", Operation.BATCH_DELETE, body) == {"message-count": 0}


# -- a shard that has stopped ----------------------------------------------------------


async def test_a_stopped_fragment_refuses_what_names_it_alone(desk: Desk) -> None:
    numbers = await desk.defer_one_each()
    stopped = desk.fragments()[2]
    host = desk.site.hosts[stopped.shard]
    host.fault = StoreFault("rehearsed")
    host.namespace.is_stopped = True

    assert [number for number, _ in await peek(desk, 0)] == [
        *numbers[:2],
        numbers[3],
    ]
    body = {"sequence-numbers": numbers, "receiver-settle-mode": 0}
    with pytest.raises(StoreFault, match="rehearsed"):
        await desk.ask("q", Operation.RECEIVE_BY_SEQUENCE, body)
    body["sequence-numbers"] = [numbers[0], numbers[3]]
    reply = await desk.ask("q", Operation.RECEIVE_BY_SEQUENCE, body)
    assert len(reply["messages"]) == 2
    for turns in range(4):
        desk.turns = turns
        await desk.ask("q", Operation.SCHEDULE, {"messages": [scheduled(desk, "x")]})

    for each in desk.site.hosts:
        each.fault = host.fault
    with pytest.raises(StoreFault, match="rehearsed"):
        await peek(desk, 0)
    for each in desk.site.hosts:
        each.fault = None
