"""Sessions, connections, settings, rules, access, faults and the log of changes."""

from __future__ import annotations

import http.client
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from tests.console.site import RULES, ConsoleSite
from twinbus.testing.server_process import ServerProcess

BIG = "events/Subscriptions/big"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleSite]:
    """A server of this file's own, since its tests change the namespace."""
    rule = {"name": "amount", "filter": {"sql": "amount > 10"}}
    entities = {
        "authorization_rules": RULES,
        "queues": ["orders", {"name": "steps", "requires_session": True}, "settled"],
        "topics": [
            {"name": "events", "subscriptions": [{"name": "big", "rules": [rule]}]}
        ],
    }
    folder = tmp_path_factory.mktemp("operating")
    options = ["--faults"]
    with ServerProcess(folder, entities, name="contoso", options=options) as process:
        yield ConsoleSite(process)
        assert process.stop() == 0
        assert "Traceback" not in process.log.read_text()


def test_sessions_show_their_holder_and_state(own: ConsoleSite) -> None:
    own.send(
        "steps", *(ServiceBusMessage("x", session_id=f"s{k % 2}") for k in range(5))
    )
    client = own.signed_in()
    with own.bus() as bus:
        receiver = bus.get_queue_receiver("steps", session_id="s0")
        with receiver:
            receiver.session.set_state("half way")

            rows = client.json("sessions", path="steps")["sessions"]

    held, free = rows
    assert [row["name"] for row in rows] == ["s0", "s1"]
    assert (held["messages"], free["messages"]) == (3, 2)
    assert held["is_held"]
    assert held["held_by"].startswith("('127.0.0.1'")
    assert held["held_until"] is not None
    assert not free["is_held"]
    shown = client.json("session", path="steps", name="s0")
    assert shown["text"] == "half way"


def test_a_session_gets_another_state(own: ConsoleSite) -> None:
    client = own.signed_in()

    client.post("session?path=steps&name=mine", {"state": "new\r\nstate"})

    bus = own.bus()
    with bus, bus.get_queue_receiver("steps", session_id="mine") as receiver:
        assert receiver.session.get_state() == b"new\nstate"
    client.post("session?path=steps&name=mine", {"remove": "on"})
    assert not client.json("session", path="steps", name="mine")["has_state"]
    wrong = {"state": "!", "is_base64": "on"}
    assert client.post("session?path=steps&name=mine", wrong).status == 400


def test_an_entity_without_sessions_says_so(own: ConsoleSite) -> None:
    answer = own.signed_in().get("sessions", path="orders")

    assert answer.status == 400
    assert answer.problem == "&#39;orders&#39; has no sessions."


def test_a_connection_is_shown_and_closed(own: ConsoleSite) -> None:
    client = own.signed_in()
    with own.bus() as bus, bus.get_queue_receiver("orders") as receiver:
        receiver.receive_messages(max_wait_time=0.1)
        [shown] = [
            each
            for each in client.json("connections")["connections"]
            if any(link["path"] == "orders" for link in each["links"])
        ]
        [link] = [each for each in shown["links"] if each["path"] == "orders"]
        assert link["role"] == "receiver"

        answer = client.post("connections/close", {"peer": shown["peer"]})

        assert answer.status == 303
        peers = [each["peer"] for each in client.json("connections")["connections"]]
        assert shown["peer"] not in peers
        again = client.post("connections/close", {"peer": shown["peer"]})
        assert again.status == 404


