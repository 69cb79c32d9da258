"""Purge and reset from the command line, on a folder that no server has."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.run import Run, served
from twinbus.clock import Now
from twinbus.core.entity import QueueDescription
from twinbus.server.broker.directory import keys
from twinbus.server.setup.namespaces import open_namespace
from twinbus.store.base import DEAD_LETTER
from twinbus.store.records import Record


def fill(folder: Path) -> None:
    """A queue with two messages and a dead letter."""
    namespace = open_namespace(folder, "contoso").first
    store = namespace.store
    store.begin()
    keys.ensure_root(store, 1000)
    queue = namespace.entities.create(QueueDescription("orders"), 1000)
    records = [Record(b"", b"message")]
    store.append(queue.id, records * 2, Now.at(1000))
    store.append(queue.id + DEAD_LETTER, records, Now.at(1000))
    store.commit()
    store.close()


def test_a_purge_empties_an_entity_and_its_dead_letters(
    at: Run, tmp_path: Path
) -> None:
    fill(tmp_path)

    dead = at("namespace", "purge", "orders/$DeadLetterQueue", "--yes").json
    rest = at("namespace", "purge", "Orders", "--yes").json

    assert (dead, rest) == ({"purged": 1}, {"purged": 2})
    shown = at("queue", "show", "orders").json
    assert (shown["active_messages"], shown["dead_letter_messages"]) == (0, 0)


def test_what_is_not_there_cannot_be_purged(at: Run, tmp_path: Path) -> None:
    fill(tmp_path)

    refused = at("namespace", "purge", "nowhere")

    assert refused.code == 1
    assert "'nowhere' could not be found" in refused.err


def test_a_reset_keeps_keys_and_what_the_file_names(at: Run, tmp_path: Path) -> None:
    fill(tmp_path)
    before = keys.read_rules(tmp_path / "contoso")
    config = tmp_path / "entities.json"
    wanted = {"name": "Contoso", "queues": [{"name": "a"}, {"name": "orders"}]}
    config.write_text(json.dumps({"namespaces": [wanted]}))

    done = at("namespace", "reset", "--config", config, "--yes").json

    assert done == {"deleted": 1, "made": 2}
    assert at("queue", "show", "orders").json["active_messages"] == 0
    assert keys.read_rules(tmp_path / "contoso") == before
    assert at("namespace", "reset", "--yes").json == {"deleted": 2, "made": 0}


def test_a_file_about_another_namespace_changes_nothing(
    at: Run, tmp_path: Path
) -> None:
    fill(tmp_path)
    config = tmp_path / "entities.json"
    config.write_text(json.dumps({"namespaces": [{"name": "fabrikam"}]}))

    refused = at("namespace", "reset", "--config", config)

    assert refused.code == 2
    assert "says nothing about the namespace 'contoso'" in refused.err
    assert at("queue", "show", "orders").json["active_messages"] == 2


def test_a_served_namespace_is_left_alone(at: Run, tmp_path: Path) -> None:
    fill(tmp_path)
    options = ("--dev", "--namespace", "contoso", "--amqp-port", 0, "--http-port", 0)
    with served(tmp_path, *options):
        refused = at("namespace", "reset")

    assert refused.code == 2
    assert "is in use by process" in refused.err


def test_a_running_server_is_purged_and_reset(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "entities.json"
    queues = [{"name": "orders"}, {"name": "area/nested"}]
    config.write_text(
        json.dumps({"namespaces": [{"name": "contoso", "queues": queues}]})
    )
    ports = ("--amqp-port", "0", "--http-port", "0")
    with served(tmp_path, "--dev", "--config", config, *ports) as server:
        ready = server.ready["namespaces"]["contoso"]
        bus = ("--connection-string", ready["connection_string"], "--json")
        here = (*bus, "--yes")
        at_url = ("--url", f"http://127.0.0.1:{ready['http_port']}")
        for entity, count in (("orders", 3), ("area/nested", 2)):
            run("message", "send", entity, "hello", "--count", count, *bus)

        one = run("namespace", "purge", "orders", *here)
        rest = run("namespace", "purge", "--all", *here, *at_url)
        nothing = run("namespace", "purge", *here)
        both = run("namespace", "purge", "orders", "--all", *here)
        slash = run("namespace", "purge", "/", *here)
        missing = run("namespace", "purge", "nowhere", *here)
        reset = run("namespace", "reset", *here)
        again = run("namespace", "reset", "--config", config, *here)
        said = server.stop()

    assert (one.json, rest.json) == ({"purged": 3}, {"purged": 2})
    assert (nothing.code, both.code, slash.code, again.code) == (2, 2, 2, 2)
    assert missing.code == 1
    assert "'nowhere' could not be found" in missing.err
    assert reset.json == {"deleted": 2, "made": 2}
    assert said.code == 0
