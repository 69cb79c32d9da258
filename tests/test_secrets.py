"""Planted secrets are found nowhere but in the store.

A server runs with keys that can be recognised. Good and bad things are done to it, over
AMQP and HTTP, with the official client and by hand. Then everything that it said, wrote
or named is searched for the keys, for the tokens that were made with them, and for the
signatures in those.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import secrets
import ssl
import stat
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.exceptions import ServiceBusError

from tests.server.cbs import Cbs, RequestLinks, connect
from twinbus.core.sas import Secret, make_token
from twinbus.errors import ConfigError
from twinbus.ledger.schema import FILE_SUFFIX
from twinbus.server.broker.directory.keys import read_rules
from twinbus.server.setup.config import parse_config
from twinbus.store.sqlite.file import FILE_NAME

NEVER_S = 1 << 33
# Each request comes from another address, or too many failures would end the story.
ADDRESSES = (f"127.0.{number // 250}.{number % 250 + 2}" for number in count(1))
_STOP_SECONDS_MAX = 20


def planted() -> str:
    """A key that is found again, whatever stands around it."""
    return base64.b64encode(b"planted" + secrets.token_bytes(25)).decode()


@dataclass
class Findings:
    """What must not be found, and where it was looked for."""

    secrets: set[str] = field(default_factory=set)
    said: list[tuple[str, str]] = field(default_factory=list)

    def key(self) -> str:
        """A new key."""
        text = planted()
        self.secrets.add(text)
        return text

    def token(self, resource: str, name: str, key: str, end_s: int = NEVER_S) -> str:
        """A new token; it is as secret as the key, and so is what it is made of."""
        text = make_token(resource, name, Secret(key), end_s)
        signature = text.split("sig=")[1].split("&")[0]
        self.secrets |= {text, signature, urllib.parse.unquote(signature)}
        return text

    def hear(self, where: str, text: object) -> None:
        """Note what was said."""
        self.said.append((where, str(text)))

    def leaks(self) -> list[str]:
        """Where a secret was said; an encoded one counts as well."""
        forms = {urllib.parse.quote(each, safe="") for each in self.secrets}
        wanted = self.secrets | forms
        return [where for where, text in self.said if any(w in text for w in wanted)]


@dataclass(frozen=True)
class Server:
    """A server as a user starts it, with what it says going into files."""

    folder: Path
    ports: dict[str, int]
    ca_file: str

    @property
    def logs(self) -> list[Path]:
        return [self.folder / "stdout.log", self.folder / "stderr.log"]


@contextmanager
def serving(folder: Path, config: dict[str, Any]) -> Iterator[Server]:
    """Run a server with everything on, and its log at its most talkative."""
    file = folder / "namespaces.json"
    file.write_text(json.dumps(config))
    command = [sys.executable, "-m", "twinbus.cli.main", "serve"]
    command += ["--host", "127.0.0.1", "--data", str(folder / "data")]
    command += ["--config", str(file), "--log-level", "debug", "--no-supervisor"]
    for kind in ("amqp", "amqps", "http", "https"):
        command += [f"--{kind}-port", "0"]
    out, err = folder / "stdout.log", folder / "stderr.log"
    with (
        out.open("w") as stdout,
        err.open("w") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr) as process,
    ):
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        stdout.write(line)
        assert line, err.read_text()
        ready = json.loads(line)
        entry = ready["namespaces"]["contoso"]
        try:
            kinds = ("amqp", "amqps", "http", "https")
            ports = {kind: entry[f"{kind}_port"] for kind in kinds}
            yield Server(folder, ports, ready["ca_file"])
        finally:
            process.terminate()
            stdout.write(process.stdout.read().decode())
            assert process.wait(_STOP_SECONDS_MAX) == 0


def rule(name: str, key: str, *rights: str) -> dict[str, Any]:
    return {"name": name, "rights": list(rights), "primary_key": key}


# -- what is done ----------------------------------------------------------------------


def use_the_client(server: Server, found: Findings, keys: dict[str, str]) -> None:
    """The official client with a good key, and with bad ones."""
    for name, key in (*keys.items(), ("all", found.key()), ("unknown", found.key())):
        text = (
            f"Endpoint=sb://localhost/;SharedAccessKeyName={name};SharedAccessKey={key}"
        )
        client = ServiceBusClient.from_connection_string(
            text,
            connection_verify=server.ca_file,
            custom_endpoint_address=f"sb://localhost:{server.ports['amqps']}",
            transport_type=TransportType.Amqp,
            retry_total=0,
        )
        with client:
            try:
                sender = client.get_queue_sender("orders")
                sender.send_messages(ServiceBusMessage("hello"))
            except ServiceBusError as error:
                found.hear(f"the client, with {name}", f"{error} {error.__cause__}")


async def put_tokens(server: Server, found: Findings, keys: dict[str, str]) -> None:
    """Good, bad and broken tokens by hand."""
    audience = "sb://localhost/orders"
    good = found.token(audience, "all", keys["all"])
    tokens = {
        "good": good,
        "expired": found.token(audience, "all", keys["all"], 1),
        "elsewhere": found.token("sb://localhost/other", "all", keys["all"]),
        "forged": found.token(audience, "all", found.key()),
        "cut off": good[:-5],
        "twice": good + good,
        "a key": keys["all"],
        "a key as a name": found.token(audience, keys["all"], keys["all"]),
    }
    for name, token in tokens.items():
        client = await connect(server.ports["amqp"], source=next(ADDRESSES))
        cbs = await Cbs.open(client)
        found.hear(f"put-token, {name}", await cbs.put(audience, token))
        found.hear(f"put-token for {name}", await cbs.put(token, "x"))
        client.abort()
    client = await connect(server.ports["amqp"], source=next(ADDRESSES))
    await (await Cbs.open(client)).put(audience, good)
    links = await RequestLinks.open(
        client, await client.session(), "orders/$management"
    )
    # Something that the server cannot read, with a secret in it.
    answer = await links.ask({"operation": good}, {"key": keys["all"]})
    properties = answer.application_properties
    # It says which operation it does not know, to the client that asked alone.
    found.hear("management", str(properties).replace(good, "..."))
    links.sender.send(b"\x00\x53\x77" + good.encode(), b"broken")
    client.flush()
    client.abort()


def ask(server: Server, method: str, path: str, **given: str) -> tuple[int, str]:
    """A request over HTTPS; returns the status and all that came back."""
    trusted = ssl.create_default_context(cafile=server.ca_file)
    port = server.ports["https"]
    source = (next(ADDRESSES), 0)
    connection = http.client.HTTPSConnection(
        "localhost", port, timeout=10, source_address=source, context=trusted
    )
    try:
        body = given.pop("body", None)
        connection.request(method, path, body, given)
        answer = connection.getresponse()
        return answer.status, f"{answer.headers}\n{answer.read().decode()}"
    finally:
        connection.close()


def entry(inner: str) -> str:
    schema = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
    return (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
        f'<QueueDescription xmlns="{schema}" '
        f'xmlns:i="http://www.w3.org/2001/XMLSchema-instance">{inner}'
        "</QueueDescription></content></entry>"
    )


def use_http(server: Server, found: Findings, keys: dict[str, str]) -> None:
    """Requests with good and bad credentials, and with secrets where none belong."""
    root = f"https://localhost:{server.ports['https']}"
    good = found.token(root, "all", keys["all"])
    bad = {
        "forged": found.token(root, "all", found.key()),
        "expired": found.token(root, "all", keys["all"], 1),
        "narrow": found.token(root, "listens", keys["listens"]),
        "bearer": f"Bearer {found.key()}.{found.key()}.{found.key()}",
        "basic": f"Basic {found.key()}",
        "a key": keys["all"],
    }
    for name, token in bad.items():
        for method, path in (("GET", "/orders"), ("POST", "/orders/messages")):
            status, text = ask(server, method, path, body="x", Authorization=token)
            assert status in (400, 401, 403), (name, method, status)
            found.hear(f"{method} {path}, {name}", text)
    key = found.key()
    rules = (
        '<AuthorizationRules><AuthorizationRule i:type="SharedAccessAuthorizationRule">'
        "<Rights><AccessRights>{}</AccessRights></Rights><KeyName>k</KeyName>"
        f"<PrimaryKey>{key}</PrimaryKey></AuthorizationRule></AuthorizationRules>"
    )
    bodies = {
        "a wrong right": entry(rules.format("Fly")),
        "no end": entry(rules.format("Send"))[:-40],
        "a wrong number": entry(
            f"{rules.format('Send')}<MaxDeliveryCount>x</MaxDeliveryCount>"
        ),
        "no XML": json.dumps({"key": key}),
    }
    for name, body in bodies.items():
        status, text = ask(server, "PUT", "/made", body=body, Authorization=good)
        assert status == 400, name
        found.hear(f"PUT, {name}", text)
    made = entry(rules.format("Send"))
    status, _ = ask(server, "PUT", "/made", body=made, Authorization=good)
    # What is made is shown to its maker, keys included: that is what it is for.
    assert status == 201
    query = urllib.parse.quote(good, safe="")
    status, text = ask(server, "GET", f"/orders?token={query}")
    found.hear("GET with a token in the URL", text)
    for path in ("/health", "/metrics", "/nowhere"):
        found.hear(f"GET {path}", ask(server, "GET", path)[1])
        found.hear(f"GET {path}, good", ask(server, "GET", path, Authorization=good)[1])
    # With Manage it lists entities with their keys, as other lists do.
    found.hear("GET /", ask(server, "GET", "/")[1])
    found.hear("GET /, narrow", ask(server, "GET", "/", Authorization=bad["narrow"])[1])


def keep_up(server: Server, found: Findings, keys: dict[str, str]) -> None:
    """Rules made, their keys listed and exchanged, and requests that cannot be met."""
    root = f"https://localhost:{server.ports['https']}"
    good = found.token(root, "all", keys["all"])
    rule_path = "/$authorizationRules/late"

    def upkeep(method: str, path: str, body: object = None, **given: str) -> str:
        given = {"Authorization": good, **given}
        if body is not None:
            given["body"] = json.dumps(body)
        _, text = ask(server, method, path, **given)
        return text

    wanted = {"properties": {"rights": ["Send"]}}
    found.hear("a rule is made", upkeep("PUT", rule_path, wanted))
    # These two are there to show keys; what they show is secret from then on.
    for answer in (
        upkeep("POST", f"{rule_path}/listKeys"),
        upkeep("POST", f"{rule_path}/regenerateKeys", {"keyType": "PrimaryKey"}),
    ):
        shown = json.loads(answer.partition("\n\n")[2])
        found.secrets |= {shown["primaryKey"], shown["secondaryKey"]}
    key = found.key()
    # It says which right it does not know, to the client that asked alone.
    answer = upkeep("PUT", rule_path, {"properties": {"rights": [key]}})
    found.hear("a rule with a key as a right", answer.replace(key, "..."))
    bad = {
        "a key of one's own": {"properties": {"rights": ["Send"], "primaryKey": key}},
        "a key alone": key,
    }
    for name, body in bad.items():
        found.hear(f"a rule with {name}", upkeep("PUT", rule_path, body))
    kind = {"keyType": key}
    found.hear("no such key", upkeep("POST", f"{rule_path}/regenerateKeys", kind))
    forged = found.token(root, "all", found.key())
    for path in (rule_path, f"{rule_path}/listKeys", "/$purge", "/$reset"):
        for method in ("GET", "POST"):
            where = f"{method} {path}"
            found.hear(f"{where}, forged", upkeep(method, path, Authorization=forged))
    found.hear("the rules", upkeep("GET", "/$authorizationRules"))
    found.hear("the end of it", upkeep("DELETE", rule_path))


# -- what is searched ------------------------------------------------------------------


def search(server: Server, found: Findings) -> None:
    """Add everything that lies about: logs, names of files, files but the store's."""
    for log in server.logs:
        found.hear(log.name, log.read_text())
    for path in (server.folder / "data").rglob("*"):
        found.hear(f"the name of {path}", path)
        if path.is_file() and not path.name.startswith(FILE_NAME):
            found.hear(f"the file {path}", path.read_bytes().decode("latin-1"))
        if path.suffix == FILE_SUFFIX:
            rows = pq.ParquetFile(path).read().to_pylist()
            found.hear(f"the rows of {path}", rows)


