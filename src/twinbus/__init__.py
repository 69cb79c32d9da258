"""twinbus: sends that never fail.

The blocking surface of paired namespaces; `twinbus.aio` has the same names for asyncio.
The names are looked up when they are first used, so that a server or a command that
needs none of them does not pay for importing them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twinbus.aio import (
        AlreadyPaired,
        EntityStatus,
        EventKind,
        MessageTooLargeForBacklog,
        NoBacklogQueue,
        OptionsAlreadyUsed,
        OutboxStatus,
        OutboxUnusable,
        PairedFactoryError,
        PairedNamespaceOptions,
        PairingError,
        PairingEvent,
        PairingStatus,
        SameNamespace,
        SecondaryAlreadyPaired,
        SecondaryInUse,
        SendAvailabilityPairedNamespaceOptions,
        ServiceBusMessage,
        TooManyHeldSends,
        Verdict,
    )
    from twinbus.embedding import EmbeddedNamespace, embedded
    from twinbus.pairing.sync.factory import MessagingFactory, PairingView
    from twinbus.pairing.sync.message_sender import MessageSender

__version__ = "0.1.0"

# What blocks has a class of its own; all else is what `twinbus.aio` has.
_BLOCKING = {
    "EmbeddedNamespace": "twinbus.embedding",
    "MessageSender": "twinbus.pairing.sync.message_sender",
    "MessagingFactory": "twinbus.pairing.sync.factory",
    "PairingView": "twinbus.pairing.sync.factory",
    "embedded": "twinbus.embedding",
}

__all__ = [
    "AlreadyPaired",
    "EmbeddedNamespace",
    "EntityStatus",
    "EventKind",
    "MessageSender",
    "MessageTooLargeForBacklog",
    "MessagingFactory",
    "NoBacklogQueue",
    "OptionsAlreadyUsed",
    "OutboxStatus",
    "OutboxUnusable",
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
    "ServiceBusMessage",
    "TooManyHeldSends",
    "Verdict",
    "embedded",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'twinbus' has no attribute '{name}'")
    return getattr(importlib.import_module(_BLOCKING.get(name, "twinbus.aio")), name)


def __dir__() -> list[str]:
    return sorted((*globals(), *__all__))
