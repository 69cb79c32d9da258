"""What surfaces count in the ledger: which account, which outcome, which sizes.

Owns how an entity, a claim and an error are named there. Counting happens where an
answer is given, after the commit and on the event loop, so that an outcome is known and
no lock is needed. An account is None on a server without a ledger.
"""

from __future__ import annotations

from collections.abc import Sequence

from twinbus import limits
from twinbus.core.names import EntityPath
from twinbus.core.rights import Claim
from twinbus.errors import BusyError, CallerError, PeerError, TwinbusError
from twinbus.ledger.counts import LedgerAccount, LedgerPlace
from twinbus.ledger.schema import BUSY, FAILED, PING, REFUSED, SEND, SERVER
from twinbus.server.broker.host import Host
from twinbus.wire.message.sections import PING_CONTENT_TYPE, Incoming


def account_of(
    host: Host, path: EntityPath, claim: Claim, connection: str
) -> LedgerAccount | None:
    """Where operations at a path are counted; None without a ledger."""
    namespace = host.namespace
    if namespace.ledger is None:
        return None
    # Names of entities have no case. A bearer token has no key.
    entity = f"{path.key}{path.sub_queue.value.lower()}".strip("/")
    key = claim.proof.name if claim.proof is not None else ""
    place = LedgerPlace(namespace.name, SERVER, entity, key, connection)
    return namespace.ledger.account(place)


def outcome_of(error: TwinbusError) -> str:
    """Who must act: the client later, the client otherwise, or the operator."""
    if isinstance(error, BusyError):
        return BUSY
    return REFUSED if isinstance(error, CallerError | PeerError) else FAILED


def is_ping(messages: Sequence[Incoming]) -> bool:
    """Whether a delivery is a ping, which is never stored and comes alone."""
    return messages[0].content_type == PING_CONTENT_TYPE


def count_sent(
    account: LedgerAccount,
    outcome: str,
    messages: Sequence[Incoming],
    size_bytes: int,
) -> None:
    """Count one delivery, of one message or a batch, that has so many bytes."""
    if is_ping(messages):
        account.calls(PING, outcome)
    elif len(messages) == 1:
        account.messages_in(SEND, outcome, [size_bytes])
    elif size_bytes <= limits.LEDGER_UNIT_BYTES:
        account.run_in(SEND, outcome, len(messages), size_bytes)
    else:
        sizes = [len(m.bare) + len(m.pairs) + len(m.delivery) for m in messages]
        account.messages_in(SEND, outcome, sizes)


__all__ = ["account_of", "count_sent", "is_ping", "outcome_of"]
