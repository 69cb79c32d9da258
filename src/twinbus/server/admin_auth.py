"""Who may administer: the headers of a request, proved and decided.

Owns which credential of a request counts for what. Tokens are proved by `claim_from`,
a signature or a bearer token alike, and every decision is `rights.allowed`; rights
default to none.

A client signs either the namespace, or the URL that it asks for, exactly as it wrote
it. In the second case `%2F` may stand for a slash in a name, so the signed path is
compared with the request's path in the same spelling, by whole segments.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from twinbus.core import sas
from twinbus.core.names import EntityPath
from twinbus.core.rights import (
    AuthorizationRule,
    Claim,
    Operation,
    allowed,
    claim_for,
)
from twinbus.errors import Unauthorized
from twinbus.server.admin_paths import Place
from twinbus.server.http_auth import credential_in
from twinbus.server.jwt import BearerTokens, claim_from

RulesOf = Callable[[str], Sequence[AuthorizationRule]]

_NAMESPACE = EntityPath("")
# What the real service says first, whatever is wrong with a token.
_INVALID = "claim is empty or token is invalid."


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a request brought along. Nothing in it is proved."""

    authorization: str
    # For the target of ForwardTo, and for that of ForwardDeadLetteredMessagesTo.
    forward: str = ""
    forward_dead_letter: str = ""
    # The host and port that the client asked for.
    authority: str = ""
    # The namespace that was reached, and what proves bearer tokens for it.
    namespace: str = ""
    tokens: BearerTokens | None = None
    # Around a proof: failures cost the address that they come from.
    counted: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext


def admit(
    credentials: Credentials,
    rules_of: RulesOf,
    operation: Operation,
    place: Place,
    now_s: int,
) -> None:
    """Return if the request may do that there; else raise `Unauthorized`."""
    try:
        with credentials.counted():
            claim = _claim(credentials, rules_of, place, now_s)
    except Unauthorized as error:
        raise Unauthorized(f"{_INVALID} {error.text}") from None
    allowed([claim], operation, place.scope, now_s)


def admit_forward(
    credentials: Credentials, token: str, rules_of: RulesOf, target: str, now_s: int
) -> None:
    """Return if the request may make an entity send to that target.

    Who may change one queue could otherwise send to all others through it. The right
    may come from the token for the target, or from that of the request itself.
    """
    path = EntityPath(target)
    claims: list[Claim] = []
    for text in (token, credentials.authorization):
        with contextlib.suppress(Unauthorized):
            claims.append(_forward_claim(text, credentials, rules_of, path, now_s))
    allowed(claims, Operation.SEND_LINK, path, now_s)


def _claim(
    credentials: Credentials, rules_of: RulesOf, place: Place, now_s: int
) -> Claim:
    """Prove a token for a place."""
    signature = credential_in(credentials.authorization)
    scope = place.scope
    if not sas.is_sas(signature):
        return claim_from(signature, scope, rules_of, credentials.tokens, now_s)
    # Names hold no percent sign, so a scope with one is a URL's path as it was written.
    escaped = "%" in sas.parse_token(signature).resource_key
    target = EntityPath(place.spelled) if escaped else scope
    claim = claim_for(
        signature,
        lambda key: rules_of(scope.entity_key if key else ""),
        target,
        now_s,
    )
    rule_key = scope.entity_key if claim.rule_key else ""
    return dataclasses.replace(claim, audience_path=scope, rule_key=rule_key)


def _forward_claim(
    text: str,
    credentials: Credentials,
    rules_of: RulesOf,
    path: EntityPath,
    now_s: int,
) -> Claim:
    signature = credential_in(text)
    if not sas.is_sas(signature):
        return claim_from(signature, path, rules_of, credentials.tokens, now_s)
    signed = sas.parse_token(signature).resource_key
    if not _is_host(signed, credentials):
        return claim_for(signature, rules_of, path, now_s)
    # Only rules of the namespace count here: no entity has the name of the host.
    claim = claim_for(
        signature, lambda key: () if key else rules_of(""), EntityPath(signed), now_s
    )
    return dataclasses.replace(claim, audience_path=_NAMESPACE)


def _is_host(signed: str, credentials: Credentials) -> bool:
    """Whether a token was signed for the bare host, as the JavaScript client does it.

    The client says which host it wants, so its word is not enough: what is signed must
    be a thing that no entity is called, or begin with the namespace's own name.
    """
    if not signed or signed != credentials.authority.lower():
        return False
    own = f"{credentials.namespace.lower()}."
    return ":" in signed or signed == "localhost" or signed.startswith(own)
