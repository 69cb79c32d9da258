"""Refused tokens by address: an address with too many is told no reason any more.

Owns what a refused token costs. Ten refusals of an address at once, then one a second,
are explained and logged; a wrong token beyond that gets one short answer, so that an
address cannot fill the log. Every token is checked, so a right one always passes: a
client with a wrong key does not lock out the others at its address. A key is not found
by trying: the server's own have 256 bits.
Also owns the log of entities that clients ask for and that do not exist, and of
connections that are closed before a claim, at the same pace. Knows nothing about tokens
but the name of a key in them, which it logs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from twinbus import limits
from twinbus.core.names import check_entity_path
from twinbus.core.rights import AuthorizationRule
from twinbus.core.sas import is_sas, parse_token
from twinbus.errors import CallerError, Unauthorized
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
        self._closed = Buckets(*often)

    @contextmanager
    def counted(
        self, address: str, steady_ms: int, proof: TokenTried | None = None
    ) -> Iterator[None]:
        """Prove something inside; `Unauthorized` costs."""
        try:
            yield
        except Unauthorized as error:
            if not self._buckets.take(address, steady_ms):
                raise Unauthorized(TOO_MANY) from None
            # No more than ten and one a second, so it cannot fill a disk.
            about = "" if proof is None else proof.about()
            log.warning("refused a token%s from %s: %s", about, address, error.text)
            raise

    def missing(self, address: str, steady_ms: int, path: str) -> None:
        """A client asked for an entity that does not exist; logged as seldom."""
        if self._missing.take(address, steady_ms):
            what = f"'{path}'" if _is_name(path) else "an entity with a wrong name"
            log.warning("%s asked for %s, which does not exist", address, what)

    def may_log(self, address: str, steady_ms: int) -> bool:
        """Whether the log may say why a connection without a claim was closed."""
        return self._closed.take(address, steady_ms)


@dataclass(frozen=True, slots=True)
class TokenTried:
    """A token and what it is for, as the log names them.

    A client may have put a key or a token into any field, so only names of rules that
    exist are repeated, and only what can be the name of an entity.
    """

    token: str
    path: str
    rules: Sequence[AuthorizationRule]

    def about(self) -> str:
        """Which key, and for what."""
        known = {rule.name for rule in self.rules}
        found = [name for name in _key_names(self.token) if name in known]
        key = f" of the key '{found[0]}'" if found else ""
        return f"{key} for '{self.path}'" if _is_name(self.path) else key


def _key_names(token: str) -> tuple[str, ...]:
    """The name of the key that a signature names; nothing of it is proved."""
    try:
        return parse_token(token).key_names() if is_sas(token) else ()
    except Unauthorized:
        return ()


def _is_name(path: str) -> bool:
    """Whether it can be the path of an entity; a key or a token cannot."""
    try:
        check_entity_path(path, "path")
    except CallerError:
        return False
    return True
