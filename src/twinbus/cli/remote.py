"""A running namespace, asked over HTTP.

Owns the options that name it, the token of a request and what becomes of a refusal. A
connection string names an AMQP port, so the server there is asked where it has HTTP;
requests carry its instance, and another server at that port refuses them. A server that
does not say is left alone, unless --url names its HTTP port.
It speaks to the given host alone: no proxies, no redirects. Keys come back in answers,
so clear text is for loopback only. Knows nothing about what is asked for.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from twinbus import limits
from twinbus.cli.sdk import ClientFailed
from twinbus.cli.secret import read_secret
from twinbus.cli.trust import CaFile, CaFiles, one_file
from twinbus.client.transport.endpoint import HTTPS_PORT
from twinbus.clock import SystemClock
from twinbus.core.sas import Secret, make_token, parse_connection_string
from twinbus.errors import ConfigError, RemoteError, Unreachable

if TYPE_CHECKING:
    from twinbus.core.sas import ConnectionString


# Not from the environment: a variable that is meant for messages must not decide
# whether a folder or a server is changed.
Running = Annotated[
    str | None,
    typer.Option(
        "--connection-string",
        help="Ask a running server instead of the folder; @FILE and env:NAME keep it "
        "secret. Needs Manage.",
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        help="Where the running server has HTTP, instead of asking the one that "
        "--connection-string names: https://HOST:PORT, or http on loopback.",
    ),
]

__all__ = ["CaFile", "Remote", "Running", "Url", "reach", "reach_administration"]

# Part of the host of every namespace of Azure, which is asked nothing.
_AZURE = ".servicebus."


class _NotTold(ConfigError):
    """The server does not say where it has HTTP."""


class _NotAmqp(ClientFailed):
    """The port is not one of AMQP."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a namespace has HTTP."""

    scheme: str
    host: str
    port: int
    # The name of the namespace, if the server was asked.
    namespace: str | None = None
    # What every request carries.
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def authority(self) -> str:
        """The host as a URL has it."""
        return _authority(self.host, self.port)


@dataclass(frozen=True, slots=True)
class Remote:
    """A running namespace."""

    address: Address
    parsed: ConnectionString
    ca_file: Path | None

    @property
    def name(self) -> str:
        """What people call it: its own name, or else its host and port."""
        return self.address.namespace or self.address.authority

    def __str__(self) -> str:
        """Which it is and where, for people."""
        known, authority = self.address.namespace, self.address.authority
        return f"namespace '{known}' at {authority}" if known else authority

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request; returns the JSON of its answer."""
        status, text = self.fetch(method, path, body, headers)
        if status == http.client.PRECONDITION_FAILED:
            raise ClientFailed(
                f"{self.address.authority} is another server than --connection-string "
                "names. Say with --url where that one has HTTP. Nothing was changed."
            )
        if status != http.client.OK:
            raise ClientFailed(_refusal(status, text))
        return json.loads(text)

    def fetch(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Send a request; returns the status of its answer, and what is in it."""
        authority = self.address.authority
        resource = f"{self.address.scheme}://{self.address.host}/"
        token = _token(self.parsed, resource)
        own = {"Authorization": token.reveal(), "Host": authority}
        own.update(self.address.headers)
        data = b"" if body is None else json.dumps(body).encode()
        try:
            connection = self._connect()
            try:
                connection.request(method, path, data, {**own, **(headers or {})})
                response = connection.getresponse()
                text = response.read()
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
            raise ClientFailed(f"{authority}: {why}. {_hint(error)}") from error
        return response.status, text

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self.address.host, self.address.port
        if self.address.scheme == "http":
            return http.client.HTTPConnection(
                host, port, timeout=limits.CLI_REQUEST_SECONDS_MAX
            )
        return http.client.HTTPSConnection(
            host,
            port,
            timeout=limits.CLI_REQUEST_SECONDS_MAX,
            context=_tls(self.ca_file),
        )


def reach(given: str, url: str | None, ca_file: CaFiles) -> Remote:
    """The server that a connection string names, or a URL instead."""
    return _reach(given, url, ca_file, _told)


