"""Who is signed in: sessions of browsers, and links that open one once.

Owns what a session remembers: what its claim gives, until when, and a fingerprint of
the key that proved it. The key itself is not kept, and neither is the token of the
cookie, of which the digest is enough. A session ends with its time, with sign-out, and
with its key: `find` compares the fingerprint with the keys that the rule has now.
Knows nothing about requests.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field, replace
from typing import TypeVar

from twinbus import limits
from twinbus.core.rights import Claim, RulesOf
from twinbus.core.sas import Secret

T = TypeVar("T")


@dataclass(slots=True)
class ConsoleSession:
    """What one signed-in browser may do."""

    # Without its proof, which holds the key.
    claim: Claim
    # The rule of the key, as people know it; another token has none.
    name: str
    # The namespace that it was opened for.
    namespace: str
    # Where the rule is and a fingerprint of its key; None for another token.
    proof: tuple[str, bytes] | None
    # What the next page says once.
    notices: list[str] = field(default_factory=list)


class ConsoleSessions:
    """All sessions of a namespace, and links that were given out."""

    def __init__(self) -> None:
        # Fingerprints of keys mean nothing without it.
        self._salt = secrets.token_bytes(32)
        self._sessions: dict[bytes, ConsoleSession] = {}
        self._links: dict[bytes, tuple[ConsoleSession, int]] = {}

    def open(self, session: ConsoleSession) -> str:
        """Begin a session; returns the token of its cookie."""
        return _kept(self._sessions, session, limits.CONSOLE_SESSIONS_MAX)

    def describe(self, claim: Claim, namespace: str, now_s: int) -> ConsoleSession:
        """What a session remembers of a claim."""
        ends_s = min(claim.expires_s, now_s + limits.CONSOLE_SESSION_SECONDS)
        proof = claim.proof
        bare = replace(claim, expires_s=ends_s, proof=None)
        if proof is None:
            return ConsoleSession(bare, "", namespace, None)
        known = proof.rule_key, self._fingerprint(proof.key)
        return ConsoleSession(bare, proof.name, namespace, known)

    def find(self, token: str, rules_of: RulesOf, now_s: int) -> ConsoleSession | None:
        """The session of a cookie, with what its rule still gives."""
        digest = _digest(token)
        session = self._sessions.get(digest)
        if session is None:
            return None
        claim = self._standing(session, rules_of)
        if claim is None or not claim.live(now_s):
            del self._sessions[digest]
            return None
        session.claim = claim
        return session

    def is_open(self, token: str) -> bool:
        """Whether a cookie belongs to a session; its rule is not looked at."""
        return _digest(token) in self._sessions

    def close(self, token: str) -> None:
        """Sign out."""
        self._sessions.pop(_digest(token), None)

    def offer(self, session: ConsoleSession, now_s: int) -> str:
        """A code that opens that session once, and soon."""
        ends_s = now_s + limits.CONSOLE_LINK_SECONDS
        return _kept(self._links, (session, ends_s), limits.CONSOLE_LINKS_MAX)

    def redeem(self, code: str, now_s: int) -> ConsoleSession | None:
        """The session that a code was given out for; None if it was used or is old."""
        session, ends_s = self._links.pop(_digest(code), (None, 0))
        return session if now_s < ends_s else None

    def _standing(self, session: ConsoleSession, rules_of: RulesOf) -> Claim | None:
        """What is left of a claim after rules have changed, as `rights.standing`."""
        if session.proof is None:
            return session.claim
        rule_key, fingerprint = session.proof
        for rule in rules_of(rule_key):
            if rule.name != session.name:
                continue
            held = [key for key in rule.keys if key is not None]
            if any(self._fingerprint(key) == fingerprint for key in held):
                rights = session.claim.rights & rule.rights
                return replace(session.claim, rights=rights) if rights else None
        return None

    def _fingerprint(self, key: Secret) -> bytes:
        return hmac.digest(self._salt, key.reveal().encode(), "sha256")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def _kept(there: dict[bytes, T], value: T, most: int) -> str:
    """Keep a value under a new token; the oldest makes room."""
    while len(there) >= most:
        del there[next(iter(there))]
    token = secrets.token_urlsafe(32)
    there[_digest(token)] = value
    return token
