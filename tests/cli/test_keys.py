"""Keys from the command line, and secrets that stay out of the shell's history."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.run import Run, served
from twinbus.cli.secret import read_secret
from twinbus.core.sas import parse_connection_string
from twinbus.errors import ConfigError
from twinbus.server.setup.namespaces import open_namespace


def test_the_root_key_is_shown_with_a_connection_string(at: Run) -> None:
    at("queue", "create", "orders")

    shown = at("keys", "show", "--host", "bus.example:5671").json

    parsed = parse_connection_string(shown["connection_string"])
    assert (parsed.host, parsed.port, parsed.dev) == ("bus.example", 5671, False)
    assert parsed.key is not None
    assert parsed.key.reveal() == shown["primary_key"]
    assert parsed.key_name == shown["name"] == "RootManageSharedAccessKey"


def test_the_connection_string_alone_is_one_line(
    run: Run, at: Run, tmp_path: Path
) -> None:
    at("queue", "create", "orders")

    alone = run("keys", "show", "--string", "--data", tmp_path)
    with_json = at("keys", "show", "--string")

    assert alone.out == f"{at('keys', 'show').json['connection_string']}\n"
    assert with_json.code == 2
    assert with_json.err == "twinbus: Give --string or --json, not both.\n"


def test_keys_are_shown_while_a_server_has_the_folder(at: Run, tmp_path: Path) -> None:
    at("queue", "create", "orders")
    namespace = open_namespace(tmp_path, "contoso").first

    shown = at("keys", "show")
    changed = at("keys", "regenerate")
    namespace.store.close()

    assert shown.code == 0
    assert changed.code == 2
    assert "in use by process" in changed.err


def test_a_rule_is_created_listed_changed_and_deleted(at: Run) -> None:
    made = at("keys", "create", "reader", "--right", "Listen", "--right", "send").json
    listed = at("keys", "list")
    changed = at("keys", "regenerate", "reader", "--yes").json
    at("keys", "delete", "reader", "--yes")

    assert made["rights"] == ["Send", "Listen"]
    assert [rule["name"] for rule in listed.json][1:] == ["reader"]
    assert made["primary_key"] not in listed.out
    assert changed["primary_key"] != made["primary_key"]
    assert changed["secondary_key"] == made["secondary_key"]
    assert len(at("keys", "list").json) == 1


def test_refusals_say_what_to_do(at: Run) -> None:
    at("queue", "create", "orders")

    for args, code in (
        (("keys", "show", "unknown"), 1),
        (("keys", "show", "--host", "a:b"), 2),
        (("keys", "create", "x", "--right", "Everything"), 2),
        (("keys", "delete", "RootManageSharedAccessKey"), 2),
    ):
        assert at(*args).code == code, args


@pytest.mark.parametrize("host", ["", "a b", "a;b", "a:99999", "sb://a", "a/b", ":1"])
def test_a_host_that_cannot_be_used_changes_no_key(at: Run, host: str) -> None:
    before = at("keys", "create", "mine", "--right", "Send").json

    refused = at("keys", "regenerate", "mine", "--yes", "--host", host)

    assert (refused.code, refused.out) == (2, "")
    assert refused.err == f"twinbus: --host {host} must be HOST or HOST:PORT.\n"
    assert at("keys", "show", "mine").json == before


@pytest.mark.parametrize("dev", [True, False])
def test_both_strings_lead_to_the_server(run: Run, tmp_path: Path, dev: bool) -> None:
    kinds = ("amqp", "http", "https") if dev else ("amqps", "https")
    ports = [word for kind in kinds for word in (f"--{kind}-port", "0")]
    ports += ["--dev"] if dev else ["--host", "127.0.0.1"]
    data = tmp_path / "data"
    with (
        served(data, "--namespace", "contoso", *ports) as server,
        served(tmp_path / "other", "--namespace", "other", *TLS) as other,
    ):
        ready = server.ready["namespaces"]["contoso"]
        # The authorities of two servers at once, as a pair has them.
        files = (other.ready["ca_file"], server.ready["ca_file"])
        trust = [word for file in files for word in ("--ca-file", file)]
        shown = run("keys", "show", "--data", data, "--json").json
        for_messages = ("--connection-string", shown["connection_string"])
        for_entities = ("--connection-string", shown["admin_connection_string"])
        of_sender = run(
            *("keys", "create", "sender", "--right", "Send", "--json"),
            *for_messages,
            *trust,
        ).json
        made = run("queue", "create", "orders", *for_entities, *trust)
        sent = run("message", "send", "orders", "hello", *for_messages, *trust)
        sender = ("--connection-string", of_sender["connection_string"])
        by_sender = run("message", "send", "orders", "hello", *sender, *trust)
    afterwards = run("keys", "show", "--data", data, "--json").json
    elsewhere = run(
        *("keys", "show", "--data", data, "--json", "--host", "bus.example")
    ).json

    for name in ("connection_string", "admin_connection_string"):
        assert shown[name].startswith(ready[name].partition(";")[0])
    assert ("UseDevelopmentEmulator" in shown["connection_string"]) is dev
    assert f":{ready['https_port']}/" in shown["admin_connection_string"]
    assert "SharedAccessKey=" not in ready["connection_string"] or dev
    assert (made.code, sent.code, by_sender.code) == (0, 0, 0), (made, sent, by_sender)
    assert afterwards == shown
    port = ready["amqp_port"] or ready["amqps_port"]
    assert f"sb://bus.example:{port}/" in elsewhere["connection_string"]


def test_a_running_server_changes_its_keys_and_forgets_the_old(
    run: Run, tmp_path: Path
) -> None:
    with served(tmp_path, "--namespace", "contoso", *TLS) as server:
        port = server.ready["namespaces"]["contoso"]["amqps_port"]
        ca_file = server.ready["ca_file"]
        where = ("--data", tmp_path, "--host", f"localhost:{port}", "--json")
        first = run("keys", "show", *where).json
        secret = tmp_path / "secret"
        secret.write_text(first["connection_string"])
        to = ("--connection-string", f"@{secret}", "--ca-file", ca_file, "--json")
        host = ("--host", f"localhost:{port}")
        end = (*to, "--yes")

        guest = run("keys", "create", "a guest", "--right", "Send", *host, *to).json
        twice = run("keys", "create", "a guest", "--right", "Manage", *to)
        changed = run("keys", "regenerate", *host, *end).json
        old = run("keys", "regenerate", *end)
        secret.write_text(changed["connection_string"])
        deleted = run("keys", "delete", "a guest", *end)
        unknown = run("keys", "regenerate", "unknown", *end)
        untrusted = run("keys", "delete", "x", "--connection-string", f"@{secret}")
        listed = run("keys", "list", "--data", tmp_path, "--json")
        busy = run("keys", "regenerate", "--data", tmp_path)
        said = server.stop()

    assert guest["rights"] == ["Send"]
    assert twice.code == 1
    assert "already exists" in twice.err
    assert changed["primary_key"] != first["primary_key"]
    assert changed["secondary_key"] == first["secondary_key"]
    assert old.code == 1
    assert "signature" in old.err
    assert deleted.code == 0
    assert unknown.code == 1
    assert untrusted.code == 1
    assert "--ca-file" in untrusted.err
    assert [rule["name"] for rule in listed.json] == ["RootManageSharedAccessKey"]
    assert busy.code == 2
    for key in ("primary_key", "secondary_key"):
        for shown in (first, changed, guest):
            assert shown[key] not in said.err
    # The folder has what the server has told.
    after = run("keys", "show", *where).json
    assert after["primary_key"] == changed["primary_key"]


TLS = ("--host", "127.0.0.1", "--amqps-port", "0", "--https-port", "0")
KEY = "SharedAccessKeyName=n;SharedAccessKey=k"


@pytest.mark.parametrize(
    ("given", "code", "text"),
    [
        (("--connection-string", "Endpoint=sb://h/"), 2, "SharedAccessKey"),
        (
            ("--connection-string", f"Endpoint=sb://h/;{KEY}", "--url", "http://h:1"),
            2,
            "Use https",
        ),
        (
            ("--connection-string", f"Endpoint=sb://h/;{KEY}", "--url", "h:1"),
            2,
            "https://HOST:PORT",
        ),
        (
            ("--connection-string", f"Endpoint=sb://h/;{KEY}", "--url", "https://h:x"),
            2,
            "https://HOST:PORT",
        ),
        (
            ("--connection-string", f"Endpoint=sb://127.0.0.1:9/;{KEY}"),
            1,
            "Check that the server runs",
        ),
        (
            ("--connection-string", f"Endpoint=sb://h/;{KEY}", "--ca-file", "/none"),
            2,
            "--ca-file",
        ),
    ],
)
def test_a_server_that_cannot_be_asked_is_said(
    run: Run, given: tuple[str, ...], code: int, text: str
) -> None:
    refused = run("keys", "regenerate", *given)

    assert refused.code == code, refused
    assert text in refused.err


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
