"""Paths of the REST data plane.

Owns the reading of `/{entity}/messages`, `/{entity}/messages/head` and
`/{entity}/messages/{message}/{lock token}`. `%2F` in the id of a message stays in the
id. Any other path may be one of the administration API.
Knows nothing about which entities exist, nor about rights.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from uuid import UUID

from twinbus.core.names import EntityPath
from twinbus.core.rights import Operation
from twinbus.server.http.route import entity_at, split_path

_MESSAGES = "messages"
_HEAD = "head"
_LOCKED = "{message}/{lock token}"
_TOKEN = re.compile(r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}")

_NO_TOKEN = UUID(int=0)


class RestAction(enum.Enum):
    """What can be asked for: the end of its path, its method, and its operation."""

    SEND = _MESSAGES, "POST", Operation.SEND_LINK
    PEEK_LOCK = _HEAD, "POST", Operation.RECEIVE_LINK
    RECEIVE_AND_DELETE = _HEAD, "DELETE", Operation.RECEIVE_LINK
    COMPLETE = _LOCKED, "DELETE", Operation.SETTLE
    UNLOCK = _LOCKED, "PUT", Operation.SETTLE
    RENEW = _LOCKED, "POST", Operation.RENEW_LOCK

    @property
    def operation(self) -> Operation:
        """What `rights.allowed` calls it."""
        return self.value[2]


_BY_PATH = {action.value[:2]: action for action in RestAction}


@dataclass(frozen=True, slots=True)
class RestRequest:
    """A request of the data plane."""

    action: RestAction
    path: EntityPath
    # The path as the client wrote it, without outer slashes: this may be signed.
    spelled: str
    # The sequence number or the message id, and the token of the lock.
    message: str = ""
    token: UUID = _NO_TOKEN


def find_rest(method: str, raw_path: str) -> RestRequest | None:
    """Read the path of a request, as it stands in the request line."""
    split = split_path(raw_path)
    if split is None:
        return None
    spelled, segments = split
    message, token = "", _NO_TOKEN
    match [segment.lower() for segment in segments]:
        case [_, *_, word] if word == _MESSAGES:
            end, entity = _MESSAGES, segments[:-1]
        case [_, *_, word, head] if (word, head) == (_MESSAGES, _HEAD):
            end, entity = _HEAD, segments[:-2]
        case [_, *_, word, _, text] if word == _MESSAGES and _TOKEN.fullmatch(text):
            end, entity = _LOCKED, segments[:-3]
            message, token = segments[-2], UUID(text)
        case _:
            return None
    action = _BY_PATH.get((end, method))
    path = None if action is None else entity_at(entity)
    if action is None or path is None:
        return None
    return RestRequest(action, path, spelled, message, token)
