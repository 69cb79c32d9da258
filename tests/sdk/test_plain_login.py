"""Clients without `$cbs` log in with the name of a rule and its key (SASL PLAIN).

Two clients that know nothing of Azure: the C engine of Qpid Proton, and rhea.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.proton_engine import ProtonConnection, Tag, encode
from bench.proton_worker import receive, send
from bench.target import Target
from twinbus.testing.server_process import ServerProcess

JS = Path(__file__).parent / "js"
SENDER_KEY = "key of the queue's sender"
ALL_KEY = "key of all"


def rule(name: str, key: str, *rights: str) -> dict[str, Any]:
    return {"name": name, "rights": list(rights), "primary_key": key}


ENTITIES: dict[str, Any] = {
    "authorization_rules": [rule("all", ALL_KEY, "Send", "Listen")],
    "queues": [
        {
            "name": "orders",
            "authorization_rules": [rule("sender", SENDER_KEY, "Send")],
        },
        {"name": "other"},
    ],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("plain"), ENTITIES) as running:
        yield running


def proton(server: ServerProcess, name: str, key: str) -> ProtonConnection:
    target = Target("127.0.0.1", server.ports["amqp"], user=name, password=key)
    return ProtonConnection(target)


def rhea(server: ServerProcess, name: str, key: str, queue: str) -> dict[str, str]:
    command = ["node", "plain.mjs", str(server.ports["amqp"]), name, key, queue]
    done = subprocess.run(command, cwd=JS, check=True, capture_output=True, timeout=60)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_proton_sends_and_receives_with_a_key_of_the_namespace(
    server: ServerProcess,
) -> None:
    connection = proton(server, "all", ALL_KEY)
    sender = connection.link("other", sends=True)
    message = encode("1", b"by name and key")
    send(connection, sender, [(Tag(1, b"t"), message)])

    received = receive(connection, connection.link("other", sends=False), 1)

    assert b"by name and key" in received
    connection.close()


def test_rhea_sends_and_receives_with_a_key_of_the_namespace(
    server: ServerProcess,
) -> None:
    assert rhea(server, "all", ALL_KEY, "other") == {"body": "by name and key"}


def test_a_key_of_an_entity_gives_its_rights_there_only(server: ServerProcess) -> None:
    connection = proton(server, "sender", SENDER_KEY)
    sender = connection.link("orders", sends=True)
    send(connection, sender, [(Tag(1, b"t"), encode("1", b"x"))])
    connection.close()

    assert rhea(server, "sender", SENDER_KEY, "orders") == {
        "condition": "amqp:unauthorized-access"
    }
    assert rhea(server, "sender", SENDER_KEY, "other") == {
        "condition": "amqp:unauthorized-access"
    }


@pytest.mark.parametrize(
    ("name", "key"), [("all", "incorrect"), ("unknown", ALL_KEY), ("sender", ALL_KEY)]
)
def test_a_wrong_login_is_refused(server: ServerProcess, name: str, key: str) -> None:
    connection = proton(server, name, key)
    with pytest.raises(ConnectionError):
        connection.link("other", sends=True)
    connection.drop()

    assert rhea(server, name, key, "other") == {"condition": "amqp:unauthorized-access"}
    log = server.log.read_text()
    assert "The login was refused." in log
    assert key not in log
