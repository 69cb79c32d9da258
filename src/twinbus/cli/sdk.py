"""The official client, as the `message` commands use it.

Owns the import (it is optional), how a connection string becomes a client, and how its
errors become ours. Rule: no error of the client shows a key.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus import limits
from twinbus.cli.secret import read_secret
from twinbus.cli.trust import CaFiles, one_file
from twinbus.client.transport.endpoint import endpoint_of
from twinbus.core.sas import parse_connection_string
from twinbus.errors import ConfigError, TwinbusError
from twinbus.pairing.sdk.arguments import official_keywords

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusClient

# What to do about errors of the network, which say only what happened.
_HINTS = {
    "Connection refused": "Start the server, or check the host and the port.",
    "Name or service not known": "Check the host in the connection string.",
    "name resolution": "Check the host in the connection string.",
    "No address associated": "Check the host in the connection string.",
    "unexpectedly closed": "Check that the port is the one for AMQP.",
    "CERTIFICATE_VERIFY_FAILED": "Name the server's authority with --ca-file.",
}
_MISSING = "could not be found"

ConnectionText = Annotated[
    str,
    typer.Option(
        "--connection-string",
        envvar="TWINBUS_CONNECTION_STRING",
        show_envvar=True,
        help="How to reach the namespace; @FILE and env:NAME keep it secret.",
    ),
]


class ClientFailed(TwinbusError):
    """The namespace refused, or could not be reached."""


def authority_of(given: str) -> str:
    """Host and port that a connection string names, for people."""
    from twinbus.client.transport.endpoint import Endpoint

    parsed = parse_connection_string(read_secret(given).reveal())
    return Endpoint(parsed.host, parsed.port).authority


@contextmanager
def connected(given: str, ca_file: CaFiles) -> Iterator[ServiceBusClient]:
    """A client for a connection string; its errors come out as `ClientFailed`."""
    try:
        from azure.servicebus import ServiceBusClient
        from azure.servicebus.exceptions import (
            ServiceBusAuthenticationError,
            ServiceBusAuthorizationError,
            ServiceBusError,
        )
    except ImportError:
        raise ConfigError(
            "This needs the official client: pip install azure-servicebus"
        ) from None
    secret = read_secret(given)
    parsed = parse_connection_string(secret.reveal())
    options: dict[str, Any] = {"retry_total": limits.CLI_RETRIES_MAX}
    trusted = one_file(ca_file)
    if trusted is not None:
        options["connection_verify"] = str(trusted)
    options = official_keywords(endpoint_of(parsed), options)
    try:
        text = secret.reveal()
        with ServiceBusClient.from_connection_string(text, **options) as client:
            yield client
    except (ServiceBusAuthenticationError, ServiceBusAuthorizationError) as error:
        # A missing entity is found with the claim: the client says that it was refused.
        why = _why(error)
        hint = "" if _MISSING in why else " Check the key in --connection-string."
        raise ClientFailed(f"{endpoint_of(parsed).authority}: {why}{hint}") from error
    except (ServiceBusError, ValueError, OSError) as error:
        raise ClientFailed(_why(error).replace(secret.reveal(), "***")) from error


def _why(error: Exception) -> str:
    """What happened, in one line; the client often keeps the reason inside."""
    inner = getattr(error, "inner_exception", None)
    texts = [" ".join(str(one).split()) for one in (error, inner) if one is not None]
    # The words of the server come last; what the client puts before them repeats them.
    _, _, said = texts[-1].partition("Description: ")
    why = said or " ".join(dict.fromkeys(filter(None, texts))) or type(error).__name__
    hints = [hint for sign, hint in _HINTS.items() if sign in why]
    return " ".join([f"{why.rstrip('.')}.", *hints])
