"""Python values for the AMQP types that Python has no type of its own for.

Owns the mapping between the two type systems. Plain `int`, `float`, `str`, `bytes`,
`bool`, `None`, `list`, `dict` and `uuid.UUID` stand for long, double, string, binary,
boolean, null, list, map and uuid; each narrower AMQP type is a subclass here, so that
a value keeps its type from decode to encode. Knows nothing about bytes on the wire.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

# Constructor bytes for `Array(code, ...)`. The encoder widens or narrows them as the
# elements need, so these name the type rather than the exact width.
ARRAY_BOOLEAN = 0x56
ARRAY_INT = 0x71
ARRAY_LONG = 0x81
ARRAY_TIMESTAMP = 0x83
ARRAY_UUID = 0x98
ARRAY_BINARY = 0xA0
ARRAY_STRING = 0xA1
ARRAY_SYMBOL = 0xA3
ARRAY_NULL = 0x40


class UByte(int):
    """Unsigned, 8 bits."""

    __slots__ = ()


class UShort(int):
    """Unsigned, 16 bits."""

    __slots__ = ()


class UInt(int):
    """Unsigned, 32 bits."""

    __slots__ = ()


class ULong(int):
    """Unsigned, 64 bits."""

    __slots__ = ()


class Byte(int):
    """Signed, 8 bits."""

    __slots__ = ()


class Short(int):
    """Signed, 16 bits."""

    __slots__ = ()


class Int(int):
    """Signed, 32 bits."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since the Unix epoch, signed, 64 bits."""

    __slots__ = ()


class Float32(float):
    """A float of 32 bits. It holds the nearest double, so encoding may round."""

    __slots__ = ()


class Char(str):
    """One Unicode character."""

    __slots__ = ()


class Symbol(str):
    """A name from a constrained domain; ASCII on the wire."""

    __slots__ = ()


class Decimal(bytes):
    """A decimal of 4, 8 or 16 bytes, kept as it came: it is never calculated with."""

    __slots__ = ()


class Array(list[Any]):
    """Values of one AMQP type. `code` is the constructor byte of the elements."""

    __slots__ = ("code",)

    def __init__(self, code: int, items: Iterable[Any] = ()) -> None:
        super().__init__(items)
        self.code = code

    def __reduce__(self) -> tuple[type[Array], tuple[int, list[Any]]]:
        return Array, (self.code, list(self))

    def __repr__(self) -> str:
        return f"Array(0x{self.code:02x}, {list(self)!r})"


class Described:
    """A value with a descriptor that the codec does not interpret."""

    __slots__ = ("descriptor", "value")

    def __init__(self, descriptor: Any, value: Any) -> None:
        self.descriptor = descriptor
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Described):
            return NotImplemented
        return bool(self.descriptor == other.descriptor and self.value == other.value)

    def __hash__(self) -> int:
        return hash((self.descriptor, self.value))

    def __repr__(self) -> str:
        return f"Described({self.descriptor!r}, {self.value!r})"


# The same by the Python type of the elements.
ARRAY_CODES: dict[type, int] = {
    type(None): ARRAY_NULL,
    bool: ARRAY_BOOLEAN,
    Int: ARRAY_INT,
    int: ARRAY_LONG,
    Timestamp: ARRAY_TIMESTAMP,
    UUID: ARRAY_UUID,
    bytes: ARRAY_BINARY,
    bytearray: ARRAY_BINARY,
    str: ARRAY_STRING,
    Symbol: ARRAY_SYMBOL,
    float: 0x82,
    Float32: 0x72,
    UByte: 0x50,
    UShort: 0x60,
    UInt: 0x70,
    ULong: 0x80,
    Byte: 0x51,
    Short: 0x61,
}
