"""What an error says about a namespace: one table, in this file and nowhere else.

Owns the answer to "does this count?". Every AMQP condition and every fault has a kind,
and every kind has a verdict: a *counted* failure brings an entity nearer to failover,
what is to *raise* is the caller's to act on, and a *busy* service is asked again after
ten seconds. The syphon and the backlog's rotation ask for the kind instead, because
what to do with a full or missing entity depends on whose entity it is.

The official client's classes are known by name, so that it need not be installed. Where
no line fits: an unknown condition counts, since the service said it; an unknown Python
exception does not, since it is a defect of the application or of this package.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from twinbus import limits
from twinbus.errors import TwinbusError


class Verdict(enum.Enum):
    """What follows for the entity and for the send."""

    COUNTED = "counted"
    RAISE = "raise"
    BUSY = "busy"


class Fault(enum.Enum):
    """Who or what is at fault."""

    # Lost, refused or closed by the service; nothing may have been tried at all.
    CONNECTION = "connection"
    TIMEOUT = "timeout"
    # The service says itself that it is broken, or sends invalid AMQP.
    SERVICE = "service"
    BUSY = "busy"
    # Authentication or authorization: the client is misconfigured.
    ACCESS = "access"
    MISSING = "missing"
    DISABLED = "disabled"
    FULL = "full"
    # The entity does not take such messages; another might.
    REFUSED = "refused"
    TOO_LARGE = "too large"
    # The message or an argument is wrong, wherever it is sent.
    MESSAGE = "message"
    # Nothing that a namespace said: a defect, or a cancellation.
    CALLER = "caller"

    @property
    def verdict(self) -> Verdict:
        if self in (Fault.CONNECTION, Fault.TIMEOUT, Fault.SERVICE):
            return Verdict.COUNTED
        return Verdict.BUSY if self is Fault.BUSY else Verdict.RAISE

    @property
    def blames_message(self) -> bool:
        """Whether no other entity would take the message either."""
        return self in (Fault.TOO_LARGE, Fault.MESSAGE, Fault.CALLER)


# Answers None for what the table shall decide.
Classifier = Callable[[BaseException], Verdict | None]

CONDITIONS: Mapping[str, Fault] = MappingProxyType(
    {
        # AMQP 1.0, all that it names.
        "amqp:internal-error": Fault.SERVICE,
        "amqp:not-found": Fault.MISSING,
        "amqp:unauthorized-access": Fault.ACCESS,
        "amqp:decode-error": Fault.MESSAGE,
        "amqp:resource-limit-exceeded": Fault.FULL,
        "amqp:not-allowed": Fault.REFUSED,
        "amqp:invalid-field": Fault.MESSAGE,
        "amqp:not-implemented": Fault.REFUSED,
        "amqp:resource-locked": Fault.REFUSED,
        "amqp:precondition-failed": Fault.REFUSED,
        "amqp:resource-deleted": Fault.MISSING,
        "amqp:illegal-state": Fault.SERVICE,
        "amqp:frame-size-too-small": Fault.TOO_LARGE,
        "amqp:connection:forced": Fault.CONNECTION,
        "amqp:connection:framing-error": Fault.CONNECTION,
        "amqp:connection:redirect": Fault.CONNECTION,
        "amqp:session:window-violation": Fault.CONNECTION,
        "amqp:session:errant-link": Fault.CONNECTION,
        "amqp:session:handle-in-use": Fault.CONNECTION,
        "amqp:session:unattached-handle": Fault.CONNECTION,
        "amqp:link:detach-forced": Fault.CONNECTION,
        "amqp:link:transfer-limit-exceeded": Fault.CONNECTION,
        "amqp:link:message-size-exceeded": Fault.TOO_LARGE,
        "amqp:link:redirect": Fault.CONNECTION,
        "amqp:link:stolen": Fault.CONNECTION,
        "amqp:transaction:unknown-id": Fault.MESSAGE,
        "amqp:transaction:rollback": Fault.MESSAGE,
        "amqp:transaction:timeout": Fault.TIMEOUT,
        # What the official client adds for faults of its own.
        "amqp:client-error": Fault.CONNECTION,
        "amqp:socket-error": Fault.CONNECTION,
        "amqp:unknown-error": Fault.SERVICE,
        "amqp:vendor-error": Fault.SERVICE,
        # Service Bus.
        "com.microsoft:timeout": Fault.TIMEOUT,
        "com.microsoft:server-busy": Fault.BUSY,
        "com.microsoft:auth-failed": Fault.ACCESS,
        "com.microsoft:publisher-revoked": Fault.ACCESS,
        "com.microsoft:entity-disabled": Fault.DISABLED,
        "com.microsoft:entity-already-exists": Fault.REFUSED,
        "com.microsoft:entity-updated": Fault.CONNECTION,
        "com.microsoft:container-close": Fault.CONNECTION,
        "com.microsoft:operation-cancelled": Fault.SERVICE,
        "com.microsoft:partition-not-owned": Fault.SERVICE,
        "com.microsoft:argument-error": Fault.MESSAGE,
        "com.microsoft:argument-out-of-range": Fault.MESSAGE,
        "com.microsoft:no-matching-subscription": Fault.REFUSED,
        "com.microsoft:message-lock-lost": Fault.REFUSED,
        "com.microsoft:message-not-found": Fault.REFUSED,
        "com.microsoft:session-lock-lost": Fault.REFUSED,
        "com.microsoft:session-cannot-be-locked": Fault.REFUSED,
        "com.microsoft:store-lock-lost": Fault.REFUSED,
    }
)

# Exceptions by their full name; the nearest base that is named here decides. None: the
# error's own condition or status does.
FAULTS: Mapping[str, Fault | None] = MappingProxyType(
    {
        # Ours. What a peer wrote that is no AMQP says that the peer is broken.
        "twinbus.errors.TwinbusError": None,
        "twinbus.errors.PeerError": Fault.SERVICE,
        "twinbus.errors.Bug": Fault.CALLER,
        "twinbus.pairing.errors.PairingError": Fault.CALLER,
        "twinbus.pairing.errors.TooManyHeldSends": Fault.CALLER,
        # Python's. A certificate that does not fit is a matter of configuration.
        "builtins.TimeoutError": Fault.TIMEOUT,
        "builtins.OSError": Fault.CONNECTION,
        "builtins.EOFError": Fault.CONNECTION,
        "ssl.SSLCertVerificationError": Fault.ACCESS,
        "builtins.ValueError": Fault.MESSAGE,
        "builtins.TypeError": Fault.MESSAGE,
        # The official client's.
        "azure.servicebus.exceptions.ServiceBusError": Fault.SERVICE,
        "azure.servicebus.exceptions.ServiceBusConnectionError": Fault.CONNECTION,
        "azure.servicebus.exceptions.ServiceBusCommunicationError": Fault.CONNECTION,
        "azure.servicebus.exceptions.OperationTimeoutError": Fault.TIMEOUT,
        "azure.servicebus.exceptions.ServiceBusServerBusyError": Fault.BUSY,
        "azure.servicebus.exceptions.ServiceBusAuthenticationError": Fault.ACCESS,
        "azure.servicebus.exceptions.ServiceBusAuthorizationError": Fault.ACCESS,
        "azure.servicebus.exceptions.MessagingEntityNotFoundError": Fault.MISSING,
        "azure.servicebus.exceptions.MessagingEntityDisabledError": Fault.DISABLED,
        "azure.servicebus.exceptions.MessagingEntityAlreadyExistsError": Fault.REFUSED,
        "azure.servicebus.exceptions.ServiceBusQuotaExceededError": Fault.FULL,
        "azure.servicebus.exceptions.MessageSizeExceededError": Fault.TOO_LARGE,
        "azure.servicebus.exceptions.MessageAlreadySettled": Fault.MESSAGE,
        "azure.servicebus.exceptions.MessageLockLostError": Fault.REFUSED,
        "azure.servicebus.exceptions.MessageNotFoundError": Fault.REFUSED,
        "azure.servicebus.exceptions.SessionLockLostError": Fault.REFUSED,
        "azure.servicebus.exceptions.SessionCannotBeLockedError": Fault.REFUSED,
        "azure.servicebus.exceptions.AutoLockRenewFailed": Fault.REFUSED,
        "azure.servicebus.exceptions.AutoLockRenewTimeout": Fault.REFUSED,
        # Credentials. An endpoint of tokens that is out of reach counts; one that says
        # no does not.
        "azure.core.exceptions.AzureError": Fault.CONNECTION,
        "azure.core.exceptions.ServiceRequestError": Fault.CONNECTION,
        "azure.core.exceptions.ServiceResponseError": Fault.CONNECTION,
        "azure.core.exceptions.HttpResponseError": None,
        "azure.core.exceptions.DecodeError": Fault.SERVICE,
        "azure.core.exceptions.ClientAuthenticationError": None,
    }
)

# Replies of `$management` and of token endpoints that carry no condition.
STATUSES: Mapping[int, Fault] = MappingProxyType(
    {
        400: Fault.MESSAGE,
        401: Fault.ACCESS,
        403: Fault.ACCESS,
        404: Fault.MISSING,
        408: Fault.TIMEOUT,
        413: Fault.TOO_LARGE,
        429: Fault.BUSY,
        500: Fault.SERVICE,
        501: Fault.REFUSED,
        503: Fault.BUSY,
        504: Fault.TIMEOUT,
    }
)


def kind_of_condition(condition: str) -> Fault:
    """What a condition says. An unknown one is the service's."""
    return CONDITIONS.get(condition, Fault.SERVICE)


