"""Performatives, against the bytes that the SDKs write and against wrong types."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given

from tests.wire import composites
from tests.wire.composites import composite_of, sample
from tests.wire.values import same
from twinbus.errors import DecodeError, LimitExceeded
from twinbus.wire.codec import decode, encode
from twinbus.wire.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Composite,
    Coordinator,
    Declare,
    Detach,
    Discharge,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Rejected,
    Released,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from twinbus.wire.performatives_codec import (
    CODES,
    SPECS,
    decode_composite,
    decode_performative,
    decode_sasl,
    encode_composite,
)
from twinbus.wire.types import Array, Described, Symbol, UInt, ULong


def field_by_field(left: Any, right: Any) -> bool:
    """Compare with types, also inside nested composites."""
    if not hasattr(left, "__dataclass_fields__"):
        return same(left, right)
    return type(left) is type(right) and all(
        field_by_field(getattr(left, item.name), getattr(right, item.name))
        for item in fields(left)
    )


@given(composites.composites)
def test_a_composite_survives_the_round_trip(value: Composite) -> None:
    encoded = encode_composite(value)

    decoded, end = decode_composite(encoded)

    assert field_by_field(decoded, value)
    assert end == len(encoded)


@given(composites.composites)
def test_every_field_is_written(value: Composite) -> None:
    described, _ = decode(encode_composite(value), budget=10_000)

    assert SPECS[described.descriptor].cls is type(value)
    assert len(described.value) == len(fields(value))


@given(composites.composites)
def test_a_composite_cut_short_is_refused(value: Composite) -> None:
    encoded = encode_composite(value)

    for length in range(min(len(encoded), 200)):
        with pytest.raises(DecodeError):
            decode_composite(encoded[:length])


# -- golden bytes --------------------------------------------------------------------

GOLDEN: list[tuple[str, Composite]] = [
    # The sasl-init of the AMQP specification's overview, and the SDKs' own choices.
    (
        "005341c00f03a309414e4f4e594d4f5553a00040",
        SaslInit("ANONYMOUS", b"", None),
    ),
    ("005344c00d025000a00857656c636f6d6521", SaslOutcome(0, b"Welcome!")),
    (
        "005340c01001e00d02a305504c41494e0445585420",
        SaslMechanisms(["PLAIN", "EXT "]),
    ),
    ("00532445", Accepted()),
    ("00532645", Released()),
    ("005325c0020140", Rejected()),
    ("005327c00403414240", Modified(True, False)),
    (
        "005325c0120100531dc00c03a305613a622e63a1016440",
        Rejected(Error("a:b.c", "d")),
    ),
    ("005317c0020140", End()),
    ("005318c0020140", Close()),
    ("005316c00403434140", Detach(0, True)),
    (
        "005311c0150840437000010000700001000070ffffffff404040",
        Begin(None, 0, 65536, 65536),
    ),
    ("005331c0020140", Declare()),
    ("005332c00602a002616241", Discharge(b"ab", True)),
    ("005330c0020140", Coordinator()),
    ("005334c00802a0016100532445", TransactionalState(b"a", Accepted())),
]

# Frames as azure-servicebus 7.15 (Python) and rhea 3.0 (JavaScript) write them.
FROM_SDKS: list[tuple[str, Composite]] = [
    (
        (
            "005310c0230aa10163a10168700010000060ffff4040404040"
            "c10d02a30770726f64756374a10178"
        ),
        Open("c", "h", 1048576, 65535, properties={"product": "x"}),
    ),
    (
        (
            "005312c08d0ea1016c520356015000500100"
            "5328c03b0ba10b616d7170733a2f2f682f71404040404040"
            "c12202a31c636f6d2e6d6963726f736f66743a73657373696f6e2d66696c746572a10173"
            "404040005329c00a07a1017440404040404040560043800000000000100000"
            "4040c12102a31b636f6d2e6d6963726f736f66743a72656365697665722d6e616d65a1016e"
        ),
        Attach(
            "l",
            3,
            True,
            0,
            1,
            Source("amqps://h/q", filter={"com.microsoft:session-filter": "s"}),
            Target("t"),
            initial_delivery_count=0,
            max_message_size=1048576,
            properties={"com.microsoft:receiver-name": "n"},
        ),
    ),
    (
        "005313c01b0b437000010000520170000100005203700000012c520540404040",
        Flow(0, 65536, 1, 65536, 3, 300, 5),
    ),
    (
        "005315c017065601700000012c405600005327c00603560156004040",
        Disposition(True, 300, state=Modified(True, False)),
    ),
    (
        (
            "005315c04e065601700000012c405600005325c03d0100531dc03703a319"
            "636f6d2e6d6963726f736f66743a646561642d6c6574746572a10164"
            "c11602a310446561644c6574746572526561736f6ea1017240"
        ),
        Disposition(
            True,
            300,
            state=Rejected(
                Error("com.microsoft:dead-letter", "d", {"DeadLetterReason": "r"})
            ),
        ),
    ),
    ("005316c006035203560140", Detach(3, True)),
    (
        "005313d000000016000000094370000008004370ffffffff4343520a4042",
        Flow(0, 2048, 0, 4294967295, 0, 0, 10),
    ),
    (
        "005315d00000000c000000054143434100532445",
        Disposition(True, 0, 0, True, Accepted()),
    ),
    (
        "005314d000000014000000065201700000012ca00400000001434242",
        Transfer(1, 300, b"\x00\x00\x00\x01", 0),
    ),
]


@pytest.mark.parametrize(("data", "value"), GOLDEN)
def test_golden_bytes_are_written_and_read(data: str, value: Composite) -> None:
    assert encode_composite(value).hex() == data
    assert decode_composite(bytes.fromhex(data)) == (value, len(data) // 2)


@pytest.mark.parametrize(("data", "value"), FROM_SDKS)
def test_frames_of_the_sdks_are_read(data: str, value: Composite) -> None:
    assert decode_composite(bytes.fromhex(data)) == (value, len(data) // 2)


# -- descriptors and lists -----------------------------------------------------------


@pytest.mark.parametrize(("symbol", "code"), CODES.items())
def test_descriptors_may_be_short_long_or_symbols(symbol: str, code: int) -> None:
    encoded = encode_composite(sample(code))
    expected = decode_composite(encoded)[0]
    descriptors = [
        b"\x80" + code.to_bytes(8, "big"),
        encode(Symbol(symbol)),
        b"\xb3" + len(symbol).to_bytes(4, "big") + symbol.encode(),
    ]

    for descriptor in descriptors:
        data = b"\x00" + descriptor + encoded[3:]
        assert decode_composite(data) == (expected, len(data))


@pytest.mark.parametrize(
    "data",
    [
        "",
        "00",
        "45",
        "c00100",
        "005310",
        "00531040",
        "005310c10100",
        "00539945",
        "004445",
        "00a3016145",
        "00a10e" + b"amqp:open:list".hex() + "45",
        "00a30f" + b"amqp:open:list2".hex() + "45",
        "0080000000000000011045",
        "00521045",
        "000053104545",
    ],
)
def test_an_unknown_descriptor_or_shape_is_refused(data: str) -> None:
    with pytest.raises(DecodeError):
        decode_composite(bytes.fromhex(data))


def test_frames_hold_only_what_belongs_into_frames() -> None:
    for code in SPECS:
        encoded = encode_composite(sample(code))
        for decoder, codes in (
            (decode_performative, range(0x10, 0x19)),
            (decode_sasl, range(0x40, 0x45)),
        ):
            if code in codes:
                assert decoder(encoded)[1] == len(encoded)
            else:
                with pytest.raises(DecodeError):
                    decoder(encoded)


def test_an_empty_source_and_target_are_read() -> None:
    # The JavaScript SDK sends these where it has nothing to say.
    fields_ = b"\x07\xa1\x00\x43\x42\x40\x40\x00\x53\x28\x45\x00\x53\x29\x45"
    data = b"\x00\x53\x12\xc0" + bytes((len(fields_),)) + fields_

    attach = decode_composite(data)[0]

    assert attach == Attach("", source=Source(), target=Target())


def test_a_target_may_be_a_coordinator() -> None:
    attach = Attach("a", target=Coordinator(["amqp:local-transactions"]))

    assert decode_composite(encode_composite(attach))[0] == attach


def test_an_unknown_filter_stays_described() -> None:
    value = Described(Symbol("apache.org:selector-filter:string"), "a = 1")
    source = Source("q", filter={"selector": value})

    assert decode_composite(encode_composite(source))[0] == source


def test_text_as_a_key_of_a_field_map_is_written_as_a_symbol() -> None:
    source = Source("q", filter={"a": 1, UInt(2): 3, "é": 4})

    described, _ = decode(encode_composite(source))

    assert [type(key) for key in described.value[7]] == [Symbol, UInt, str]


# -- limits --------------------------------------------------------------------------


def test_values_are_counted_over_the_whole_performative() -> None:
    half = encode(Array(0x56, [True, False] * 256))
    properties = b"\xd1" + (12 + 2 * len(half)).to_bytes(4, "big") + b"\x00\x00\x00\x04"
    properties += b"\xa3\x02aa" + half + b"\xa3\x02bb" + half

    with pytest.raises(LimitExceeded):
        decode_composite(composite_of(0x10, [b"\xa1\x00", *[b"\x40"] * 8, properties]))


def test_levels_are_counted_over_the_whole_performative() -> None:
    def attach(depth: int) -> bytes:
        data = b"\x40"
        for _ in range(depth):
            data = b"\xd0" + (len(data) + 4).to_bytes(4, "big") + b"\0\0\0\x01" + data
        filters = b"\xd1" + (len(data) + 7).to_bytes(4, "big") + b"\0\0\0\x02\xa3\x01a"
        source = composite_of(0x28, [b"\x40"] * 7 + [filters + data])
        return composite_of(
            0x12, [b"\xa1\x00", b"\x43", b"\x42", b"\x40", b"\x40", source]
        )

    # A described list is two levels: the attach and its source are four, the map one.
    assert decode_composite(attach(27))[1] == len(attach(27))
    with pytest.raises(LimitExceeded):
        decode_composite(attach(28))


# -- local mistakes ------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        Flow(incoming_window=2**32),
        Flow(handle=-1),
        Begin(remote_channel=65536),
        Attach("a", snd_settle_mode=256),
        Attach("a", max_message_size=2**64),
        Error("é"),
    ],
)
def test_a_field_out_of_range_is_a_value_error(value: Composite) -> None:
    with pytest.raises(ValueError, match=r"."):
        encode_composite(value)


def test_a_mandatory_field_cannot_be_left_out() -> None:
    flow = Flow()
    flow.incoming_window = None  # type: ignore[assignment]

    with pytest.raises(ValueError, match="incoming_window is mandatory"):
        encode_composite(flow)


def test_descriptors_are_written_short() -> None:
    for code in SPECS:
        data = encode_composite(sample(code))
        assert data[:3] == bytes((0, 0x53, code))
        assert decode(data)[0].descriptor == ULong(code)
