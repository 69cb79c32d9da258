"""Messages in the console: listed, searched, shown, edited and sent."""

from __future__ import annotations

import json
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage

from tests.console.site import ConsoleSite
from twinbus import limits
from twinbus.testing.namespace import serve_namespace
from twinbus.testing.server_process import ServerProcess

PAYLOAD = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


def bodies(listed: dict[str, object]) -> list[str]:
    messages = listed["messages"]
    assert isinstance(messages, list)
    return [each["preview"] for each in messages]


def test_the_overview_counts_exactly(site: ConsoleSite, queue: str) -> None:
    site.send(queue, *map(str, range(7)))
    with site.bus() as bus, bus.get_queue_receiver(queue) as receiver:
        [first, second] = receiver.receive_messages(2, max_wait_time=5)
        receiver.dead_letter_message(first)
        receiver.defer_message(second)

        shown = site.signed_in().json("", q=queue)

        [row] = shown["entities"]
        counted = {name: row[name] for name in ("active", "dead", "deferred")}
        assert counted == {"active": 5, "dead": 1, "deferred": 1}
        assert row["receivers"] == 1
        assert row["oldest_seconds"] < 60
        assert shown["health"]["status"] == "healthy"


def test_pages_of_messages_follow_each_other(site: ConsoleSite, queue: str) -> None:
    count = limits.CONSOLE_PAGE_MESSAGES + 5
    site.send(queue, *map(str, range(count)))
    client = site.signed_in()

    first = client.json("entity", path=queue)
    second = client.json("entity", path=queue, start=first["next"])

    assert bodies(first) + bodies(second) == list(map(str, range(count)))
    assert second["next"] is None
    assert "Next messages" in client.get("entity", path=queue).text


def test_looking_locks_nothing(site: ConsoleSite, queue: str) -> None:
    site.send(queue, "a")
    client = site.signed_in()

    client.get("entity", path=queue)
    client.get("message", path=queue, sequence=1)

    with site.bus() as bus, bus.get_queue_receiver(queue) as receiver:
        [message] = receiver.receive_messages(max_wait_time=5)
        assert message.delivery_count == 0
        [row] = client.json("entity", path=queue)["messages"]
        assert row["is_locked"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"text": "NEEDLE"}, ["a needle"]),
        ({"text": "crimson"}, ["b"]),
        ({"text": "nowhere"}, []),
        ({"sql": "amount > 10"}, ["b"]),
        ({"sql": "sys.Label = 'greeting' AND amount < 10"}, ["a needle"]),
        ({"start": "2"}, ["b", "later"]),
        ({"state": "scheduled"}, ["later"]),
        ({"state": "active", "text": "crims"}, ["b"]),
    ],
)
def test_filters(site: ConsoleSite, given: dict[str, str], expected: list[str]) -> None:
    queue = site.create_queue(f"filters-{zlib.crc32(str(given).encode())}")
    later = datetime.now(UTC) + timedelta(hours=1)
    site.send(
        queue,
        ServiceBusMessage(
            "a needle", subject="greeting", application_properties={"amount": 5}
        ),
        ServiceBusMessage(
            "b", application_properties={"amount": 50, "colour": "Crimson"}
        ),
        ServiceBusMessage("later", scheduled_enqueue_time_utc=later),
    )

    listed = site.signed_in().json("entity", path=queue, **given)

    assert bodies(listed) == expected


def test_a_filter_by_session(site: ConsoleSite) -> None:
    queue = site.create_queue("by-session", requires_session=True)
    site.send(
        queue, *(ServiceBusMessage(f"{k}", session_id=f"s{k % 2}") for k in range(6))
    )

    listed = site.signed_in().json("entity", path=queue, session="s1")

    assert bodies(listed) == ["1", "3", "5"]


def test_a_condition_that_cannot_be_used_is_refused(site: ConsoleSite) -> None:
    answer = site.signed_in().get("entity", path="orders", sql="amount >")

    assert answer.status == 400
    assert "line 1" in answer.problem


def test_a_search_stops_and_goes_on(site: ConsoleSite, queue: str) -> None:
    many = limits.CONSOLE_SCAN_MESSAGES_MAX + 500
    with site.bus() as bus, bus.get_queue_sender(queue) as sender:
        for _ in range(0, many, 3500):
            sender.send_messages([ServiceBusMessage("hay") for _ in range(3500)])
        sender.send_messages(ServiceBusMessage("needle"))
    client = site.signed_in()

    found: list[str] = []
    start: int | None = 0
    steps = 0
    while start is not None:
        listed = client.json("entity", path=queue, text="needle", start=start)
        assert listed["looked"] <= limits.CONSOLE_SCAN_MESSAGES_MAX
        found += bodies(listed)
        start = listed["next"]
        steps += 1

    assert found == ["needle"]
    assert steps >= 2


