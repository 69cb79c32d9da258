"""The log of `serve`: one line per event, in both forms, and nothing secret."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from tests.cli.run import Run, served
from twinbus.cli.server.logs import JsonLine, OneLine
from twinbus.core.sas import Secret


def record(message: str, *args: Any, fails: bool = False) -> logging.LogRecord:
    info: Any = (ValueError, ValueError("one\ntwo"), None) if fails else None
    return logging.LogRecord("twinbus.x", logging.WARNING, "f", 1, message, args, info)


def test_an_event_is_one_object_on_one_line() -> None:
    line = JsonLine().format(record("closing %s: %s", "a\nb", 'c"d'))

    assert "\n" not in line
    event = json.loads(line)
    assert event.pop("time").endswith("Z")
    assert event == {
        "level": "warning",
        "logger": "twinbus.x",
        "message": 'closing a\nb: c"d',
    }


def test_a_traceback_stays_on_the_line() -> None:
    line = JsonLine().format(record("failed", fails=True))
    text = OneLine("%(message)s").format(record("failed", fails=True))

    assert "\n" not in line + text
    assert "ValueError: one\ntwo" in json.loads(line)["exception"]
    assert "ValueError: one | two" in text


def test_secrets_are_stars() -> None:
    for form in (JsonLine(), OneLine("%(message)s")):
        assert "hush" not in form.format(record("key %s", Secret("hush")))


def test_a_server_writes_json_when_asked(tmp_path: Path) -> None:
    ports = ("--amqp-port", "0", "--http-port", "0")
    with served(tmp_path, "--dev", *ports, "--log-format", "json") as server:
        ended = server.stop()

    events = [json.loads(line) for line in ended.err.splitlines()]
    assert {"namespace sbemulatorns: 0 entities"} <= {e["message"] for e in events}


def test_another_form_is_refused(run: Run, tmp_path: Path) -> None:
    result = run(
        "serve", "--no-supervisor", "--dev", "--data", tmp_path, "--log-format", "xml"
    )

    assert result.code == 2
    assert "--log-format xml is not one of text, json." in result.err
