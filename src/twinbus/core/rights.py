"""Rights: who may do what, decided in one place.

Owns the table of operations and the right that each needs, and `allowed`, the one
function that decides from claims, operation and path. What is not in the table is
refused. A claim remembers the key that proved it and ends with that key.
Knows nothing about links, requests or which entities exist.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from twinbus import errors, limits
from twinbus.core import names, sas
from twinbus.core.names import EntityPath
from twinbus.core.sas import Secret


class Right(enum.Flag):
    """What a rule gives. Manage holds the bits of the other two, so it implies them."""

    SEND = 1
    LISTEN = 2
    MANAGE = 7


_NO_RIGHT = Right(0)
# When a claim ends that has no end of its own.
_NEVER_S = 1 << 62

# In the order in which the real service lists them.
_NAMED = {"Manage": Right.MANAGE, "Send": Right.SEND, "Listen": Right.LISTEN}


def parse_rights(texts: Iterable[str]) -> Right:
    """Read `Send`, `Listen` and `Manage`, in any case."""
    known = {name.lower(): right for name, right in _NAMED.items()}
    rights = _NO_RIGHT
    for text in texts:
        if text.lower() not in known:
            raise errors.ArgumentError(
                f"The right '{text}' is not known. Use Send, Listen or Manage."
            )
        rights |= known[text.lower()]
    return rights


def format_rights(rights: Right) -> tuple[str, ...]:
    """The names of all rights held, implied ones too."""
    return tuple(name for name, right in _NAMED.items() if right in rights)


@dataclass(frozen=True, slots=True)
class AuthorizationRule:
    """A named pair of keys and the rights that they give."""

    name: str
    rights: Right
    primary_key: Secret
    secondary_key: Secret | None = None
    # When it was made and changed is no setting, so it does not make two rules differ.
    created_at_ms: int = field(default=0, compare=False)
    modified_at_ms: int = field(default=0, compare=False)

    @property
    def keys(self) -> sas.KeyPair:
        """Both keys, as `sas.proving_key` takes them."""
        return self.primary_key, self.secondary_key

    def validate(self) -> None:
        """Refuse a rule without a name, rights or a usable key."""
        if not 1 <= len(self.name) <= limits.KEY_NAME_CHARS_MAX:
            raise errors.ArgumentOutOfRange(
                "The name of an authorization rule must have 1 to "
                f"{limits.KEY_NAME_CHARS_MAX} characters, not {len(self.name)}."
            )
        if not self.rights:
            raise errors.ArgumentError(
                f"The authorization rule '{self.name}' gives no rights. "
                "List Send, Listen or Manage."
            )
        for key in self.keys:
            if key and not 1 <= len(key.reveal()) <= limits.KEY_CHARS_MAX:
                raise errors.ArgumentOutOfRange(
                    f"A key of the authorization rule '{self.name}' must have 1 to "
                    f"{limits.KEY_CHARS_MAX} characters, not {len(key.reveal())}."
                )


# What the SDKs ask a token for.
AUDIENCE = "https://servicebus.azure.net"
# The data roles of Azure, by their names.
ROLES: Mapping[str, Right] = {
    "Azure Service Bus Data Sender": Right.SEND,
    "Azure Service Bus Data Receiver": Right.LISTEN,
    "Azure Service Bus Data Owner": Right.MANAGE,
}


@dataclass(frozen=True, slots=True)
class JwtOptions:
    """Whose tokens are trusted, and what their roles and scopes give."""

    issuer: str
    jwks: Path
    audience: str = AUDIENCE
    roles: Mapping[str, Right] = field(default_factory=lambda: ROLES)


def check_rules(rules: Sequence[AuthorizationRule]) -> None:
    """Refuse a bad rule, two of one name, and too many of them."""
    if len(rules) > limits.AUTHORIZATION_RULES_MAX:
        raise errors.ArgumentOutOfRange(
            f"There are {len(rules)} authorization_rules; "
            f"at most {limits.AUTHORIZATION_RULES_MAX} are allowed."
        )
    seen: set[str] = set()
    for rule in rules:
        rule.validate()
        if rule.name in seen:
            raise errors.ArgumentError(
                f"There are two authorization_rules named '{rule.name}'. Rename one."
            )
        seen.add(rule.name)


def dated(
    rules: Iterable[AuthorizationRule], old: Iterable[AuthorizationRule], now_ms: int
) -> tuple[AuthorizationRule, ...]:
    """The rules with their times: one that is as it was keeps those it had."""
    known = {rule.name: rule for rule in old}
    found = []
    for rule in rules:
        before = known.get(rule.name)
        created_ms = before.created_at_ms if before else now_ms
        modified_ms = before.modified_at_ms if before == rule else now_ms
        found.append(
            replace(rule, created_at_ms=created_ms, modified_at_ms=modified_ms)
        )
    return tuple(found)


class Operation(enum.Enum):
    """Everything that needs a right. Requests carry the name that the wire uses."""

    SEND_LINK = "send link"
    RECEIVE_LINK = "receive link"
    SETTLE = "settle"
    MANAGEMENT_LINK = "management link"
    OPEN_CONSOLE = "open the console"

    RENEW_LOCK = "com.microsoft:renew-lock"
    RENEW_SESSION_LOCK = "com.microsoft:renew-session-lock"
    PEEK = "com.microsoft:peek-message"
    RECEIVE_BY_SEQUENCE = "com.microsoft:receive-by-sequence-number"
    UPDATE_DISPOSITION = "com.microsoft:update-disposition"
    SCHEDULE = "com.microsoft:schedule-message"
    CANCEL_SCHEDULED = "com.microsoft:cancel-scheduled-message"
    GET_SESSION_STATE = "com.microsoft:get-session-state"
    SET_SESSION_STATE = "com.microsoft:set-session-state"
    LIST_SESSIONS = "com.microsoft:get-message-sessions"
    ADD_RULE = "com.microsoft:add-rule"
    REMOVE_RULE = "com.microsoft:remove-rule"
    LIST_RULES = "com.microsoft:enumerate-rules"
    BATCH_DELETE = "com.microsoft:batch-delete-messages"

    CREATE_ENTITY = "create entity"
    READ_ENTITY = "read entity"
    UPDATE_ENTITY = "update entity"
    DELETE_ENTITY = "delete entity"
    LIST_ENTITIES = "list entities"
    READ_NAMESPACE = "read namespace"
    PURGE = "purge"
    RESET_NAMESPACE = "reset namespace"
    READ_RULES = "read authorization rules"
    CHANGE_RULES = "change authorization rules"
    REHEARSE_FAULTS = "rehearse faults"
    CLOSE_CONNECTION = "close connection"


_ANY = (Right.SEND, Right.LISTEN)

# One of the rights on a line is enough. An operation that is missing is refused.
_NEEDS: dict[Operation, tuple[Right, ...]] = {
    Operation.SEND_LINK: (Right.SEND,),
    Operation.RECEIVE_LINK: (Right.LISTEN,),
    Operation.SETTLE: (Right.LISTEN,),
    # The link itself does nothing; each request on it is decided by its own line.
    Operation.MANAGEMENT_LINK: _ANY,
    # So is what the pages of the console do.
    Operation.OPEN_CONSOLE: _ANY,
    Operation.RENEW_LOCK: (Right.LISTEN,),
    Operation.RENEW_SESSION_LOCK: (Right.LISTEN,),
    Operation.PEEK: (Right.LISTEN,),
    Operation.RECEIVE_BY_SEQUENCE: (Right.LISTEN,),
    Operation.UPDATE_DISPOSITION: (Right.LISTEN,),
    Operation.SCHEDULE: (Right.SEND,),
    Operation.CANCEL_SCHEDULED: (Right.SEND,),
    Operation.GET_SESSION_STATE: (Right.LISTEN,),
    Operation.SET_SESSION_STATE: (Right.LISTEN,),
    Operation.LIST_SESSIONS: (Right.LISTEN,),
    # As documented, the rule manager of the SDKs needs no more than Listen.
    Operation.ADD_RULE: (Right.LISTEN,),
    Operation.REMOVE_RULE: (Right.LISTEN,),
    Operation.LIST_RULES: (Right.LISTEN,),
    Operation.BATCH_DELETE: (Right.LISTEN,),
    Operation.CREATE_ENTITY: (Right.MANAGE,),
    Operation.READ_ENTITY: (Right.MANAGE,),
    Operation.UPDATE_ENTITY: (Right.MANAGE,),
    Operation.DELETE_ENTITY: (Right.MANAGE,),
    Operation.LIST_ENTITIES: (Right.MANAGE,),
    Operation.READ_NAMESPACE: (Right.MANAGE,),
    Operation.PURGE: (Right.MANAGE,),
    Operation.RESET_NAMESPACE: (Right.MANAGE,),
    Operation.READ_RULES: (Right.MANAGE,),
    Operation.CHANGE_RULES: (Right.MANAGE,),
    Operation.REHEARSE_FAULTS: (Right.MANAGE,),
    Operation.CLOSE_CONNECTION: (Right.MANAGE,),
}


RulesOf = Callable[[str], Sequence[AuthorizationRule]]


@dataclass(frozen=True, slots=True)
class Proof:
    """The key that proved a token: where its rule sits, the rule's name, the key."""

    rule_key: str
    name: str
    key: Secret


