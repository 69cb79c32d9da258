"""Management requests that settle, schedule and cancel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from tests.server.amqp.management_desk import (
    LOCK_MS,
    NOW,
    Desk,
    annotations_of,
    disposition,
    longs,
    message,
    peeking,
    shown,
    take_apart,
    uuids,
)
from twinbus import limits
from twinbus.clock import Now
from twinbus.core.entity import QueueDescription
from twinbus.errors import PeerError
from twinbus.store.records import Record
from twinbus.wire.codec import encode
from twinbus.wire.message import sections
from twinbus.wire.types import ARRAY_LONG, Array, Described, Int, Symbol, ULong

LOST = "com.microsoft:message-lock-lost"
NOT_FOUND = "com.microsoft:message-not-found"
ARGUMENT = "com.microsoft:argument-error"
DEAD = "orders/$DeadLetterQueue"

# A map that says it holds seven values and has none; only a decoder notices.
BROKEN = b"\x00\x53\x74\xc1\x01\x07" + encode(Described(ULong(sections.DATA), b"x"))


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.close()


# -- settling ------------------------------------------------------------------------


def test_completed_messages_are_gone(desk: Desk) -> None:
    desk.send("a", "b")
    tokens = [token for token, _ in desk.receive()]

    assert desk.get("update-disposition", disposition("completed", *tokens)) == {}

    assert desk.store.counts(desk.queue.id).active == 0


def test_an_abandoned_message_returns_with_its_changes(desk: Desk) -> None:
    desk.send("a")
    ((token, _),) = desk.receive()
    changes = {"tries": Int(3), Symbol("why"): "slow"}

    body = disposition("abandoned", token, properties_to_modify=changes)
    desk.get("update-disposition", body)

    ((_, stored),) = desk.receive()
    assert stored.deliveries == 1
    properties = sections.read_application_properties(stored.bare)
    assert properties == {"tries": 3, "why": "slow"}
    assert desk.queue.id in desk.turn.ready


def test_a_deferred_message_is_only_had_by_its_number(desk: Desk) -> None:
    desk.send("a")
    ((token, _),) = desk.receive()

    desk.get("update-disposition", disposition("defered", token))

    assert desk.receive() == []
    assert desk.store.counts(desk.queue.id).deferred == 1


def test_a_suspended_message_goes_to_the_dead_letters_with_its_reason(
    desk: Desk,
) -> None:
    desk.send("a")
    ((token, _),) = desk.receive()

    body = disposition(
        "suspended",
        token,
        deadletter_reason="broken",
        deadletter_description="no colour",
        properties_to_modify={"x": True},
    )
    desk.get("update-disposition", body)

    (entry,) = desk.get("peek-message", peeking(), path=DEAD)["messages"]
    assert take_apart(entry["message"])[sections.APPLICATION_PROPERTIES] == {
        "x": True,
        "DeadLetterReason": "broken",
        "DeadLetterErrorDescription": "no colour",
    }


def test_dead_letters_are_settled_at_their_own_address(desk: Desk) -> None:
    desk.send("a")
    ((token, _),) = desk.receive()
    desk.get("update-disposition", disposition("suspended", token))
    ((dead, _),) = desk.receive(1, desk.queue.id + 1)

    desk.get("renew-lock", {"lock-tokens": uuids(dead)}, path=DEAD)
    desk.get("update-disposition", disposition("completed", dead), path=DEAD)

    assert desk.ask("peek-message", peeking(), path=DEAD).status == 204


@pytest.mark.parametrize("status", ["completed", "abandoned", "defered", "suspended"])
def test_one_lost_lock_settles_none(desk: Desk, status: str) -> None:
    desk.send("a")
    ((token, _),) = desk.receive()

    body = disposition(status, token, UUID(int=1))
    reply = desk.ask("update-disposition", body)

    assert (reply.status, reply.condition) == (410, LOST)
    assert desk.ask("renew-lock", {"lock-tokens": uuids(token)}).status == 200
    desk.now_ms += LOCK_MS
    reply = desk.ask("update-disposition", disposition(status, token))
    assert (reply.status, reply.condition) == (410, LOST)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"disposition-status": None}, "disposition-status"),
        ({"disposition-status": "deferred"}, "disposition-status"),
        ({"disposition-status": Int(1)}, "disposition-status"),
        ({"deadletter-reason": Int(1)}, "deadletter-reason"),
        ({"deadletter-description": b"x"}, "deadletter-description"),
        ({"properties-to-modify": [1]}, "properties-to-modify"),
        ({"properties-to-modify": {Int(1): 1}}, "properties-to-modify"),
        ({"properties-to-modify": {"a": [1]}}, "properties-to-modify"),
        ({"properties-to-modify": {"a": {"b": 1}}}, "properties-to-modify"),
        ({"session-id": Int(1)}, "session-id"),
    ],
)
def test_a_settlement_names_the_key_that_is_wrong(
    desk: Desk, change: dict[str, Any], key: str
) -> None:
    desk.send("a")
    ((token, _),) = desk.receive()

    reply = desk.ask("update-disposition", disposition("abandoned", token) | change)

    assert (reply.status, reply.condition) == (400, ARGUMENT)
    assert f"'{key}'" in reply.description
    assert desk.ask("renew-lock", {"lock-tokens": uuids(token)}).status == 200


def test_changes_do_not_make_a_message_outgrow_its_queue(desk: Desk) -> None:
    desk.send("a" * 250_000)
    ((token, _),) = desk.receive()
    changes = {"long": "x" * 30_000}

    body = disposition("abandoned", token, properties_to_modify=changes)
    reply = desk.ask("update-disposition", body)

    assert (reply.status, reply.condition) == (403, "amqp:link:message-size-exceeded")


@pytest.mark.parametrize("status", ["abandoned", "defered", "suspended"])
def test_a_message_that_cannot_be_read_is_not_lost_half_way(
    desk: Desk, status: str
) -> None:
    desk.send("a")
    desk.store.append(desk.queue.id, [Record(b"", BROKEN)], Now.at(NOW))
    tokens = [token for token, _ in desk.receive()]

    reply = desk.ask("update-disposition", disposition(status, *tokens))

    assert (reply.status, reply.condition) == (400, "amqp:invalid-field")
    assert desk.ask("renew-lock", {"lock-tokens": uuids(*tokens)}).status == 200
    desk.get("update-disposition", disposition("completed", *tokens))


def test_messages_of_a_session_are_settled_by_its_holder(desk: Desk) -> None:
    desk.send("a", to=desk.sessions, session="s")
    desk.send("b", to=desk.sessions, session="t")
    first, second = desk.accept("s"), desk.accept("t")
    ((token, _),) = desk.receive_session(first)
    ((other, _),) = desk.receive_session(second)

    def ask(token: UUID, session: str) -> str | None:
        body = disposition("completed", token, session_id=session)
        return desk.ask("update-disposition", body, path="sessions").condition

    assert ask(other, "s") == LOST
    assert ask(token, "unheld") == "com.microsoft:session-lock-lost"
    assert ask(token, "s") is None
    desk.now_ms += LOCK_MS
    assert ask(other, "t") == "com.microsoft:session-lock-lost"


def test_the_session_of_a_message_does_not_matter_where_there_are_none(
    desk: Desk,
) -> None:
    desk.send("a", session="s")
    ((token, _),) = desk.receive()

    desk.get("update-disposition", disposition("completed", token, session_id="s"))

    assert desk.active() == 0


# -- scheduling ----------------------------------------------------------------------


def scheduling(*payloads: bytes) -> dict[str, Any]:
    return {"messages": [{"message-id": "m", "message": each} for each in payloads]}


def test_scheduled_messages_get_numbers_and_wait(desk: Desk) -> None:
    due_ms = NOW + 60_000
    payloads = [message(text, due_ms=due_ms) for text in "ab"]

    body = desk.get("schedule-message", scheduling(*payloads))

    assert body == {"sequence-numbers": [1, 2]}
    assert isinstance(body["sequence-numbers"], Array)
    assert body["sequence-numbers"].code == ARRAY_LONG
    assert all(type(number) is int for number in body["sequence-numbers"])
    assert desk.receive() == []
    peeked = desk.get("peek-message", peeking())
    assert shown(peeked) == ["a", "b"]
    annotations = annotations_of(peeked["messages"][0]["message"])
    assert annotations["x-opt-scheduled-enqueue-time"] == due_ms


def test_a_message_whose_time_is_past_goes_out_now(desk: Desk) -> None:
    body = desk.get("schedule-message", scheduling(message("a", due_ms=NOW)))

    ((_, stored),) = desk.receive()
    assert body["sequence-numbers"] == [stored.sequence]


def test_messages_can_be_scheduled_for_a_topic(desk: Desk) -> None:
    path = "events"
    late = scheduling(message("a", due_ms=NOW + 10))
    (number,) = desk.get("schedule-message", late, path)["sequence-numbers"]

    assert desk.store.counts(desk.topic.id).scheduled == 1

    desk.get("cancel-scheduled-message", {"sequence-numbers": longs(number)}, path)
    assert desk.store.counts(desk.topic.id).scheduled == 0


@pytest.mark.parametrize("path", ["events/Subscriptions/all", DEAD])
def test_nothing_is_scheduled_where_nothing_can_be_sent(desk: Desk, path: str) -> None:
    body = scheduling(message("a", due_ms=NOW + 5))

    for operation, arguments in (
        ("schedule-message", body),
        ("cancel-scheduled-message", {"sequence-numbers": longs(1)}),
    ):
        reply = desk.ask(operation, arguments, path)
        assert (reply.status, reply.condition) == (400, "amqp:not-allowed")


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        (None, "'messages'"),
        ([], "'messages'"),
        ("text", "'messages'"),
        ([b"x"], "'messages'"),
        ([{}], "'message'"),
        ([{"message": "text"}], "'message'"),
        ([{"message": b"rubbish"}], "'message'"),
        ([{"message": BROKEN}], "'message'"),
        ([{"message": message("a")}], "x-opt-scheduled-enqueue-time"),
        (
            [{"message": message("a", due_ms=limits.TIME_MS_MAX + 1)}],
            "x-opt-scheduled-enqueue-time",
        ),
        ([{"message": message("a", due_ms=5), "session-id": Int(1)}], "'session-id'"),
        ([{"message": message("a", due_ms=5), "partition-key": 1}], "'partition-key'"),
    ],
)
def test_a_bad_message_schedules_none(desk: Desk, messages: Any, text: str) -> None:
    if isinstance(messages, list) and messages:
        messages = [{"message": message("good", due_ms=NOW + 5)}, *messages]

    reply = desk.ask("schedule-message", {"messages": messages})

    assert reply.status == 400
    assert text in reply.description
    assert desk.store.counts(desk.queue.id).last_sequence == 0


def test_a_ping_is_not_scheduled(desk: Desk) -> None:
    fields = {sections.CONTENT_TYPE: Symbol(sections.PING_CONTENT_TYPE)}
    payload = sections.encode_message(b"", fields)

    reply = desk.ask("schedule-message", scheduling(payload))

    assert "ping" in reply.description


def test_a_message_that_is_too_large_is_not_scheduled(desk: Desk) -> None:
    payload = message("x" * (limits.MESSAGE_BYTES_MAX + 1), due_ms=NOW + 5)

    reply = desk.ask("schedule-message", scheduling(payload))

    assert (reply.status, reply.condition) == (403, "amqp:link:message-size-exceeded")


def test_a_busy_entity_says_so(desk: Desk) -> None:
    desk.make(QueueDescription("slow", message_rate_per_second=1))
    body = scheduling(message("a", due_ms=NOW + 5))

    desk.get("schedule-message", body, path="slow")
    reply = desk.ask("schedule-message", body, path="slow")

    assert (reply.status, reply.condition) == (503, "com.microsoft:server-busy")


def test_cancelled_messages_are_gone(desk: Desk) -> None:
    desk.send("a", "b", "c", due_ms=NOW + 5)

    body = {"sequence-numbers": longs(1, 3, 1)}
    assert desk.get("cancel-scheduled-message", body) == {}

    assert shown(desk.get("peek-message", peeking())) == ["b"]


@pytest.mark.parametrize("other", [2, 99, 0, -1, (1 << 63) - 1])
def test_one_number_that_is_not_scheduled_cancels_none(desk: Desk, other: int) -> None:
    desk.send("a", due_ms=NOW + 5)
    desk.send("active")

    body = {"sequence-numbers": longs(1, other)}
    reply = desk.ask("cancel-scheduled-message", body)

    assert (reply.status, reply.condition) == (404, NOT_FOUND)
    assert desk.store.counts(desk.queue.id).scheduled == 1


@pytest.mark.parametrize("numbers", [None, longs(), ["1"], 1, "1"])
def test_a_cancellation_names_the_key_that_is_wrong(desk: Desk, numbers: Any) -> None:
    reply = desk.ask("cancel-scheduled-message", {"sequence-numbers": numbers})

    assert (reply.status, reply.condition) == (400, ARGUMENT)
    assert "'sequence-numbers'" in reply.description


def test_the_broken_message_of_these_tests_cannot_be_read() -> None:
    with pytest.raises(PeerError):
        sections.parse(BROKEN)
    with pytest.raises(PeerError):
        sections.read_application_properties(BROKEN)
