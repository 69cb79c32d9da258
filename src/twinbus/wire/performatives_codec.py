"""Performatives and the types nested in them: bytes to dataclasses and back.

Owns the wire type of every field, and which fields are mandatory, as a table at the
end. Decoding is strict: an unknown descriptor, a wrong type, a missing mandatory field
or a field too many is a `DecodeError`. Encoding writes every field, null where it is
empty, because some SDKs look fields up by index without counting them first.

Knows nothing about frames, nor about which performative may come when.
"""

from __future__ import annotations

import struct
from dataclasses import MISSING, fields
from typing import Any

from twinbus.errors import DecodeError
from twinbus.limits import CODEC_DEPTH_MAX, PERFORMATIVE_NODES_MAX
from twinbus.wire import encoder
from twinbus.wire.codec import Allowance, Buffer, read_extent_8, read_extent_32
from twinbus.wire.field_kinds import (
    BINARY,
    BOOLEAN,
    FIELDS,
    MAP,
    STRING,
    SYMBOL,
    SYMBOLS,
    TAG,
    UBYTE,
    UINT,
    ULONG,
    USHORT,
    FieldKind,
    read_symbol,
)
from twinbus.wire.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Composite,
    Coordinator,
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Performative,
    Received,
    Rejected,
    Released,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslPerformative,
    SaslResponse,
    Source,
    Target,
    TransactionalState,
    Transfer,
)

_UINT64 = struct.Struct(">Q").unpack_from


class Spec:
    """One composite type: its descriptor, its class and its fields in order."""

    __slots__ = ("cls", "code", "defaults", "mandatory", "names", "reads", "writes")

    def __init__(self, code: int, cls: type, kinds: dict[str, FieldKind]) -> None:
        names = [item.name for item in fields(cls)]
        assert names == list(kinds), f"the table and {cls.__name__} differ"
        self.code = code
        self.cls = cls
        self.names = names
        self.reads = [kind.read for kind in kinds.values()]
        self.writes = [kind.write for kind in kinds.values()]
        self.mandatory = [kind.mandatory for kind in kinds.values()]
        # A field with a factory is mandatory, so that its default is never used.
        self.defaults = [
            None if item.default is MISSING else item.default for item in fields(cls)
        ]


# -- decoding ----------------------------------------------------------------------


def decode_performative(buffer: Buffer) -> tuple[Performative, int]:
    """Decode the performative of an AMQP frame; return it and where it ends."""
    return _decode(buffer, 0, _PERFORMATIVES)


def decode_sasl(buffer: Buffer) -> tuple[SaslPerformative, int]:
    """Decode the performative of a SASL frame; return it and where it ends."""
    return _decode(buffer, 0, _SASL)


def decode_composite(buffer: Buffer, position: int = 0) -> tuple[Composite, int]:
    """Decode a performative, state, terminus, error, declare or discharge."""
    return _decode(buffer, position, SPECS)


def _decode(buffer: Buffer, position: int, specs: dict[int, Spec]) -> tuple[Any, int]:
    allowance = Allowance(buffer, position, CODEC_DEPTH_MAX, PERFORMATIVE_NODES_MAX)
    try:
        return _read_composite(buffer, position, allowance, specs)
    except (IndexError, struct.error):
        raise DecodeError("A performative ends too early.") from None


def _read_composite(
    buffer: Buffer, p: int, allowance: Allowance, specs: dict[int, Spec]
) -> tuple[Any, int]:
    code, p = _read_descriptor(buffer, p, allowance)
    spec = specs.get(code)
    if spec is None:
        raise DecodeError("A described value is not known here.")
    allowance.charge(2)
    allowance.descend()
    constructor = buffer[p]
    if constructor == 0xC0:
        count, p, end = read_extent_8(buffer, p + 1)
    elif constructor == 0xD0:
        count, p, end = read_extent_32(buffer, p + 1)
    elif constructor == 0x45:
        count, p, end = 0, p + 1, p + 1
    else:
        raise DecodeError("A performative is not a list.")
    value = _read_fields(buffer, (count, p, end), allowance, spec)
    allowance.depth += 1
    return value, end


def _read_fields(
    buffer: Buffer, extent: tuple[int, int, int], allowance: Allowance, spec: Spec
) -> Any:
    count, p, end = extent
    if count > len(spec.reads):
        raise DecodeError("A performative has too many fields.")
    allowance.charge(count)
    allowance.descend()
    values = spec.defaults.copy()
    reads = spec.reads
    mandatory = spec.mandatory
    for index in range(count):
        if buffer[p] != 0x40:
            values[index], p = reads[index](buffer, p, allowance)
        elif mandatory[index]:
            raise DecodeError("A mandatory field is null.")
        else:
            p += 1
    if p != end:
        raise DecodeError("A performative does not end where its size says.")
    if True in mandatory[count:]:
        raise DecodeError("A mandatory field is missing.")
    allowance.depth += 1
    return spec.cls(*values)