def modes(folder: Path) -> dict[str, int]:
    """The permissions of all that is in a folder, and of the folder."""
    found = {".": stat.S_IMODE(folder.stat().st_mode)}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        found[name] = stat.S_IMODE(path.stat().st_mode)
    return found


def test_secrets_stay_in_the_store(tmp_path: Path) -> None:
    found = Findings()
    keys = {name: found.key() for name in ("all", "sends", "listens", "own")}
    config = {
        "namespaces": [
            {
                "name": "contoso",
                "queues": [
                    {
                        "name": "orders",
                        "authorization_rules": [rule("own", keys["own"], "Send")],
                    }
                ],
                "authorization_rules": [
                    rule("all", keys["all"], "Manage"),
                    rule("sends", keys["sends"], "Send"),
                    rule("listens", keys["listens"], "Listen"),
                ],
            }
        ]
    }

    with serving(tmp_path, config) as server:
        use_the_client(server, found, keys)
        asyncio.run(put_tokens(server, found, keys))
        use_http(server, found, keys)
        keep_up(server, found, keys)
        while_running = modes(tmp_path / "data")
        [root, *_] = read_rules(tmp_path / "data" / "contoso")
        found.secrets.add(root.primary_key.reveal())
    search(server, found)

    assert found.leaks() == []
    # What was looked for could have been found, and much was looked at.
    assert len(found.said) > 40
    store = (tmp_path / "data" / "contoso" / FILE_NAME).read_bytes()
    assert keys["all"].encode() in store
    assert "dropping" not in server.logs[1].read_text()
    for name, mode in {**while_running, **modes(tmp_path / "data")}.items():
        is_folder = (tmp_path / "data" / name).is_dir()
        is_public = name in ("tls/ca.pem", "tls/server.pem")
        assert is_public or mode == (0o700 if is_folder else 0o600), (name, oct(mode))


