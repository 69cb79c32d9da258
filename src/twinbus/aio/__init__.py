"""twinbus for asyncio: the same names as `twinbus`, to be awaited."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from twinbus.pairing.errors import (
    AlreadyPaired,
    MessageTooLargeForBacklog,
    NoBacklogQueue,
    OptionsAlreadyUsed,
    OutboxUnusable,
    PairedFactoryError,
    PairingError,
    SameNamespace,
    SecondaryAlreadyPaired,
    SecondaryInUse,
    TooManyHeldSends,
)
from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.pairing.options import (
    PairedNamespaceOptions,
    SendAvailabilityPairedNamespaceOptions,
)
from twinbus.pairing.rules.classification import Verdict
from twinbus.pairing.sdk.light_message import ServiceBusMessage
from twinbus.pairing.shell.factory import MessagingFactory, PairingView
from twinbus.pairing.shell.message_sender import MessageSender
from twinbus.pairing.status import EntityStatus, OutboxStatus, PairingStatus

if TYPE_CHECKING:
    from twinbus.embedding import AsyncEmbeddedNamespace as EmbeddedNamespace
    from twinbus.embedding import embedded_async as embedded

# A server comes with these, which few applications need.
_EMBEDDED = {
    "EmbeddedNamespace": "AsyncEmbeddedNamespace",
    "embedded": "embedded_async",
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
    if name not in _EMBEDDED:
        raise AttributeError(f"module 'twinbus.aio' has no attribute '{name}'")
    return getattr(importlib.import_module("twinbus.embedding"), _EMBEDDED[name])
