"""A running namespace, asked over HTTP.

Owns the options that name it, the token of a request and what becomes of a refusal. It
speaks to the given host alone: no proxies, no redirects. Keys come back in answers, so
clear text is for loopback only. Knows nothing about what is asked for.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from twinbus.cli.sdk import CaFile, ClientFailed
from twinbus.cli.secret import read_secret
from twinbus.clock import SystemClock
from twinbus.core.sas import Secret, make_token, parse_connection_string
from twinbus.errors import ConfigError

if TYPE_CHECKING:
    from twinbus.core.sas import ConnectionString

# What `serve --dev` listens on unless it is told otherwise, as the emulator does.
DEV_HTTP_PORT = 5300

_SECONDS_MAX = 30.0
_TOKEN_SECONDS = 60

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
        help="Where the running server has HTTP, if not at the host and port of "
        "--connection-string: https://HOST:PORT.",
    ),
]

__all__ = ["CaFile", "Remote", "Running", "Url", "reach"]


@dataclass(frozen=True, slots=True)
class Remote:
    """A running namespace."""

    scheme: str
    host: str
    port: int
    token: Secret
    ca_file: Path | None

    @property
    def authority(self) -> str:
        """The host as a URL has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request; returns the JSON of its answer."""
        own = {"Authorization": self.token.reveal(), "Host": self.authority}
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
            raise ClientFailed(f"{self.authority}: {why}. {_hint(error)}") from error
        if response.status != 200:
            raise ClientFailed(_refusal(response.status, text))
        return json.loads(text)

    def _connect(self) -> http.client.HTTPConnection:
        if self.scheme == "http":
            return http.client.HTTPConnection(
                self.host, self.port, timeout=_SECONDS_MAX
            )
        cafile = None if self.ca_file is None else str(self.ca_file)
        context = ssl.create_default_context(cafile=cafile)
        return http.client.HTTPSConnection(
            self.host, self.port, timeout=_SECONDS_MAX, context=context
        )


def reach(given: str, url: str | None, ca_file: Path | None) -> Remote:
    """The server that a connection string and a URL name."""
    from twinbus.server.setup.listener import is_loopback

    parsed = parse_connection_string(read_secret(given).reveal())
    if ca_file is not None and not ca_file.exists():
        raise ConfigError(f"{ca_file} does not exist. Check --ca-file.")
    scheme, host, port = _address(parsed, url)
    if scheme == "http" and not is_loopback(host):
        raise ConfigError(
            f"{host} is not this machine, and http sends keys in clear text. Use https."
        )
    return Remote(scheme, host, port, _token(parsed, f"{scheme}://{host}/"), ca_file)


def _address(parsed: ConnectionString, url: str | None) -> tuple[str, str, int]:
    if url is None:
        if parsed.dev:
            return "http", parsed.host, DEV_HTTP_PORT
        return "https", parsed.host, parsed.port or 443
    try:
        found = urlsplit(url)
        port = found.port
    except ValueError:
        port, found = None, urlsplit("")
    if found.scheme not in ("http", "https") or not found.hostname:
        raise ConfigError(f"--url {url} must look like https://HOST:PORT.")
    return found.scheme, found.hostname, port or (443 if found.scheme[4:] else 80)


def _token(parsed: ConnectionString, resource: str) -> Secret:
    if parsed.token is not None:
        return parsed.token
    assert parsed.key_name is not None
    assert parsed.key is not None
    end_s = SystemClock().now_ms() // 1000 + _TOKEN_SECONDS
    return Secret(make_token(resource, parsed.key_name, parsed.key, end_s))


def _hint(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "Name the server's authority with --ca-file."
    return "Check that the server runs, and --url."


def _refusal(status: int, text: bytes) -> str:
    """Why a server refused; what is no server of ours says no more than a number."""
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"The server answered {status}. Check that --url is twinbus's HTTP port."
