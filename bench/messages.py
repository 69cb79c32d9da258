"""The messages that every workload uses: durable, 1 KiB of body, an id each.

Owns their bytes, which are the same for every server in a run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from twinbus.wire.message.sections import MESSAGE_ID, encode_message

BODY_BYTES = 1024
_SEED = 20_260_101


def contents(count: int, body_bytes: int = BODY_BYTES) -> Iterator[tuple[str, bytes]]:
    """Ids and bodies; the bodies are random, so that nothing can compress them."""
    source = random.Random(_SEED)
    for number in range(count):
        yield f"{number:016x}", source.randbytes(body_bytes)


def messages(count: int, body_bytes: int = BODY_BYTES) -> Iterator[bytes]:
    """Messages as our own client encodes them."""
    for message_id, body in contents(count, body_bytes):
        yield encode_message(body, {MESSAGE_ID: message_id})
