"""What can go wrong with a pair of namespaces, beyond what either namespace says.

    CallerError
    ├── PairingError               the two factories cannot be paired like this
    │   ├── SameNamespace
    │   ├── AlreadyPaired
    │   ├── SecondaryAlreadyPaired
    │   ├── SecondaryInUse
    │   ├── OptionsAlreadyUsed
    │   ├── NoBacklogQueue
    │   ├── OutboxUnusable
    │   └── PairedFactoryError
    ├── InvalidMessage             bytes that are no message; never a failure of a peer
    ├── AliasInvalid               a message that no backlog should hold
    └── MessageTooLarge
        └── MessageTooLargeForBacklog
    BusyError
    └── TooManyHeldSends

`Moved` never leaves the package: it tells a send to look again.

Knows nothing about when they are raised.
"""

from __future__ import annotations

from twinbus.errors import BusyError, CallerError, MessageTooLarge


class PairingError(CallerError):
    """The namespaces cannot be paired like this."""


class SameNamespace(PairingError):
    """The secondary is the primary itself. Pair with another namespace."""


class AlreadyPaired(PairingError):
    """This factory is paired already."""


class SecondaryAlreadyPaired(PairingError):
    """The secondary's factory is itself paired with another namespace."""


class SecondaryInUse(PairingError):
    """The secondary's factory is the secondary of another factory already."""


class OptionsAlreadyUsed(PairingError):
    """These options were used for a pairing already. Make new ones."""


class NoBacklogQueue(PairingError):
    """Not one backlog queue could be found or made on the secondary namespace."""


class OutboxUnusable(PairingError):
    """The folder cannot be the outbox of this pair."""


class PairedFactoryError(PairingError):
    """The partner of this factory was closed or faulted."""


class InvalidMessage(CallerError):
    """These bytes are not a message."""

    condition = "amqp:decode-error"


class AliasInvalid(CallerError):
    """A message of a backlog queue does not say where it belongs.

    `reason` is what a dead-letter queue shows beside the text.
    """

    condition = "amqp:invalid-field"

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class MessageTooLargeForBacklog(MessageTooLarge):
    """The message fits the entity, but not a backlog queue."""

    def __init__(self, path: str, size_bytes: int, limit_bytes: int, what: str) -> None:
        super().__init__(
            f"{what} for '{path}' would have {size_bytes} bytes in a backlog queue, "
            f"which takes at most {limit_bytes}. Make it smaller by "
            f"{size_bytes - limit_bytes} bytes, or it cannot fail over."
        )
        self.path = path
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class TooManyHeldSends(BusyError):
    """Too many sends wait for entities that do not answer."""

    def __init__(self, held: int, held_bytes: int) -> None:
        super().__init__(
            f"{held} sends of {held_bytes} bytes are waiting for entities that do not "
            "answer, which is the most. Send less, or later."
        )
        self.held = held
        self.held_bytes = held_bytes


class Moved(Exception):
    """A send leaves its attempt on the primary: its entity has failed over."""