def test_settings_are_changed_and_the_rest_stays(own: ConsoleSite) -> None:
    client = own.signed_in()
    with own.admin() as admin:
        before = admin.get_queue("settled")

    answer = client.post(
        "settings?path=settled",
        {
            "lock_duration_ms": "PT30S",
            "max_delivery_count": "3",
            "dead_lettering_on_message_expiration_shown": "1",
            "dead_lettering_on_message_expiration": "on",
            "user_metadata": "<b>mine</b>",
        },
    )

    assert answer.status == 303, answer.text
    with own.admin() as admin:
        after = admin.get_queue("settled")
    assert after.lock_duration == timedelta(seconds=30)
    assert after.max_delivery_count == 3
    assert after.dead_lettering_on_message_expiration is True
    assert after.max_size_in_megabytes == before.max_size_in_megabytes
    assert after.default_message_time_to_live == before.default_message_time_to_live
    assert "<b>mine" not in client.get("settings", path="settled").text


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"lock_duration_ms": "soon"}, "is not a duration"),
        ({"max_delivery_count": "0"}, "max_delivery_count must be between"),
        ({"max_delivery_count": "x"}, "must be a whole number"),
        ({"status": "Gone"}, "There is no status"),
        ({"forward_to": "nothing-here"}, "nothing-here"),
    ],
)
def test_a_wrong_setting_is_refused(
    own: ConsoleSite, fields: dict[str, str], problem: str
) -> None:
    answer = own.signed_in().post("settings?path=orders", fields)

    assert answer.status in (400, 404)
    assert problem in answer.problem


def test_rules_are_added_changed_and_deleted(own: ConsoleSite) -> None:
    client = own.signed_in()
    [first] = client.json("rules", path=BIG)["rules"]
    assert (first["name"], first["filter"]) == ("amount", "amount > 10")

    client.post(
        f"rules?path={BIG}",
        {"name": "red", "filter": "colour = 'red'", "action": "SET sys.Label = 'r'"},
    )
    client.post(f"rules?path={BIG}", {"name": "amount", "filter": "amount > 100"})
    fields = {"name": "same", "kind": "correlation", "filter": '{"label": "x", "a": 1}'}
    client.post(f"rules?path={BIG}", fields)

    rules = {each["name"]: each for each in client.json("rules", path=BIG)["rules"]}
    assert rules["red"]["action"] == "SET sys.Label = 'r'"
    assert rules["amount"]["filter"] == "amount > 100"
    assert json.loads(rules["same"]["filter"]) == {"label": "x", "a": "1"}
    client.post(f"rules/delete?path={BIG}", {"name": "red"})
    names = [each["name"] for each in client.json("rules", path=BIG)["rules"]]
    assert names == ["amount", "same"]
    bad = client.post(f"rules?path={BIG}", {"name": "bad", "filter": "amount >"})
    assert bad.status == 400


def test_a_key_is_shown_once(own: ConsoleSite) -> None:
    client = own.signed_in()
    create = {"action": "create", "name": "fresh", "right": ["Listen"]}
    made = client.post("access", create, {"Accept": "application/json"}).json["fresh"]
    reader = own.client().sign_in("fresh", made["primary_key"])

    assert made["primary_key"] not in client.get("access").text
    assert "rules" in client.json("access")
    rotate = {"action": "rotate primary", "name": "fresh"}
    again = client.post("access", rotate, {"Accept": "application/json"}).json["fresh"]

    assert again["primary_key"] != made["primary_key"]
    assert again["secondary_key"] == made["secondary_key"]
    assert reader.get().status == 303
    refused = client.post("access", {"action": "delete", "name": "fresh"})
    assert refused.status == 400
    delete = {"action": "delete", "name": "fresh", "confirm": "fresh"}
    assert client.post("access", delete).status == 303
    assert "fresh" not in {each["name"] for each in client.json("access")["rules"]}


def test_a_rule_of_the_file_is_left_to_the_file(own: ConsoleSite) -> None:
    rotate = {"action": "rotate primary", "name": "listen"}

    answer = own.signed_in().post("access", rotate)

    assert answer.status == 400
    assert "configuration file" in answer.problem


def test_a_fault_is_begun_and_ended(own: ConsoleSite) -> None:
    client = own.signed_in()

    begun = client.post("faults", {"kind": "throttle", "target": "settled"})

    assert begun.status == 303, begun.text
    [fault] = client.json("faults")["faults"]
    assert (fault["kind"], fault["target"]) == ("throttle", "settled")
    assert "A fault is rehearsed" in client.get().text
    client.post("faults", {"clear": str(fault["id"])})
    assert client.json("faults")["faults"] == []
    assert client.post("faults", {"kind": "nonsense"}).status == 400


