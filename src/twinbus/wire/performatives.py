"""The words of the AMQP protocol: frame bodies, and the types nested in them.

Owns their names, fields and defaults, in the order of the specification. All are plain
values: integers, text, bytes and maps, with `None` for a field that was not given and
has no default. `role` is False for a sender and True for a receiver. Knows nothing
about bytes; `performatives_codec.py` holds the wire type of each field.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SENDER = False
RECEIVER = True

# Settle modes of a sender and of a receiver.
SND_UNSETTLED = 0
SND_SETTLED = 1
SND_MIXED = 2
RCV_FIRST = 0
RCV_SECOND = 1

UINT_MAX = 0xFFFFFFFF

# A map with symbols as keys.
Fields = dict[Any, Any]


# -- errors ------------------------------------------------------------------------


@dataclass(slots=True)
class Error:
    condition: str = "amqp:internal-error"
    description: str | None = None
    info: Fields | None = None


# -- delivery states ---------------------------------------------------------------


@dataclass(slots=True)
class Received:
    section_number: int = 0
    section_offset: int = 0


@dataclass(slots=True)
class Accepted:
    pass


@dataclass(slots=True)
class Rejected:
    error: Error | None = None


@dataclass(slots=True)
class Released:
    pass


@dataclass(slots=True)
class Modified:
    delivery_failed: bool | None = None
    undeliverable_here: bool | None = None
    message_annotations: Fields | None = None


@dataclass(slots=True)
class Declared:
    txn_id: bytes = b""


Outcome = Accepted | Rejected | Released | Modified | Declared


@dataclass(slots=True)
class TransactionalState:
    txn_id: bytes = b""
    outcome: Outcome | None = None


DeliveryState = Outcome | Received | TransactionalState

# These have no fields, so one of each is enough.
ACCEPTED = Accepted()
RELEASED = Released()


# -- termini -----------------------------------------------------------------------


@dataclass(slots=True)
class Source:
    address: str | None = None
    durable: int = 0
    expiry_policy: str = "session-end"
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: Fields | None = None
    distribution_mode: str | None = None
    filter: Fields | None = None
    default_outcome: Outcome | None = None
    outcomes: list[str] | None = None
    capabilities: list[str] | None = None


@dataclass(slots=True)
class Target:
    address: str | None = None
    durable: int = 0
    expiry_policy: str = "session-end"
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: Fields | None = None
    capabilities: list[str] | None = None


@dataclass(slots=True)
class Coordinator:
    capabilities: list[str] | None = None


# -- transactions: the bodies of messages to a coordinator -------------------------


@dataclass(slots=True)
class Declare:
    global_id: bytes | None = None


@dataclass(slots=True)
class Discharge:
    txn_id: bytes = b""
    fail: bool = False


# -- frame bodies ------------------------------------------------------------------


@dataclass(slots=True)
class Open:
    container_id: str = ""
    hostname: str | None = None
    max_frame_size: int = UINT_MAX
    channel_max: int = 0xFFFF
    idle_time_out: int | None = None
    outgoing_locales: list[str] | None = None
    incoming_locales: list[str] | None = None
    offered_capabilities: list[str] | None = None
    desired_capabilities: list[str] | None = None
    properties: Fields | None = None


@dataclass(slots=True)
class Begin:
    remote_channel: int | None = None
    next_outgoing_id: int = 0
    incoming_window: int = 0
    outgoing_window: int = 0
    handle_max: int = UINT_MAX
    offered_capabilities: list[str] | None = None
    desired_capabilities: list[str] | None = None
    properties: Fields | None = None


@dataclass(slots=True)
class Attach:
    name: str = ""
    handle: int = 0
    role: bool = SENDER
    snd_settle_mode: int = SND_MIXED
    rcv_settle_mode: int = RCV_FIRST
    source: Source | None = None
    target: Target | Coordinator | None = None
    unsettled: Fields | None = None
    incomplete_unsettled: bool = False
    initial_delivery_count: int | None = None
    max_message_size: int | None = None
    offered_capabilities: list[str] | None = None
    desired_capabilities: list[str] | None = None
    properties: Fields | None = None


@dataclass(slots=True)
class Flow:
    next_incoming_id: int | None = None
    incoming_window: int = 0
    next_outgoing_id: int = 0
    outgoing_window: int = 0
    handle: int | None = None
    delivery_count: int | None = None
    link_credit: int | None = None
    available: int | None = None
    drain: bool = False
    echo: bool = False
    properties: Fields | None = None


@dataclass(slots=True)
class Transfer:
    handle: int = 0
    delivery_id: int | None = None
    delivery_tag: bytes | None = None
    message_format: int | None = None
    settled: bool = False
    more: bool = False
    rcv_settle_mode: int | None = None
    state: DeliveryState | None = None
    resume: bool = False
    aborted: bool = False
    batchable: bool = False


@dataclass(slots=True)
class Disposition:
    role: bool = RECEIVER
    first: int = 0
    last: int | None = None
    settled: bool = False
    state: DeliveryState | None = None
    batchable: bool = False


@dataclass(slots=True)
class Detach:
    handle: int = 0
    closed: bool = False
    error: Error | None = None


@dataclass(slots=True)
class End:
    error: Error | None = None


@dataclass(slots=True)
class Close:
    error: Error | None = None


# -- SASL frame bodies -------------------------------------------------------------


@dataclass(slots=True)
class SaslMechanisms:
    mechanisms: list[str] = field(default_factory=list)


@dataclass(slots=True)
class SaslInit:
    mechanism: str = ""
    initial_response: bytes | None = None
    hostname: str | None = None


@dataclass(slots=True)
class SaslChallenge:
    challenge: bytes = b""


@dataclass(slots=True)
class SaslResponse:
    response: bytes = b""


@dataclass(slots=True)
class SaslOutcome:
    code: int = 0
    additional_data: bytes | None = None


Performative = (
    Open | Begin | Attach | Flow | Transfer | Disposition | Detach | End | Close
)
SaslPerformative = (
    SaslMechanisms | SaslInit | SaslChallenge | SaslResponse | SaslOutcome
)
Body = Performative | SaslPerformative
Nested = Error | DeliveryState | Source | Target | Coordinator | Declare | Discharge
Composite = Body | Nested
