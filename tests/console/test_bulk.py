"""Many messages at once: plans, jobs, crashes in the middle, files."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue

from tests.console.site import (
    ConsoleClient,
    ConsoleSite,
    ended,
    planned,
    started,
)
from twinbus import limits
from twinbus.testing.server_process import ServerProcess

DEAD = "/$DeadLetterQueue"
SLOW = {"kind": "storage-slow", "delay_seconds": 0.05}


def done(client: ConsoleClient, path: str, **fields: Any) -> Any:
    """Plan and carry out; returns the job at its end."""
    confirm = fields.pop("confirm", "")
    job = planned(client, path, **fields)
    return ended(client, started(client, job, confirm=confirm))


def bury(site: ConsoleSite, queue: str, *reasons: str) -> None:
    """Send a message for each reason, and dead-letter it with that."""
    site.send(
        queue,
        *(
            ServiceBusMessage(
                f"m{k}", message_id=f"id-{k}", application_properties={"n": k}
            )
            for k in range(len(reasons))
        ),
    )
    with site.bus() as bus, bus.get_queue_receiver(queue) as receiver:
        left = list(reasons)
        while left:
            for message in receiver.receive_messages(len(left), max_wait_time=5):
                receiver.dead_letter_message(
                    message, reason=left.pop(0), error_description="a description"
                )


def listed(client: ConsoleClient, path: str, **query: Any) -> list[str]:
    return [
        each["preview"]
        for each in client.json("entity", path=path, **query)["messages"]
    ]


def test_dead_letters_are_grouped_by_reason(site: ConsoleSite, queue: str) -> None:
    bury(site, queue, "Late", "Malformed", "Late")
    client = site.signed_in()

    shown = client.json("entity", path=queue + DEAD)

    assert [(g["reason"], g["count"]) for g in shown["groups"]] == [
        ("Late", 2),
        ("Malformed", 1),
    ]
    assert shown["groups_complete"]
    assert listed(client, queue + DEAD, reason="Late", source="") == ["m0", "m2"]


def test_resubmitting_takes_away_what_the_server_added(
    site: ConsoleSite, queue: str
) -> None:
    bury(site, queue, "Late", "Malformed", "Late")
    client = site.signed_in()

    job = done(client, queue + DEAD, action="resubmit", scope="all", reason="Late")

    assert (job["state"], job["done"]) == ("done", 2)
    assert listed(client, queue + DEAD) == ["m1"]
    with site.bus() as bus, bus.get_queue_receiver(queue) as receiver:
        found = receiver.receive_messages(5, max_wait_time=2)
        assert [each.message_id for each in found] == ["id-0", "id-2"]
        for each in found:
            assert set(each.application_properties or {}) == {b"n"}
            assert each.dead_letter_reason is None
            assert each.delivery_count == 0


def test_the_dry_run_changes_nothing(site: ConsoleSite, queue: str) -> None:
    bury(site, queue, "Late", "Late")
    client = site.signed_in()

    job = planned(client, queue + DEAD, action="resubmit", scope="all")

    assert (job["state"], job["total"], job["done"]) == ("planned", 2, 0)
    assert job["targets"] == {queue: 2}
    assert listed(client, queue + DEAD) == ["m0", "m1"]
    assert "Nothing is changed yet" in client.get("job", id=job["id"]).text


def test_chosen_messages_alone_are_moved(site: ConsoleSite, queue: str) -> None:
    bury(site, queue, "A", "B", "C")
    target = site.create_queue(f"{queue}-2")
    client = site.signed_in()
    numbers = [
        each["sequence"]
        for each in client.json("entity", path=queue + DEAD)["messages"]
    ]

    job = done(
        client,
        queue + DEAD,
        action="move",
        target=target,
        sequence=[numbers[0], numbers[2], 999],
    )

    assert job["done"] == 2
    assert listed(client, queue + DEAD) == ["m1"]
    assert listed(client, target) == ["m0", "m2"]


def test_deleting_all_asks_for_the_name(site: ConsoleSite, queue: str) -> None:
    bury(site, queue, "A", "B")
    client = site.signed_in()
    job = planned(client, queue + DEAD, action="delete", scope="all")

    refused = client.post(f"job/start?id={job['id']}", {"confirm": "another"})
    assert refused.status == 400
    assert queue in refused.problem
    assert len(listed(client, queue + DEAD)) == 2

    job = ended(client, started(client, job, confirm=queue))
    assert job["done"] == 2
    assert listed(client, queue + DEAD) == []


def test_messages_that_come_after_the_plan_are_not_touched(
    site: ConsoleSite, queue: str
) -> None:
    bury(site, queue, "A", "B")
    client = site.signed_in()
    job = planned(client, queue + DEAD, action="delete", scope="all")
    bury(site, queue, "C")

    job = ended(client, started(client, job, confirm=queue))

    assert job["done"] == 2
    assert len(listed(client, queue + DEAD)) == 1


def test_what_a_receiver_holds_is_left_alone(site: ConsoleSite, queue: str) -> None:
    bury(site, queue, "A", "B")
    client = site.signed_in()
    with site.bus() as bus:
        dead = ServiceBusSubQueue.DEAD_LETTER
        with bus.get_queue_receiver(queue, sub_queue=dead) as receiver:
            [held] = receiver.receive_messages(1, max_wait_time=5)

            job = done(client, queue + DEAD, action="resubmit", scope="all")

            assert (job["done"], job["locked"]) == (1, 1)
            receiver.complete_message(held)


def test_a_resubmitted_message_is_no_duplicate_of_itself(site: ConsoleSite) -> None:
    queue = site.create_queue("detecting", requires_duplicate_detection=True)
    bury(site, queue, "A")
    client = site.signed_in()

    job = done(client, queue + DEAD, action="resubmit", scope="all")

    assert job["done"] == 1
    assert site.received(queue) == ["m0"]


def test_what_cannot_be_moved_stays_and_says_why(site: ConsoleSite, queue: str) -> None:
    bury(site, queue, "A", "B")
    target = site.create_queue(f"{queue}-2", requires_session=True)
    client = site.signed_in()

    job = done(client, queue + DEAD, action="move", target=target, scope="all")

    [(reason, count)] = job["refused"].items()
    assert count == 2
    assert "requires sessions" in reason
    assert len(listed(client, queue + DEAD)) == 2


def test_a_subscriptions_dead_letters_come_back_to_it_alone(tmp_path: Path) -> None:
    topic = {"name": "events", "subscriptions": ["one", "two"]}
    with ServerProcess(tmp_path, {"topics": [topic]}, name="contoso") as process:
        site = ConsoleSite(process)
        with site.bus() as bus:
            with bus.get_topic_sender("events") as sender:
                sender.send_messages(ServiceBusMessage("hello"))
            with bus.get_subscription_receiver("events", "one") as receiver:
                [message] = receiver.receive_messages(max_wait_time=5)
                receiver.dead_letter_message(message, reason="A")
        client = site.signed_in()
        one, two = "events/Subscriptions/one", "events/Subscriptions/two"

        job = done(client, one + DEAD, action="resubmit", scope="all")

        assert job["done"] == 1
        assert listed(client, one) == ["hello"]
        assert listed(client, two) == ["hello"]


def test_rights_of_plans(site: ConsoleSite, queue: str) -> None:
    bury(site, queue, "A")
    listen, send = site.signed_in("Listen"), site.signed_in("Send")
    fields = {"scope": "all", "action": "resubmit"}

    assert listen.post(f"bulk?path={queue}{DEAD}", fields).status == 403
    assert send.post(f"bulk?path={queue}{DEAD}", fields).status == 403
    job = planned(listen, queue + DEAD, scope="all", action="delete")
    assert send.get("job", id=job["id"]).status == 403
    assert 'value="resubmit"' not in listen.get("entity", path=queue + DEAD).text


def expired_queue(site: ConsoleSite, name: str, count: int) -> str:
    """A queue with so many dead letters, which its time to live has made."""
    brief = timedelta(seconds=1)
    site.create_queue(
        name,
        dead_lettering_on_message_expiration=True,
        default_message_time_to_live=brief,
    )
    with site.bus() as bus, bus.get_queue_sender(name) as sender:
        for start in range(0, count, 2000):
            numbers = range(start, min(start + 2000, count))
            sender.send_messages([ServiceBusMessage(f"m{k}") for k in numbers])
    client = site.signed_in()
    deadline = time.monotonic() + 300
    while client.json("", q=name)["entities"][0]["dead"] < count:
        assert time.monotonic() < deadline
    with site.admin() as admin:
        described = admin.get_queue(name)
        described.default_message_time_to_live = timedelta(days=1)
        admin.update_queue(described)
    return name


def everything(client: ConsoleClient, path: str) -> list[str]:
    """The bodies of all messages, as exported."""
    answer = client.get("export", path=path)
    return [json.loads(line)["body"] for line in answer.text.splitlines()]


@pytest.mark.parametrize(
    ("end", "count"),
    [
        ("kill", 3_000),
        ("cancel", 3_000),
        pytest.param("kill", 100_000, marks=pytest.mark.campaign),
    ],
)
def test_an_end_in_the_middle_loses_and_doubles_nothing(
    tmp_path: Path, end: str, count: int
) -> None:
    options = ["--faults"]
    with ServerProcess(tmp_path, {}, name="contoso", options=options) as process:
        site = ConsoleSite(process)
        queue = expired_queue(site, "many", count)
        client = site.signed_in()
        # Each chunk is a commit: so that the end comes in the middle.
        fault = json.dumps(SLOW).encode()
        token = {"Authorization": site.token()}
        answer = client.ask("POST", "/$faults", fault, token)
        assert answer.status == 200, answer.text
        job = planned(client, queue + DEAD, action="resubmit", scope="all")
        assert job["total"] == count
        started(client, job)
        ended(client, job, lambda shown: shown["done"] >= count // 10)

        if end == "kill":
            process.restart()
            client = site.signed_in()
        else:
            client.post(f"job/cancel?id={job['id']}", {})
            assert ended(client, job)["state"] == "cancelled"

        dead, back = everything(client, queue + DEAD), everything(client, queue)
        assert count // 10 <= len(back) < count
        assert sorted(dead + back) == sorted(f"m{k}" for k in range(count))
        if end == "kill":
            job = done(client, queue + DEAD, action="resubmit", scope="all")
            assert job["done"] == len(dead)
            assert sorted(everything(client, queue)) == sorted(dead + back)


def test_a_job_ends_with_its_key(tmp_path: Path) -> None:
    count = 20 * limits.CONSOLE_CHUNK_MESSAGES
    options = ["--faults"]
    with ServerProcess(tmp_path, {}, name="contoso", options=options) as process:
        site = ConsoleSite(process)
        queue = expired_queue(site, "many", count)
        root = site.signed_in()
        token = {"Authorization": site.token()}
        put = json.dumps({"properties": {"rights": ["Manage"]}}).encode()
        root.ask("PUT", "/$authorizationRules/other", put, token)
        keys = root.ask("POST", "/$authorizationRules/other/listKeys", b"", token).json
        client = site.client().sign_in("other", keys["primaryKey"])
        job = planned(client, queue + DEAD, action="resubmit", scope="all")
        fault = json.dumps(SLOW).encode()
        root.ask("POST", "/$faults", fault, token)
        started(client, job)
        ended(root, job, lambda shown: shown["done"] > 0)

        root.ask("DELETE", "/$authorizationRules/other", b"", token)

        over = ended(root, job)
        assert over["state"] == "failed"
        assert over["done"] < count


def test_an_export_is_imported_to_the_byte(site: ConsoleSite, queue: str) -> None:
    bury(site, queue, "A", "B")
    site.send(queue, ServiceBusMessage(bytes(range(256)), message_id="raw"))
    target = site.create_queue(f"{queue}-2")
    client = site.signed_in()
    dead = client.get("export", path=queue + DEAD)
    live = client.get("export", path=queue)
    assert dead.headers["Content-Disposition"].startswith("attachment")
    assert json.loads(dead.text.splitlines()[0])["reason"] == "A"

    file = dead.body + live.body
    job = imported(client, target, file)

    assert (job["state"], job["done"]) == ("done", 3)
    with site.bus() as bus, bus.get_queue_receiver(target) as receiver:
        found = receiver.receive_messages(5, max_wait_time=2)
        assert [each.message_id for each in found] == ["id-0", "id-1", "raw"]
        assert set(found[0].application_properties or {}) == {b"n"}
        assert b"".join(found[2].body) == bytes(range(256))


def imported(client: ConsoleClient, queue: str, file: bytes) -> Any:
    """Send a file as a browser does."""
    boundary = "----twinbus"
    body = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; '
        f'filename="x.jsonl"\r\nContent-Type: application/x-ndjson\r\n\r\n'
    ).encode()
    body += file + f"\r\n--{boundary}--\r\n".encode()
    headers = {
        "Content-Type": f"multipart/form-data; boundary={boundary}",
        "Sec-Fetch-Site": "same-origin",
        "Origin": f"http://{client.authority}",
        "Accept": "application/json",
    }
    answer = client.ask("POST", f"import?path={queue}", body, headers)
    assert answer.status == 200, answer.text
    return ended(client, answer.json)


def test_a_file_of_plain_fields_is_imported(site: ConsoleSite, queue: str) -> None:
    lines = [
        {"body": "plain", "subject": "s", "properties": {"a": 1}},
        {"body": {"nested": True}, "message_id": "m"},
    ]

    job = imported(site.signed_in(), queue, "\n".join(map(json.dumps, lines)).encode())

    assert job["done"] == 2
    assert site.received(queue) == ["plain", '{"nested": true}']


def test_a_bad_line_imports_nothing(site: ConsoleSite, queue: str) -> None:
    client = site.signed_in()
    raw = {"Content-Type": "application/x-ndjson", "Sec-Fetch-Site": "same-origin"}

    answer = client.ask("POST", f"import?path={queue}", b'{"body": "a"}\n{', raw)

    assert answer.status == 400
    assert answer.problem == "Line 2 of the file cannot be read."
    assert listed(client, queue) == []


def test_a_killed_import_goes_on_where_it_stopped(tmp_path: Path) -> None:
    count = 20 * limits.CONSOLE_CHUNK_MESSAGES
    file = "\n".join(json.dumps({"body": f"m{k}"}) for k in range(count)).encode()
    options = ["--faults"]
    with ServerProcess(
        tmp_path, {"queues": ["many"]}, name="contoso", options=options
    ) as process:
        site = ConsoleSite(process)
        client = site.signed_in()
        fault = json.dumps(SLOW).encode()
        client.ask("POST", "/$faults", fault, {"Authorization": site.token()})
        raw = {
            "Content-Type": "application/x-ndjson",
            "Sec-Fetch-Site": "same-origin",
            "Accept": "application/json",
        }
        job = client.ask("POST", "import?path=many", file, raw).json
        ended(client, job, lambda shown: shown["done"] >= count // 10)

        process.restart()
        client = site.signed_in()
        before = len(everything(client, "many"))
        again = ended(client, client.ask("POST", "import?path=many", file, raw).json)

        assert count // 10 <= before < count
        assert again["gone"] == before
        assert everything(client, "many") == [f"m{k}" for k in range(count)]


def test_a_plan_of_a_browser_leads_to_its_page(site: ConsoleSite, queue: str) -> None:
    bury(site, queue, "A")
    client = site.signed_in()

    answer = client.post(
        f"bulk?path={queue}{DEAD}", {"action": "delete", "scope": "all"}
    )

    assert answer.status == 303
    assert client.ask("GET", answer.location).status == 200
