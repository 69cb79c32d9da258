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


class Failure(enum.Enum):
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
        if self in (Failure.CONNECTION, Failure.TIMEOUT, Failure.SERVICE):
            return Verdict.COUNTED
        return Verdict.BUSY if self is Failure.BUSY else Verdict.RAISE

    @property
    def blames_message(self) -> bool:
        """Whether no other entity would take the message either."""
        return self in (Failure.TOO_LARGE, Failure.MESSAGE, Failure.CALLER)


# Answers None for what the table shall decide.
Classifier = Callable[[BaseException], Verdict | None]

CONDITIONS: Mapping[str, Failure] = MappingProxyType(
    {
        # AMQP 1.0, all that it names.
        "amqp:internal-error": Failure.SERVICE,
        "amqp:not-found": Failure.MISSING,
        "amqp:unauthorized-access": Failure.ACCESS,
        "amqp:decode-error": Failure.MESSAGE,
        "amqp:resource-limit-exceeded": Failure.FULL,
        "amqp:not-allowed": Failure.REFUSED,
        "amqp:invalid-field": Failure.MESSAGE,
        "amqp:not-implemented": Failure.REFUSED,
        "amqp:resource-locked": Failure.REFUSED,
        "amqp:precondition-failed": Failure.REFUSED,
        "amqp:resource-deleted": Failure.MISSING,
        "amqp:illegal-state": Failure.SERVICE,
        "amqp:frame-size-too-small": Failure.TOO_LARGE,
        "amqp:connection:forced": Failure.CONNECTION,
        "amqp:connection:framing-error": Failure.CONNECTION,
        "amqp:connection:redirect": Failure.CONNECTION,
        "amqp:session:window-violation": Failure.CONNECTION,
        "amqp:session:errant-link": Failure.CONNECTION,
        "amqp:session:handle-in-use": Failure.CONNECTION,
        "amqp:session:unattached-handle": Failure.CONNECTION,
        "amqp:link:detach-forced": Failure.CONNECTION,
        "amqp:link:transfer-limit-exceeded": Failure.CONNECTION,
        "amqp:link:message-size-exceeded": Failure.TOO_LARGE,
        "amqp:link:redirect": Failure.CONNECTION,
        "amqp:link:stolen": Failure.CONNECTION,
        "amqp:transaction:unknown-id": Failure.MESSAGE,
        "amqp:transaction:rollback": Failure.MESSAGE,
        "amqp:transaction:timeout": Failure.TIMEOUT,
        # What the official client adds for faults of its own.
        "amqp:client-error": Failure.CONNECTION,
        "amqp:socket-error": Failure.CONNECTION,
        "amqp:unknown-error": Failure.SERVICE,
        "amqp:vendor-error": Failure.SERVICE,
        # Service Bus.
        "com.microsoft:timeout": Failure.TIMEOUT,
        "com.microsoft:server-busy": Failure.BUSY,
        "com.microsoft:auth-failed": Failure.ACCESS,
        "com.microsoft:publisher-revoked": Failure.ACCESS,
        "com.microsoft:entity-disabled": Failure.DISABLED,
        "com.microsoft:entity-already-exists": Failure.REFUSED,
        "com.microsoft:entity-updated": Failure.CONNECTION,
        "com.microsoft:container-close": Failure.CONNECTION,
        "com.microsoft:operation-cancelled": Failure.SERVICE,
        "com.microsoft:partition-not-owned": Failure.SERVICE,
        "com.microsoft:argument-error": Failure.MESSAGE,
        "com.microsoft:argument-out-of-range": Failure.MESSAGE,
        "com.microsoft:no-matching-subscription": Failure.REFUSED,
        "com.microsoft:message-lock-lost": Failure.REFUSED,
        "com.microsoft:message-not-found": Failure.REFUSED,
        "com.microsoft:session-lock-lost": Failure.REFUSED,
        "com.microsoft:session-cannot-be-locked": Failure.REFUSED,
        "com.microsoft:store-lock-lost": Failure.REFUSED,
    }
)

