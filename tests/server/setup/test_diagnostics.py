"""Diagnostics bundles: what is in one, what is never in one, and how many are kept."""

from __future__ import annotations

import base64
import secrets
import signal
import socket
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusMessage

from tests.server.setup.supervised_site import (
    configured,
    send,
    send_in_vain,
    supervised,
)
from twinbus import limits
from twinbus.server.setup import diagnostics
from twinbus.server.setup.reporter import Remains


def remains(number: int = 0, **changes: Any) -> Remains:
    given: dict[str, Any] = {
        "id": f"20240101T000000.{number:03}Z-1",
        "time": "2024-01-01T00:00:00.000Z",
        "reason": "The server ended by SIGKILL.",
        "pid": 1,
        "seconds": 12.3456,
        "restarts": 0,
        "command": ["python", "serve"],
        "ports": {"contoso": {"amqp_port": 5672}},
        "stacks": b"Thread 0x1 (most recent call first):\n  File x, line 1 in f\n",
        "log": [b'{"time": "then", "level": "info", "message": "hello"}', b'{"cut'],
        "vitals": b"",
        "missing": ["this"],
        "gathered_seconds": 0.1,
    }
    return Remains(**{**given, **changes})


# -- real failures ---------------------------------------------------------------------


def test_a_stall_leaves_everything_that_is_known(tmp_path: Path) -> None:
    options = configured(tmp_path, "orders")
    quick = {"VITALS_SECONDS": 0.05}
    # Counts are read after one time and put down the next time.
    often = {"SICK_VITALS": "3"}
    with supervised(tmp_path, options, often, quick) as site:
        send(site, "orders", ServiceBusMessage("one"), ServiceBusMessage("two"))
        site.stall()
        bundle = site.wait_for_bundle()
        site.wait_for_restart()
        site.wait_for_log("messages.db is sound")
        (checked,) = diagnostics.load(site.data, bundle["id"])["stores"]

    assert checked["sound"] is True
    assert checked["file"] == str(site.data / "contoso" / "messages.db")
    assert bundle["reason"] == (
        "The server is stalled: its event loop has not moved for 1 seconds."
    )
    assert any("stalled_for_ever" in line for line in bundle["stacks"])
    assert any("Thread" in line for line in bundle["stacks"])
    logged = [event["message"] for event in bundle["log"]]
    assert "namespace contoso: 1 entities" in logged
    assert "the loop stalls" in logged
    measured = bundle["metrics"]["namespaces"]["contoso"]
    assert measured["counts"]["orders"]["active"] == 2
    assert measured["turns"] > 0
    assert bundle["limits"]["LOG_RING_RECORDS_MAX"] == 10_000
    assert bundle["versions"]["twinbus"]
    assert bundle["ports"]["contoso"]["amqp_port"] == site.amqp_port
    assert "--config" in bundle["command"]
    assert bundle["missing"] == []
    assert bundle["gathered_seconds"] < limits.DIAGNOSTICS_SECONDS_MAX


def test_a_bundle_says_what_could_not_be_had(tmp_path: Path) -> None:
    with supervised(tmp_path, limits={"VITALS_BYTES_MAX": 10}) as site:
        site.crash()
        bundle = site.wait_for_bundle()

    assert bundle["stacks"] == []
    assert bundle["missing"] == [
        "stacks of the server's threads: it had ended",
        "metrics and counts: the server has written none yet",
    ]


def test_a_crash_of_the_interpreter_leaves_its_stacks(tmp_path: Path) -> None:
    with supervised(tmp_path) as site:
        site.hurt(signal.SIGSEGV)
        bundle = site.wait_for_bundle()

    assert bundle["reason"] == "The server ended by SIGSEGV."
    assert bundle["stacks"][0] == "Fatal Python error: Segmentation fault"


def test_a_bundle_holds_no_message_and_no_secret(tmp_path: Path) -> None:
    planted = [f"planted-{secrets.token_hex(8)}" for _ in range(6)]
    body, subject, name, value, message_id, broken = planted
    key = base64.b64encode(b"planted" + secrets.token_bytes(25)).decode()
    message = ServiceBusMessage(
        body,
        subject=subject,
        message_id=message_id,
        application_properties={name: value},
    )
    options = [*configured(tmp_path, "orders", "bad", key=key), "--log-level", "debug"]
    quick = {"VITALS_SECONDS": 0.05}
    with supervised(tmp_path, options, {"SICK_SEND": "bad"}, quick) as site:
        send(site, "orders", message)
        send_in_vain(site, "bad", broken)
        with socket.create_connection(("127.0.0.1", site.amqp_port)) as client:
            client.sendall(f"GET /{body} HTTP/1.1\r\nAuthorization: {key}\r\n".encode())
            client.recv(100)
        site.stall()
        bundle = site.wait_for_bundle()
        site.wait_for_restart()

    (file,) = (site.data / "diagnostics").glob("*.json")
    text = file.read_text()
    assert [each for each in (*planted, key, "SAS_KEY_VALUE") if each in text] == []
    # The error was met and kept, and what was planted is there to be found.
    assert any("ValueError" in event.get("exception", "") for event in bundle["log"])
    assert broken in site.log
    store = b"".join(each.read_bytes() for each in site.data.glob("*/messages.db*"))
    assert body.encode() in store
    assert key.encode() in store


# -- files -----------------------------------------------------------------------------


def test_the_ten_newest_are_kept(tmp_path: Path) -> None:
    for number in range(12):
        diagnostics.write(tmp_path, diagnostics.compose(remains(number)))

    found = [bundle["id"] for bundle in diagnostics.load_all(tmp_path)]
    assert found == [f"20240101T000000.{n:03}Z-1" for n in range(11, 1, -1)]
    folder = tmp_path / "diagnostics"
    modes = {path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert (folder.stat().st_mode & 0o777, modes) == (0o700, {0o600})


def test_a_record_that_was_cut_is_kept_as_text(tmp_path: Path) -> None:
    bundle = diagnostics.compose(remains())

    assert bundle["log"][1] == {"message": '{"cut'}
