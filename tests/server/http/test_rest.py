"""The REST data plane, over real sockets: the documented requests and their answers."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator

import pytest

from tests.server.http.rest_site import (
    AUTHORITY,
    RestSite,
    serving,
    signed,
)
from twinbus import limits
from twinbus.errors import StoreFault
from twinbus.server.http.rest.messages import BATCH_TYPE

pytestmark = pytest.mark.turns


@pytest.fixture
async def site() -> AsyncIterator[RestSite]:
    async with serving() as started:
        yield started


# -- send and receive ------------------------------------------------------------------


async def test_a_message_comes_back_with_all_that_was_set(site: RestSite) -> None:
    broker = {
        "MessageId": "m-1",
        "Label": "M1",
        "CorrelationId": "c",
        "To": "somewhere",
        "ReplyTo": "back",
        "ReplyToSessionId": "r",
        "SessionId": "s",
        "PartitionKey": "s",
        "TimeToLive": 90,
        "Unknown": "ignored",
    }
    headers = {
        "BrokerProperties": json.dumps(broker),
        "Content-Type": "text/plain;charset=utf-8",
        "Priority": '"High"',
        "Customer": '"12345,ABC"',
        "Amount": "42",
        "Ratio": "3.5",
        "Active": "true",
        "Plain": "no quotes",
        "User-Agent": "a test",
    }

    sent = await site.ask("POST", "/q/messages?timeout=60", headers, b"\x00body\xff")
    answer = await site.take()

    assert (sent.status, sent.body) == (201, b"")
    assert sent.headers["content-type"] == "text/plain;charset=utf-8"
    assert (answer.status, answer.body) == (200, b"\x00body\xff")
    shown = answer.broker
    del broker["Unknown"]
    assert {name: shown.pop(name) for name in broker} == broker
    assert shown == {
        "DeliveryCount": 1,
        "EnqueuedSequenceNumber": 0,
        "EnqueuedTimeUtc": "Tue, 14 Nov 2023 22:13:20 GMT",
        "SequenceNumber": 1,
        "State": "Active",
    }
    raw = dict(answer.raw_headers)
    assert raw["Priority"] == '"High"'
    assert raw["Customer"] == '"12345,ABC"'
    assert (raw["Amount"], raw["Ratio"], raw["Active"]) == ("42", "3.5", "true")
    assert raw["Plain"] == '"no quotes"'
    assert raw["Content-Type"] == "text/plain;charset=utf-8"
    assert "user-agent" not in answer.headers
    assert site.counts("q").active == 0


async def test_a_receive_without_a_message_in_time_is_answered_with_204(
    site: RestSite,
) -> None:
    locked = await site.ask("POST", "/q/messages/head?timeout=0")
    taken = await site.take()

    assert (locked.status, locked.body) == (204, b"")
    assert (taken.status, taken.body) == (204, b"")


async def test_a_batch_is_sent_in_order_and_all_or_none(site: RestSite) -> None:
    batch = [
        {"Body": "first", "BrokerProperties": {"TimeToLiveTimeSpan": "0.00:00:40"}},
        {"Body": "second", "UserProperties": {"Priority": "Low", "N": 1, "Z": None}},
        {"Body": "thïrd", "BrokerProperties": {"Label": "M3", "ContentType": "t/x"}},
    ]
    kind = {"Content-Type": f"{BATCH_TYPE}; charset=utf-8"}

    sent = await site.ask("POST", "/q/messages", kind, json.dumps(batch).encode())
    batch.append({"Body": "x", "BrokerProperties": {"MessageId": "x" * 129}})
    refused = await site.ask("POST", "/q/messages", kind, json.dumps(batch).encode())

    assert (sent.status, refused.status) == (201, 400)
    answers = [await site.take() for _ in range(4)]
    assert [a.body.decode() for a in answers] == ["first", "second", "thïrd", ""]
    assert answers[0].broker["TimeToLive"] == 40
    assert answers[1].headers["priority"] == '"Low"'
    assert "z" not in answers[1].headers
    assert answers[2].broker["Label"] == "M3"
    assert answers[2].headers["content-type"] == "t/x"


async def test_messages_are_sent_to_topics_and_received_from_subscriptions(
    site: RestSite,
) -> None:
    await site.send(b"news", "/events")

    locked = await site.lock("/events/subscriptions/all")
    done = await site.ask("DELETE", locked.place)

    assert locked.body == b"news"
    assert locked.place.startswith("/events/Subscriptions/all/messages/1/")
    assert locked.broker["EnqueuedSequenceNumber"] == 1
    assert done.status == 200


async def test_slashes_in_names_may_be_escaped_or_plain(site: RestSite) -> None:
    await site.send(b"a", "/area/orders")
    await site.send(b"b", "/area%2Forders")

    locked = await site.lock("/AREA/orders")
    done = await site.ask("DELETE", locked.place)
    other = await site.take("/area%2Forders")

    assert (locked.body, done.status, other.body) == (b"a", 200, b"b")


async def test_a_scheduled_message_is_received_at_its_time(site: RestSite) -> None:
    await site.send(b"later", ScheduledEnqueueTimeUtc="Tue, 14 Nov 2023 22:14:20 GMT")
    assert (await site.take()).status == 204

    site.advance(60_000)
    answer = await site.take()

    assert answer.body == b"later"
    assert answer.broker["ScheduledEnqueueTimeUtc"] == "Tue, 14 Nov 2023 22:14:20 GMT"


# -- locks -----------------------------------------------------------------------------


async def test_a_locked_message_has_its_lock_in_the_answer_and_is_completed(
    site: RestSite,
) -> None:
    await site.send(b"a", MessageId="m/1")

    locked = await site.lock()
    hidden = await site.take()
    done = await site.ask("DELETE", f"{locked.place}?timeout=60")
    again = await site.ask("DELETE", locked.place)

    token = locked.broker["LockToken"]
    assert str(uuid.UUID(token)) == token
    assert locked.broker["LockedUntilUtc"] == "Tue, 14 Nov 2023 22:13:25 GMT"
    assert locked.place == f"/q/messages/1/{token}"
    assert (hidden.status, done.status, again.status) == (204, 200, 404)
    assert site.counts("q").active == 0


async def test_the_message_id_names_a_locked_message_too(site: RestSite) -> None:
    await site.send(b"a", MessageId="m/1")
    token = (await site.lock()).broker["LockToken"]

    other = await site.ask("DELETE", f"/q/messages/m2/{token}")
    done = await site.ask("DELETE", f"/q/messages/m%2F1/{token}")

    assert (other.status, done.status) == (404, 200)


async def test_an_unlocked_message_is_counted_and_dead_lettered_at_the_maximum(
    site: RestSite,
) -> None:
    await site.send(b"a")
    for count in (1, 2):
        locked = await site.lock()
        assert locked.broker["DeliveryCount"] == count
        assert (await site.ask("PUT", locked.place)).status == 200

    dead = await site.take("/q/$DeadLetterQueue")

    assert (await site.take()).status == 204
    assert dead.body == b"a"
    assert dead.headers["deadletterreason"] == '"MaxDeliveryCountExceeded"'


async def test_renewing_a_lock_extends_it(site: RestSite) -> None:
    await site.send(b"a")
    locked = await site.lock()

    site.advance(4000)
    renewed = await site.ask("POST", locked.place)
    site.advance(4000)
    done = await site.ask("DELETE", locked.place)

    assert renewed.status == 200
    assert renewed.broker == {"LockedUntilUtc": "Tue, 14 Nov 2023 22:13:29 GMT"}
    assert done.status == 200


async def test_an_expired_lock_is_answered_with_410(site: RestSite) -> None:
    await site.send(b"a")
    locked = await site.lock()

    site.advance(5001)
    late = [await site.ask(verb, locked.place) for verb in ("DELETE", "PUT", "POST")]

    assert [answer.status for answer in late] == [410, 410, 410]
    assert b"The lock supplied is invalid" in late[0].body
    assert (await site.lock()).broker["DeliveryCount"] == 2


async def test_a_lock_token_is_valid_only_for_its_queue(site: RestSite) -> None:
    await site.send(b"a")
    locked = await site.lock()
    token = locked.broker["LockToken"]

    elsewhere = await site.ask("DELETE", f"/q2/messages/1/{token}")
    unknown = await site.ask("DELETE", f"/q/messages/1/{uuid.UUID(int=7)}")

    assert (elsewhere.status, unknown.status) == (404, 404)
    assert site.counts("q").active == 1


# -- waiting ---------------------------------------------------------------------------


async def test_a_waiting_receive_gets_a_message_sent_meanwhile(site: RestSite) -> None:
    polls = [
        asyncio.create_task(site.ask("POST", "/q/messages/head?timeout=30")),
        asyncio.create_task(site.ask("DELETE", "/q/messages/head")),
    ]
    await site.host.until_waiting(2)

    await site.send(b"1")
    await site.send(b"2")
    answers = await asyncio.gather(*polls)

    assert sorted(answer.body for answer in answers) == [b"1", b"2"]
    assert [answer.status for answer in answers] == [201, 200]


async def test_a_receive_ends_when_its_client_disconnects(site: RestSite) -> None:
    caller = await site.call()
    caller.ask("POST", "/q/messages/head?timeout=60", {"Authorization": signed()}, b"")
    await site.host.until_waiting(1)

    await caller.hang_up()
    await site.host.until_waiting(0)
    await site.send(b"a")

    assert (await site.lock()).broker["DeliveryCount"] == 1


async def test_a_message_locked_for_a_disconnected_client_is_unlocked_uncounted(
    site: RestSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await site.call()
    caller.ask("POST", "/q/messages/head?timeout=60", {"Authorization": signed()}, b"")
    await site.host.until_waiting(1)
    commit = site.host.namespace.store.commit
    loop = asyncio.get_running_loop()

    def hang_up_and_commit() -> None:
        # The message is locked in this turn, and the client is gone before its end.
        loop.call_soon_threadsafe(caller.writer.transport.abort)
        assert site.host.left.wait(10)
        commit()

    with monkeypatch.context() as patch:
        patch.setattr(site.host.namespace.store, "commit", hang_up_and_commit)
        await site.send(b"a")
    await site.host.until_waiting(0)

    assert (await site.lock()).broker["DeliveryCount"] == 1


async def test_deleting_the_queue_ends_a_waiting_receive(site: RestSite) -> None:
    poll = asyncio.create_task(site.ask("POST", "/q/messages/head?timeout=60"))
    await site.host.until_waiting(1)

    deleted = await site.ask("DELETE", "/q?api-version=2021-05")

    assert (deleted.status, (await poll).status) == (200, 410)


async def test_the_expiry_of_its_token_ends_a_waiting_receive(site: RestSite) -> None:
    now_s = site.clock.now_ms() // 1000
    header = {"Authorization": signed(expires_s=now_s + 1)}

    answer = await site.ask("POST", "/q/messages/head?timeout=60", header)

    assert answer.status == 204


async def test_stopping_the_server_ends_waiting_receives() -> None:
    async with serving() as site:
        poll = asyncio.create_task(site.ask("POST", "/q/messages/head?timeout=60"))
        await site.host.until_waiting(1)

    answer = await poll
    assert answer.status == 503
    assert "retry-after" in answer.headers


# -- refusals --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("POST", "/none/messages", 410),
        ("POST", "/none/messages/head?timeout=0", 410),
        ("DELETE", f"/none/messages/1/{uuid.UUID(int=1)}", 410),
        ("POST", "/events/subscriptions/none/messages/head", 410),
        ("POST", "/events/messages/head", 400),
        ("POST", "/events/subscriptions/all/messages", 400),
        ("POST", "/q/$DeadLetterQueue/messages", 400),
        ("POST", "/sessions/messages", 400),
        ("POST", "/sessions/messages/head?timeout=0", 400),
        ("POST", "/sessions/$DeadLetterQueue/messages/head?timeout=0", 204),
        ("POST", "/q/$Transfer/$DeadLetterQueue/messages/head?timeout=0", 204),
        ("POST", "/q/messages/head?timeout=-1", 400),
        ("POST", "/q/messages/head?timeout=soon", 400),
        ("POST", "/q/messages/1/not-a-token", 405),
        ("POST", "/q/$management/messages", 405),
        ("POST", "/x:%2F%2Fhost/q/messages", 405),
        ("POST", "/q//messages", 405),
    ],
)
async def test_impossible_requests_are_refused(
    site: RestSite, method: str, target: str, status: int
) -> None:
    assert (await site.ask(method, target)).status == status


@pytest.mark.parametrize(
    "broker",
    [
        "{",
        "[]",
        '{"MessageId": {}}',
        '{"MessageId": "\\ud800"}',
        '{"TimeToLive": 0}',
        '{"TimeToLive": "soon"}',
        '{"TimeToLive": NaN}',
        '{"TimeToLiveTimeSpan": "40"}',
        '{"ScheduledEnqueueTimeUtc": "tomorrow"}',
        '{"SessionId": "a", "PartitionKey": "b"}',
        json.dumps({"MessageId": "x" * (limits.MESSAGE_ID_CHARS_MAX + 1)}),
    ],
)
async def test_invalid_broker_properties_are_refused(
    site: RestSite, broker: str
) -> None:
    answer = await site.ask("POST", "/q/messages", {"BrokerProperties": broker})

    assert answer.status == 400
    assert answer.body.startswith(b"<Error><Code>400</Code><Detail>")
    assert site.counts("q").active == 0


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b"[1]", b'[{"Body": 1}]', b'[{"Body": "\\ud800"}]']
)
async def test_an_invalid_batch_is_refused(site: RestSite, body: bytes) -> None:
    answer = await site.ask("POST", "/q/messages", {"Content-Type": BATCH_TYPE}, body)

    assert answer.status == 400


async def test_numbers_may_be_written_as_strings(site: RestSite) -> None:
    await site.send(TimeToLive="90", ForcePersistence="false")

    assert (await site.take()).broker["TimeToLive"] == 90


@pytest.mark.parametrize(("more", "status"), [(-1, 201), (0, 201), (1, 403)])
async def test_a_body_has_a_limit(site: RestSite, more: int, status: int) -> None:
    # The head of the section that the body is in.
    overhead = 8
    body = b"x" * (limits.MESSAGE_BYTES_MAX - overhead + more)

    answer = await site.ask("POST", "/q/messages", {}, body)

    assert answer.status == status


async def test_an_endless_body_is_refused_at_its_limit(site: RestSite) -> None:
    caller = await site.call()
    size = 1 << 40
    head = {"Authorization": signed(), "Content-Length": str(size)}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    caller.writer.write(
        f"POST /q/messages HTTP/1.1\r\nHost: {AUTHORITY}\r\n{lines}\r\n".encode()
    )
    caller.writer.write(b"x" * (limits.MESSAGE_BYTES_MAX + 1))

    assert (await caller._reader.readline()).startswith(b"HTTP/1.1 403 ")
    await caller.hang_up()


async def test_a_full_queue_refuses_messages(site: RestSite) -> None:
    body = b"x" * 200 * 1024
    answers = [await site.ask("POST", "/small/messages", {}, body) for _ in range(6)]

    assert [answer.status for answer in answers] == [201] * 5 + [403]
    assert b"maximum size" in answers[-1].body


async def test_a_throttled_queue_answers_with_retry_after(site: RestSite) -> None:
    answers = [await site.ask("POST", "/slow/messages") for _ in range(3)]

    assert [answer.status for answer in answers][-1] == 503
    assert answers[-1].headers["retry-after"] == "10"


async def test_a_disabled_queue_refuses_sends_and_receives(site: RestSite) -> None:
    sent = await site.ask("POST", "/closed/messages")
    received = await site.ask("POST", "/closed/messages/head")

    assert (sent.status, received.status) == (403, 403)


async def test_a_stopped_store_refuses_at_once(site: RestSite) -> None:
    site.host.fault = StoreFault("The disk is full.")

    sent = await site.ask("POST", "/q/messages")
    received = await site.ask("POST", "/q/messages/head")

    assert (sent.status, received.status) == (500, 500)
    assert b"The disk is full." in sent.body


# -- headers that are not the sender's to choose ---------------------------------------


async def test_properties_of_messages_cannot_set_headers_of_http(
    site: RestSite,
) -> None:
    properties = {
        "Set-Cookie": "a=b",
        "Location": "https://elsewhere/",
        "Content-Length": "0",
        "Access-Control-Allow-Origin": "*",
        "X-Accel-Redirect": "/etc/passwd",
        "bad name": "x",
        "bad\r\nX-Evil": "x",
        "Lines": "one\r\nX-Evil: two",
        "Umlaut": "ä",
        "Good": "yes",
    }
    batch = json.dumps([{"Body": "a", "UserProperties": properties}]).encode()
    assert (
        await site.ask("POST", "/q/messages", {"Content-Type": BATCH_TYPE}, batch)
    ).status == 201

    answer = await site.take()

    assert answer.body == b"a"
    names = {name for name, _ in answer.raw_headers}
    assert names == {"content-length", "BrokerProperties", "Lines", "Umlaut", "Good"}
    assert answer.headers["lines"] == '"one\\r\\nX-Evil: two"'
    assert answer.headers["umlaut"] == '"\\u00e4"'
