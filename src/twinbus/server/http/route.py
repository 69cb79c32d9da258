"""What every HTTP request has: a host that it asks for, and a body.

Owns two bounds: what may stand in `Host`, since answers repeat it, and how much of a
body is taken in. Knows nothing about what is asked for, nor about who asks.
"""

from __future__ import annotations

import re

from starlette.requests import Request

from twinbus.errors import ArgumentError, TwinbusError

_AUTHORITY = re.compile(r"[A-Za-z0-9._\-\[\]:]{1,255}")


def check_authority(authority: str) -> None:
    """Refuse a `Host` that is missing or holds what no host has."""
    if not _AUTHORITY.fullmatch(authority):
        raise ArgumentError("The Host of the request is missing or odd.")


async def read_body(request: Request, bytes_max: int, too_large: TwinbusError) -> bytes:
    """The whole body; raises `too_large` as soon as there is more than that."""
    chunks: list[bytes] = []
    size_bytes = 0
    async for chunk in request.stream():
        size_bytes += len(chunk)
        if size_bytes > bytes_max:
            raise too_large
        chunks.append(chunk)
    return b"".join(chunks)
