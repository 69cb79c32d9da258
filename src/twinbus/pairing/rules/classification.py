"""What an error says about a namespace: one table, in this file and nowhere else.

Owns the answer to "does this count?". Every AMQP condition and every fault has a kind,
and every kind has a verdict: a *counted* failure brings an entity nearer to failover,
what is to *raise* is the caller's to act on, and a *busy* service is asked again after
ten seconds. The syphon and the backlog's rotation ask for the kind instead, because
what to do with a full or missing entity depends on whose entity it is.

The official client's classes are known by name, so that it need not be installed. Where
no line fits: a condition that nobody knows counts, since the service said it; a Python
exception that nobody knows does not, since it is somebody's defect.
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


class Kind(enum.Enum):
    """Who or what is at fault."""

    # Lost, refused or closed by the service; nothing may have been tried at all.
    CONNECTION = "connection"
    TIMEOUT = "timeout"
    # The service says itself that it is broken, or speaks nonsense.
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
        if self in (Kind.CONNECTION, Kind.TIMEOUT, Kind.SERVICE):
            return Verdict.COUNTED
        return Verdict.BUSY if self is Kind.BUSY else Verdict.RAISE

    @property
    def blames_message(self) -> bool:
        """Whether no other entity would take the message either."""
        return self in (Kind.TOO_LARGE, Kind.MESSAGE, Kind.CALLER)


# Answers None for what the table shall decide.
Classifier = Callable[[BaseException], Verdict | None]

CONDITIONS: Mapping[str, Kind] = MappingProxyType(
    {
        # AMQP 1.0, all that it names.
        "amqp:internal-error": Kind.SERVICE,
        "amqp:not-found": Kind.MISSING,
        "amqp:unauthorized-access": Kind.ACCESS,
        "amqp:decode-error": Kind.MESSAGE,
        "amqp:resource-limit-exceeded": Kind.FULL,
        "amqp:not-allowed": Kind.REFUSED,
        "amqp:invalid-field": Kind.MESSAGE,
        "amqp:not-implemented": Kind.REFUSED,
        "amqp:resource-locked": Kind.REFUSED,
        "amqp:precondition-failed": Kind.REFUSED,
        "amqp:resource-deleted": Kind.MISSING,
        "amqp:illegal-state": Kind.SERVICE,
        "amqp:frame-size-too-small": Kind.TOO_LARGE,
        "amqp:connection:forced": Kind.CONNECTION,
        "amqp:connection:framing-error": Kind.CONNECTION,
        "amqp:connection:redirect": Kind.CONNECTION,
        "amqp:session:window-violation": Kind.CONNECTION,
        "amqp:session:errant-link": Kind.CONNECTION,
        "amqp:session:handle-in-use": Kind.CONNECTION,
        "amqp:session:unattached-handle": Kind.CONNECTION,
        "amqp:link:detach-forced": Kind.CONNECTION,
        "amqp:link:transfer-limit-exceeded": Kind.CONNECTION,
        "amqp:link:message-size-exceeded": Kind.TOO_LARGE,
        "amqp:link:redirect": Kind.CONNECTION,
        "amqp:link:stolen": Kind.CONNECTION,
        "amqp:transaction:unknown-id": Kind.MESSAGE,
        "amqp:transaction:rollback": Kind.MESSAGE,
        "amqp:transaction:timeout": Kind.TIMEOUT,
        # What the official client adds for faults of its own.
        "amqp:client-error": Kind.CONNECTION,
        "amqp:socket-error": Kind.CONNECTION,
        "amqp:unknown-error": Kind.SERVICE,
        "amqp:vendor-error": Kind.SERVICE,
        # Service Bus.
        "com.microsoft:timeout": Kind.TIMEOUT,
        "com.microsoft:server-busy": Kind.BUSY,
        "com.microsoft:auth-failed": Kind.ACCESS,
        "com.microsoft:publisher-revoked": Kind.ACCESS,
        "com.microsoft:entity-disabled": Kind.DISABLED,
        "com.microsoft:entity-already-exists": Kind.REFUSED,
        "com.microsoft:entity-updated": Kind.CONNECTION,
        "com.microsoft:container-close": Kind.CONNECTION,
        "com.microsoft:operation-cancelled": Kind.SERVICE,
        "com.microsoft:partition-not-owned": Kind.SERVICE,
        "com.microsoft:argument-error": Kind.MESSAGE,
        "com.microsoft:argument-out-of-range": Kind.MESSAGE,
        "com.microsoft:no-matching-subscription": Kind.REFUSED,
        "com.microsoft:message-lock-lost": Kind.REFUSED,
        "com.microsoft:message-not-found": Kind.REFUSED,
        "com.microsoft:session-lock-lost": Kind.REFUSED,
        "com.microsoft:session-cannot-be-locked": Kind.REFUSED,
        "com.microsoft:store-lock-lost": Kind.REFUSED,
    }
)

# Exceptions by their full name; the nearest base that is named here decides. None: the
# error's own condition or status does.
FAULTS: Mapping[str, Kind | None] = MappingProxyType(
    {
        # Ours. What a peer wrote that is no AMQP says that the peer is broken.
        "twinbus.errors.TwinbusError": None,
        "twinbus.errors.PeerError": Kind.SERVICE,
        "twinbus.errors.Bug": Kind.CALLER,
        "twinbus.pairing.errors.PairingError": Kind.CALLER,
        "twinbus.pairing.errors.TooManyHeldSends": Kind.CALLER,
        # Python's. A certificate that does not fit is a matter of configuration.
        "builtins.TimeoutError": Kind.TIMEOUT,
        "builtins.OSError": Kind.CONNECTION,
        "builtins.EOFError": Kind.CONNECTION,
        "ssl.SSLCertVerificationError": Kind.ACCESS,
        "builtins.ValueError": Kind.MESSAGE,
        "builtins.TypeError": Kind.MESSAGE,
        # The official client's.
        "azure.servicebus.exceptions.ServiceBusError": Kind.SERVICE,
        "azure.servicebus.exceptions.ServiceBusConnectionError": Kind.CONNECTION,
        "azure.servicebus.exceptions.ServiceBusCommunicationError": Kind.CONNECTION,
        "azure.servicebus.exceptions.OperationTimeoutError": Kind.TIMEOUT,
        "azure.servicebus.exceptions.ServiceBusServerBusyError": Kind.BUSY,
        "azure.servicebus.exceptions.ServiceBusAuthenticationError": Kind.ACCESS,
        "azure.servicebus.exceptions.ServiceBusAuthorizationError": Kind.ACCESS,
        "azure.servicebus.exceptions.MessagingEntityNotFoundError": Kind.MISSING,
        "azure.servicebus.exceptions.MessagingEntityDisabledError": Kind.DISABLED,
        "azure.servicebus.exceptions.MessagingEntityAlreadyExistsError": Kind.REFUSED,
        "azure.servicebus.exceptions.ServiceBusQuotaExceededError": Kind.FULL,
        "azure.servicebus.exceptions.MessageSizeExceededError": Kind.TOO_LARGE,
        "azure.servicebus.exceptions.MessageAlreadySettled": Kind.MESSAGE,
        "azure.servicebus.exceptions.MessageLockLostError": Kind.REFUSED,
        "azure.servicebus.exceptions.MessageNotFoundError": Kind.REFUSED,
        "azure.servicebus.exceptions.SessionLockLostError": Kind.REFUSED,
        "azure.servicebus.exceptions.SessionCannotBeLockedError": Kind.REFUSED,
        "azure.servicebus.exceptions.AutoLockRenewFailed": Kind.REFUSED,
        "azure.servicebus.exceptions.AutoLockRenewTimeout": Kind.REFUSED,
        # Credentials. An endpoint of tokens that is out of reach counts; one that says
        # no does not.
        "azure.core.exceptions.AzureError": Kind.CONNECTION,
        "azure.core.exceptions.ServiceRequestError": Kind.CONNECTION,
        "azure.core.exceptions.ServiceResponseError": Kind.CONNECTION,
        "azure.core.exceptions.HttpResponseError": None,
        "azure.core.exceptions.DecodeError": Kind.SERVICE,
        "azure.core.exceptions.ClientAuthenticationError": None,
    }
)

# Replies of `$management` and of token endpoints that carry no condition.
STATUSES: Mapping[int, Kind] = MappingProxyType(
    {
        400: Kind.MESSAGE,
        401: Kind.ACCESS,
        403: Kind.ACCESS,
        404: Kind.MISSING,
        408: Kind.TIMEOUT,
        413: Kind.TOO_LARGE,
        429: Kind.BUSY,
        500: Kind.SERVICE,
        501: Kind.REFUSED,
        503: Kind.BUSY,
        504: Kind.TIMEOUT,
    }
)


def kind_of_condition(condition: str) -> Kind:
    """What a condition says. One that nobody knows is the service's."""
    return CONDITIONS.get(condition, Kind.SERVICE)


