"""Our errors as the official client's: what a sender raises to its caller.

Owns one table, from what an error says (`classification.py`) to the class that the
official client raises for the same, and what the caller can do about it. Where that
client has no better word than `ServiceBusError`, a more exact class of its tree is
taken, so that code that catches the former still does. The error itself is the cause.

Mistakes in the caller's own code (`TypeError`, `ValueError`), errors of pairing, and
what is an error of the Azure libraries already stay what they are.
"""

from __future__ import annotations

from typing import Any

from azure.core.exceptions import AzureError
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityAlreadyExistsError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from twinbus.errors import (
    ClaimRefused,
    CredentialFailed,
    OutcomeUnknown,
    RemoteError,
    TwinbusError,
)
from twinbus.pairing.errors import (
    MessageTooLargeForBacklog,
    PairingError,
    TooManyHeldSends,
)
from twinbus.pairing.rules.classification import Failure, kind_of

# What an error says, what is raised for it, and what the caller can do.
_KINDS: dict[Failure, tuple[type[ServiceBusError], str]] = {
    Failure.CONNECTION: (
        ServiceBusConnectionError,
        "Check that the namespace can be reached, and send again.",
    ),
    Failure.TIMEOUT: (
        OperationTimeoutError,
        "Send again, or allow more time.",
    ),
    Failure.SERVICE: (
        ServiceBusError,
        "Send again; if it stays, look at the service.",
    ),
    Failure.BUSY: (ServiceBusServerBusyError, "Wait ten seconds, and send again."),
    Failure.ACCESS: (
        ServiceBusAuthorizationError,
        "Check the credential and its rights on the entity.",
    ),
    Failure.MISSING: (
        MessagingEntityNotFoundError,
        "Check the name, or create it first.",
    ),
    Failure.DISABLED: (MessagingEntityDisabledError, "Enable the entity."),
    Failure.FULL: (
        ServiceBusQuotaExceededError,
        "Receive messages from the entity, or let it grow.",
    ),
    Failure.REFUSED: (ServiceBusError, "The entity does not take such a message."),
    Failure.TOO_LARGE: (MessageSizeExceededError, "Make the message smaller."),
    Failure.MESSAGE: (ServiceBusError, "Change the message; no entity takes it."),
}

# Conditions for which the official client has a class of their own.
_CONDITIONS: dict[str, tuple[type[ServiceBusError], str]] = {
    "amqp:unknown-error": _KINDS[Failure.CONNECTION],
    "com.microsoft:entity-already-exists": (
        MessagingEntityAlreadyExistsError,
        "Use the entity that is there, or another name.",
    ),
    "com.microsoft:message-lock-lost": (
        MessageLockLostError,
        "Receive the message again.",
    ),
    "com.microsoft:message-not-found": (
        MessageNotFoundError,
        "It was received, cancelled or dead-lettered.",
    ),
    "com.microsoft:session-lock-lost": (
        SessionLockLostError,
        "Accept the session again.",
    ),
    "com.microsoft:session-cannot-be-locked": (
        SessionCannotBeLockedError,
        "Wait until the other receiver gives the session up.",
    ),
}

_TOKEN_REFUSED = (
    ServiceBusAuthenticationError,
    "Check the credential: its key or token was not accepted.",
)
_TOKEN_MISSING = (
    ServiceBusCommunicationError,
    "Check that the issuer of tokens can be reached, and send again.",
)
_SENT_BEFORE = "It may be there twice if it is sent again with another message id."
_TOO_MANY_HELD = (
    ServiceBusServerBusyError,
    "Wait until the entity answers or sends go to the backlog.",
)


class BacklogSizeExceeded(MessageTooLargeForBacklog, MessageSizeExceededError):
    """What could not fail over, for callers of either family of errors."""

    def __init__(self, error: MessageTooLargeForBacklog) -> None:
        MessageSizeExceededError.__init__(self, message=error.text, error=error)
        self.condition = error.condition
        self.path = error.path
        self.size_bytes = error.size_bytes
        self.limit_bytes = error.limit_bytes


def as_sdk_error(error: Exception, whose: str = "") -> Exception:
    """The error to raise to the caller of a sender; O(1).

    `raise as_sdk_error(error)` shows both: the cause is set already. `whose` stands
    before the text, where the caller cannot know which namespace it is about.
    """
    if isinstance(error, MessageTooLargeForBacklog):
        if isinstance(error, BacklogSizeExceeded):
            return error
        made: Exception = BacklogSizeExceeded(error)
    elif isinstance(error, PairingError | AzureError):
        return error
    else:
        found = _class_and_advice(error)
        if found is None:
            return error
        made = _made(error, whose, *found)
    made.__cause__ = error
    return made


def _class_and_advice(error: Exception) -> tuple[type[ServiceBusError], str] | None:
    if isinstance(error, TooManyHeldSends):
        return _TOO_MANY_HELD
    if isinstance(error, OutcomeUnknown):
        found = _class_and_advice(error.reason)
        return None if found is None else (found[0], _SENT_BEFORE)
    if isinstance(error, OSError) and not isinstance(error, TimeoutError):
        # Also for a certificate that does not fit, as in the official client.
        return _KINDS[Failure.CONNECTION]
    if isinstance(error, (TypeError, ValueError)):
        return None
    kind = kind_of(error)
    if isinstance(error, CredentialFailed):
        return _TOKEN_REFUSED if error.refused else _TOKEN_MISSING
    if isinstance(error, ClaimRefused) and kind in (
        Failure.ACCESS,
        Failure.MESSAGE,
    ):
        return _TOKEN_REFUSED
    if kind is Failure.CALLER:
        return None
    if isinstance(error, TwinbusError):
        return _CONDITIONS.get(error.condition) or _KINDS[kind]
    return _KINDS[kind]


def _made(
    error: Exception, whose: str, made: type[ServiceBusError], advice: str
) -> ServiceBusError:
    text = whose + (str(error) or type(error).__name__)
    if text[-1] not in ".!?":
        text += "."
    if not text.endswith(advice):
        # Our own server gives some advice itself.
        text = f"{text} {advice}"
    details: dict[str, Any] = {"error": error}
    if isinstance(error, RemoteError):
        details["condition"] = error.condition
    return made(message=text, **details)


__all__ = ["BacklogSizeExceeded", "as_sdk_error"]
