"""Management requests that hand deferred messages out, or remove many."""

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
    body_of,
    disposition,
    longs,
    peeking,
    shown,
    take_apart,
)
from twinbus.server.amqp.management.operations import ManagementReply
from twinbus.store.base import FOREVER_MS
from twinbus.wire.message import sections
from twinbus.wire.types import Int, Timestamp, UInt

NOT_FOUND = "com.microsoft:message-not-found"


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.close()


def by_number(*numbers: int, mode: int = 1, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "sequence-numbers": longs(*numbers),
        "receiver-settle-mode": UInt(mode),
    }
    return body | {name.replace("_", "-"): value for name, value in more.items()}


# -- deferred messages ---------------------------------------------------------------


def test_deferred_messages_are_locked_by_number(desk: Desk) -> None:
    first, second = desk.defer("a", "b")

    body = desk.get("receive-by-sequence-number", by_number(second, first, second))

    assert shown(body) == ["b", "a"]
    for entry in body["messages"]:
        assert set(entry) == {"lock-token", "message"}
        token = entry["lock-token"]
        assert isinstance(token, UUID)
        parts = take_apart(entry["message"])
        assert parts[sections.DELIVERY_ANNOTATIONS] == {"x-opt-lock-token": token}
        annotations = parts[sections.MESSAGE_ANNOTATIONS]
        assert annotations["x-opt-locked-until"] == Timestamp(NOW + LOCK_MS)
        assert annotations["x-opt-message-state"] == 1
        desk.get("update-disposition", disposition("completed", token))
    assert desk.store.counts(desk.queue.id).deferred == 0


def test_an_abandoned_deferred_message_stays_deferred(desk: Desk) -> None:
    (number,) = desk.defer("a")
    body = desk.get("receive-by-sequence-number", by_number(number))
    token = body["messages"][0]["lock-token"]

    desk.get("update-disposition", disposition("abandoned", token))

    again = desk.get("receive-by-sequence-number", by_number(number))
    header = take_apart(again["messages"][0]["message"])[sections.HEADER]
    assert header[4] == 2


def test_deferred_messages_can_be_removed_at_once(desk: Desk) -> None:
    (number,) = desk.defer("a")

    body = desk.get("receive-by-sequence-number", by_number(number, mode=0))

    assert shown(body) == ["a"]
    assert set(body["messages"][0]) == {"message"}
    assert desk.store.counts(desk.queue.id).deferred == 0


def test_one_missing_number_gives_none(desk: Desk) -> None:
    (number,) = desk.defer("a")
    (active,) = desk.send("b")
    far = (desk.sessions.id << 40) | 1

    for mode in (0, 1):
        for other in (active, 99, 0, -1, far, (1 << 63) - 1):
            body = by_number(number, other, mode=mode)
            reply = desk.ask("receive-by-sequence-number", body)
            assert (reply.status, reply.condition) == (404, NOT_FOUND)

    assert desk.ask("receive-by-sequence-number", by_number(number)).status == 200


def test_a_locked_deferred_message_cannot_be_locked_again(desk: Desk) -> None:
    (number,) = desk.defer("a")
    desk.get("receive-by-sequence-number", by_number(number))

    for mode in (0, 1):
        reply = desk.ask("receive-by-sequence-number", by_number(number, mode=mode))
        assert (reply.status, reply.condition) == (404, NOT_FOUND)

    desk.now_ms += LOCK_MS
    again = desk.get("receive-by-sequence-number", by_number(number))
    header = take_apart(again["messages"][0]["message"])[sections.HEADER]
    assert header[4] == 2


def test_an_expired_deferred_message_is_gone(desk: Desk) -> None:
    (number,) = desk.defer("a", ttl_ms=50)
    desk.now_ms += 50

    reply = desk.ask("receive-by-sequence-number", by_number(number))

    assert (reply.status, reply.condition) == (404, NOT_FOUND)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"sequence-numbers": None}, "sequence-numbers"),
        ({"sequence-numbers": longs()}, "sequence-numbers"),
        ({"sequence-numbers": ["1"]}, "sequence-numbers"),
        ({"sequence-numbers": 1}, "sequence-numbers"),
        ({"receiver-settle-mode": UInt(2)}, "receiver-settle-mode"),
        ({"receiver-settle-mode": None}, "receiver-settle-mode"),
        ({"session-id": b"s"}, "session-id"),
    ],
)
def test_a_deferred_receive_names_the_key_that_is_wrong(
    desk: Desk, change: dict[str, Any], key: str
) -> None:
    reply = desk.ask("receive-by-sequence-number", by_number(1) | change)

    assert reply.status == 400
    assert f"'{key}'" in reply.description


