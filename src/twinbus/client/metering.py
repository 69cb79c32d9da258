"""What a client counts in a ledger: its sends, receives, polls and requests.

Owns how a namespace and a credential are named there, and how the answers of a server
become outcomes. What was never sent does not count: it cannot be billed. Sizes are
those of the encoded messages. Knows nothing about who sends, and why.
"""

from __future__ import annotations

import contextlib
from typing import Any

from twinbus.client.transport.endpoint import Endpoint
from twinbus.core import sas
from twinbus.errors import BusyError, RemoteError, Unauthorized
from twinbus.ledger.counts import LedgerAccount, LedgerCounts, LedgerPlace
from twinbus.ledger.schema import AMQP, AMQP_WS, BUSY, CLIENT, FAILED, REFUSED

# Usual ports, which a name leaves out.
_USUAL_PORTS = frozenset({5671, 443})
# Conditions that say that the service is not well.
_FAILURES = frozenset(
    {
        "amqp:internal-error",
        "amqp:connection:forced",
        "amqp:link:detach-forced",
        "com.microsoft:timeout",
    }
)


class ClientLedger:
    """Where the operations on one namespace are counted."""

    def __init__(
        self, counts: LedgerCounts, endpoint: Endpoint, credential: Any
    ) -> None:
        self.counts = counts
        self.namespace = namespace_of(endpoint)
        self._kind = AMQP_WS if endpoint.websocket else AMQP
        self._credential = credential

    def named(self, name: str) -> None:
        """The server has said what the namespace is called."""
        self.counts.names[self.namespace] = name

    def account(self, path: str, source: str = CLIENT) -> LedgerAccount:
        """For the operations on one entity."""
        entity = path.strip("/").lower()
        key = key_name(self._credential)
        place = LedgerPlace(self.namespace, source, entity, key, self._kind)
        return self.counts.account(place)


def namespace_of(endpoint: Endpoint) -> str:
    """A namespace by its host; with the port, if that is not the usual one."""
    port = endpoint.target[1]
    return endpoint.host if port in _USUAL_PORTS else f"{endpoint.host}:{port}"


def key_name(credential: Any) -> str:
    """The name of the key behind a credential; empty if it has none."""
    named = getattr(credential, "named_key", None)
    if named is not None:
        return str(named[0])
    signature = getattr(credential, "signature", None)
    if isinstance(signature, str):
        with contextlib.suppress(Unauthorized):
            return next(iter(sas.parse_token(signature).key_names()), "")
    return ""


def outcome_of(error: BaseException) -> str:
    """How a refused operation is counted."""
    condition = error.condition if isinstance(error, RemoteError) else ""
    if condition == BusyError.condition:
        return BUSY
    return FAILED if condition in _FAILURES or not condition else REFUSED