_RULES = "namespaces: [{{name: contoso, authorization_rules: [{}]}}]"


@pytest.mark.parametrize(
    "text",
    [
        "namespaces: [{name: contoso, authorization_rules: KEY}]",
        _RULES.format("KEY"),
        _RULES.format("[KEY]"),
        _RULES.format("{name: a, rights: [Send], primary_key: [KEY]}"),
        _RULES.format("{name: a, rights: [], primary_key: KEY}"),
        _RULES.format("{name: a, rights: Send, primary_key: KEY}"),
        _RULES.format("{name: a, primary_key: KEY}"),
        _RULES.format("{name: a, rights: [Send], primary_key: KEY, secondary_key: 1}"),
        _RULES.format("{name: a, rights: [Send], key: KEY}"),
        _RULES.format("{name: a, rights: [Send], primary_key: " + "KEY" * 20 + "}"),
        "namespaces: [{name: contoso, authorization_rules: [{primary_key: KEY, a",
        '{"namespaces": [{"authorization_rules": [{"primary_key": "KEY" "KEY"}]}]}',
    ],
)
def test_a_configuration_that_cannot_be_used_shows_no_key(text: str) -> None:
    key = planted()

    with pytest.raises(ConfigError) as refused:
        parse_config(text.replace("KEY", key), "namespaces.yaml")

    # Not even its beginning.
    assert key[:9] not in refused.value.text