@dataclass(frozen=True, slots=True)
class Claim:
    """What one proved token gives, for one audience, until its expiry.

    `rule_key` is how far it reaches: the namespace (empty) or one queue or topic.
    """

    rights: Right
    audience_path: EntityPath
    expires_s: int
    rule_key: str = ""
    # None for a token that no rule of ours has proved.
    proof: Proof | None = field(default=None, compare=False)

    def live(self, now_s: int) -> bool:
        """Whether the claim still counts."""
        return now_s < self.expires_s

    def covers(self, path: EntityPath) -> bool:
        """Whether the path is the audience or below it, and in the rule's reach.

        A rule on queue `a` does not reach queue `a/b`, although its path is longer.
        """
        in_reach = not self.rule_key or self.rule_key == path.entity_key
        return in_reach and names.covers(self.audience_path.scope_key, path.scope_key)


def allowed(
    claims: Iterable[Claim], operation: Operation, path: EntityPath, now_s: int
) -> Claim:
    """The live claim that gives the right that the operation needs; else raise."""
    needs = _NEEDS.get(operation, ())
    for claim in claims:
        has_right = any(right in claim.rights for right in needs)
        if has_right and claim.live(now_s) and claim.covers(path):
            return claim
    wanted = "' or '".join(name for name, right in _NAMED.items() if right in needs)
    raise errors.Unauthorized(
        f"Unauthorized access. '{wanted}' claim(s) are required to perform this "
        f"operation. Resource: '{path.text}'."
    )