def test_a_message_has_all_of_its_parts(site: ConsoleSite, queue: str) -> None:
    site.send(
        queue,
        ServiceBusMessage(
            '{"order": 1}',
            message_id="m",
            subject="placed",
            correlation_id="c",
            content_type="application/json",
            application_properties={"amount": 10, "id": UUID(int=5)},
            time_to_live=timedelta(hours=1),
        ),
    )

    shown = site.signed_in().json("message", path=queue, sequence=1)["message"]

    properties = {e["name"]: e["value"] for e in shown["sections"]["properties"]}
    own = shown["sections"]["application properties"]
    assert properties["message-id"] == "m"
    assert properties["content-type"] == "application/json"
    assert {e["name"]: e["value"] for e in own} == {
        "amount": 10,
        "id": str(UUID(int=5)),
    }
    assert shown["body"]["json"] == '{\n  "order": 1\n}'
    assert shown["body"]["hex"].startswith("00000000  7b 22 6f 72 64")
    assert shown["expires_at"] is not None


def test_a_body_that_is_no_text_is_shown_as_bytes(
    site: ConsoleSite, queue: str
) -> None:
    content = bytes(range(256)) * 300
    site.send(queue, ServiceBusMessage(content))
    client = site.signed_in()

    shown = client.json("message", path=queue, sequence=1)["message"]["body"]
    file = client.get("message/body", path=queue, sequence=1)

    assert shown["text"] is None
    assert shown["is_cut"]
    assert file.body == content
    assert file.headers["Content-Disposition"].startswith("attachment")
    assert file.headers["Content-Type"] == "application/octet-stream"


def test_what_senders_write_is_never_part_of_a_page(
    site: ConsoleSite, queue: str
) -> None:
    site.send(
        queue,
        ServiceBusMessage(
            PAYLOAD,
            message_id=PAYLOAD,
            subject=PAYLOAD,
            correlation_id=PAYLOAD,
            content_type="text/html",
            application_properties={PAYLOAD: PAYLOAD},
        ),
    )
    client = site.signed_in()

    for page, query in (
        ("entity", {"path": queue, "text": PAYLOAD}),
        ("entity", {"path": queue}),
        ("message", {"path": queue, "sequence": 1}),
        ("message/edit", {"path": queue, "sequence": 1}),
        ("entity", {"path": PAYLOAD}),
    ):
        text = client.get(page, **query).text
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert "&lt;script&gt;" in text


def test_editing_changes_what_was_changed_alone(site: ConsoleSite, queue: str) -> None:
    site.send(
        queue,
        "before",
        ServiceBusMessage(
            "old",
            message_id="m",
            application_properties={"amount": 10, "id": UUID(int=5), "gone": "x"},
        ),
        "after",
    )
    client = site.signed_in()
    form = client.json("message/edit", path=queue, sequence=2)["form"]
    properties = json.loads(form["properties"])
    properties["colour"] = "red"
    del properties["gone"]

    fields = {**form, "body": "new", "properties": json.dumps(properties)}
    answer = client.post(f"message/edit?path={queue}&sequence=2", fields)

    assert answer.status == 303, answer.text
    with site.bus() as bus, bus.get_queue_receiver(queue) as receiver:
        found = receiver.receive_messages(5, max_wait_time=2)
        assert [str(each) for each in found] == ["before", "after", "new"]
        edited = found[2]
        assert edited.message_id == "m"
        assert edited.delivery_count == 0
        own = edited.application_properties
        assert own == {b"amount": 10, b"id": UUID(int=5), b"colour": b"red"}


def test_an_edited_copy_leaves_the_original(site: ConsoleSite, queue: str) -> None:
    site.send(queue, "old")
    client = site.signed_in()

    fields = {"body": "new", "keep": "on"}
    client.post(f"message/edit?path={queue}&sequence=1", fields)

    assert site.received(queue) == ["old", "new"]


