"""Keys from the command line, and secrets that stay out of the shell's history."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.run import Run
from twinbus.cli.secret import read_secret
from twinbus.core.sas import parse_connection_string
from twinbus.errors import ConfigError
from twinbus.server.supervisor import open_namespace


def test_the_root_key_is_shown_with_a_connection_string(at: Run) -> None:
    at("queue", "create", "orders")

    shown = at("keys", "show", "--host", "bus.example:5671").json

    parsed = parse_connection_string(shown["connection_string"])
    assert (parsed.host, parsed.port, parsed.dev) == ("bus.example", 5671, False)
    assert parsed.key is not None
    assert parsed.key.reveal() == shown["primary_key"]
    assert parsed.key_name == shown["name"] == "RootManageSharedAccessKey"


def test_keys_are_shown_while_a_server_has_the_folder(at: Run, tmp_path: Path) -> None:
    at("queue", "create", "orders")
    namespace = open_namespace(tmp_path, "contoso")

    shown = at("keys", "show")
    changed = at("keys", "regenerate")
    namespace.store.close()

    assert shown.code == 0
    assert changed.code == 2
    assert "in use by process" in changed.err


def test_a_rule_is_created_listed_changed_and_deleted(at: Run) -> None:
    made = at("keys", "create", "reader", "--right", "Listen", "--right", "send").json
    listed = at("keys", "list")
    changed = at("keys", "regenerate", "reader").json
    at("keys", "delete", "reader")

    assert made["rights"] == ["Send", "Listen"]
    assert [rule["name"] for rule in listed.json][1:] == ["reader"]
    assert made["primary_key"] not in listed.out
    assert changed["primary_key"] != made["primary_key"]
    assert changed["secondary_key"] == made["secondary_key"]
    assert len(at("keys", "list").json) == 1


def test_refusals_say_what_to_do(at: Run) -> None:
    at("queue", "create", "orders")

    for args, code in (
        (("keys", "show", "nobody"), 1),
        (("keys", "show", "--host", "a:b"), 2),
        (("keys", "create", "x", "--right", "Everything"), 2),
        (("keys", "delete", "RootManageSharedAccessKey"), 2),
    ):
        assert at(*args).code == code, args


def test_secrets_come_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("from a file\n")
    monkeypatch.setenv("A_SECRET", "from outside")

    assert read_secret(f"@{tmp_path}/secret").reveal() == "from a file"
    assert read_secret("env:A_SECRET").reveal() == "from outside"
    assert read_secret("plain").reveal() == "plain"


@pytest.mark.parametrize("given", ["@/no/such/file", "env:NO_SUCH_NAME", "@{empty}"])
def test_a_secret_that_is_not_there_is_refused(tmp_path: Path, given: str) -> None:
    (tmp_path / "empty").write_text("\n")

    with pytest.raises(ConfigError):
        read_secret(given.replace("{empty}", str(tmp_path / "empty")))