def kind_of_status(status: int | None) -> Fault:
    """What a status without a condition says."""
    if status is None:
        return Fault.CONNECTION
    known = STATUSES.get(status)
    if known is not None:
        return known
    return Fault.MESSAGE if 400 <= status < 500 else Fault.SERVICE


def kind_of(error: BaseException) -> Fault:
    """What an error says about the namespace that it came from."""
    for name in _names(error):
        if name in FAULTS:
            return FAULTS[name] or _kind_of_content(error)
    return Fault.CALLER


def _names(error: BaseException) -> Iterator[str]:
    """The full names of an error's class and of its bases, the nearest first."""
    return (f"{base.__module__}.{base.__qualname__}" for base in type(error).__mro__)


def _kind_of_content(error: BaseException) -> Fault:
    if isinstance(error, TwinbusError):
        return kind_of_condition(error.condition)
    status: int | None = getattr(error, "status_code", None)
    if _CREDENTIAL in _names(error):
        return _kind_of_credential(error, status)
    return kind_of_status(status)


_CREDENTIAL = "azure.core.exceptions.ClientAuthenticationError"


def _kind_of_credential(error: BaseException, status: int | None) -> Fault:
    """Tell an endpoint of tokens that said no from one that could not be asked.

    Credentials wrap what their transport raised into an error of authentication.
    """
    if status is not None and status >= 500:
        # Also when it says that it is busy: it is not the namespace that is.
        return Fault.SERVICE
    if status == 429:
        return Fault.BUSY
    if status is None and any(
        not _UNREACHABLE.isdisjoint(_names(cause)) for cause in _causes(error)
    ):
        return Fault.CONNECTION
    return Fault.ACCESS


_UNREACHABLE = frozenset(
    {
        "azure.core.exceptions.ServiceRequestError",
        "azure.core.exceptions.ServiceResponseError",
        "builtins.ConnectionError",
        "builtins.TimeoutError",
        "socket.gaierror",
    }
)


def _causes(error: BaseException) -> Iterator[BaseException]:
    for _ in range(limits.ERROR_CAUSES_MAX):
        cause = error.__cause__ or error.__context__
        if cause is None:
            return
        yield cause
        error = cause


def verdict_of(error: BaseException, classifier: Classifier | None = None) -> Verdict:
    """Whether an error counts. The application's own classifier is asked first."""
    if classifier is not None:
        own = classifier(error)
        if own is not None:
            return Verdict(own)
    return kind_of(error).verdict