def test_deferred_messages_of_a_session_need_its_lock(desk: Desk) -> None:
    numbers = desk.send("a", "b", to=desk.sessions, session="s")
    grant = desk.accept("s")
    for token, _ in desk.receive_session(grant):
        body = disposition("defered", token, session_id="s")
        desk.get("update-disposition", body, path="sessions")
    other = desk.accept("other")

    def ask(**more: Any) -> ManagementReply:
        body = by_number(*numbers, **more)
        return desk.ask("receive-by-sequence-number", body, path="sessions")

    assert "'session-id'" in ask().description
    assert ask(session_id=other.name).condition == NOT_FOUND
    assert ask(session_id="third").condition == "com.microsoft:session-lock-lost"
    reply = ask(session_id="s")
    assert reply.status == 200
    first = reply.body["messages"][0]
    until_ms = annotations_of(first["message"])["x-opt-locked-until"]
    assert until_ms == grant.until_ms != FOREVER_MS
    body = disposition("completed", first["lock-token"], session_id="s")
    desk.get("update-disposition", body, path="sessions")
    assert desk.store.counts(desk.sessions.id).deferred == 1


# -- removing ------------------------------------------------------------------------


def deleting(count: int, before_ms: int, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "message-count": Int(count),
        "enqueued-time-utc": Timestamp(before_ms),
    }
    return body | {name.replace("_", "-"): value for name, value in more.items()}


def test_a_batch_delete_spares_what_is_held_set_aside_or_newer(desk: Desk) -> None:
    desk.defer("deferred")
    desk.send("locked", "old", "older")
    desk.receive(1)
    desk.now_ms += 10
    desk.send("new")

    body = desk.get("batch-delete-messages", deleting(100, NOW + 10))

    assert body == {"message-count": 2}
    assert type(body["message-count"]) is Int
    left = desk.get("peek-message", peeking())
    assert shown(left) == ["deferred", "locked", "new"]
    ((_, stored),) = desk.receive()
    assert (stored.deliveries, body_of(stored.bare)) == (0, "new")


def test_a_batch_delete_keeps_to_its_count(desk: Desk) -> None:
    desk.send(*(f"m{number}" for number in range(40)))

    body = desk.get("batch-delete-messages", deleting(30, NOW + 1))

    assert body == {"message-count": 30}
    assert desk.active() == 10


def test_a_batch_delete_that_finds_nothing_says_so(desk: Desk) -> None:
    desk.send("a")

    body = desk.get("batch-delete-messages", deleting(5, NOW))

    assert body == {"message-count": 0}
    assert desk.active() == 1


def test_a_batch_delete_in_a_session_needs_its_lock(desk: Desk) -> None:
    desk.send("a", "b", to=desk.sessions, session="s")
    desk.send("c", to=desk.sessions, session="t")
    body = deleting(5, NOW + 1, session_id="s")

    reply = desk.ask("batch-delete-messages", body, path="sessions")
    assert (reply.status, reply.condition) == (410, "com.microsoft:session-lock-lost")

    desk.accept("s")
    assert desk.get("batch-delete-messages", body, "sessions") == {"message-count": 2}
    assert desk.active(desk.sessions.id) == 1


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"message-count": Int(0)}, "message-count"),
        ({"message-count": "5"}, "message-count"),
        ({"enqueued-time-utc": None}, "enqueued-time-utc"),
        ({"enqueued-time-utc": 5}, "enqueued-time-utc"),
        ({"session-id": Int(1)}, "session-id"),
    ],
)
def test_a_batch_delete_names_the_key_that_is_wrong(
    desk: Desk, change: dict[str, Any], key: str
) -> None:
    reply = desk.ask("batch-delete-messages", deleting(5, NOW) | change)

    assert reply.status == 400
    assert f"'{key}'" in reply.description