def test_without_the_option_there_are_no_faults(site: ConsoleSite) -> None:
    client = site.signed_in()

    assert "Faults" not in client.get().text
    assert client.post("faults", {"kind": "throttle"}).status == 400


def test_diagnostics_count_turns(own: ConsoleSite) -> None:
    [shard] = own.signed_in().json("diagnostics")["shards"]

    assert shard["turns"] > 0
    assert shard["quarantined"] == 0
    assert shard["defects"] == {}


def test_a_bundle_of_the_supervisor_is_listed_and_downloaded(tmp_path: Path) -> None:
    process = ServerProcess(tmp_path, {"queues": ["q"]}, name="contoso")
    process.supervised = True
    with process:
        site = ConsoleSite(process)
        assert site.signed_in().json("diagnostics")["bundles"] == []
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        os.kill(int(children.read_text().split()[0]), signal.SIGSEGV)
        deadline = time.monotonic() + 60
        client = site.client()
        found: list[dict[str, Any]] = []
        while not found:
            assert time.monotonic() < deadline
            with suppress(OSError, http.client.HTTPException):
                client = site.signed_in()
                found = client.json("diagnostics")["bundles"]

        [listed] = found
        answer = client.get("diagnostics/bundle", id=listed["id"])
        missing = client.get("diagnostics/bundle", id="none")

    assert listed["reason"] == "The server ended by SIGSEGV."
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert answer.json["stacks"][0] == "Fatal Python error: Segmentation fault"
    assert missing.status == 404


def test_changes_are_logged_with_the_key(own: ConsoleSite) -> None:
    own.signed_in("Send").post("send?path=orders", {"body": "x", "copies": "3"})
    own.signed_in("Listen").post("message/delete?path=orders&sequence=2", {})

    first, second = own.signed_in().json("audit")["entries"][:2]

    assert (first["who"], first["action"], first["count"]) == ("listen", "delete", 1)
    assert (second["who"], second["action"], second["count"]) == ("send", "send", 3)
    assert second["path"] == "orders"


def test_the_log_survives_a_crash(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, {"queues": ["q"]}, name="contoso") as process:
        site = ConsoleSite(process)
        site.signed_in().post("send?path=q", {"body": "x"})

        process.restart()

        [entry] = site.signed_in().json("audit")["entries"]
        assert entry["action"] == "send"


MANAGE_ONLY = [
    ("GET", "connections"),
    ("GET", "access"),
    ("GET", "faults"),
    ("GET", "diagnostics"),
    ("GET", "diagnostics/bundle?id=none"),
    ("GET", "audit"),
    ("GET", "settings?path=orders"),
    ("POST", "connections/close"),
    ("POST", "access"),
    ("POST", "faults"),
    ("POST", "settings?path=orders"),
]
LISTEN_TOO = [
    ("GET", "sessions?path=steps"),
    ("GET", "session?path=steps&name=s0"),
    ("GET", f"rules?path={BIG}"),
    ("POST", "session?path=steps&name="),
    ("POST", f"rules/delete?path={BIG}"),
    ("POST", f"rules?path={BIG}"),
]


@pytest.mark.parametrize("right", ["Listen", "Send", "Manage"])
@pytest.mark.parametrize(("method", "page"), MANAGE_ONLY + LISTEN_TOO)
def test_each_page_needs_its_right(
    own: ConsoleSite, method: str, page: str, right: str
) -> None:
    client = own.signed_in(right)

    answer = client.post(page, {}) if method == "POST" else client.ask("GET", page)

    may = {"Manage"} | ({"Listen"} if (method, page) in LISTEN_TOO else set())
    assert (answer.status != 403) is (right in may), answer.text


def test_the_navigation_has_what_the_visitor_may_see(own: ConsoleSite) -> None:
    manage, listen = (
        own.signed_in("Manage").get().text,
        own.signed_in("Listen").get().text,
    )

    for label in ("Connections", "Access", "Faults", "Diagnostics", "Changes"):
        assert f">{label}</a>" in manage
        assert f">{label}</a>" not in listen
