"""Commands that destroy something ask first, and change nothing without an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.run import Run, run_at_terminal, served
from tests.cli.test_namespace import fill
from twinbus.server.broker.directory import keys

PORTS = ("--amqp-port", 0, "--http-port", 0)


@pytest.fixture
def folder(at: Run, tmp_path: Path) -> Path:
    """A namespace with one of each; its queue has three messages."""
    fill(tmp_path)
    at("topic", "create", "events")
    at("subscription", "create", "events", "all")
    at("keys", "create", "guest", "--right", "Send")
    return tmp_path


# The command, what a person has to type, and what the question says.
COMMANDS = [
    ("queue delete orders", "orders", "the queue 'orders' with 3 messages"),
    ("topic delete Events", "events", "the topic 'events' with 0 messages"),
    ("subscription delete events all", "all", "'events/Subscriptions/all'"),
    ("rule delete events all $default", "$Default", "the rule '$Default' of"),
    ("keys delete guest", "guest", "the authorization rule 'guest'"),
    ("keys regenerate guest", "guest", "end the primary key of"),
    ("namespace purge orders", "orders", "3 messages of 'orders'"),
    ("namespace purge --all", "contoso", "3 messages of all entities"),
    ("namespace reset", "contoso", "all 3 entities with 3 messages"),
]


def state(at: Run, folder: Path) -> list[object]:
    """All that the commands could change."""
    shown = [
        at("queue", "list"),
        at("topic", "list"),
        at("subscription", "list", "events"),
        at("rule", "list", "events", "all"),
    ]
    return [[one.out for one in shown], keys.read_rules(folder / "contoso")]


@pytest.mark.parametrize(("command", "name", "says"), COMMANDS)
def test_without_a_terminal_only_yes_destroys(
    at: Run, folder: Path, command: str, name: str, says: str
) -> None:
    before = state(at, folder)

    refused = at(*command.split())
    untouched = state(at, folder)
    done = at(*command.split(), "--yes")

    assert refused.code == 2
    assert says in refused.err
    assert f"namespace 'contoso' in the folder {folder}" in refused.err
    assert "needs --yes" in refused.err
    assert (refused.out, refused.err.count("\n")) == ("", 1)
    assert untouched == before
    assert (done.code, done.err) == (0, "")
    assert state(at, folder) != before


# Three programs at a terminal for each command: the rest is for the campaigns.
AT_TERMINAL = [
    pytest.param(*each, marks=[pytest.mark.campaign] if number % 3 else [])
    for number, each in enumerate(COMMANDS)
]


@pytest.mark.parametrize(("command", "name", "says"), AT_TERMINAL)
def test_at_a_terminal_the_name_is_typed(
    at: Run, folder: Path, command: str, name: str, says: str
) -> None:
    before = state(at, folder)
    options = (*command.split(), "--data", folder, "--json")

    refused = run_at_terminal(f"{name}x", *options)
    silent = run_at_terminal("", *options)
    untouched = state(at, folder)
    done = run_at_terminal(name, *options)

    assert (refused.code, silent.code) == (2, 2)
    assert f"The answer was not {name}. Nothing was changed." in refused.err
    assert untouched == before
    assert says in done.err
    assert f"Type {name} to confirm: " in done.err
    assert done.json
    assert state(at, folder) != before


def test_a_running_server_is_named_before_it_is_emptied(
    run: Run, tmp_path: Path
) -> None:
    fill(tmp_path)
    with served(tmp_path, "--dev", "--namespace", "contoso", *PORTS) as server:
        ready = server.ready["namespaces"]["contoso"]
        bus = ("--connection-string", ready["connection_string"])
        url = ("--url", f"http://127.0.0.1:{ready['http_port']}")
        place = f"127.0.0.1:{ready['http_port']}"

        by_name = run("namespace", "reset", *bus)
        by_url = run("namespace", "reset", *bus, *url)
        message = run("message", "purge", "orders", *bus)
        wrong = run_at_terminal("backup", "namespace", "purge", "--all", *bus)
        purge_all = ("namespace", "purge", "--all", *bus, "--json")
        done = run_at_terminal("contoso", *purge_all)
        typed_url = run_at_terminal(place, "namespace", "reset", *bus, *url)
        purged = run_at_terminal("orders", "message", "purge", "orders", *bus)

    assert (by_name.code, by_url.code, message.code) == (2, 2, 2)
    assert f"of namespace 'contoso' at {place}." in by_name.err
    assert f"entities and messages of {place}." in by_url.err
    assert f"'orders' at 127.0.0.1:{ready['amqp_port']}." in message.err
    assert (wrong.code, typed_url.code) == (2, 0)
    assert done.json == {"purged": 3}
    # The reset has deleted the queue, which the configuration does not have.
    assert purged.code == 1
