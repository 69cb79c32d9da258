"""Arrays as PostgreSQL reads them, written at once.

The driver asks the type of each element and writes it by a call of its own: 4 us more
for a message that is kept. Owns the binary form of arrays of integers and of bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import chain, repeat

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

_INT8, _INT8_ARRAY = 20, 1016
_BYTEA, _BYTEA_ARRAY = 17, 1001
# Dimensions, whether there are NULLs, the type, how many, and the number of the first.
_HEAD = struct.Struct(">IIIII").pack
_SIZE = struct.Struct(">I").pack


class Integers(list[int]):
    """Numbers of at most eight bytes."""


class Blobs(list[bytearray]):
    """Pieces of bytes."""


class _IntegersDumper(Dumper):
    format = Format.BINARY
    oid = _INT8_ARRAY

    def dump(self, obj: Integers) -> bytes:
        sized = chain.from_iterable(zip(repeat(8), obj, strict=False))
        try:
            values = struct.pack(">" + "Iq" * len(obj), *sized)
        except struct.error as error:
            raise psycopg.DataError(f"not an integer of eight bytes: {error}") from None
        return _HEAD(1, 0, _INT8, len(obj), 1) + values


class _BlobsDumper(Dumper):
    format = Format.BINARY
    oid = _BYTEA_ARRAY

    def dump(self, obj: Blobs) -> bytes:
        parts: list[bytes | bytearray] = [_HEAD(1, 0, _BYTEA, len(obj), 1)]
        for value in obj:
            parts += (_SIZE(len(value)), value)
        return b"".join(parts)


def register(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Let a connection write such arrays."""
    connection.adapters.register_dumper(Integers, _IntegersDumper)
    connection.adapters.register_dumper(Blobs, _BlobsDumper)


def columns(rows: Iterable[Sequence[object]]) -> list[Sequence[object]]:
    """Rows as the arrays of their columns."""
    return [_array(column) for column in zip(*rows, strict=True)]


def _array(values: Sequence[object]) -> Sequence[object]:
    kinds = set(map(type, values))
    if kinds == {int}:
        return Integers(values)  # type: ignore[arg-type]
    if kinds == {bytearray}:
        return Blobs(values)  # type: ignore[arg-type]
    return list(values)
