"""Management requests: the frame around all operations, peeking and locks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from tests.server.amqp.management_desk import (
    LOCK_MS,
    MESSAGE_ID,
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
from twinbus import errors, limits
from twinbus.clock import Now
from twinbus.core.entity import ActiveStatus, QueueDescription
from twinbus.core.rights import Operation
from twinbus.server.amqp.management.operations import ManagementReply, refusal
from twinbus.server.broker.turn import Turn
from twinbus.wire.message import sections
from twinbus.wire.types import (
    ARRAY_TIMESTAMP,
    Array,
    Int,
    Symbol,
    Timestamp,
    ULong,
)

LOST = "com.microsoft:message-lock-lost"
NOT_FOUND = "com.microsoft:message-not-found"
ARGUMENT = "com.microsoft:argument-error"
OUT_OF_RANGE = "com.microsoft:argument-out-of-range"


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.close()


# -- the frame -----------------------------------------------------------------------


def test_a_reply_carries_its_status_as_an_int_and_the_id_of_the_request() -> None:
    parts = take_apart(
        ManagementReply(200, "OK", {"a": Int(1)}, None).encode(MESSAGE_ID)
    )

    assert parts[sections.PROPERTIES][sections.CORRELATION_ID] == MESSAGE_ID
    properties = parts[sections.APPLICATION_PROPERTIES]
    assert properties == {"statusCode": 200, "statusDescription": "OK"}
    assert type(properties["statusCode"]) is Int
    assert parts[sections.VALUE] == {"a": 1}


def test_a_refusal_carries_its_condition_as_a_symbol() -> None:
    parts = take_apart(refusal(errors.LockLost()).encode("an id"))

    properties = parts[sections.APPLICATION_PROPERTIES]
    assert properties["statusCode"] == 410
    assert properties["errorCondition"] == LOST
    assert type(properties["errorCondition"]) is Symbol
    assert parts[sections.PROPERTIES][sections.CORRELATION_ID] == "an id"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.LockLost(), 410),
        (errors.SessionLockLost(), 410),
        (errors.MessageNotFound(), 404),
        (errors.EntityNotFound("orders"), 404),
        (errors.EntityExists(), 409),
        (errors.Unauthorized(), 401),
        (errors.ArgumentError(), 400),
        (errors.ArgumentOutOfRange(), 400),
        (errors.FilterError(), 400),
        (errors.CallerError(), 400),
        (errors.DecodeError(), 400),
        (errors.MessageTooLarge(), 403),
        (errors.QuotaExceeded(), 403),
        (errors.EntityDisabled(), 403),
        (errors.OperationTimeout(), 408),
        (errors.NotImplementedByServer(), 501),
        (errors.BusyError(), 503),
        (errors.StoreFault(), 500),
        (errors.Bug(), 500),
    ],
)
def test_every_error_has_its_status(error: errors.TwinbusError, status: int) -> None:
    reply = refusal(error)

    assert (reply.status, reply.condition) == (status, error.condition)
    assert reply.description == error.text


@pytest.mark.parametrize(
    "operation",
    ["com.microsoft:purge", "send link", "create entity", None, 5, b"com.microsoft:x"],
)
def test_an_unknown_operation_is_not_implemented(desk: Desk, operation: Any) -> None:
    reply = desk.ask(operation, {})

    assert (reply.status, reply.condition) == (501, "amqp:not-implemented")


def test_requests_without_a_claim_are_refused(desk: Desk) -> None:
    desk.asker.refused = True

    reply = desk.ask("peek-message", peeking(), path="missing")

    assert (reply.status, reply.condition) == (401, "amqp:unauthorized-access")
    assert desk.asker.asked == [(Operation.PEEK, "missing/$management")]


def test_a_missing_entity_is_not_found(desk: Desk) -> None:
    reply = desk.ask("peek-message", peeking(), path="missing")

    assert (reply.status, reply.condition) == (404, "amqp:not-found")


@pytest.mark.parametrize("body", [None, "text", [], Int(5)])
def test_a_body_must_be_a_map(desk: Desk, body: Any) -> None:
    reply = desk.ask("peek-message", body)

    assert (reply.status, reply.condition) == (400, ARGUMENT)


def test_a_disabled_entity_refuses_its_direction(desk: Desk) -> None:
    description = desk.queue.description
    assert isinstance(description, QueueDescription)
    for status, peek, schedule in (
        (ActiveStatus.RECEIVE_DISABLED, 403, 200),
        (ActiveStatus.SEND_DISABLED, 204, 403),
        (ActiveStatus.DISABLED, 403, 403),
    ):
        changed = dataclasses.replace(description, status=status)
        desk.namespace.entities.update(changed, Turn(Now.at(NOW)))
        later = {"messages": [{"message": message("a", due_ms=NOW + 5)}]}

        assert desk.ask("peek-message", peeking(start=2)).status == peek
        assert desk.ask("schedule-message", later).status == schedule


# -- peek ----------------------------------------------------------------------------


def test_a_peek_shows_every_state_and_no_lock(desk: Desk) -> None:
    desk.defer("deferred")
    desk.send("locked")
    desk.receive(1)
    desk.send("active")
    desk.send("scheduled", due_ms=NOW + 60_000)

    body = desk.get("peek-message", peeking())

    assert shown(body) == ["deferred", "locked", "active", "scheduled"]
    payloads = [entry["message"] for entry in body["messages"]]
    states = [annotations_of(payload)["x-opt-message-state"] for payload in payloads]
    assert states == [1, 0, 0, 2]
    assert all(type(state) is Int for state in states)
    for number, payload in enumerate(payloads, 1):
        annotations = annotations_of(payload)
        assert annotations["x-opt-sequence-number"] == number
        assert annotations["x-opt-enqueued-time"] == Timestamp(NOW)
        assert "x-opt-locked-until" not in annotations
        assert sections.DELIVERY_ANNOTATIONS not in take_apart(payload)


def test_a_peek_starts_at_a_number_and_ends_at_a_count(desk: Desk) -> None:
    desk.send(*"abcdefgh")

    assert shown(desk.get("peek-message", peeking(3, 2))) == ["c", "d"]
    assert shown(desk.get("peek-message", peeking(-5, 1))) == ["a"]
    assert shown(desk.get("peek-message", peeking(7, 99))) == ["g", "h"]


@pytest.mark.parametrize("start", [2, 1 << 40, (1 << 63) - 1])
def test_a_peek_that_finds_nothing_is_no_content(desk: Desk, start: int) -> None:
    desk.send("a")

    reply = desk.ask("peek-message", peeking(start))

    assert (reply.status, reply.condition) == (204, None)


def test_a_peek_shows_250_messages_at_most(desk: Desk) -> None:
    desk.send(*(f"m{number}" for number in range(300)))

    body = desk.get("peek-message", peeking(0, 1000))

    assert len(body["messages"]) == limits.PEEK_MESSAGES_MAX


def test_a_peek_ends_before_it_gets_too_large(desk: Desk) -> None:
    desk.send("small")
    desk.send(*("x" * 200_000 for _ in range(8)))

    first = desk.get("peek-message", peeking(0, 100))["messages"]

    assert sum(len(entry["message"]) for entry in first) <= limits.PEEK_BYTES_MAX
    assert len(first) == 6
    rest = desk.get("peek-message", peeking(7, 100))["messages"]
    assert len(rest) == 3


def test_a_peek_shows_one_message_of_any_size(desk: Desk) -> None:
    large = desk.make(
        QueueDescription("large", max_message_size_in_kilobytes=10 * 1024)
    )
    desk.send("x" * 2_000_000, "y" * 2_000_000, to=large)

    body = desk.get("peek-message", peeking(), path="large")

    assert [len(text) for text in shown(body)] == [2_000_000]


def test_a_peek_can_leave_the_body_out(desk: Desk) -> None:
    desk.send("a")

    body = desk.get("peek-message", peeking(omit_message_body=True))

    parts = take_apart(body["messages"][0]["message"])
    assert parts[sections.PROPERTIES][sections.MESSAGE_ID] == "a"
    assert sections.DATA not in parts


def test_a_peek_tells_source_and_origin_of_a_dead_letter(desk: Desk) -> None:
    desk.make(QueueDescription("graves"))
    desk.make(
        QueueDescription("doomed", forward_dead_lettered_messages_to="graves"),
    )
    doomed = desk.namespace.entities.find("doomed")
    assert doomed is not None
    desk.send("a", "b", to=doomed)
    tokens = [token for token, _ in desk.receive(2, doomed.id)]
    desk.get("update-disposition", disposition("suspended", tokens[1]), path="doomed")

    body = desk.get("peek-message", peeking(), path="graves")

    annotations = annotations_of(body["messages"][0]["message"])
    assert annotations["x-opt-deadletter-source"] == "doomed"
    assert annotations["x-opt-sequence-number"] == 1
    assert annotations["x-opt-enqueue-sequence-number"] == 2


@pytest.mark.parametrize(
    ("change", "key", "condition"),
    [
        ({"from-sequence-number": None}, "from-sequence-number", ARGUMENT),
        ({"from-sequence-number": "1"}, "from-sequence-number", ARGUMENT),
        ({"from-sequence-number": Timestamp(1)}, "from-sequence-number", ARGUMENT),
        (
            {"from-sequence-number": ULong((1 << 64) - 1)},
            "from-sequence-number",
            OUT_OF_RANGE,
        ),
        ({"message-count": True}, "message-count", ARGUMENT),
        ({"message-count": None}, "message-count", ARGUMENT),
        ({"message-count": Int(0)}, "message-count", OUT_OF_RANGE),
        ({"message-count": Int(-1)}, "message-count", OUT_OF_RANGE),
        ({"session-id": Int(1)}, "session-id", ARGUMENT),
        ({"omit-message-body": Int(1)}, "omit-message-body", ARGUMENT),
    ],
)
def test_a_peek_names_the_key_that_is_wrong(
    desk: Desk, change: dict[str, Any], key: str, condition: str
) -> None:
    reply = desk.ask("peek-message", peeking() | change)

    assert (reply.status, reply.condition) == (400, condition)
    assert f"'{key}'" in reply.description


# -- locks ---------------------------------------------------------------------------


def test_renewed_locks_last_from_now_on(desk: Desk) -> None:
    desk.send("a", "b")
    tokens = [token for token, _ in desk.receive()]
    desk.now_ms += LOCK_MS - 1

    body = desk.get("renew-lock", {"lock-tokens": uuids(*tokens)})

    end = Timestamp(desk.now_ms + LOCK_MS)
    assert body == {"expirations": [end, end]}
    assert isinstance(body["expirations"], Array)
    assert body["expirations"].code == ARRAY_TIMESTAMP
    desk.now_ms += LOCK_MS - 1
    assert desk.ask("renew-lock", {"lock-tokens": uuids(*tokens)}).status == 200


def test_a_token_may_be_named_twice(desk: Desk) -> None:
    desk.send("a")
    ((token, _),) = desk.receive()

    body = desk.get("renew-lock", {"lock-tokens": uuids(token, token)})

    assert len(body["expirations"]) == 2
    assert desk.ask("update-disposition", disposition("completed", token, token))[
        :4
    ] == (
        200,
        "OK",
        {},
        None,
    )


def test_one_lost_lock_renews_none(desk: Desk) -> None:
    desk.send("a")
    ((token, _),) = desk.receive()
    desk.now_ms += 10

    reply = desk.ask("renew-lock", {"lock-tokens": uuids(token, UUID(int=5))})

    assert (reply.status, reply.condition) == (410, LOST)
    desk.now_ms = NOW + LOCK_MS
    assert desk.ask("renew-lock", {"lock-tokens": uuids(token)}).status == 410


def test_a_lock_of_another_entity_is_no_lock_here(desk: Desk) -> None:
    desk.send("a")
    ((token, _),) = desk.receive()

    for operation, body in (
        ("renew-lock", {"lock-tokens": uuids(token)}),
        ("update-disposition", disposition("completed", token)),
    ):
        for path in ("sessions", "orders/$DeadLetterQueue"):
            reply = desk.ask(operation, body, path)
            assert (reply.status, reply.condition) == (410, LOST)
    assert desk.active() == 1


def test_the_lock_of_a_session_message_is_not_renewed_alone(desk: Desk) -> None:
    desk.send("a", to=desk.sessions, session="s")
    ((token, _),) = desk.receive_session(desk.accept("s"))

    reply = desk.ask("renew-lock", {"lock-tokens": uuids(token)}, path="sessions")

    assert (reply.status, reply.condition) == (400, "amqp:not-allowed")


@pytest.mark.parametrize(
    "tokens", [None, uuids(), longs(1), "text", UUID(int=1), [UUID(int=1), None]]
)
def test_tokens_must_be_uuids(desk: Desk, tokens: Any) -> None:
    for operation, body in (
        ("renew-lock", {"lock-tokens": tokens}),
        (
            "update-disposition",
            {"disposition-status": "completed", "lock-tokens": tokens},
        ),
    ):
        reply = desk.ask(operation, body)

        assert (reply.status, reply.condition) == (400, ARGUMENT)
        assert "'lock-tokens'" in reply.description


def test_there_are_not_too_many_tokens(desk: Desk) -> None:
    tokens = uuids(*[UUID(int=1)] * (limits.BATCH_MESSAGES_MAX + 1))

    reply = desk.ask("renew-lock", {"lock-tokens": tokens})

    assert (reply.status, reply.condition) == (400, OUT_OF_RANGE)
