"""The credential of an HTTP request: its `Authorization` header, proved.

Owns how a credential is written in the header and what a signature may be for: the
namespace, the entity, or the URL of the request, with or without scheme, exactly as the
client wrote it. Scopes are compared by whole segments in that same spelling.
`rights.allowed` decides, with the claim from here.
"""

from __future__ import annotations

import dataclasses
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from starlette.requests import HTTPConnection

from twinbus.clock import Now
from twinbus.core import sas
from twinbus.core.names import EntityPath
from twinbus.core.rights import Claim, Operation, RulesOf, allowed, claim_for
from twinbus.errors import Unauthorized
from twinbus.server.access.failures import TokenTried
from twinbus.server.access.jwt import BearerTokens, claim_from
from twinbus.server.access.port import NamespacePort
from twinbus.server.broker.directory.placement import find_entity, rules_of
from twinbus.server.broker.host import Host
from twinbus.server.http.strangers import count_request

_BEARER = "bearer "


@dataclass(frozen=True, slots=True)
class Door:
    """A namespace, as far as a proof needs it."""

    namespace: str
    rules_of: RulesOf
    # Whether a queue or topic has that lower-case name.
    has_entity: Callable[[str], bool]
    tokens: BearerTokens | None = None

    @classmethod
    def of(cls, port: NamespacePort, host: Host) -> Door:
        """The way into a namespace that was reached through a port."""
        return cls(
            host.namespace.name,
            partial(rules_of, host),
            lambda key: find_entity(host, key) is not None,
            port.tokens_of(host),
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request wants to do."""

    operation: Operation
    # The entity, for the decision about rights.
    scope: EntityPath
    # The path as the client wrote it, without outer slashes.
    spelled: str
    # The host and port that the client asked for.
    authority: str


def admitted(
    request: HTTPConnection,
    asked: Asked,
    port: NamespacePort,
    host: Host,
    unproved: str = "",
) -> Claim:
    """The claim that gives a request its right; `Unauthorized` if there is none.

    `unproved` comes before the reason why a credential proves nothing.
    """
    now = host.token_clock.now()
    try:
        claim = _proved(request, asked, port, host, now)
    except Unauthorized as error:
        raise Unauthorized(f"{unproved}{error.text}") from None
    allowed([claim], asked.operation, asked.scope, now.wall_ms // 1000)
    if host.faults is not None and asked.operation is not Operation.REHEARSE_FAULTS:
        host.faults.check_access(asked.scope.key)
    return claim


def _proved(
    request: HTTPConnection,
    asked: Asked,
    port: NamespacePort,
    host: Host,
    now: Now,
) -> Claim:
    """Prove the credential of a request.

    Failures count for the client's address, as those on a connection do. Too many of
    them are `TooManyRequests`.
    """
    header = request.headers.get("authorization", "")
    if not header:
        raise Unauthorized("The request has no Authorization header.")
    address = request.client.host if request.client else ""
    try:
        door = Door.of(port, host)
        rules = [*door.rules_of(""), *door.rules_of(asked.scope.entity_key)]
        tried = TokenTried(credential_in(header), asked.scope.text, rules)
        with port.failures.counted(address, now.steady_ms, tried):
            return claim_in(header, asked, door, now.wall_ms // 1000)
    except Unauthorized:
        count_request(port, request.scope)
        raise


def credential_in(header: str) -> str:
    """The token in a header. The Python client sends signatures as bearers, too."""
    if header.lower().startswith(_BEARER):
        return header[len(_BEARER) :].strip()
    return header


def claim_in(header: str, asked: Asked, door: Door, now_s: int) -> Claim:
    """Prove what stands in the header; `Unauthorized` if it proves nothing."""
    credential = credential_in(header)
    if not sas.is_sas(credential):
        return claim_from(credential, asked.scope, door.rules_of, door.tokens, now_s)
    scope = asked.scope
    claim = claim_for(
        credential,
        lambda key: door.rules_of(scope.entity_key if key else ""),
        _signable(sas.parse_token(credential).resource_key, asked, door),
        now_s,
    )
    rule_key = scope.entity_key if claim.rule_key else ""
    proof = claim.proof and dataclasses.replace(claim.proof, rule_key=rule_key)
    return dataclasses.replace(
        claim, audience_path=scope, rule_key=rule_key, proof=proof
    )


def _signable(signed: str, asked: Asked, door: Door) -> EntityPath:
    """The whole of what is asked for, spelled as the signature spells its part."""
    # Names hold no percent sign, so a scope with one is a URL's path as it was written.
    path = asked.spelled
    if "%" not in signed:
        path = urllib.parse.unquote(path)
    host = signed.partition("/")[0]
    return EntityPath(f"{host}/{path}" if _is_host(host, asked, door) else path)


def _is_host(word: str, asked: Asked, door: Door) -> bool:
    """Whether a signature without a scheme begins with the host.

    The client says which host it wants, so its word is not enough: it must also be a
    thing that no entity is called.
    """
    if not word or word != asked.authority.lower() or door.has_entity(word):
        return False
    own = f"{door.namespace.lower()}."
    return ":" in word or word == "localhost" or word.startswith(own)
