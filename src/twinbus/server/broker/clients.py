"""What a host knows of its clients: what it calls when something happens to them.

Also what clients know of whatever they wait for. Owns no state. Links, connections and
requests implement these; the host calls them after a commit, on the event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from twinbus.errors import TwinbusError


class Consumer(Protocol):
    """A receiver of a container: a link or an HTTP request."""

    def deliver(self, want: Any, taken: Any) -> None:
        """What was taken for a want is on disk."""

    def store_failed(self, error: TwinbusError) -> None:
        """The store has stopped: nothing can be taken for now."""


class SessionHolder(Protocol):
    """A link that holds a session's lock."""

    @property
    def peer(self) -> str:
        """Who it is, for people."""

    def session_lost(self) -> None:
        """The lock has ended."""


class ClaimHolder(Protocol):
    """A connection or request whose claims end with the rules that they came from."""

    def rules_changed(self) -> None:
        """Look at the claims again; also when the clock was set."""


class EntityLink(Protocol):
    """A link to an entity."""

    def entity_deleted(self) -> None:
        """The entity is gone: detach."""


class HasRoom(Protocol):
    """A host, or what stands before several: it can be crowded."""

    # Called when the last of too many waiting requests is gone.
    on_room: list[Callable[[], None]]


class EntityLinks:
    """All links to the entities of one host, by the ids of these."""

    def __init__(self) -> None:
        self._by_entity: dict[int, set[EntityLink]] = {}

    def __len__(self) -> int:
        return len(self._by_entity)

    def know(self, entity: int, link: EntityLink) -> None:
        """Tell this link when the entity is deleted."""
        self._by_entity.setdefault(entity, set()).add(link)

    def forget(self, entity: int, link: EntityLink) -> None:
        """The link is gone."""
        links = self._by_entity.get(entity)
        if links is not None:
            links.discard(link)
            if not links:
                del self._by_entity[entity]

    def pop(self, entity: int) -> set[EntityLink]:
        """The links to an entity that is gone."""
        return self._by_entity.pop(entity, set())