# Exceptions by their full name; the nearest base that is named here decides. None: the
# error's own condition or status does.
FAULTS: Mapping[str, Failure | None] = MappingProxyType(
    {
        # Ours. What a peer wrote that is no AMQP says that the peer is broken.
        "twinbus.errors.TwinbusError": None,
        "twinbus.errors.PeerError": Failure.SERVICE,
        "twinbus.errors.Bug": Failure.CALLER,
        "twinbus.pairing.errors.PairingError": Failure.CALLER,
        "twinbus.pairing.errors.TooManyHeldSends": Failure.CALLER,
        # Python's. A certificate that does not fit is a matter of configuration.
        "builtins.TimeoutError": Failure.TIMEOUT,
        "builtins.OSError": Failure.CONNECTION,
        "builtins.EOFError": Failure.CONNECTION,
        "ssl.SSLCertVerificationError": Failure.ACCESS,
        "builtins.ValueError": Failure.MESSAGE,
        "builtins.TypeError": Failure.MESSAGE,
        # The official client's.
        "azure.servicebus.exceptions.ServiceBusError": Failure.SERVICE,
        "azure.servicebus.exceptions.ServiceBusConnectionError": Failure.CONNECTION,
        "azure.servicebus.exceptions.ServiceBusCommunicationError": Failure.CONNECTION,
        "azure.servicebus.exceptions.OperationTimeoutError": Failure.TIMEOUT,
        "azure.servicebus.exceptions.ServiceBusServerBusyError": Failure.BUSY,
        "azure.servicebus.exceptions.ServiceBusAuthenticationError": Failure.ACCESS,
        "azure.servicebus.exceptions.ServiceBusAuthorizationError": Failure.ACCESS,
        "azure.servicebus.exceptions.MessagingEntityNotFoundError": Failure.MISSING,
        "azure.servicebus.exceptions.MessagingEntityDisabledError": Failure.DISABLED,
        "azure.servicebus.exceptions.MessagingEntityAlreadyExistsError": (
            Failure.REFUSED
        ),
        "azure.servicebus.exceptions.ServiceBusQuotaExceededError": Failure.FULL,
        "azure.servicebus.exceptions.MessageSizeExceededError": Failure.TOO_LARGE,
        "azure.servicebus.exceptions.MessageAlreadySettled": Failure.MESSAGE,
        "azure.servicebus.exceptions.MessageLockLostError": Failure.REFUSED,
        "azure.servicebus.exceptions.MessageNotFoundError": Failure.REFUSED,
        "azure.servicebus.exceptions.SessionLockLostError": Failure.REFUSED,
        "azure.servicebus.exceptions.SessionCannotBeLockedError": Failure.REFUSED,
        "azure.servicebus.exceptions.AutoLockRenewFailed": Failure.REFUSED,
        "azure.servicebus.exceptions.AutoLockRenewTimeout": Failure.REFUSED,
        # Credentials. An endpoint of tokens that is out of reach counts; one that says
        # no does not.
        "azure.core.exceptions.AzureError": Failure.CONNECTION,
        "azure.core.exceptions.ServiceRequestError": Failure.CONNECTION,
        "azure.core.exceptions.ServiceResponseError": Failure.CONNECTION,
        "azure.core.exceptions.HttpResponseError": None,
        "azure.core.exceptions.DecodeError": Failure.SERVICE,
        "azure.core.exceptions.ClientAuthenticationError": None,
    }
)

# Replies of `$management` and of token endpoints that carry no condition.
STATUSES: Mapping[int, Failure] = MappingProxyType(
    {
        400: Failure.MESSAGE,
        401: Failure.ACCESS,
        403: Failure.ACCESS,
        404: Failure.MISSING,
        408: Failure.TIMEOUT,
        413: Failure.TOO_LARGE,
        429: Failure.BUSY,
        500: Failure.SERVICE,
        501: Failure.REFUSED,
        503: Failure.BUSY,
        504: Failure.TIMEOUT,
    }
)


def kind_of_condition(condition: str) -> Failure:
    """What a condition says. An unknown one is the service's."""
    return CONDITIONS.get(condition, Failure.SERVICE)


def kind_of_status(status: int | None) -> Failure:
    """What a status without a condition says."""
    if status is None:
        return Failure.CONNECTION
    known = STATUSES.get(status)
    if known is not None:
        return known
    return Failure.MESSAGE if 400 <= status < 500 else Failure.SERVICE


def kind_of(error: BaseException) -> Failure:
    """What an error says about the namespace that it came from."""
    for name in _names(error):
        if name in FAULTS:
            return FAULTS[name] or _kind_of_content(error)
    return Failure.CALLER


def _names(error: BaseException) -> Iterator[str]:
    """The full names of an error's class and of its bases, the nearest first."""
    return (f"{base.__module__}.{base.__qualname__}" for base in type(error).__mro__)


def _kind_of_content(error: BaseException) -> Failure:
    if isinstance(error, TwinbusError):
        return kind_of_condition(error.condition)
    status: int | None = getattr(error, "status_code", None)
    if _CREDENTIAL in _names(error):
        return _kind_of_credential(error, status)
    return kind_of_status(status)


_CREDENTIAL = "azure.core.exceptions.ClientAuthenticationError"


def _kind_of_credential(error: BaseException, status: int | None) -> Failure:
    """Tell an endpoint of tokens that said no from one that could not be asked.

    Credentials wrap what their transport raised into an error of authentication.
    """
    if status is not None and status >= 500:
        # Also when it says that it is busy: it is not the namespace that is.
        return Failure.SERVICE
    if status == 429:
        return Failure.BUSY
    if status is None and any(
        not _UNREACHABLE.isdisjoint(_names(cause)) for cause in _causes(error)
    ):
        return Failure.CONNECTION
    return Failure.ACCESS


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