def test_one_message_is_deleted_without_those_before_it(
    site: ConsoleSite, queue: str
) -> None:
    site.send(queue, "a", "b", "c")
    client = site.signed_in()

    answer = client.post(f"message/delete?path={queue}&sequence=2", {})

    assert answer.status == 303
    assert "Message 2 is deleted." in client.get("entity", path=queue).text
    assert site.received(queue) == ["a", "c"]
    again = client.post(f"message/delete?path={queue}&sequence=2", {})
    assert again.status == 404


def test_a_message_that_a_receiver_holds_is_left_alone(
    site: ConsoleSite, queue: str
) -> None:
    site.send(queue, "a")
    client = site.signed_in()
    with site.bus() as bus, bus.get_queue_receiver(queue) as receiver:
        [held] = receiver.receive_messages(max_wait_time=5)

        deleted = client.post(f"message/delete?path={queue}&sequence=1", {})
        edited = client.post(f"message/edit?path={queue}&sequence=1", {"body": "b"})

        assert (deleted.status, edited.status) == (409, 409)
        assert "A receiver holds the message" in deleted.problem
        receiver.complete_message(held)


def test_a_scheduled_message_is_cancelled(site: ConsoleSite, queue: str) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    site.send(queue, ServiceBusMessage("a", scheduled_enqueue_time_utc=later))
    client = site.signed_in()

    assert "Cancel it" in client.get("message", path=queue, sequence=1).text
    assert client.post(f"message/cancel?path={queue}&sequence=1", {}).status == 303

    assert client.json("entity", path=queue)["messages"] == []


def test_a_deferred_message_is_received_and_shown(
    site: ConsoleSite, queue: str
) -> None:
    site.send(queue, "deferred one")
    with site.bus() as bus, bus.get_queue_receiver(queue) as receiver:
        [held] = receiver.receive_messages(max_wait_time=5)
        receiver.defer_message(held)
    client = site.signed_in()

    assert "Receive and delete" in client.get("message", path=queue, sequence=1).text
    answer = client.post(f"message/receive?path={queue}&sequence=1", {})

    assert answer.status == 200
    assert "deferred one" in answer.text
    assert client.json("entity", path=queue)["messages"] == []


def received(site: ConsoleSite, queue: str) -> list[ServiceBusReceivedMessage]:
    with site.bus() as bus, bus.get_queue_receiver(queue) as receiver:
        return list(receiver.receive_messages(10, max_wait_time=2))


def test_a_message_of_the_form_is_what_an_sdk_receives(
    site: ConsoleSite, queue: str
) -> None:
    fields = {
        "body": '{"a": 1}',
        "check_json": "on",
        "content_type": "application/json",
        "subject": "greeting",
        "message_id": "m-1",
        "correlation_id": "c-1",
        "properties": '{"colour": "red", "amount": 10}',
        "time_to_live": "3600",
        "copies": "3",
    }

    answer = site.signed_in().post(f"send?path={queue}", fields)

    assert answer.status == 303, answer.text
    found = received(site, queue)
    assert len(found) == 3
    assert str(found[0]) == '{"a": 1}'
    assert found[0].subject == "greeting"
    assert found[0].application_properties == {b"colour": b"red", b"amount": 10}
    assert found[0].time_to_live == timedelta(hours=1)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"body": "{", "check_json": "on"}, "The body is not JSON"),
        ({"properties": "[1]"}, "Properties are a JSON object"),
        ({"properties": "{"}, "The properties are not JSON"),
        ({"copies": "0"}, "from 1 to"),
        ({"copies": "many"}, "from 1 to"),
        ({"scheduled_at": "soon"}, "must look like"),
        ({"time_to_live": "-1"}, "above 0"),
    ],
)
def test_a_wrong_field_is_refused_by_name(
    site: ConsoleSite, fields: dict[str, str], problem: str
) -> None:
    answer = site.signed_in().post("send?path=orders", fields)

    assert answer.status == 400
    assert problem in answer.problem


def test_a_scheduled_send(site: ConsoleSite, queue: str) -> None:
    fields = {"body": "x", "scheduled_at": "2050-01-01T10:00"}

    site.signed_in().post(f"send?path={queue}", fields)

    [row] = site.signed_in().json("entity", path=queue)["messages"]
    assert row["state"] == "scheduled"
    assert row["due_at"].startswith("2050-01-01 10:00")