def _read_descriptor(buffer: Buffer, p: int, allowance: Allowance) -> tuple[int, int]:
    if buffer[p] != 0x00:
        raise DecodeError("A described value was expected.")
    code = buffer[p + 1]
    if code == 0x53:
        return buffer[p + 2], p + 3
    if code == 0x80:
        return int(_UINT64(buffer, p + 2)[0]), p + 10
    if code in (0xA3, 0xB3):
        name, p = read_symbol(buffer, p + 1, allowance)
        return CODES.get(name, -1), p
    raise DecodeError("A descriptor is neither ulong nor symbol.")


def _read_error(buffer: Buffer, p: int, allowance: Allowance) -> tuple[Error, int]:
    return _read_composite(buffer, p, allowance, _ERRORS)


def _read_source(buffer: Buffer, p: int, allowance: Allowance) -> tuple[Source, int]:
    return _read_composite(buffer, p, allowance, _SOURCES)


def _read_target(
    buffer: Buffer, p: int, allowance: Allowance
) -> tuple[Target | Coordinator, int]:
    return _read_composite(buffer, p, allowance, _TARGETS)


def _read_outcome(buffer: Buffer, p: int, allowance: Allowance) -> tuple[Any, int]:
    return _read_composite(buffer, p, allowance, _OUTCOMES)


def _read_state(buffer: Buffer, p: int, allowance: Allowance) -> tuple[Any, int]:
    return _read_composite(buffer, p, allowance, _STATES)


# -- encoding ----------------------------------------------------------------------


def encode_composite(value: Composite) -> bytes:
    """Encode a performative, state, terminus or error with all its fields."""
    out = bytearray()
    encode_composite_into(out, value)
    return bytes(out)


def encode_composite_into(out: bytearray, value: Composite) -> None:
    """Append an encoded composite; `ValueError` when a mandatory field is None."""
    spec = _SPECS_BY_CLASS[type(value)]
    out += bytes((0x00, 0x53, spec.code))
    if not spec.names:
        out.append(0x45)
        return
    body = bytearray()
    for name, write, mandatory in zip(
        spec.names, spec.writes, spec.mandatory, strict=True
    ):
        item = getattr(value, name)
        if item is not None:
            write(body, item)
        elif mandatory:
            raise ValueError(f"{name} is mandatory in {spec.cls.__name__}")
        else:
            body.append(0x40)
    encoder.write_compound(out, 0xC0, len(spec.names), body)


# -- tables ------------------------------------------------------------------------

_ERROR = FieldKind(_read_error, encode_composite_into)
_SOURCE = FieldKind(_read_source, encode_composite_into)
_TARGET = FieldKind(_read_target, encode_composite_into)
_OUTCOME = FieldKind(_read_outcome, encode_composite_into)
_STATE = FieldKind(_read_state, encode_composite_into)


SPECS: dict[int, Spec] = {}
CODES: dict[str, int] = {}
_SPECS_BY_CLASS: dict[type, Spec] = {}


def _specify(descriptor: int, symbol: str, cls: type, **kinds: FieldKind) -> None:
    spec = Spec(descriptor, cls, kinds)
    SPECS[descriptor] = spec
    CODES[symbol] = descriptor
    _SPECS_BY_CLASS[cls] = spec


