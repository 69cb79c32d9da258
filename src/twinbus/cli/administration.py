"""The official administration client, for a namespace of ours or of Azure.

Owns how a connection string becomes that client, and how its errors become ours. The
port in the string may be that of AMQP, whose server says where it has HTTPS, or that of
HTTPS itself. A server with `--dev` may have HTTP alone, which the client does not
speak: its requests are then sent in clear text, to loopback only.
Rules: no error shows a key; requests go to the given host, past proxies. Knows nothing
about what is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from twinbus import limits
from twinbus.cli.remote import Remote, reach_administration
from twinbus.cli.sdk import ClientFailed
from twinbus.cli.trust import CaFiles
from twinbus.core.sas import Secret, format_connection_string
from twinbus.errors import ConfigError

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient

# What the service puts around the words that say what is wrong.
_DETAIL = re.compile(r"<Detail>(.*?)</Detail>", re.DOTALL)
_AROUND = re.compile(r"^SubCode=\d+\. [A-Z][\w ]*\. | TrackingId:.*$", re.DOTALL)
# Headers that hold a token: for the request, and for what an entity forwards to.
_TOKENS = (
    "Authorization",
    "ServiceBusSupplementaryAuthorization",
    "ServiceBusDlqSupplementaryAuthorization",
)
_HINTS = {
    "claim is empty or token is invalid": "Check the key in --connection-string.",
    "CERTIFICATE_VERIFY_FAILED": "Name the server's authority with --ca-file.",
    "refused": "Check that the server runs, and --url.",
}


@contextmanager
def administered(
    given: str, url: str | None, ca_file: CaFiles
) -> Iterator[tuple[ServiceBusAdministrationClient, Remote]]:
    """A client for a connection string; its errors come out as `ClientFailed`."""
    try:
        from azure.core.exceptions import AzureError
        from azure.servicebus.management import ServiceBusAdministrationClient
    except ImportError:
        raise ConfigError(
            "This needs the official client: pip install azure-servicebus"
        ) from None
    remote = reach_administration(given, url, ca_file)
    parsed, address = remote.parsed, remote.address
    # With a ready token the key is of no use: `_transport` puts the token in.
    text = format_connection_string(
        address.host,
        address.port,
        parsed.key_name or "none",
        parsed.key or Secret("none"),
        dev=False,
    )
    try:
        with ServiceBusAdministrationClient.from_connection_string(
            text, transport=_transport(remote), retry_total=limits.CLI_RETRIES_MAX
        ) as client:
            yield client, remote
    except AzureError as error:
        raise ClientFailed(why(error)) from error


def why(error: Exception) -> str:
    """What the service said, in one line, and what to do about it."""
    said = _DETAIL.search(str(error))
    text = said.group(1) if said else str(error)
    text = " ".join(_AROUND.sub("", text).split()) or type(error).__name__
    hints = [hint for sign, hint in _HINTS.items() if sign in text]
    return " ".join([f"{text.rstrip('.')}.", *hints[:1]])


def _transport(remote: Remote) -> Any:
    """How requests are sent: as the client makes them, but for what it cannot say."""
    from azure.core.pipeline.transport import RequestsTransport

    token = remote.parsed.token
    own = {} if token is None else dict.fromkeys(_TOKENS, token.reveal())

    class Transport(RequestsTransport):  # type: ignore[misc]
        def send(self, request: Any, **options: Any) -> Any:
            request.headers.update(remote.address.headers)
            for name in own.keys() & request.headers.keys():
                request.headers[name] = own[name]
            if remote.address.scheme == "http":
                request.url = request.url.replace("https://", "http://", 1)
            return super().send(request, **options)

    return Transport(
        connection_timeout=limits.CLI_REQUEST_SECONDS_MAX,
        read_timeout=limits.CLI_REQUEST_SECONDS_MAX,
        connection_verify=True if remote.ca_file is None else str(remote.ca_file),
        use_env_settings=False,
    )