RIGHTS = {
    # page, query: what may see it.
    ("GET", "entity"): {"Listen", "Send", "Manage"},
    ("GET", "message"): {"Listen", "Manage"},
    ("GET", "message/body"): {"Listen", "Manage"},
    ("GET", "send"): {"Send", "Manage"},
    ("GET", "message/edit"): {"Manage"},
    ("POST", "send"): {"Send", "Manage"},
    ("POST", "message/delete"): {"Listen", "Manage"},
    ("POST", "message/cancel"): {"Send", "Manage"},
    ("POST", "message/receive"): {"Listen", "Manage"},
    ("POST", "message/edit"): {"Manage"},
}


@pytest.mark.parametrize("right", ["Listen", "Send", "Manage"])
@pytest.mark.parametrize(("method", "page"), RIGHTS)
def test_each_right_may_do_what_it_gives(
    site: ConsoleSite, method: str, page: str, right: str
) -> None:
    client = site.signed_in(right)
    if method == "GET" and page != "send":
        site.send("orders", "for the matrix")
    sequence = 1
    if "Listen" in RIGHTS[method, page] or page == "message/edit":
        listed = site.signed_in().json("entity", path="orders")["messages"]
        sequence = listed[0]["sequence"] if listed else 1
    # Changes name a message that is not there: what is refused is the right.
    address = f"{page}?path=orders&sequence={sequence if method == 'GET' else 999999}"

    answer = (
        client.post(address, {"copies": "0"})
        if method == "POST"
        else client.ask("GET", address)
    )

    is_refused = answer.status == 403
    assert is_refused is (right not in RIGHTS[method, page]), answer.text


def test_a_list_of_entities_needs_manage(site: ConsoleSite) -> None:
    assert "Open an entity" in site.signed_in("Listen").get().text
    assert "Open an entity" not in site.signed_in("Manage").get().text
    listed = site.signed_in("Listen").json("entity", path="orders")
    assert listed["figures"] is None


def test_a_key_of_one_entity_sees_no_other(site: ConsoleSite) -> None:
    client = site.client().sign_in("own-rule", "own-key", "own")

    assert client.get("entity", path="own").status == 200
    assert client.get("entity", path="orders").status == 403
    # Not even whether it is there.
    assert client.get("entity", path="nothing").status == 403


def test_a_namespace_in_memory_is_shown_too() -> None:
    with serve_namespace({"queues": ["orders"]}) as namespace:
        process = ServerProcess.__new__(ServerProcess)
        process.ports = {"http": namespace.http_port}
        site = ConsoleSite(process)
        with namespace.client().get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("hello"))
        client = site.signed_in()

        assert client.json()["entities"][0]["oldest_seconds"] is not None
        assert bodies(client.json("entity", path="orders")) == ["hello"]
        assert client.post("message/delete?path=orders&sequence=1", {}).status == 303
        assert bodies(client.json("entity", path="orders")) == []


def test_fragments_of_a_partitioned_queue_are_one_list(tmp_path: Path) -> None:
    entities = {"queues": [{"name": "parts", "enable_partitioning": True}]}
    options = ["--shards", "3"]
    with ServerProcess(tmp_path, entities, name="contoso", options=options) as process:
        site = ConsoleSite(process)
        for number in range(9):
            site.send(
                "parts", ServiceBusMessage(str(number), partition_key=f"{number}")
            )
        client = site.signed_in()

        [row] = client.json()["entities"]
        listed = client.json("entity", path="parts")
        numbers = [each["sequence"] for each in listed["messages"]]

        assert row["active"] == 9
        assert sorted(bodies(listed)) == [str(number) for number in range(9)]
        assert numbers == sorted(numbers)
        assert numbers[-1] > 1 << 48
        for each in listed["messages"]:
            address = f"message/delete?path=parts&sequence={each['sequence']}"
            assert client.post(address, {}).status == 303
        assert bodies(client.json("entity", path="parts")) == []
        sent = client.post("send?path=parts", {"body": "new", "copies": "6"})
        assert sent.status == 303
        assert site.received("parts", 6) == ["new"] * 6


def test_many_entities_have_several_pages(tmp_path: Path) -> None:
    count = 2 * limits.CONSOLE_PAGE_ENTITIES + 5
    entities = {"queues": [f"queue-{number:03}" for number in range(count)]}
    with ServerProcess(tmp_path, entities, name="contoso") as process:
        client = ConsoleSite(process).signed_in()

        paths = [
            each["path"]
            for page in (1, 2, 3)
            for each in client.json("", page=page)["entities"]
        ]
        middle = client.get("", page=2).text

    assert paths == entities["queues"]
    assert "page=1" in middle
    assert "page=3" in middle
