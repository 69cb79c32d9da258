"""twinbus for asyncio: the same names as `twinbus`, to be awaited."""

from __future__ import annotations

from twinbus.pairing.classification import Verdict
from twinbus.pairing.errors import (
    AlreadyPaired,
    MessageTooLargeForBacklog,
    NoBacklogQueue,
    OptionsAlreadyUsed,
    PairedFactoryError,
    PairingError,
    SameNamespace,
    SecondaryAlreadyPaired,
    SecondaryInUse,
    TooManyHeldSends,
)
from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.pairing.factory import MessagingFactory, PairingView
from twinbus.pairing.message_sender import MessageSender
from twinbus.pairing.options import (
    PairedNamespaceOptions,
    SendAvailabilityPairedNamespaceOptions,
)
from twinbus.pairing.policy import EntityStatus, PairingStatus

__all__ = [
    "AlreadyPaired",
    "EntityStatus",
    "EventKind",
    "MessageSender",
    "MessageTooLargeForBacklog",
    "MessagingFactory",
    "NoBacklogQueue",
    "OptionsAlreadyUsed",
    "PairedFactoryError",
    "PairedNamespaceOptions",
    "PairingError",
    "PairingEvent",
    "PairingStatus",
    "PairingView",
    "SameNamespace",
    "SecondaryAlreadyPaired",
    "SecondaryInUse",
    "SendAvailabilityPairedNamespaceOptions",
    "TooManyHeldSends",
    "Verdict",
]
