"""Where a request for upkeep leads: its path, taken apart.

Owns these paths, which no entity can have, since names hold no dollar sign:

    /$purge, /{entity}/$purge                       messages
    /$reset                                         the namespace
    /$authorizationRules                            its authorization rules
    /$authorizationRules/{name}                     one of them
    /$authorizationRules/{name}/listKeys            its keys
    /$authorizationRules/{name}/regenerateKeys      another key

A path is cut at its slashes first and each part is decoded once, so that no spelling of
one place can pass for another. Words are known in any case, names of rules are not.
Knows nothing about which entities exist, nor about who asks.
"""

from __future__ import annotations

import enum
import urllib.parse
from dataclasses import dataclass

from twinbus.core.names import EntityPath, parse_address
from twinbus.core.rights import Operation

_PURGE = "$purge"
_RESET = "$reset"
_RULES = "$authorizationrules"


class Chore(enum.Enum):
    """What is asked for."""

    PURGE = "purge"
    RESET = "reset"
    LIST_RULES = "list rules"
    PUT_RULE = "put rule"
    DELETE_RULE = "delete rule"
    LIST_KEYS = "list keys"
    REGENERATE = "regenerate keys"
    # A path of ours, but nothing that can be done with it.
    NOTHING = "nothing"


_OPERATIONS = {
    Chore.PURGE: Operation.PURGE,
    Chore.RESET: Operation.RESET_NAMESPACE,
    Chore.LIST_RULES: Operation.READ_RULES,
    Chore.LIST_KEYS: Operation.READ_RULES,
}
_NAMESPACE = EntityPath("")


@dataclass(frozen=True, slots=True)
class Task:
    """A request for upkeep."""

    chore: Chore
    # The path as the client wrote it, without outer slashes: this may be signed.
    spelled: str
    # What it is about: an entity, or the namespace.
    path: EntityPath = _NAMESPACE
    # The name of an authorization rule.
    rule: str = ""

    @property
    def operation(self) -> Operation:
        """What `rights.allowed` calls it."""
        return _OPERATIONS.get(self.chore, Operation.CHANGE_RULES)


def find_task(method: str, raw_path: str) -> Task | None:
    """Read the path of a request, as it stands in the request line."""
    spelled = raw_path.removeprefix("/").removesuffix("/")
    try:
        segments = [
            urllib.parse.unquote(segment, errors="strict")
            for segment in spelled.split("/")
        ]
    except UnicodeDecodeError:
        return None
    match [segment.lower() for segment in segments]:
        case [word] if word == _RESET:
            chore = Chore.RESET if method == "POST" else Chore.NOTHING
            return Task(chore, spelled)
        case [*_, word] if word == _PURGE:
            chore = Chore.PURGE if method == "POST" else Chore.NOTHING
            return _purge(chore, segments[:-1], spelled)
        case [word, *rest] if word == _RULES:
            return _rules(method, rest, segments, spelled)
    return None


def _purge(chore: Chore, entity: list[str], spelled: str) -> Task | None:
    if not entity:
        return Task(chore, spelled)
    address = "/".join(entity)
    path = parse_address(address)
    # Whatever else reads an address must see in it what stands there: no empty
    # segment, no host.
    if path.management or path.is_namespace or path.text.lower() != address.lower():
        return None
    return Task(chore, spelled, path)


_OF_LIST = {"GET": Chore.LIST_RULES}
_OF_RULE = {"PUT": Chore.PUT_RULE, "DELETE": Chore.DELETE_RULE}
_OF_KEYS = {"listkeys": Chore.LIST_KEYS, "regeneratekeys": Chore.REGENERATE}


def _rules(
    method: str, rest: list[str], segments: list[str], spelled: str
) -> Task | None:
    match rest:
        case []:
            return Task(_OF_LIST.get(method, Chore.NOTHING), spelled)
        case [_]:
            chore = _OF_RULE.get(method, Chore.NOTHING)
            return Task(chore, spelled, rule=segments[1])
        case [_, action] if action in _OF_KEYS:
            chore = _OF_KEYS[action] if method == "POST" else Chore.NOTHING
            return Task(chore, spelled, rule=segments[1])
    return None