def kind_of_status(status: int | None) -> Kind:
    """What a status without a condition says."""
    if status is None:
        return Kind.CONNECTION
    known = STATUSES.get(status)
    if known is not None:
        return known
    return Kind.MESSAGE if 400 <= status < 500 else Kind.SERVICE


def kind_of(error: BaseException) -> Kind:
    """What an error says about the namespace that it came from."""
    for name in _names(error):
        if name in FAULTS:
            return FAULTS[name] or _kind_of_content(error)
    return Kind.CALLER


def _names(error: BaseException) -> Iterator[str]:
    """The full names of an error's class and of its bases, the nearest first."""
    return (f"{base.__module__}.{base.__qualname__}" for base in type(error).__mro__)


def _kind_of_content(error: BaseException) -> Kind:
    if isinstance(error, TwinbusError):
        return kind_of_condition(error.condition)
    status: int | None = getattr(error, "status_code", None)
    if _CREDENTIAL in _names(error):
        return _kind_of_credential(error, status)
    return kind_of_status(status)


_CREDENTIAL = "azure.core.exceptions.ClientAuthenticationError"


def _kind_of_credential(error: BaseException, status: int | None) -> Kind:
    """Tell an endpoint of tokens that said no from one that could not be asked.

    Credentials wrap what their transport raised into an error of authentication.
    """
    if status is not None and status >= 500:
        # Also when it says that it is busy: it is not the namespace that is.
        return Kind.SERVICE
    if status == 429:
        return Kind.BUSY
    if status is None and any(
        not _UNREACHABLE.isdisjoint(_names(cause)) for cause in _causes(error)
    ):
        return Kind.CONNECTION
    return Kind.ACCESS


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
