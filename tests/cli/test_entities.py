"""Entities from the command line: one path in, the same rules as everywhere."""

from __future__ import annotations

from pathlib import Path

from tests.cli.run import Run
from twinbus.server.setup.namespaces import open_namespace


def test_a_queue_is_created_shown_changed_listed_and_deleted(at: Run) -> None:
    made = at("queue", "create", "orders", "--lock-duration", "PT30S").json
    shown = at("queue", "show", "ORDERS").json
    changed = at("queue", "update", "orders", "--max-delivery-count", "3").json
    (listed,) = at("queue", "list").json
    deleted = at("queue", "delete", "orders", "--yes").json

    assert made["lock_duration"] == "PT30S"
    assert shown == made
    assert (changed["lock_duration"], changed["max_delivery_count"]) == ("PT30S", 3)
    assert listed["name"] == "orders"
    assert deleted == {"deleted": "orders"}
    assert at("queue", "list").json == []


def test_a_topic_has_subscriptions_and_they_have_rules(at: Run) -> None:
    at("topic", "create", "events", "--requires-duplicate-detection")
    at("subscription", "create", "events", "all", "--requires-session")
    at("rule", "create", "events", "all", "big", "--sql", "amount > 10")
    at(
        "rule",
        "update",
        "events",
        "all",
        "big",
        "--sql",
        "a = 1",
        "--action",
        "SET b=2",
    )
    conditions = ("--correlation", "label=x", "--property", "colour=red")
    at("rule", "create", "events", "all", "red", *conditions)
    at("rule", "create", "events", "all", "none", "--nothing")
    at("rule", "delete", "events", "all", "$Default", "--yes")

    rules = {rule["name"]: rule for rule in at("rule", "list", "events", "all").json}

    assert at("topic", "show", "events").json["subscriptions"] == 1
    assert at("subscription", "show", "events", "all").json["requires_session"] is True
    assert set(rules) == {"big", "red", "none"}
    assert rules["big"]["filter"] == {"sql": "a = 1"}
    assert rules["big"]["action"] == "SET b=2"
    assert rules["none"]["filter"] == {"false": {}}
    assert at("rule", "show", "events", "all", "red").json["filter"] == {
        "correlation": {"label": "x", "properties": {"colour": "red"}}
    }


def test_what_was_made_here_is_what_a_server_finds(at: Run, tmp_path: Path) -> None:
    at("queue", "create", "orders")

    namespace = open_namespace(tmp_path, "contoso").first

    assert [entity.name for entity in namespace.entities] == ["orders"]
    namespace.store.close()


def test_refusals_say_what_to_do_and_how_it_ended(at: Run) -> None:
    at("queue", "create", "orders")
    at("topic", "create", "events")

    for args, code, text in (
        (("queue", "create", "orders"), 1, "already exists"),
        (("queue", "create", "a?b"), 2, "not allowed"),
        (("queue", "create", "x", "--lock-duration", "30"), 2, "--lock-duration: "),
        (
            ("queue", "create", "x", "--lock-duration", "PT1H"),
            2,
            "--lock-duration must be between PT5S and PT5M",
        ),
        (("queue", "update", "orders"), 2, "at least one setting"),
        (("queue", "update", "orders", "--requires-session"), 2, "--requires-session"),
        (("queue", "list", "--watch"), 2, "--watch needs --connection-string"),
        (("queue", "list", "--url", "http://x"), 2, "--url needs"),
        (("queue", "show", "nothing"), 1, "could not be found"),
        (("queue", "show", "events"), 1, "could not be found"),
        (("topic", "delete", "orders"), 1, "could not be found"),
        (("rule", "create", "events", "s", "r", "--sql", "a >"), 2, "--sql 'a >': "),
        (("rule", "create", "events", "s", "r", "--action", "SET"), 2, "--action 'SE"),
        (("rule", "create", "events", "s", "r", "--sql", "a", "--nothing"), 2, "one"),
        (("rule", "create", "events", "s", "r", "--property", "a"), 2, "NAME=VALUE"),
    ):
        result = at(*args)
        assert (result.code, result.out) == (code, ""), args
        assert text in result.err, args
        assert result.err.count("\n") == 1, args


def test_a_refused_change_leaves_everything_as_it_was(at: Run) -> None:
    at("queue", "create", "orders")
    before = at("queue", "show", "orders").json

    at("queue", "update", "orders", "--forward-to", "nowhere")

    assert at("queue", "show", "orders").json == before


def test_people_get_columns(run: Run, tmp_path: Path) -> None:
    place = ("--data", tmp_path, "--namespace", "contoso")
    run("queue", "create", "orders", *place)

    listed = run("queue", "list", *place).out.splitlines()
    shown = run("queue", "show", "orders", *place).out.splitlines()

    assert listed[0].split() == [
        "name",
        "status",
        "active_messages",
        "dead_letter_messages",
        "size_bytes",
    ]
    assert listed[1].split() == ["orders", "Active", "0", "0", "0"]
    assert "lock_duration                            PT1M" in shown


def test_the_only_namespace_needs_no_name(run: Run, tmp_path: Path) -> None:
    run("queue", "create", "orders", "--data", tmp_path, "--namespace", "contoso")
    one = run("queue", "list", "--data", tmp_path, "--json")
    run("queue", "create", "orders", "--data", tmp_path, "--namespace", "fabrikam")
    two = run("queue", "list", "--data", tmp_path)

    assert len(one.json) == 1
    assert two.code == 2
    assert "contoso, fabrikam" in two.err
    other = run("queue", "list", "--data", tmp_path, "--namespace", "other")
    assert other.code == 2
    assert "has no namespace other, only contoso, fabrikam" in other.err


def test_a_folder_without_namespaces_is_not_made(run: Run, tmp_path: Path) -> None:
    result = run("queue", "list", "--data", tmp_path / "none")

    assert result.code == 2
    assert "has no namespaces" in result.err
    assert not (tmp_path / "none").exists()


def test_a_folder_that_a_server_has_is_refused(at: Run, tmp_path: Path) -> None:
    namespace = open_namespace(tmp_path, "contoso").first

    result = at("queue", "create", "orders")
    namespace.store.close()

    assert result.code == 2
    assert "in use by process" in result.err
    assert "--connection-string" in result.err


def test_help_shows_the_commands_and_the_exit_codes(run: Run) -> None:
    top = run("--help")
    queue = run("queue", "create", "--help")
    nothing = run("queue", "nix")

    assert top.code == queue.code == 0
    for part in ("serve", "queue", "topic", "subscription", "rule", "message", "keys"):
        assert f"\n  {part} " in top.out
    assert "Exit codes: 0 it worked" in top.out
    assert "--lock-duration" in queue.out
    assert "--requires-session" in queue.out
    assert nothing.code == 2
    assert run("--version").out.startswith("twinbus ")
