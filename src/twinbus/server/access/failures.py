"""Refused tokens by address: an address with too many is told no reason any more.

Owns what a refused token costs. Ten refusals of an address at once, then one a second,
are explained and logged; a wrong token beyond that gets one short answer, so that an
address cannot fill the log. Every token is checked, so a right one always passes: a
client with a wrong key does not lock out the others at its address. A key is not found
by trying: the server's own have 256 bits.
Also owns the log of entities that clients ask for and that do not exist, at the same
pace. Knows nothing about tokens but the name of a key in them, which it logs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from twinbus import limits
from twinbus.core.sas import is_sas, parse_token
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
        often = limits.TOKEN_FAILURES_MAX, limits.TOKEN_FAILURES_PER_SECOND
        self._buckets = Buckets(*often)
        self._missing = Buckets(*often)

    @contextmanager
    def counted(
        self, address: str, steady_ms: int, token: str = "", path: str = ""
    ) -> Iterator[None]:
        """Prove something inside; `Unauthorized` costs.

        The log names what the token was for, and its key by its name.
        """
        try:
            yield
        except Unauthorized as error:
            if not self._buckets.take(address, steady_ms):
                raise Unauthorized(TOO_MANY) from None
            # No more than ten and one a second, so it cannot fill a disk.
            about = f" for '{_shown(path)}'" if path else ""
            key = f" of the key '{_shown(name)}'" if (name := _key_name(token)) else ""
            text = "refused a token%s%s from %s: %s"
            log.warning(text, key, about, address, error.text)
            raise

    def missing(self, address: str, steady_ms: int, path: str) -> None:
        """A client asked for an entity that does not exist; logged as seldom."""
        if self._missing.take(address, steady_ms):
            text = "%s asked for '%s', which does not exist"
            log.warning(text, address, _shown(path))


def _key_name(token: str) -> str:
    """The name of the key that a signature names; nothing of it is proved."""
    try:
        return parse_token(token).key_name if is_sas(token) else ""
    except Unauthorized:
        return ""


def _shown(text: str) -> str:
    """A client's words, short and in one line."""
    text = text[: limits.SHOWN_VALUE_CHARS_MAX]
    return text if text.isprintable() else repr(text)[1:-1]
