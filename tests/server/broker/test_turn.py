"""A turn is a function: what goes in, what comes out, and in which order."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator

import pytest

from tests.server.conftest import reached
from twinbus.clock import Now
from twinbus.core.entity import QueueDescription
from twinbus.core.names import EntityPath
from twinbus.errors import BusyError, EntityNotFound, StoreFault
from twinbus.server.broker.commands import (
    MessageWant,
    Send,
    SharedCredit,
    TakenMessages,
)
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Room, Turn, Work, run
from twinbus.store.opening import open_store
from twinbus.wire.message import sections

NOW_MS = 1_700_000_000_000


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    store = open_store(None)
    store.begin()
    made = Namespace("contoso", store)
    made.entities.create(QueueDescription("q"), NOW_MS)
    yield made
    store.rollback()
    store.close()


@pytest.fixture
def queue(namespace: Namespace) -> Entity:
    return namespace.entities.get(EntityPath("q"))


def send(entity: Entity, *bodies: bytes) -> Send:
    command = Send(entity)
    for body in bodies:
        command.add([sections.parse(sections.encode_message(body))])
    return command


def want(entity: Entity, key: int = 1, *, answer_empty: bool = False) -> MessageWant:
    return MessageWant(key, entity.id, entity, Room(), 10, answer_empty=answer_empty)


def test_commands_are_answered_in_order_and_refused_alone(
    namespace: Namespace, queue: Entity
) -> None:
    def refused(_namespace: Namespace, _turn: Turn) -> None:
        raise BusyError

    work = Work(Now.at(NOW_MS), [send(queue, b"a"), refused, send(queue, b"b")])

    first, second, third = run(namespace, work).answers

    assert (first, third) == ({}, {})
    assert isinstance(second, BusyError)
    assert namespace.store.counts(queue.id).active == 2


def test_a_store_fault_fails_the_turn(namespace: Namespace) -> None:
    def fails(_namespace: Namespace, _turn: Turn) -> None:
        raise StoreFault("The disk is full.")

    with pytest.raises(StoreFault):
        run(namespace, Work(Now.at(NOW_MS), [fails]))


def test_a_waiting_want_is_served_in_the_turn_of_the_send(
    namespace: Namespace, queue: Entity
) -> None:
    wants = {queue.id: {1: want(queue)}}

    outcome = run(namespace, Work(Now.at(NOW_MS), [send(queue, b"a")], wants=wants))

    [(served, taken)] = outcome.deliveries
    assert served is wants[queue.id][1]
    assert isinstance(taken, TakenMessages)
    assert [stored.sequence for stored in taken.messages] == [1]
    assert outcome.effects.ready == {queue.id}


def test_a_want_without_messages_waits_unless_it_asks_for_an_answer(
    namespace: Namespace, queue: Entity
) -> None:
    wants = {queue.id: {1: want(queue), 2: want(queue, 2, answer_empty=True)}}

    outcome = run(namespace, Work(Now.at(NOW_MS), to_serve={queue.id}, wants=wants))

    [(served, taken)] = outcome.deliveries
    assert served.key == 2
    assert isinstance(taken, TakenMessages)
    assert taken.messages == []


def test_a_closed_room_is_passed_over_and_remembers_the_container(
    namespace: Namespace, queue: Entity
) -> None:
    waiting = want(queue)
    waiting.room.closed = True

    work = Work(Now.at(NOW_MS), [send(queue, b"a")], wants={queue.id: {1: waiting}})
    outcome = run(namespace, work)

    assert outcome.deliveries == []
    assert list(waiting.room.passed_over) == [(0, queue.id)]


def test_messages_taken_for_a_lost_consumer_can_be_given_back(
    namespace: Namespace, queue: Entity
) -> None:
    wants = {queue.id: {1: want(queue)}}
    [(_, taken)] = run(
        namespace, Work(Now.at(NOW_MS), [send(queue, b"a")], wants=wants)
    ).deliveries
    back = taken.returned()
    assert back is not None

    outcome = run(namespace, Work(Now.at(NOW_MS), [back], wants=wants))

    [(_, again)] = outcome.deliveries
    assert isinstance(again, TakenMessages)
    assert [stored.deliveries for stored in again.messages] == [0]


def test_a_want_of_a_deleted_entity_is_told(
    namespace: Namespace, queue: Entity
) -> None:
    wants = {queue.id: {1: want(queue)}}
    gone = functools.partial(Namespace.delete, path=EntityPath("q"))

    outcome = run(
        namespace,
        Work(
            Now.at(NOW_MS),
            [lambda names, turn: gone(names, turn=turn)],
            to_serve={queue.id},
            wants=wants,
        ),
    )

    [(_, taken)] = outcome.deliveries
    assert isinstance(taken, TakenMessages)
    assert isinstance(taken.error, EntityNotFound)
    assert outcome.effects.deleted == [queue.id]


async def test_objects_that_are_not_plain_data_are_found_at_any_depth() -> None:
    loop = asyncio.get_running_loop()

    class Holder:
        def __init__(self) -> None:
            self.inner = [{"loop": loop}]

        def method(self) -> None: ...

    def closure() -> object:
        return loop

    for hidden in (Holder(), Holder().method, closure, functools.partial(id, loop)):
        assert reached([hidden]) == [loop]
    assert reached([{"a": [1, b"", Turn(Now.at(0))]}]) == []


# -- a credit that several share -------------------------------------------------------


def test_who_found_nothing_tells_who_got_no_credit() -> None:
    credit = SharedCredit()
    credit.set(5)

    assert credit.take(5) == 5
    # Another turn, in another thread, gets none and will not look again by itself.
    assert credit.take(5) == 0
    assert credit.is_waiting
    credit.give_back(5)
    assert [credit.was_missed(), credit.was_missed()] == [True, False]
    assert credit.take(5) == 5


def test_a_shared_credit_counts_what_is_not_on_its_way_yet() -> None:
    credit = SharedCredit()
    credit.set(5)
    assert credit.take(3) == 3

    # The client has granted more while those were being taken.
    credit.set(10)
    assert credit.take(100) == 7
    credit.delivered(10)
    credit.set(0)
    assert credit.take(1) == 0
    assert not credit.was_missed()
