"""`TWINBUS_KEY`: a key of one's own for `serve --dev`, also beyond loopback."""

from __future__ import annotations

import base64
import secrets
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.cli.run import Run, served
from tests.cli.test_serve import FREE, given
from twinbus.cli.server.serve import options_from
from twinbus.core.sas import DEV_KEY_TEXT, Secret
from twinbus.errors import ConfigError
from twinbus.server.setup.listener import check_plaintext

EVERY_ADDRESS = "0.0.0.0"


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    """A key in the environment, as `openssl rand -base64 32` makes it."""
    text = base64.b64encode(secrets.token_bytes(32)).decode()
    monkeypatch.setenv("TWINBUS_KEY", text)
    return text


def test_the_key_takes_the_place_of_the_documented_one(
    run: Run, tmp_path: Path, key: str
) -> None:
    config = tmp_path / "twinbus.yaml"
    config.write_text("namespaces: [{name: contoso, queues: [orders]}]")
    with served(tmp_path / "data", "--dev", *FREE, "--config", config) as server:
        string = server.ready["namespaces"]["contoso"]["connection_string"]
        shown = run("keys", "show", "--data", tmp_path / "data", "--json").json
        send = ("message", "send", "orders", "hello", "--connection-string")
        sent = run(*send, shown["connection_string"])
        refused = run(*send, string.replace(key, DEV_KEY_TEXT))

    assert f"SharedAccessKey={key};UseDevelopmentEmulator=true" in string
    assert shown["primary_key"] == key
    assert shown["connection_string"] == string
    assert (sent.code, refused.code) == (0, 1)
    assert "The key name or the signature" in refused.err


def test_strings_of_a_forwarded_port_say_clear_text(
    run: Run, tmp_path: Path, key: str
) -> None:
    with served(tmp_path, "--dev", *FREE):
        pass

    shown = run("keys", "show", "--data", tmp_path, "--json", "--host", "bus:5673").json

    assert shown["connection_string"].startswith("Endpoint=sb://bus:5673/;")
    assert f"{key};UseDevelopmentEmulator=true" in shown["connection_string"]


def test_any_host_name_leads_to_a_server_with_its_own_key(
    tmp_path: Path, key: str
) -> None:
    assert key
    with served(tmp_path, "--dev", *FREE, "--namespace", "contoso") as server:
        port = server.ready["namespaces"]["contoso"]["http_port"]
        connection = HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/health", headers={"Host": "twinbus:5300"})
        status = connection.getresponse().status
        connection.close()

    assert status == 200


def test_other_machines_are_served_with_a_key_alone() -> None:
    with pytest.raises(ConfigError, match=r"published key.*TWINBUS_KEY"):
        options_from(given(dev=True, host=EVERY_ADDRESS))

    asked = options_from(given(dev=True, host=EVERY_ADDRESS, dev_key=Secret("k" * 44)))

    check_plaintext(asked.listen)
    assert asked.listen.host == EVERY_ADDRESS
    assert asked.dev_key == Secret("k" * 44)


@pytest.mark.parametrize("text", ["", "short", "k" * 42, "k" * 257, f"{'k' * 44};a=b"])
def test_a_weak_or_unusable_key_is_one_line_and_code_two(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("TWINBUS_KEY", text)

    refused = run("serve", "--no-supervisor", "--dev", *FREE, "--data", tmp_path)

    assert (refused.code, refused.out) == (2, "")
    (line,) = refused.err.splitlines()
    assert line.startswith("twinbus: TWINBUS_KEY must have 43 to 256 letters, digits")
    assert f"has {len(text)} characters. Make one: openssl rand -base64 32" in line
    assert len(text) < 42 or text not in line
