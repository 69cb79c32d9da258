"""What a peer can make the codec spend: levels, values, memory and time."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from twinbus import limits
from twinbus.errors import DecodeError, LimitExceeded, PeerError
from twinbus.wire.codec import decode, skip
from twinbus.wire.performatives_codec import decode_composite


def nested_lists(depth: int) -> bytes:
    """Lists in each other; the innermost is empty and counts as well."""
    data = b"\x45"
    for _ in range(depth - 1):
        size = (len(data) + 4).to_bytes(4, "big")
        data = b"\xd0" + size + b"\x00\x00\x00\x01" + data
    return data


def nested_maps(depth: int) -> bytes:
    data = b"\xc1\x01\x00"
    for _ in range(depth - 1):
        size = (len(data) + 5).to_bytes(4, "big")
        data = b"\xd1" + size + b"\x00\x00\x00\x02\x40" + data
    return data


def nested_arrays(depth: int) -> bytes:
    # Elements have no constructor of their own, so it stands before the first.
    element = b"\x00\x00\x00\x05\x00\x00\x00\x00\x40"
    for _ in range(depth - 1):
        body = b"\x00\x00\x00\x01\xf0" + element
        element = len(body).to_bytes(4, "big") + body
    return b"\xf0" + element


def nested_descriptors(depth: int) -> bytes:
    return b"\x00" * depth + b"\x40" * (depth + 1)


def nested_described_values(depth: int) -> bytes:
    return b"\x00\x40" * depth + b"\x40"


def nested_element_descriptors(depth: int) -> bytes:
    body = b"\x00\x00\x00\x01" + b"\x00\x40" * (depth - 1) + b"\x40"
    return b"\xf0" + len(body).to_bytes(4, "big") + body


NESTS = [
    nested_lists,
    nested_maps,
    nested_arrays,
    nested_descriptors,
    nested_described_values,
    nested_element_descriptors,
]


@pytest.mark.parametrize("nest", NESTS)
@pytest.mark.parametrize("depth", [1, 31, 32])
def test_levels_up_to_the_limit_are_read(
    nest: Callable[[int], bytes], depth: int
) -> None:
    data = nest(depth)

    assert decode(data)[1] == len(data)


@pytest.mark.parametrize("nest", NESTS)
@pytest.mark.parametrize("depth", [33, 34, 10_000])
def test_levels_beyond_the_limit_are_refused(
    nest: Callable[[int], bytes], depth: int
) -> None:
    with pytest.raises(LimitExceeded):
        decode(nest(depth), budget=10**9)


@pytest.mark.parametrize("data", ["45", "c00100", "d00000000400000000"])
def test_an_empty_list_is_a_level_in_every_encoding(data: str) -> None:
    assert decode(bytes.fromhex(data), depth=1)[0] == []
    with pytest.raises(LimitExceeded):
        decode(bytes.fromhex(data), depth=0)


def test_descriptors_of_descriptors_are_not_skipped_for_ever() -> None:
    assert skip(nested_descriptors(31)) == 63
    with pytest.raises(LimitExceeded):
        skip(nested_descriptors(32))
    with pytest.raises(LimitExceeded):
        skip(nested_descriptors(10_000))


def test_depth_counts_open_levels_only() -> None:
    inner = nested_lists(31)
    data = b"\xd0" + (4 + 3 * len(inner)).to_bytes(4, "big") + b"\x00\x00\x00\x03"

    assert len(decode(data + 3 * inner)[0]) == 3


# -- values --------------------------------------------------------------------------


def list_of(element: bytes, count: int) -> bytes:
    body = count.to_bytes(4, "big") + element * count
    return b"\xd0" + len(body).to_bytes(4, "big") + body


def array_of(constructor: bytes, element: bytes, count: int) -> bytes:
    body = count.to_bytes(4, "big") + constructor + element * count
    return b"\xf0" + len(body).to_bytes(4, "big") + body


def test_as_many_values_as_the_budget_are_read() -> None:
    most = limits.PERFORMATIVE_NODES_MAX

    assert decode(list_of(b"\x40", most))[0] == [None] * most
    with pytest.raises(LimitExceeded):
        decode(list_of(b"\x40", most + 1))


@pytest.mark.parametrize("code", [0x40, 0x41, 0x42, 0x43, 0x44, 0x45])
def test_elements_without_bytes_are_counted_before_they_are_built(code: int) -> None:
    constructor = bytes((code,))

    assert len(decode(array_of(constructor, b"", 32))[0]) == 32
    for count in (1025, 2**20, 2**32 - 1):
        for budget in (limits.PERFORMATIVE_NODES_MAX, 2**40):
            with pytest.raises(LimitExceeded):
                decode(array_of(constructor, b"", count), budget=budget)


def test_elements_without_bytes_need_bytes_elsewhere() -> None:
    few = array_of(b"\x40", b"", 200)
    padding = b"\xa0\xff" + bytes(255)
    body = b"\x00\x00\x00\x02" + few + padding
    data = b"\xd0" + len(body).to_bytes(4, "big") + body

    assert len(decode(data)[0][0]) == 200
    with pytest.raises(LimitExceeded):
        decode(few)


def test_each_descriptor_of_an_element_is_counted() -> None:
    constructor = b"\x00\x40\x00\x40\x50"

    assert len(decode(array_of(constructor, b"\x00", 30))[0]) == 30
    with pytest.raises(LimitExceeded):
        decode(array_of(constructor, b"\x00", 400))


@pytest.mark.parametrize(
    "data", ["d000000008ffffffff40404040", "d10000000cfffffffe4040404040404040"]
)
def test_more_elements_than_bytes_are_a_decode_error(data: str) -> None:
    with pytest.raises(DecodeError):
        decode(bytes.fromhex(data), budget=2**40)


# -- memory and time -----------------------------------------------------------------


def distinct_keys(count: int) -> bytes:
    """A map with as many different keys as fit into few bytes, and costly values."""
    pairs = b"".join(b"\x60" + key.to_bytes(2, "big") + b"\x45" for key in range(count))
    body = (2 * count).to_bytes(4, "big") + pairs
    return b"\xd1" + len(body).to_bytes(4, "big") + body


def padded(data: bytes, count: int) -> bytes:
    """Elements that take no bytes, paid for with bytes that hold nothing."""
    body = b"\x00\x00\x00\x02" + data
    body += b"\xb0" + count.to_bytes(4, "big") + bytes(count)
    return b"\xd0" + len(body).to_bytes(4, "big") + body


COSTLY: dict[str, Callable[[int], bytes]] = {
    "empty lists": lambda n: list_of(b"\x45", n),
    "short lists": lambda n: list_of(b"\xc0\x01\x00", n),
    "maps": lambda n: list_of(b"\xc1\x01\x00", n),
    "arrays": lambda n: list_of(b"\xe0\x02\x00\x40", n),
    "described values": lambda n: list_of(b"\x00\x45\x45", n),
    "wide characters": lambda n: list_of(b"\xa1\x04\xf0\x9f\x98\x80", n),
    "two characters": lambda n: list_of(b"\xa1\x02\xc4\x80", n),
    "symbols": lambda n: list_of(b"\xa3\x01a", n),
    "uuids": lambda n: list_of(b"\x98" + bytes(16), n),
    "keys": distinct_keys,
    "array of empty lists": lambda n: padded(array_of(b"\x45", b"", n), n),
    "array of lists": lambda n: array_of(b"\xc0", b"\x01\x00", n),
    "array of maps": lambda n: array_of(b"\xc1", b"\x01\x00", n),
    "array of ubytes": lambda n: array_of(b"\x50", b"\xff", n),
    "array of bytes": lambda n: array_of(b"\x51", b"\x80", n),
    "array of empty symbols": lambda n: array_of(b"\xa3", b"\x00", n),
    "array of symbols": lambda n: array_of(b"\xa3", b"\x01a", n),
    "array of strings": lambda n: array_of(b"\xa1", b"\x02ab", n),
    "array of binary": lambda n: array_of(b"\xa0", b"\x02ab", n),
    "array of floats": lambda n: array_of(b"\x72", b"\x3f\x80\x00\x00", n),
    "array of described ubytes": lambda n: array_of(b"\x00\x40\x50", b"\xff", n),
    "array of described nulls": lambda n: padded(array_of(b"\x00\x40\x40", b"", n), n),
}


# Longer than decoding takes.
_UNDISTURBED_SECONDS = 60.0


def peak_bytes(decoder: Callable[[bytes], Any], data: bytes) -> int:
    """The most memory that decoding takes at once, its result included."""
    interval = sys.getswitchinterval()
    # Threads that other test files have left must not run, and take memory, meanwhile.
    sys.setswitchinterval(_UNDISTURBED_SECONDS)
    for measured in (False, True):
        # The first run is for what the interpreter and tracers keep for themselves.
        if measured:
            tracemalloc.start()
        try:
            value = decoder(data)
        except PeerError:
            value = None
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    sys.setswitchinterval(interval)
    del value
    return peak


def decode_section(data: bytes) -> Any:
    return decode(data, budget=limits.SECTION_NODES_MAX)


@pytest.mark.parametrize("costly", COSTLY.values(), ids=COSTLY.keys())
@pytest.mark.parametrize("count", [10, 500, 1024, 16_000])
def test_a_byte_costs_at_most_64_bytes_of_memory(
    costly: Callable[[int], bytes], count: int
) -> None:
    data = costly(count)

    assert peak_bytes(decode_section, data) <= 64 * len(data) + 4096


def test_a_byte_of_a_performative_costs_at_most_64_bytes_of_memory() -> None:
    termini = b"\x00\x53\x28\x45" + b"\x00\x53\x29\x45"
    body = b"\x07\xa1\x00\x43\x42\x40\x40" + termini
    data = b"\x00\x53\x12\xc0" + bytes((len(body),)) + body

    assert peak_bytes(decode_composite, data) <= 64 * len(data) + 4096


@pytest.mark.parametrize("costly", COSTLY.values(), ids=COSTLY.keys())
def test_a_byte_costs_at_most_eight_calls(costly: Callable[[int], bytes]) -> None:
    """Work is counted, not timed: a busy machine must not change the verdict."""
    data = costly(1000)
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        decode(data, budget=limits.SECTION_NODES_MAX)
    except PeerError:
        pass
    finally:
        sys.setprofile(None)

    assert calls <= 8 * len(data)
