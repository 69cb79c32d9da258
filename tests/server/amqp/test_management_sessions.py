"""Management requests about sessions: locks, states and names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.amqp.management_desk import (
    LOCK_MS,
    NOW,
    Desk,
    peeking,
    shown,
)
from twinbus import limits
from twinbus.clock import Now
from twinbus.server.broker.commands import SessionKey
from twinbus.wire.types import ARRAY_STRING, Array, Int, Timestamp

SESSION_LOST = "com.microsoft:session-lock-lost"
# The year 10000: clients mean all sessions.
ALL_MS = 253_402_300_800_000


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.close()


def listing(after_ms: int = ALL_MS, skip: int = 0, top: int = 100) -> dict[str, Any]:
    return {
        "last-updated-time": Timestamp(after_ms),
        "skip": Int(skip),
        "top": Int(top),
    }


def test_a_renewed_session_lasts_from_now_on(desk: Desk) -> None:
    desk.accept("s")
    desk.now_ms += LOCK_MS - 1

    body = desk.get("renew-session-lock", {"session-id": "s"}, path="sessions")

    assert body == {"expiration": Timestamp(desk.now_ms + LOCK_MS)}
    assert type(body["expiration"]) is Timestamp
    known = desk.asker.grants.get(SessionKey(0, desk.sessions.id, "s"))
    assert known is not None
    assert known.until_ms == desk.now_ms + LOCK_MS
    desk.now_ms += LOCK_MS - 1
    assert desk.store.session_held(desk.sessions.id, known, Now.at(desk.now_ms))


def test_state_is_kept_and_taken_away(desk: Desk) -> None:
    desk.accept("s")

    def state() -> Any:
        return desk.get("get-session-state", {"session-id": "s"}, path="sessions")

    assert state() == {"session-state": None}
    for value in (b"step 3", b"", None):
        body = {"session-id": "s", "session-state": value}
        assert desk.get("set-session-state", body, path="sessions") == {}
        assert state() == {"session-state": value}


@pytest.mark.parametrize(
    ("operation", "more"),
    [
        ("renew-session-lock", {}),
        ("get-session-state", {}),
        ("set-session-state", {"session-state": b"x"}),
    ],
)
def test_only_the_holder_of_a_session_has_its_lock_and_state(
    desk: Desk, operation: str, more: dict[str, Any]
) -> None:
    desk.accept("s")
    body = {"session-id": "s"} | more

    assert desk.ask(operation, body, path="sessions").status == 200
    for path in ("orders", "sessions/$DeadLetterQueue", "events/Subscriptions/all"):
        reply = desk.ask(operation, body, path)
        assert (reply.status, reply.condition) == (410, SESSION_LOST)
    for wrong in (None, Int(1), b"s"):
        reply = desk.ask(operation, body | {"session-id": wrong}, path="sessions")
        assert (reply.status, reply.condition) == (400, "com.microsoft:argument-error")
        assert "'session-id'" in reply.description
    desk.now_ms += LOCK_MS
    reply = desk.ask(operation, body, path="sessions")
    assert (reply.status, reply.condition) == (410, SESSION_LOST)


def test_state_is_binary_and_no_larger_than_a_message(desk: Desk) -> None:
    desk.accept("s")

    def ask(**more: Any) -> tuple[int, str | None]:
        body = {"session-id": "s"} | {"session-" + k: v for k, v in more.items()}
        reply = desk.ask("set-session-state", body, path="sessions")
        return reply.status, reply.condition

    assert ask() == (400, "com.microsoft:argument-error")
    assert ask(state="text") == (400, "com.microsoft:argument-error")
    assert ask(state=bytes(limits.MESSAGE_BYTES_MAX)) == (200, None)
    large = bytes(limits.MESSAGE_BYTES_MAX + 1)
    assert ask(state=large) == (403, "amqp:link:message-size-exceeded")


def test_all_sessions_with_messages_or_state_are_listed(desk: Desk) -> None:
    for name in "cab":
        desk.send("x", to=desk.sessions, session=name)
    desk.accept("stateful")
    body = {"session-id": "stateful", "session-state": b"x"}
    desk.get("set-session-state", body, path="sessions")

    for after_ms in (ALL_MS, ALL_MS - 1):
        found = desk.get("get-message-sessions", listing(after_ms), path="sessions")
        assert found == {"skip": 0, "sessions-ids": ["a", "b", "c", "stateful"]}
        assert type(found["skip"]) is Int
        assert isinstance(found["sessions-ids"], Array)
        assert found["sessions-ids"].code == ARRAY_STRING


def test_sessions_are_listed_in_pages(desk: Desk) -> None:
    for name in "abcde":
        desk.send("x", to=desk.sessions, session=name)

    page = desk.get("get-message-sessions", listing(skip=2, top=2), path="sessions")

    assert page == {"skip": 2, "sessions-ids": ["c", "d"]}
    reply = desk.ask("get-message-sessions", listing(skip=5), path="sessions")
    assert (reply.status, reply.condition) == (204, None)


def test_sessions_are_listed_by_when_their_state_changed(desk: Desk) -> None:
    desk.send("x", to=desk.sessions, session="stateless")
    for name in ("old", "new"):
        desk.accept(name)
        body = {"session-id": name, "session-state": b"x"}
        desk.get("set-session-state", body, path="sessions")
        desk.now_ms += 10

    found = desk.get("get-message-sessions", listing(NOW), path="sessions")

    assert found["sessions-ids"] == ["new"]


def test_an_entity_without_sessions_lists_none(desk: Desk) -> None:
    desk.send("x", session="s")

    assert desk.ask("get-message-sessions", listing()).status == 204


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"last-updated-time": None}, "last-updated-time"),
        ({"last-updated-time": 5}, "last-updated-time"),
        ({"skip": None}, "skip"),
        ({"skip": Int(-1)}, "skip"),
        ({"top": "5"}, "top"),
        ({"top": Int(0)}, "top"),
        ({"top": 1 << 40}, "top"),
    ],
)
def test_a_listing_names_the_key_that_is_wrong(
    desk: Desk, change: dict[str, Any], key: str
) -> None:
    reply = desk.ask("get-message-sessions", listing() | change, path="sessions")

    assert reply.status == 400
    assert f"'{key}'" in reply.description


def test_a_peek_can_keep_to_one_session(desk: Desk) -> None:
    desk.send("a", "c", to=desk.sessions, session="s")
    desk.send("b", to=desk.sessions, session="t")

    body = desk.get("peek-message", peeking(session_id="s"), path="sessions")

    assert shown(body) == ["a", "c"]