def reach_administration(given: str, url: str | None, ca_file: CaFiles) -> Remote:
    """The same for the official administration client, whose strings name HTTPS.

    What is not a server of ours, such as Azure, has HTTPS at that port or at 443.
    """
    return _reach(given, url, ca_file, _told_or_usual)


def _reach(
    given: str,
    url: str | None,
    ca_file: CaFiles,
    find: Callable[[ConnectionString, Path | None], Address],
) -> Remote:
    from twinbus.server.access.port import is_loopback

    parsed = parse_connection_string(read_secret(given).reveal())
    trusted = one_file(ca_file)
    address = find(parsed, trusted) if url is None else _read_url(url)
    if address.scheme == "http" and not is_loopback(address.host):
        raise ConfigError(
            f"{address.host} is not this machine, and http sends keys in clear text. "
            "Use https."
        )
    return Remote(address, parsed, trusted)


def _told_or_usual(parsed: ConnectionString, ca_file: Path | None) -> Address:
    usual = Address("https", parsed.host, parsed.port or HTTPS_PORT)
    if parsed.port is None and _AZURE in parsed.host:
        return usual
    try:
        return _told(parsed, ca_file)
    except (_NotTold, _NotAmqp):
        if parsed.dev:
            raise
        return usual


def _read_url(url: str) -> Address:
    try:
        found = urlsplit(url)
        port = found.port
    except ValueError:
        port, found = None, urlsplit("")
    if found.scheme not in ("http", "https") or not found.hostname:
        raise ConfigError(f"--url {url} must look like https://HOST:PORT.")
    usual = 443 if found.scheme == "https" else 80
    return Address(found.scheme, found.hostname, port or usual)


def _told(parsed: ConnectionString, ca_file: Path | None) -> Address:
    """Ask the server at the AMQP port of a connection string where it has HTTP."""
    from twinbus.client.credentials import credential_of
    from twinbus.client.sync.connection import Connection
    from twinbus.client.transport.endpoint import Endpoint, endpoint_of
    from twinbus.server.access import port as said

    way = None if parsed.dev else Endpoint("", tls=_tls(ca_file))
    endpoint = endpoint_of(parsed, way)
    where = _authority(*endpoint.target)
    try:
        with Connection(endpoint, credential_of(parsed)) as connection:
            connection.open(limits.CLI_NAMESPACE_SECONDS)
            name, told = connection.container_id, connection.properties
    except Unreachable as error:
        raise ClientFailed(f"{error.text} {_hint(error.__cause__)}") from error
    except RemoteError as error:
        raise _NotAmqp(
            f"{where} does not answer as an AMQP port does: {error.text} If it is the "
            "HTTP port, name it with --url."
        ) from error
    instance = str(told.get(said.INSTANCE_PROPERTY, ""))
    # A peer may say anything: only what can stand in a request is taken.
    is_known = name.isprintable() and instance.isascii() and instance.isalnum()
    for scheme in ("http", "https") if parsed.dev else ("https",):
        port = told.get(said.HTTP_PORT_PROPERTIES[scheme])
        if is_known and isinstance(port, int) and 0 < port <= limits.PORT_MAX:
            headers = {said.INSTANCE_HEADER: instance}
            return Address(scheme, parsed.host, int(port), name, headers)
    kind = "HTTP" if parsed.dev else "HTTPS"
    raise _NotTold(f"{where} does not say where it has {kind}. Name it with --url.")


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _tls(ca_file: Path | None) -> ssl.SSLContext:
    cafile = None if ca_file is None else str(ca_file)
    return ssl.create_default_context(cafile=cafile)


def _token(parsed: ConnectionString, resource: str) -> Secret:
    if parsed.token is not None:
        return parsed.token
    assert parsed.key_name is not None
    assert parsed.key is not None
    end_s = SystemClock().now().wall_ms // 1000 + limits.CLI_TOKEN_SECONDS
    return Secret(make_token(resource, parsed.key_name, parsed.key, end_s))


def _hint(error: BaseException | None) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "Name the server's authority with --ca-file."
    return "Check that the server runs, and --url."


def _refusal(status: int, text: bytes) -> str:
    """Why a server refused; what is no server of ours says no more than a number."""
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"The server answered {status}. Check that --url is twinbus's HTTP port."
