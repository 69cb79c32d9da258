"""`twinbus serve` as other tools see it: one line, signals, exit codes."""

from __future__ import annotations

import json
import os
import signal
import socket
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from tests.cli.run import Run, served
from twinbus.cli.server.serve import ServeOptions, options_from
from twinbus.core.sas import DEV_KEY_NAME, DEV_KEY_TEXT, Secret, make_token
from twinbus.errors import ConfigError
from twinbus.server.broker.load.facets import Thresholds

FREE = ("--amqp-port", "0", "--http-port", "0")
CONFIG = """
namespaces:
  - name: contoso
    queues: [{name: orders}]
  - name: fabrikam
"""
EMULATOR = {
    "UserConfig": {
        "Namespaces": [{"Name": "sbemulatorns", "Queues": [{"Name": "queue.1"}]}],
        "Logging": {"Type": "File"},
    }
}


def given(**changes: object) -> ServeOptions:
    values: dict[str, object] = {
        "names": ["contoso"],
        "dev": False,
        "data": Path("data"),
        "host": None,
        "ports": {},
        "config": None,
        "allow_plaintext": False,
        "certificates": [],
        "private_keys": [],
        "tls_hosts": [],
        "message_rate": None,
    }
    return ServeOptions(**{**values, **changes})  # type: ignore[arg-type]


def test_thresholds_are_those_of_the_options_or_the_defaults() -> None:
    assert options_from(given()).throttle == Thresholds()
    asked = given(throttle=(0.1, 1000, 0.2, 3000))
    assert options_from(asked).throttle == Thresholds(0.1, 1000, 0.2, 3000)


