"""Commands that several surfaces hand in (`turn.Command`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twinbus.errors import EntityNotFound, StoreFault, TwinbusError
from twinbus.server.broker.entities import Entity
from twinbus.server.broker.turn import Turn
from twinbus.store.base import Lock, SessionGrant
from twinbus.wire.message.sections import Incoming

if TYPE_CHECKING:
    from twinbus.server.broker.namespace import Namespace


class Send:
    """Deliveries for one entity, each of one message or a batch.

    More may be added until the host takes it. The result has the errors of those
    that were refused, by their place.
    """

    __slots__ = ("deliveries", "entity")

    def __init__(self, entity: Entity) -> None:
        self.entity = entity
        self.deliveries: list[Sequence[Incoming]] = []

    def __call__(self, namespace: Namespace, turn: Turn) -> dict[int, TwinbusError]:
        """Send all in one go; if that is refused, each delivery on its own."""
        entity = self.entity
        deliveries = self.deliveries
        if namespace.entities.find(entity.key) is not entity:
            raise EntityNotFound(entity.name)
        if len(deliveries) == 1:
            namespace.send(entity, deliveries[0], turn)
            return {}
        if namespace.limits_rate(entity):
            # These arrived together by chance: each must find room in the rate.
            return self._send_each(namespace, turn)
        try:
            namespace.send(entity, [m for each in deliveries for m in each], turn)
        except StoreFault:
            raise
        except TwinbusError:
            return self._send_each(namespace, turn)
        return {}

    def _send_each(self, namespace: Namespace, turn: Turn) -> dict[int, TwinbusError]:
        refused: dict[int, TwinbusError] = {}
        for place, messages in enumerate(self.deliveries):
            try:
                namespace.send(self.entity, messages, turn)
            except StoreFault:
                raise
            except TwinbusError as error:
                refused[place] = error
        return refused


class Unlock:
    """Give back messages that never reached their receiver, uncounted."""

    __slots__ = ("_locks",)

    def __init__(self, locks: Sequence[Lock]) -> None:
        self._locks = locks

    def __call__(self, namespace: Namespace, turn: Turn) -> None:
        namespace.unlock(self._locks, turn)


class UnlockSession:
    """End the lock of a session; what its receiver held counts as delivered."""

    __slots__ = ("_container", "_grant")

    def __init__(self, container: int, grant: SessionGrant) -> None:
        self._container = container
        self._grant = grant

    def __call__(self, namespace: Namespace, turn: Turn) -> None:
        namespace.unlock_session(self._container, self._grant, turn)