_specify(
    0x10,
    "amqp:open:list",
    Open,
    container_id=STRING.required(),
    hostname=STRING,
    max_frame_size=UINT,
    channel_max=USHORT,
    idle_time_out=UINT,
    outgoing_locales=SYMBOLS,
    incoming_locales=SYMBOLS,
    offered_capabilities=SYMBOLS,
    desired_capabilities=SYMBOLS,
    properties=FIELDS,
)
_specify(
    0x11,
    "amqp:begin:list",
    Begin,
    remote_channel=USHORT,
    next_outgoing_id=UINT.required(),
    incoming_window=UINT.required(),
    outgoing_window=UINT.required(),
    handle_max=UINT,
    offered_capabilities=SYMBOLS,
    desired_capabilities=SYMBOLS,
    properties=FIELDS,
)
_specify(
    0x12,
    "amqp:attach:list",
    Attach,
    name=STRING.required(),
    handle=UINT.required(),
    role=BOOLEAN.required(),
    snd_settle_mode=UBYTE,
    rcv_settle_mode=UBYTE,
    source=_SOURCE,
    target=_TARGET,
    unsettled=MAP,
    incomplete_unsettled=BOOLEAN,
    initial_delivery_count=UINT,
    max_message_size=ULONG,
    offered_capabilities=SYMBOLS,
    desired_capabilities=SYMBOLS,
    properties=FIELDS,
)
_specify(
    0x13,
    "amqp:flow:list",
    Flow,
    next_incoming_id=UINT,
    incoming_window=UINT.required(),
    next_outgoing_id=UINT.required(),
    outgoing_window=UINT.required(),
    handle=UINT,
    delivery_count=UINT,
    link_credit=UINT,
    available=UINT,
    drain=BOOLEAN,
    echo=BOOLEAN,
    properties=FIELDS,
)
_specify(
    0x14,
    "amqp:transfer:list",
    Transfer,
    handle=UINT.required(),
    delivery_id=UINT,
    delivery_tag=TAG,
    message_format=UINT,
    settled=BOOLEAN,
    more=BOOLEAN,
    rcv_settle_mode=UBYTE,
    state=_STATE,
    resume=BOOLEAN,
    aborted=BOOLEAN,
    batchable=BOOLEAN,
)
_specify(
    0x15,
    "amqp:disposition:list",
    Disposition,
    role=BOOLEAN.required(),
    first=UINT.required(),
    last=UINT,
    settled=BOOLEAN,
    state=_STATE,
    batchable=BOOLEAN,
)
_specify(
    0x16,
    "amqp:detach:list",
    Detach,
    handle=UINT.required(),
    closed=BOOLEAN,
    error=_ERROR,
)
_specify(0x17, "amqp:end:list", End, error=_ERROR)
_specify(0x18, "amqp:close:list", Close, error=_ERROR)
_specify(
    0x1D,
    "amqp:error:list",
    Error,
    condition=SYMBOL.required(),
    description=STRING,
    info=FIELDS,
)
_specify(
    0x23,
    "amqp:received:list",
    Received,
    section_number=UINT.required(),
    section_offset=ULONG.required(),
)
_specify(0x24, "amqp:accepted:list", Accepted)
_specify(0x25, "amqp:rejected:list", Rejected, error=_ERROR)
_specify(0x26, "amqp:released:list", Released)
_specify(
    0x27,
    "amqp:modified:list",
    Modified,
    delivery_failed=BOOLEAN,
    undeliverable_here=BOOLEAN,
    message_annotations=FIELDS,
)
_specify(
    0x28,
    "amqp:source:list",
    Source,
    address=STRING,
    durable=UINT,
    expiry_policy=SYMBOL,
    timeout=UINT,
    dynamic=BOOLEAN,
    dynamic_node_properties=FIELDS,
    distribution_mode=SYMBOL,
    filter=FIELDS,
    default_outcome=_OUTCOME,
    outcomes=SYMBOLS,
    capabilities=SYMBOLS,
)
_specify(
    0x29,
    "amqp:target:list",
    Target,
    address=STRING,
    durable=UINT,
    expiry_policy=SYMBOL,
    timeout=UINT,
    dynamic=BOOLEAN,
    dynamic_node_properties=FIELDS,
    capabilities=SYMBOLS,
)
_specify(0x30, "amqp:coordinator:list", Coordinator, capabilities=SYMBOLS)
_specify(0x31, "amqp:declare:list", Declare, global_id=BINARY)
_specify(
    0x32,
    "amqp:discharge:list",
    Discharge,
    txn_id=BINARY.required(),
    fail=BOOLEAN,
)
_specify(0x33, "amqp:declared:list", Declared, txn_id=BINARY.required())
_specify(
    0x34,
    "amqp:transactional-state:list",
    TransactionalState,
    txn_id=BINARY.required(),
    outcome=_OUTCOME,
)
_specify(
    0x40,
    "amqp:sasl-mechanisms:list",
    SaslMechanisms,
    mechanisms=SYMBOLS.required(),
)
_specify(
    0x41,
    "amqp:sasl-init:list",
    SaslInit,
    mechanism=SYMBOL.required(),
    initial_response=BINARY,
    hostname=STRING,
)
_specify(0x42, "amqp:sasl-challenge:list", SaslChallenge, challenge=BINARY.required())
_specify(0x43, "amqp:sasl-response:list", SaslResponse, response=BINARY.required())
_specify(
    0x44,
    "amqp:sasl-outcome:list",
    SaslOutcome,
    code=UBYTE.required(),
    additional_data=BINARY,
)


def _only(*codes: int) -> dict[int, Spec]:
    return {code: SPECS[code] for code in codes}


_PERFORMATIVES = _only(0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18)
_SASL = _only(0x40, 0x41, 0x42, 0x43, 0x44)
_ERRORS = _only(0x1D)
_SOURCES = _only(0x28)
_TARGETS = _only(0x29, 0x30)
_OUTCOMES = _only(0x24, 0x25, 0x26, 0x27, 0x33)
_STATES = _only(0x23, 0x24, 0x25, 0x26, 0x27, 0x33, 0x34)