def test_a_server_over_its_memory_limit_is_throttled(tmp_path: Path) -> None:
    with served(
        tmp_path, "--dev", "--namespace", "contoso", "--memory-limit", 1, *FREE
    ) as server:
        described = server.ready["namespaces"]["contoso"]
        url = f"http://127.0.0.1:{described['http_port']}/health"
        status = ""
        while status != "throttled":
            # An address that asks too often is told so (429), and asks again.
            with suppress(HTTPError), urllib.request.urlopen(url) as answer:
                status = json.load(answer)["status"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_line_when_ready_and_a_clean_end(tmp_path: Path, number: int) -> None:
    with served(tmp_path, "--dev", "--namespace", "contoso", *FREE) as server:
        described = server.ready["namespaces"]["contoso"]
        url = f"http://127.0.0.1:{described['http_port']}/health"
        with urllib.request.urlopen(url) as answer:
            health = json.load(answer)
        ended = server.stop(number)

    assert server.ready["ready"] is True
    assert health["status"] == "healthy"
    assert (ended.code, ended.out) == (0, "")
    assert "Traceback" not in ended.err


def test_what_was_made_is_there_after_a_restart(tmp_path: Path, at: Run) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    with served(tmp_path, "--dev", "--config", config, *FREE) as server:
        assert list(server.ready["namespaces"]) == ["contoso", "fabrikam"]
        server.stop()
    with served(tmp_path, "--dev", "--namespace", "contoso", *FREE) as server:
        server.stop()

    assert [queue["name"] for queue in at("queue", "list").json] == ["orders"]


def test_the_emulators_file_is_taken(tmp_path: Path) -> None:
    config = tmp_path / "Config.json"
    config.write_text(json.dumps(EMULATOR))

    with served(tmp_path, "--dev", "--config", config, *FREE) as server:
        assert list(server.ready["namespaces"]) == ["sbemulatorns"]


def test_the_emulators_key_is_in_the_ready_line_of_dev_alone(tmp_path: Path) -> None:
    tls = ("--host", "127.0.0.1", "--amqps-port", "0", "--https-port", "0")
    with served(tmp_path, "--namespace", "contoso", *tls) as server:
        described = server.ready["namespaces"]["contoso"]
        ended = server.stop()

    assert "SharedAccessKey=" not in described["connection_string"]
    assert described["amqp_port"] is described["http_port"] is None
    assert described["amqps_port"]
    assert described["https_port"]
    assert Path(server.ready["ca_file"]).exists()
    assert "SharedAccessKey" not in ended.err


def test_it_is_ready_within_a_second(tmp_path: Path) -> None:
    with served(tmp_path, "--dev", *FREE) as server:
        fields = Path(f"/proc/{server.process.pid}/stat").read_text().split()
        server.stop()

    # The time that it computes. How long it waits for a busy machine is not its own;
    # the bench reports the whole.
    ticks = int(fields[13]) + int(fields[14])
    assert ticks / os.sysconf("SC_CLK_TCK") < 1.0


def test_mistakes_are_one_line_and_code_two(run: Run, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("namespaces: [{name: contoso, queus: []}]")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        for args, text in (
            (("--dev", "--amqp-port", taken), f"{taken} is in use"),
            (("--dev", "--config", bad), "queues"),
            (("--dev", "--config", tmp_path / "none"), "cannot be read"),
            (("--dev", "--host", "0.0.0.0"), "leave --host or --dev out"),
            (("--host", "0.0.0.0", "--amqp-port", 0, "--namespace", "a"), "clear text"),
            (("--dev", "--namespace", "a/b"), "namespace name"),
            (("--dev", "--namespace", "a", "--namespace", "A"), "twice"),
            (("--dev", "--log-level", "loud"), "--log-level"),
            (("--dev", "--shards", 0), "--shards 0 is not possible"),
            (("--dev", "--shards", 65), "A namespace has 1 to 64."),
            ((), "--namespace NAME"),
        ):
            result = run(
                "serve",
                "--no-supervisor",
                "--data",
                tmp_path / "data",
                "--http-port",
                0,
                *args,
            )
            assert (result.code, result.out) == (2, ""), (args, result)
            assert text in result.err, args
            assert result.err.count("\n") == 1, args


def test_a_folder_in_use_is_one_line_and_code_two(run: Run, tmp_path: Path) -> None:
    with served(tmp_path, "--dev", "--namespace", "contoso", *FREE) as server:
        options = ("--dev", "--namespace", "contoso", "--data", tmp_path)
        result = run("serve", "--no-supervisor", *options, *FREE)

    assert result.code == 2
    assert f"in use by process {server.process.pid}" in result.err


def test_the_number_of_shards_is_passed_on() -> None:
    assert options_from(given(shards=4)).shards == 4
    assert options_from(given()).shards is None


def test_dev_is_plain_on_loopback() -> None:
    options = options_from(given(dev=True, names=[]))

    assert [config.name for config in options.namespaces] == ["sbemulatorns"]
    assert options.listen.host == "127.0.0.1"
    assert options.listen.first_ports == {"amqp": 5672, "http": 5300}


def test_dev_adds_tls_when_a_port_asks_for_it() -> None:
    options = options_from(given(dev=True, ports={"amqps": 5671, "http": None}))

    assert options.listen.first_ports == {"amqp": 5672, "http": 5300, "amqps": 5671}


def test_without_dev_everything_is_tls() -> None:
    assert options_from(given()).listen.first_ports == {"amqps": 5671, "https": 443}


def test_without_dev_given_ports_are_the_only_ones() -> None:
    options = options_from(given(ports={"amqps": 1, "https": None}))

    assert options.listen.first_ports == {"amqps": 1}


def test_each_certificate_needs_a_key() -> None:
    with pytest.raises(ConfigError, match="--private-key"):
        options_from(given(certificates=[Path("a.pem")]))


@pytest.mark.parametrize(
    "jwt",
    [
        ("https://issuer.example", None, None),
        (None, Path("jwks.json"), None),
        (None, None, "api://bus"),
    ],
)
def test_bearer_tokens_need_an_issuer_and_its_keys(jwt: tuple[object, ...]) -> None:
    with pytest.raises(ConfigError, match=r"--jwt-issuer.*--jwt-jwks"):
        options_from(given(jwt=jwt))


def test_bearer_tokens_are_for_service_bus_unless_it_is_said() -> None:
    issuer = ("i", Path("jwks.json"))

    plain = options_from(given(jwt=(*issuer, None))).jwt
    other = options_from(given(jwt=(*issuer, "api://bus"))).jwt

    assert plain is not None
    assert other is not None
    assert plain.audience == "https://servicebus.azure.net"
    assert other.audience == "api://bus"
    assert options_from(given()).jwt is None


def test_a_file_of_keys_that_is_not_there_is_one_line_and_code_two(
    run: Run, tmp_path: Path
) -> None:
    missing = tmp_path / "jwks.json"
    jwt = ("--jwt-issuer", "i", "--jwt-jwks", missing)

    result = run(
        "serve", "--no-supervisor", "--dev", "--data", tmp_path / "data", *FREE, *jwt
    )

    assert (result.code, result.out) == (2, "")
    assert f"{missing}: cannot be read" in result.err


@pytest.mark.parametrize(
    ("asked", "folder"),
    [
        (None, Path("data/ledger")),
        (Path("elsewhere"), Path("elsewhere")),
        (False, None),
    ],
)
def test_a_ledger_is_kept_in_the_data_folder_unless_told_otherwise(
    asked: Any, folder: Path | None
) -> None:
    options = options_from(given(ledger=asked, data=Path("data")))

    assert options.ledger == folder


def test_without_a_ledger_the_file_cannot_ask_for_one(tmp_path: Path) -> None:
    file = tmp_path / "namespaces.yaml"
    file.write_text("namespaces: [{name: contoso, ledger: counts}]")

    kept = options_from(given(names=[], config=file))
    none = options_from(given(names=[], config=file, ledger=False))

    assert [each.ledger for each in kept.namespaces] == [tmp_path / "counts"]
    assert [each.ledger for each in none.namespaces] == [False]


def test_a_ledger_does_not_share_the_folder_of_a_namespace() -> None:
    with pytest.raises(ConfigError, match="is the folder of a namespace"):
        options_from(given(names=["Ledger"], data=Path("data")))


@pytest.mark.parametrize(
    ("changes", "reserve_bytes"),
    [
        ({}, 128 << 20),
        ({"reserve": 0}, 0),
        ({"dev": True}, 0),
        ({"dev": True, "reserve": 5}, 5),
    ],
)
def test_a_reserve_is_kept_unless_it_is_for_development(
    changes: dict[str, object], reserve_bytes: int
) -> None:
    assert options_from(given(**changes)).reserve_bytes == reserve_bytes


def token() -> str:
    return make_token("http://x", DEV_KEY_NAME, Secret(DEV_KEY_TEXT), 1 << 33)


def test_the_log_says_whom_it_refused_and_why(run: Run, tmp_path: Path) -> None:
    ports = ("--amqp-port", "0", "--amqps-port", "0", "--http-port", "0")
    with served(tmp_path, "--dev", "--namespace", "contoso", *ports) as server:
        ready = server.ready["namespaces"]["contoso"]
        string = ready["connection_string"]
        there = ("--connection-string", string)
        wrong = ("--connection-string", string.replace("SAS_KEY", "PLANTED_KEY"))
        secure = f"sb://localhost:{ready['amqps_port']}/"
        untrusted = string.replace("UseDevelopmentEmulator=true;", "").replace(
            f"sb://127.0.0.1:{ready['amqp_port']}/", secure
        )
        run("message", "send", "nowhere", "hello", *there)
        over_http = urllib.request.Request(
            f"http://127.0.0.1:{ready['http_port']}/nowhere/over-http/messages",
            data=b"hello",
            headers={"Authorization": token()},
        )
        with pytest.raises(HTTPError, match="410"):
            urllib.request.urlopen(over_http)  # noqa: S310 - our own address
        run("message", "send", "nowhere", "hello", *wrong)
        run("namespace", "purge", "--all", "--yes", "--connection-string", untrusted)
        said = server.stop().err

    warnings = [line for line in said.splitlines() if "WARNING" in line]
    assert any("127.0.0.1 asked for 'nowhere', which" in line for line in warnings)
    assert any("asked for 'nowhere/over-http', which" in line for line in warnings)
    refused = (
        "refused a token of the key 'RootManageSharedAccessKey' for 'nowhere' from "
        "127.0.0.1: "
    )
    assert any(refused in line for line in warnings), said
    assert any("TLS handshake with 127.0.0.1 failed: " in line for line in warnings)
    assert "PLANTED_KEY" not in said
    assert "sig=" not in said