def claim_for(text: str, rules_of: RulesOf, target: EntityPath, now_s: int) -> Claim:
    """Prove a token for a target and say what it gives.

    `rules_of` gives the rules of a scope: of the namespace for the empty key, of a
    queue or topic for its key, nothing for anything else. A name may exist in both
    scopes with different keys, so each is tried.
    """
    token = sas.parse_token(text)
    key_names = token.key_names()
    proved: tuple[Right, Proof] | None = None
    for rule_key in dict.fromkeys(("", target.entity_key)):
        rules = {rule.name: rule for rule in rules_of(rule_key)}
        rule = next((rules[name] for name in key_names if name in rules), None)
        # Asked without a rule too: an unknown name must not answer sooner.
        key = sas.proving_key(token, rule.keys if rule else None)
        if proved is None and rule is not None and key is not None:
            proved = rule.rights, Proof(rule_key, rule.name, key)
    if proved is None:
        raise errors.Unauthorized(sas.NOT_PROVED)
    sas.check_expiry(token, now_s)
    sas.check_scope(token, target)
    rights, proof = proved
    return Claim(rights, target, token.expires_s, proof.rule_key, proof)


def claim_of_key(
    name: str, key: Secret, rules_of: RulesOf, scopes: Iterable[str]
) -> Claim:
    """What a key itself gives, in the first of the scopes whose rule has it.

    It ends with the key. The scopes are those of `RulesOf`.
    """
    for rule_key in scopes:
        for rule in rules_of(rule_key):
            # All are compared: an unknown name must not answer sooner.
            its = [each for each in rule.keys if each == key]
            if its and rule.name == name:
                proof = Proof(rule_key, name, key)
                path = names.parse_address(rule_key)
                return Claim(rule.rights, path, _NEVER_S, rule_key, proof)
    raise errors.Unauthorized("The name of the rule or its key is wrong.")


def standing(claim: Claim, rules_of: RulesOf) -> Claim | None:
    """What is left of a claim after rules have changed.

    Nothing if its rule or its key is gone; else what its rule still gives.
    """
    proof = claim.proof
    if proof is None:
        return claim
    for rule in rules_of(proof.rule_key):
        if rule.name == proof.name and proof.key in rule.keys:
            rights = claim.rights & rule.rights
            return replace(claim, rights=rights) if rights else None
    return None


def renewed(old: Claim | None, new: Claim, now_s: int) -> Claim:
    """The claim that stands after a second token for one audience.

    A live claim may be prolonged or narrowed, never widened: who wants more rights
    opens another connection.
    """
    if old is None or not old.live(now_s):
        return new
    rights = old.rights & new.rights
    if not rights:
        raise errors.Unauthorized(
            "A renewed token may not widen the rights of the first."
        )
    return replace(new, rights=rights, rule_key=old.rule_key or new.rule_key)
