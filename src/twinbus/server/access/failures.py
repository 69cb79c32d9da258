"""Refused tokens by address: an address with too many is told no reason any more.

Owns what a refused token costs. Ten refusals of an address at once, then one a second,
are explained and logged; a wrong token beyond that gets one short answer, so that an
address cannot fill the log. Every token is checked, so a right one always passes: a
client with a wrong key does not lock out the others at its address. A key is not found
by trying: the server's own have 256 bits.
Knows nothing about tokens.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from twinbus import limits
from twinbus.errors import Unauthorized
from twinbus.server.access.buckets import Buckets

log = logging.getLogger("twinbus.claims")

TOO_MANY = (
    "The token is refused. There were too many failures from this address to say why: "
    "wait some seconds and try again."
)


class Failures:
    """How often tokens of each address were refused."""

    def __init__(self) -> None:
        self._buckets = Buckets(
            limits.TOKEN_FAILURES_MAX, limits.TOKEN_FAILURES_PER_SECOND
        )

    @contextmanager
    def counted(self, address: str, steady_ms: int) -> Iterator[None]:
        """Prove something inside; `Unauthorized` costs."""
        try:
            yield
        except Unauthorized as error:
            if not self._buckets.take(address, steady_ms):
                raise Unauthorized(TOO_MANY) from None
            # No more than ten and one a second, so it cannot fill a disk.
            log.warning("refused a token from %s: %s", address, error.text)
            raise
