"""Messages from the command line, against a server that runs as a child."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.run import Result, Run, served
from twinbus import limits
from twinbus.cli.output import Listing
from twinbus.core.sas import DEV_KEY_NAME, DEV_KEY_TEXT

CONFIG = """
namespaces:
  - name: contoso
    queues: [{name: orders}]
    topics: [{name: events, subscriptions: [{name: all}]}]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file for each way in: the connection string, the TLS one, and the authority."""
    folder = tmp_path_factory.mktemp("server")
    config = folder / "config.yaml"
    config.write_text(CONFIG)
    ports = [f"--{kind}-port=0" for kind in ("amqp", "amqps", "http")]
    with served(folder, "--dev", "--config", config, *ports) as running:
        described = running.ready["namespaces"]["contoso"]
        (folder / "plain").write_text(described["connection_string"])
        (folder / "secure").write_text(
            f"Endpoint=sb://localhost:{described['amqps_port']}/;"
            f"SharedAccessKeyName={DEV_KEY_NAME};SharedAccessKey={DEV_KEY_TEXT}"
        )
        yield folder


@pytest.fixture
def message(run: Run, server: Path) -> Run:
    """Run a message command against the server."""

    def call(*args: object) -> Result:
        given = ("--connection-string", f"@{server}/plain", "--json")
        return run("message", *args, *given)

    return call


def test_a_message_is_sent_peeked_received_and_gone(message: Run) -> None:
    options = ("--subject", "s", "--property", "a=b", "--message-id", "m1")
    sent = message("send", "orders", "hello", *options)
    (peeked,) = message("peek", "orders").json
    (received,) = message("receive", "orders").json

    assert sent.json == {"sent": 1}
    assert peeked["body"] == received["body"] == "hello"
    assert (received["subject"], received["message_id"]) == ("s", "m1")
    assert received["properties"] == {"a": "b"}
    assert message("peek", "orders").json == []


def test_a_dead_lettered_message_is_found_and_purged(message: Run) -> None:
    message("send", "orders", "bad", "--count", 3)
    message("receive", "orders", "--settle", "dead-letter", "--max", 3)

    assert len(message("peek", "orders", "--dead-letter").json) == 3
    assert message("purge", "orders", "--dead-letter", "--wait", 0.5, "--yes").json == {
        "purged": 3
    }
    assert message("peek", "orders", "--dead-letter").json == []


def test_an_abandoned_message_is_shown_once(message: Run) -> None:
    message("send", "orders", "again")

    options = ("--settle", "abandon", "--max", 5, "--wait", 1)
    (first,) = message("receive", "orders", *options).json
    (second,) = message("receive", "orders", "--wait", 1).json

    assert (first["delivery_count"], second["delivery_count"]) == (0, 1)


def test_a_body_that_is_not_text_is_sent_and_shown(
    message: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xffa\n")))
    message("send", "orders", "-")

    (received,) = message("receive", "orders").json

    assert received["body"] == "\\xffa\n"


def test_what_came_before_a_failure_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> None:
        with Listing(("a",), True) as listing:
            listing.add([{"a": 1}])
            listing.add([{"a": 2}, {"a": 3}])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()

    assert json.loads(capsys.readouterr().out) == [{"a": 1}, {"a": 2}, {"a": 3}]


def test_a_cell_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with Listing(("a", "b"), False) as listing:
        listing.add([{"a": "x\n\x1b[31m", "b": ["Send", "Listen"]}])
        listing.add([{"a": "y", "b": []}])

    assert capsys.readouterr().out.splitlines() == [
        "a            b",
        "x\\n\\x1b[31m  Send, Listen",
        "y            -",
    ]


def test_a_subscription_is_read_through_its_topic(message: Run) -> None:
    message("send", "events", "news")

    (received,) = message("receive", "events", "--subscription", "all").json

    assert received["body"] == "news"


def test_tls_needs_the_authority(run: Run, server: Path) -> None:
    command = ("message", "send", "orders", "safe")
    secure = ("--connection-string", f"@{server}/secure", "--json")

    refused = run(*command, *secure)
    sent = run(*command, *secure, "--ca-file", server / "tls" / "ca.pem")

    assert refused.code == 1
    assert sent.json == {"sent": 1}


def test_failures_are_one_line_without_the_key(message: Run, run: Run) -> None:
    key = "a-key-that-must-not-print"
    wrong = (
        "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=x;"
        f"SharedAccessKey={key};UseDevelopmentEmulator=true;"
    )
    for result, code in (
        (message("send", "nowhere", "x"), 1),
        (message("receive", "orders", "--settle", "burn"), 2),
        (message("send", "orders", "x", "--time-to-live", "1h"), 2),
        (run("message", "peek", "orders", "--connection-string", wrong), 1),
        (run("message", "peek", "orders", "--connection-string", key), 2),
        (run("message", "peek", "orders", "--connection-string", "@/none"), 2),
    ):
        assert (result.code, result.out) == (code, ""), result
        assert result.err.count("\n") == 1, result
        assert key not in result.err


def test_a_missing_queue_is_no_matter_of_the_key(message: Run) -> None:
    missing = message("peek", "ordres")

    assert missing.code == 1
    assert "ordres' could not be found. Check the name" in missing.err
    assert "key" not in missing.err


def test_a_host_that_is_not_found_is_to_be_checked(run: Run) -> None:
    text = "Endpoint=sb://nowhere.invalid/;SharedAccessKeyName=x;SharedAccessKey=a2V5"

    failed = run("message", "peek", "orders", "--connection-string", text)

    assert failed.code == 1
    assert failed.err.endswith("Check the host in the connection string.\n")


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("receive", "--wait", "0"), "--wait 0 must be above 0"),
        (("receive", "--wait", "-1"), "--wait -1 must be above 0"),
        (("receive", "--wait", "nan"), "--wait nan must be above 0"),
        (("purge", "--yes", "--wait", "1e12"), "--wait 1e+12 must be above 0"),
        (("send", "x", "--time-to-live", "30"), "--time-to-live 30: '30' is not"),
        (("send", "x", "--time-to-live", "PT0S"), "--time-to-live PT0S must be above"),
        (("send", "x", "--time-to-live", "P50D"), "--time-to-live P50D must be above"),
        (("send", "x", "--deliver-in", "P5000000D"), "--deliver-in P5000000D must end"),
    ],
)
def test_numbers_out_of_range_are_refused_with_their_option(
    message: Run, args: tuple[str, ...], text: str
) -> None:
    refused = message(args[0], "orders", *args[1:])

    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith(f"twinbus: {text}")
    assert refused.err.count("\n") == 1


def test_more_may_be_asked_for_than_one_request_can_say(message: Run) -> None:
    message("send", "orders", "only")
    sequence_max = limits.SEQUENCE_NUMBER_MAX

    none = message("peek", "orders", "--from", sequence_max)
    refused = message("peek", "orders", "--from", sequence_max + 1)
    received = message("receive", "orders", "--max", 2**40, "--wait", 1)

    assert none.json == []
    assert refused.code == 2
    assert "'--from'" in refused.err
    assert received.json[-1]["body"] == "only"


def test_without_the_official_client_it_says_what_to_install(
    message: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "azure.servicebus", None)

    result = message("peek", "orders")

    assert result.code == 2
    assert "pip install azure-servicebus" in result.err
