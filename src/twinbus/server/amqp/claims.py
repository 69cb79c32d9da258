"""Claims of one connection: tokens put to `$cbs`, and what they allow.

Rights default to none. Every decision goes through `core.rights.allowed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

from twinbus.core.names import CBS, EntityPath, parse_address
from twinbus.core.rights import (
    AuthorizationRule,
    Claim,
    Operation,
    allowed,
    claim_of_key,
    renewed,
    standing,
)
from twinbus.core.sas import Secret
from twinbus.errors import EntityNotFound, TwinbusError
from twinbus.server.access.failures import TokenTried
from twinbus.server.access.jwt import claim_from
from twinbus.server.amqp.node import Node
from twinbus.server.amqp.replies import reply_node
from twinbus.server.broker.answers import status_of
from twinbus.server.broker.directory.placement import find_entity, rules_of
from twinbus.server.broker.nodes import look_again
from twinbus.wire.events import Delivered
from twinbus.wire.link import LinkState
from twinbus.wire.message.sections import Request, encode_reply
from twinbus.wire.performatives import Accepted
from twinbus.wire.types import Int

if TYPE_CHECKING:
    from twinbus.server.amqp.connection import ServerConnection
    from twinbus.server.broker.host import Host
    from twinbus.wire.session import Session

_ACCEPTED = Accepted()
_NOT_FOUND = 404


class Claims:
    """What a connection may do."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._by_audience: dict[str, Claim] = {}
        # The name of a rule and its key, if the client has logged in with them.
        self._login: tuple[str, Secret] | None = None

    def allow(self, operation: Operation, path: EntityPath) -> Claim:
        """The live claim that gives the right; `Unauthorized` if there is none."""
        claim = allowed(self._around(path), operation, path, self._now_s())
        faults = self._connection.host.faults
        if faults is not None:
            faults.check_access(path.key)
        return claim

    def _around(self, path: EntityPath) -> list[Claim]:
        """The claims whose audience may hold that path, however many there are."""
        held = self._by_audience
        if not path.scope_key:
            return list(held.values())
        audiences = accumulate(path.scope_key.split("/"), "{}/{}".format)
        return [held[key] for key in ("", *audiences) if key in held]

    def put(self, audience: str, token: str) -> Claim:
        """Prove a token and keep its claim."""
        connection = self._connection
        target = parse_address(audience)
        host = connection.host
        now = host.token_clock.now()
        now_s = now.wall_ms // 1000
        rules = [*self._rules_of(""), *self._rules_of(target.entity_key)]
        tried = TokenTried(token, target.text, rules)
        failures = connection.port.failures
        with failures.counted(connection.address, now.steady_ms, tried):
            tokens = connection.port.tokens_of(host)
            claim = claim_from(token, target, self._rules_of, tokens, now_s)
        # Also if there is no such entity: its client is no stranger.
        connection.trust()
        if not target.is_namespace and find_entity(host, target.key) is None:
            raise EntityNotFound(target.text, connection.engine.peer_open.hostname)
        old = self._by_audience.get(target.scope_key)
        claim = renewed(old, claim, now_s)
        self._by_audience[target.scope_key] = claim
        if old is not None and (old.rights, old.rule_key) != (
            claim.rights,
            claim.rule_key,
        ):
            # Links that the narrower claim does not cover must not live on.
            connection.check_claims()
        return claim

    def log_in(self, host: Host, name: str, key: Secret) -> None:
        """Prove the name and the key of a rule; its rights come with the open."""
        self._login = name, key
        self._prove_login(host)

    def opened(self) -> None:
        """The client has said which namespace it is for: a login gives its rights."""
        if self._login is not None:
            claim = self._prove_login(self._connection.host)
            self._by_audience[claim.audience_path.scope_key] = claim
            self._connection.claimed(claim)

    def _prove_login(self, host: Host) -> Claim:
        """Look for the rule, of the namespace or of an entity."""
        assert self._login is not None
        connection = self._connection
        entities = host.namespace.shards.entities()
        scopes = (each.key for each in entities if each.authorization_rules)
        steady_ms = host.token_clock.now().steady_ms
        with connection.port.failures.counted(connection.address, steady_ms):
            return claim_of_key(
                *self._login, partial(rules_of, host), chain([""], scopes)
            )

    def drop_revoked(self) -> None:
        """Rules have changed: claims whose key is gone are gone with it."""
        found = {
            key: standing(c, self._rules_of) for key, c in self._by_audience.items()
        }
        self._by_audience = {key: claim for key, claim in found.items() if claim}

    def _rules_of(self, scope_key: str) -> Sequence[AuthorizationRule]:
        return rules_of(self._connection.host, scope_key)

    def next_end_s(self) -> int | None:
        """When the next of the live claims ends; those that have ended are dropped."""
        now_s = self._now_s()
        live = {key: c for key, c in self._by_audience.items() if c.live(now_s)}
        self._by_audience = live
        return min((claim.expires_s for claim in live.values()), default=None)

    def _now_s(self) -> int:
        return self._connection.host.token_clock.now().wall_ms // 1000


class CbsNode(Node):
    """Our end of the link on which a client puts tokens."""

    def on_delivery(self, delivery: Delivered) -> None:
        """A token came."""
        session = delivery.link.session
        if not delivery.settled:
            session.answer(delivery.delivery_id, delivery.delivery_id, _ACCEPTED)
        self._answer(session, Request(delivery.payload))

    def _answer(
        self, session: Session, request: Request, *, is_last: bool = False
    ) -> None:
        """Answer at once, or after a look at what other nodes made."""
        connection = self.connection
        if self.link.state is not LinkState.ATTACHED:
            return
        status, text = self._decide(request)
        if status == _NOT_FOUND and not is_last:
            again = partial(self._answer, session, request, is_last=True)
            if look_again(connection.host, again):
                return
        node = reply_node(connection, session, CBS, request.reply_to)
        if node is not None:
            properties: dict[str, Any] = {
                "status-code": Int(status),
                "status-description": text,
            }
            node.send(encode_reply(request.message_id, properties, None))
        connection.flush_soon()

    def _decide(self, request: Request) -> tuple[int, str]:
        properties = request.application_properties
        audience = properties.get("name")
        if properties.get("operation") != "put-token":
            return 400, "The operation must be put-token."
        if not isinstance(audience, str) or not isinstance(request.body, str):
            return 400, "put-token needs the property 'name' and a token as its body."
        try:
            claim = self.connection.claims.put(audience, request.body)
        except TwinbusError as error:
            if isinstance(error, EntityNotFound):
                self.connection.tell_missing(error.path)
            return status_of(error), error.text
        # Claims belong to the connection and outlive the link.
        self.connection.claimed(claim)
        return 202, "Accepted"
