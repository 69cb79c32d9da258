"""Parquet files of plain columns, written without Arrow.

Owns the bytes of a file with one group of rows: each column is one page, in plain
encoding and compressed with gzip, and no value is null. Arrow would do it too, but a
server that has loaded it is twice as large. The footer is Thrift's compact protocol; a
field of it is written here as its number, its type and its bytes. Formats:
https://parquet.apache.org/docs/file-format/ and thrift-compact-protocol.md of Thrift.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

_MAGIC = b"PAR1"
_CREATED_BY = b"twinbus"

# Types of the compact protocol.
_TRUE, _I32, _I64, _BINARY, _LIST, _STRUCT = 1, 5, 6, 8, 9, 12
# Codes of Parquet.
_INT32, _INT64, _BYTE_ARRAY = 1, 2, 6
_REQUIRED, _DATA_PAGE, _PLAIN, _RLE, _GZIP = 0, 0, 0, 3, 2
_UTF8, _TIMESTAMP_MICROS = 0, 10
# For zlib: the format of gzip.
_GZIP_BITS = 31

_Field = tuple[int, int, bytes]


def parquet_bytes(
    columns: Sequence[tuple[str, str]],
    rows: Sequence[Sequence[Any]],
    metadata: Mapping[str, str],
) -> bytes:
    """A whole file. Columns are named as in `schema.py`; times are microseconds."""
    file, chunks, size_bytes = bytearray(_MAGIC), [], 0
    for (name, kind), values in zip(columns, zip(*rows, strict=True), strict=True):
        plain = _plain(kind, values)
        packed = zlib.compress(plain, wbits=_GZIP_BITS)
        header = _page_header(len(plain), len(packed), len(values))
        sizes = len(header) + len(plain), len(header) + len(packed)
        chunks.append(_chunk((name, kind), len(file), len(values), sizes))
        file += header + packed
        size_bytes += sizes[0]
    footer = _footer(columns, len(rows), chunks, size_bytes, metadata)
    file += footer + struct.pack("<i", len(footer)) + _MAGIC
    return bytes(file)


def _plain(kind: str, values: Sequence[Any]) -> bytes:
    if kind == "string":
        texts = [value.encode("utf-8", "replace") for value in values]
        return b"".join(struct.pack("<i", len(text)) + text for text in texts)
    return struct.pack(f"<{len(values)}{'i' if kind == 'int32' else 'q'}", *values)


# -- the structures of Parquet ---------------------------------------------------------


def _page_header(plain_bytes: int, packed_bytes: int, count: int) -> bytes:
    data = _struct(
        _int(1, _I32, count),
        _int(2, _I32, _PLAIN),
        # Of levels, which columns without nulls do not have.
        _int(3, _I32, _RLE),
        _int(4, _I32, _RLE),
    )
    return _struct(
        _int(1, _I32, _DATA_PAGE),
        _int(2, _I32, plain_bytes),
        _int(3, _I32, packed_bytes),
        (5, _STRUCT, data),
    )


def _chunk(
    column: tuple[str, str], offset: int, count: int, sizes: tuple[int, int]
) -> bytes:
    name, kind = column
    described = _struct(
        _int(1, _I32, _type_of(kind)),
        (2, _LIST, _list(_I32, [_zigzag(_PLAIN), _zigzag(_RLE)])),
        (3, _LIST, _list(_BINARY, [_text(name.encode())])),
        _int(4, _I32, _GZIP),
        _int(5, _I64, count),
        _int(6, _I64, sizes[0]),
        _int(7, _I64, sizes[1]),
        _int(9, _I64, offset),
    )
    return _struct(_int(2, _I64, offset), (3, _STRUCT, described))


def _footer(
    columns: Sequence[tuple[str, str]],
    count: int,
    chunks: Sequence[bytes],
    size_bytes: int,
    metadata: Mapping[str, str],
) -> bytes:
    root = _struct((4, _BINARY, _text(b"schema")), _int(5, _I32, len(columns)))
    group = _struct(
        (1, _LIST, _list(_STRUCT, chunks)),
        _int(2, _I64, size_bytes),
        _int(3, _I64, count),
    )
    pairs = [
        _struct((1, _BINARY, _text(key.encode())), (2, _BINARY, _text(value.encode())))
        for key, value in metadata.items()
    ]
    return _struct(
        _int(1, _I32, 1),
        (2, _LIST, _list(_STRUCT, [root, *(_element(*each) for each in columns)])),
        _int(3, _I64, count),
        (4, _LIST, _list(_STRUCT, [group])),
        (5, _LIST, _list(_STRUCT, pairs)),
        (6, _BINARY, _text(_CREATED_BY)),
    )


def _type_of(kind: str) -> int:
    return {"string": _BYTE_ARRAY, "int32": _INT32}.get(kind, _INT64)


def _element(name: str, kind: str) -> bytes:
    """The type of a column; what its values mean is said in the old and the new way."""
    fields = [
        _int(1, _I32, _type_of(kind)),
        _int(3, _I32, _REQUIRED),
        (4, _BINARY, _text(name.encode())),
    ]
    if kind == "string":
        fields += [_int(6, _I32, _UTF8), (10, _STRUCT, _struct((1, _STRUCT, b"\0")))]
    elif kind == "time":
        micros = _struct((2, _STRUCT, b"\0"))
        in_utc = _struct((1, _TRUE, b""), (2, _STRUCT, micros))
        meaning = _struct((8, _STRUCT, in_utc))
        fields += [_int(6, _I32, _TIMESTAMP_MICROS), (10, _STRUCT, meaning)]
    return _struct(*fields)


# -- the compact protocol --------------------------------------------------------------


def _struct(*fields: _Field) -> bytes:
    """Fields in the order of their numbers, each with the step from the one before."""
    found, before = bytearray(), 0
    for number, kind, content in fields:
        found += bytes([(number - before) << 4 | kind]) + content
        before = number
    return bytes(found) + b"\0"


def _int(number: int, kind: int, value: int) -> _Field:
    return number, kind, _zigzag(value)


def _list(kind: int, items: Sequence[bytes]) -> bytes:
    count = len(items)
    short = count < 15
    head = bytes([(count if short else 15) << 4 | kind])
    return head + (b"" if short else _varint(count)) + b"".join(items)


def _text(content: bytes) -> bytes:
    return _varint(len(content)) + content


def _zigzag(value: int) -> bytes:
    assert value >= 0
    return _varint(value * 2)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


__all__ = ["parquet_bytes"]
