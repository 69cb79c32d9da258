"""Where a request of the REST data plane leads: its path, taken apart.

Owns the reading of `/{entity}/messages`, `/{entity}/messages/head` and
`/{entity}/messages/{message}/{lock token}`. A path is cut at its slashes first and each
part is decoded once, so `%2F` in the id of a message stays in the id. What is no such
path is nobody's business here: the administration API may know it.
Knows nothing about which entities exist, nor about who asks.
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
_TOKEN = re.compile(r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}")

_NO_TOKEN = UUID(int=0)


class Deed(enum.Enum):
    """What is asked for; the words keep deeds of one right apart."""

    SEND = Operation.SEND_LINK, "send"
    LOCK = Operation.RECEIVE_LINK, "peek-lock"
    TAKE = Operation.RECEIVE_LINK, "receive and delete"
    COMPLETE = Operation.SETTLE, "delete"
    UNLOCK = Operation.SETTLE, "unlock"
    RENEW = Operation.RENEW_LOCK, "renew"

    @property
    def operation(self) -> Operation:
        """What `rights.allowed` calls it."""
        return self.value[0]


_OF_HEAD = {"POST": Deed.LOCK, "DELETE": Deed.TAKE}
_OF_LOCK = {"POST": Deed.RENEW, "DELETE": Deed.COMPLETE, "PUT": Deed.UNLOCK}


@dataclass(frozen=True, slots=True)
class Errand:
    """A request of the data plane."""

    deed: Deed
    path: EntityPath
    # The path as the client wrote it, without outer slashes: this may be signed.
    spelled: str
    # The sequence number or the message id, and the token of the lock.
    message: str = ""
    token: UUID = _NO_TOKEN


def find_errand(method: str, raw_path: str) -> Errand | None:
    """Read the path of a request, as it stands in the request line."""
    split = split_path(raw_path)
    if split is None:
        return None
    spelled, segments = split
    lowered = [segment.lower() for segment in segments]
    if method == "POST" and lowered[1:][-1:] == [_MESSAGES]:
        return _errand(Deed.SEND, segments[:-1], spelled)
    if lowered[1:][-2:] == [_MESSAGES, _HEAD] and method in _OF_HEAD:
        return _errand(_OF_HEAD[method], segments[:-2], spelled)
    if lowered[1:][-3:-2] == [_MESSAGES] and method in _OF_LOCK:
        *entity, _messages, message, token = segments
        if _TOKEN.fullmatch(token):
            return _errand(_OF_LOCK[method], entity, spelled, message, UUID(token))
    return None


def _errand(
    deed: Deed,
    entity: list[str],
    spelled: str,
    message: str = "",
    token: UUID = _NO_TOKEN,
) -> Errand | None:
    path = entity_at(entity)
    return None if path is None else Errand(deed, path, spelled, message, token)
