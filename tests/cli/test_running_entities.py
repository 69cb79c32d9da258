"""Entities of a running namespace from the command line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.run import Result, Run, Served, run_at_terminal, served

KEY = "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE"
PORTS = ("--amqp-port", "0", "--http-port", "0", "--https-port", "0")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("running")
    with served(folder, "--dev", "--namespace", "contoso", *PORTS) as found:
        yield found


@pytest.fixture
def string(server: Served) -> str:
    return str(server.ready["namespaces"]["contoso"]["connection_string"])


@pytest.fixture
def there(run: Run, string: str) -> Run:
    """Run one command on the running namespace, in JSON."""

    def call(*args: object) -> Result:
        return run(*args, "--connection-string", string, "--json")

    return call


def test_a_queue_is_created_shown_changed_listed_and_deleted(there: Run) -> None:
    options = ("--lock-duration", "PT30S", "--status", "Disabled")
    made = there("queue", "create", "orders", *options).json
    changed = there("queue", "update", "orders", "--max-delivery-count", "3").json
    (listed,) = there("queue", "list").json
    deleted = there("queue", "delete", "ORDERS", "--yes").json

    assert (made["lock_duration"], made["status"]) == ("PT30S", "Disabled")
    assert made["default_message_time_to_live"].startswith("P10675199D")
    assert (changed["lock_duration"], changed["max_delivery_count"]) == ("PT30S", 3)
    assert {**listed, "name": "orders"} == changed
    assert deleted == {"deleted": "ORDERS"}
    assert there("queue", "list").json == []


def test_lists_have_the_counts_of_now(there: Run, run: Run, string: str) -> None:
    there("queue", "create", "counted")
    bus = ("--connection-string", string)
    run("message", "send", "counted", "hello", "--count", "3", *bus)

    (listed,) = there("queue", "list").json

    asked = there("queue", "delete", "counted")
    there("queue", "delete", "counted", "--yes")
    assert (listed["name"], listed["active_messages"]) == ("counted", 3)
    assert listed["size_bytes"] > 0
    assert asked.code == 2
    assert "delete the queue 'counted' with 3 messages from namespace" in asked.err


def test_a_topic_has_subscriptions_and_they_have_rules(there: Run) -> None:
    there("topic", "create", "events", "--requires-duplicate-detection")
    there("subscription", "create", "events", "all", "--requires-session")
    of_all = ("events", "all")
    there("rule", "create", *of_all, "big", "--sql", "amount > 10")
    there("rule", "update", *of_all, "big", "--sql", "a = 1", "--action", "SET b=2")
    conditions = ("--correlation", "label=x", "--property", "colour=red")
    there("rule", "create", *of_all, "red", *conditions)
    there("rule", "create", *of_all, "none", "--nothing")
    there("rule", "delete", *of_all, "$Default", "--yes")

    rules = {rule["name"]: rule for rule in there("rule", "list", *of_all).json}
    red = there("rule", "show", *of_all, "red").json
    (topic,) = there("topic", "list").json
    (subscription,) = there("subscription", "list", "events").json
    there("topic", "delete", "events", "--yes")

    assert set(rules) == {"big", "red", "none"}
    assert rules["big"]["filter"] == {"sql": "a = 1"}
    assert rules["big"]["action"] == "SET b=2"
    assert rules["none"]["filter"] == {"false": {}}
    assert red["filter"] == {
        "correlation": {"label": "x", "properties": {"colour": "red"}}
    }
    assert (topic["subscriptions"], topic["requires_duplicate_detection"]) == (1, True)
    assert subscription["requires_session"] is True


def test_refusals_say_what_to_do_in_one_line(there: Run, string: str) -> None:
    there("queue", "create", "taken")
    there("topic", "create", "news")

    for args, code, text in (
        (("queue", "create", "taken"), 1, "'taken' already exists"),
        (("queue", "create", "x", "--lock-duration", "PT1H"), 2, "--lock-duration "),
        (("queue", "create", "x", "--support-ordering"), 2, "--support-ordering "),
        (("queue", "update", "taken"), 2, "at least one setting"),
        (("queue", "update", "taken", "--requires-session"), 1, "--requires-session "),
        (("queue", "update", "none", "--max-delivery-count", "3"), 1, "'none' could"),
        (("queue", "show", "none"), 1, "'none' could not be found"),
        (("queue", "show", "news"), 1, "'queue news' could not be found"),
        (("topic", "delete", "taken", "--yes"), 1, "could not be found"),
        (("subscription", "list", "none"), 1, "'none' could not be found"),
        (("rule", "show", "news", "s", "r"), 1, "s/Rules/r' could not be found"),
        (("rule", "create", "news", "s", "r"), 1, "Subscriptions/s' could not be"),
        (("queue", "list", "--namespace", "contoso"), 2, "leave it out"),
    ):
        result = there(*args)
        assert (result.code, result.out) == (code, ""), (args, result)
        assert text in result.err, (args, result)
        assert result.err.count("\n") == 1, (args, result)


def test_the_string_for_administration_names_the_https_port(
    run: Run, server: Served, there: Run
) -> None:
    port = server.ready["namespaces"]["contoso"]["https_port"]
    string = f"Endpoint=sb://localhost:{port}/;{KEY}"
    ca_file = ("--ca-file", server.ready["ca_file"])
    there("queue", "create", "secure")

    shown = run(
        *("queue", "show", "secure", "--json", "--connection-string", string), *ca_file
    )
    untrusted = run("queue", "show", "secure", "--connection-string", string)
    wrong = run("queue", "list", "--connection-string", f"{string}x", *ca_file)

    assert shown.json["name"] == "secure"
    assert (untrusted.code, wrong.code) == (1, 1)
    assert "--ca-file" in untrusted.err
    assert "Check the key in --connection-string" in wrong.err
    assert "SAS_KEY" not in untrusted.err + wrong.err


def test_a_person_types_the_name_of_what_is_deleted(there: Run, string: str) -> None:
    there("queue", "create", "asked")
    place = ("--connection-string", string, "--json")

    refused = run_at_terminal("other", "queue", "delete", "asked", *place)
    done = run_at_terminal("asked", "queue", "delete", "asked", *place)

    assert (refused.code, done.code) == (2, 0)
    assert "Nothing was changed" in refused.err


@pytest.mark.parametrize("what", [("queue",), ("rule", "watched-topic", "s")])
def test_watch_looks_until_it_is_interrupted(
    there: Run, string: str, what: tuple[str, ...]
) -> None:
    kind, *above = what
    if above:
        there("topic", "create", above[0])
        there("subscription", "create", *above)
    watch = ("--watch", "--json", "--connection-string", string)
    args = (kind, "list", *above, *watch)
    with subprocess.Popen(
        [sys.executable, "-m", "twinbus.cli.main", *args],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        before = json.loads(process.stdout.readline())
        there(kind, "create", *above, "watched")
        names = {one["name"] for one in before}
        while "watched" not in names:
            names = {one["name"] for one in json.loads(process.stdout.readline())}
        process.send_signal(signal.SIGINT)
        process.stdout.read()

    assert "watched" not in {one["name"] for one in before}
    assert process.returncode == 0


def test_a_ready_token_administers_too(run: Run, server: Served, there: Run) -> None:
    from twinbus.core.sas import Secret, make_token

    port = server.ready["namespaces"]["contoso"]["https_port"]
    key = Secret("SAS_KEY_VALUE")
    name = "RootManageSharedAccessKey"
    token = make_token("sb://localhost/", name, key, 4_000_000_000)
    string = f"Endpoint=sb://localhost:{port}/;SharedAccessSignature={token}"

    made = run(
        *("queue", "create", "by-token", "--json", "--connection-string", string),
        *("--ca-file", Path(server.ready["ca_file"])),
    )

    assert made.json["name"] == "by-token"
