"""The whole error tree, sorted by who must act.

    TwinbusError
    ├── CallerError      they asked for something wrong; the text says what to change
    ├── PeerError        malformed or hostile bytes; the narrowest thing closes
    ├── BusyError        try again later
    ├── FaultOn          a fault is rehearsed; see `twinbus fault`
    ├── RemoteError      a client was told no by its server; the condition says why
    ├── StorageFull      the disk has no space for messages; receive some, or free some
    ├── StoreFault       the namespace stops accepting; a failed sync is never retried
    └── Bug              an assertion; the process should crash

Every error carries the AMQP condition that a peer is told. Knows nothing about frames.
"""

from __future__ import annotations


class TwinbusError(Exception):
    """Something went wrong."""

    condition = "amqp:internal-error"

    def __init__(self, text: str = "") -> None:
        super().__init__(text or (self.__doc__ or "").strip().splitlines()[0])

    @property
    def text(self) -> str:
        return str(self.args[0])


class CallerError(TwinbusError):
    """The request cannot be carried out as it stands."""

    condition = "amqp:not-allowed"


class InvalidField(CallerError):
    """A field has a value that is not allowed."""

    condition = "amqp:invalid-field"


class ArgumentError(CallerError):
    """An argument is missing or has a wrong value."""

    condition = "com.microsoft:argument-error"


class ArgumentOutOfRange(CallerError):
    """An argument is outside its range."""

    condition = "com.microsoft:argument-out-of-range"


class Unauthorized(CallerError):
    """The claim does not give the right that this needs."""

    condition = "amqp:unauthorized-access"


class EntityNotFound(CallerError):
    """The messaging entity could not be found."""

    condition = "amqp:not-found"

    def __init__(self, path: str, host: str | None = None) -> None:
        where = f"sb://{host}/{path}" if host else path
        super().__init__(
            f"The messaging entity '{where}' could not be found. "
            "Check the name, or create it first."
        )
        self.path = path


class EntityExists(CallerError):
    """The messaging entity already exists."""

    condition = "com.microsoft:entity-already-exists"


class EntityDisabled(CallerError):
    """The messaging entity is disabled for this operation."""

    condition = "com.microsoft:entity-disabled"


class QuotaExceeded(CallerError):
    """The messaging entity has reached its maximum size."""

    condition = "amqp:resource-limit-exceeded"


class MessageTooLarge(CallerError):
    """The message is larger than the entity allows."""

    condition = "amqp:link:message-size-exceeded"


class NotImplementedByServer(CallerError):
    """The operation is not known."""

    condition = "amqp:not-implemented"


class LockLost(CallerError):
    """The lock supplied is invalid. Either the lock expired, or the message has \
already been removed from the queue."""

    condition = "com.microsoft:message-lock-lost"


class SessionLockLost(CallerError):
    """The session lock has expired on this session. Accept the session again."""

    condition = "com.microsoft:session-lock-lost"


class SessionCannotBeLocked(CallerError):
    """The requested session is held by another receiver."""

    condition = "com.microsoft:session-cannot-be-locked"


class MessageNotFound(CallerError):
    """A message with that sequence number could not be found."""

    condition = "com.microsoft:message-not-found"


class OperationTimeout(CallerError):
    """The operation did not complete within the allotted time."""

    condition = "com.microsoft:timeout"


class TransactionUnknown(CallerError):
    """The transaction does not exist, or has ended."""

    condition = "amqp:transaction:unknown-id"


class FilterError(CallerError):
    """A filter or action expression cannot be used."""

    condition = "com.microsoft:argument-error"


class ConfigError(CallerError):
    """The configuration cannot be used."""


class StoreInUse(ConfigError):
    """Another process has the data folder."""


class PeerError(TwinbusError):
    """The peer broke the protocol."""

    condition = "amqp:connection:framing-error"


class DecodeError(PeerError):
    """Bytes that are not valid AMQP."""

    condition = "amqp:decode-error"


class FrameError(PeerError):
    """A frame that cannot be read, or does not belong here."""

    condition = "amqp:connection:framing-error"


class LimitExceeded(PeerError):
    """The peer went over a limit."""

    condition = "amqp:resource-limit-exceeded"


class BusyError(TwinbusError):
    """The server is busy. Wait 10 seconds and try again."""

    condition = "com.microsoft:server-busy"


class FaultOn(TwinbusError):
    """A fault is rehearsed: this fails on purpose."""


class StorageFull(TwinbusError):
    """The disk of the server is nearly full. It accepts no messages until some were \
received or deleted, or the operator frees space."""

    # As a broken service, not as a full entity: the sender cannot act on it, and a pair
    # must fail over.
    condition = "amqp:internal-error"


class SpoolFull(TwinbusError):
    """The storage of the entity is not well, and there is no more room to keep \
messages for it elsewhere."""

    # As a broken service: a pair must fail over.
    condition = "amqp:internal-error"


class StoreFault(TwinbusError):
    """The message store failed. Nothing was accepted; the server needs attention."""

    condition = "amqp:internal-error"


class ShardAway(TwinbusError):
    """A part of the namespace is not open."""

    # As a broken service: it may be back at once, and a pair must fail over meanwhile.
    condition = "amqp:internal-error"

    def __init__(self, shard: int) -> None:
        super().__init__(
            f"Shard {shard} of the namespace is not open now, so this cannot be done. "
            "Try again later; the server's log says why."
        )


class Bug(TwinbusError):
    """An invariant does not hold. This is a defect of twinbus."""


# -- clients -----------------------------------------------------------------------


class ClientUnusable(CallerError, ValueError):
    """The client was closed, or belongs to another process or event loop."""


class RemoteError(TwinbusError):
    """The other side refused this, or ended what it needs."""

    def __init__(self, condition: str, text: str = "") -> None:
        super().__init__(text or f"The other side refused: {condition}.")
        self.condition = condition


class Disconnected(RemoteError):
    """The connection is gone. What was not answered may or may not have happened."""

    def __init__(self, text: str = "") -> None:
        super().__init__("amqp:connection:forced", text or self.__doc__ or "")


class SendRefused(RemoteError):
    """Some of the messages were refused; all others were accepted."""

    def __init__(self, failures: dict[int, RemoteError]) -> None:
        place, first = next(iter(failures.items()))
        text = f"{len(failures)} messages were refused, the first at {place}: "
        super().__init__(first.condition, text + first.text)
        # The reason for each, by its place among the messages.
        self.failures = failures


class Unreachable(Disconnected):
    """No connection could be made. Nothing was sent."""


# What a person at a command line is told to do about it.
UNREACHABLE_HINT = "Check that the server runs, and its host and port."


class DeadlineExceeded(OperationTimeout, RemoteError):
    """The other side did not answer in time."""

    def __init__(self, stage: str, seconds: float) -> None:
        text = f"No answer to '{stage}' within {seconds:g} seconds."
        RemoteError.__init__(self, OperationTimeout.condition, text)
        # What was waited for: connect, TLS, SASL, open, attach, credit, outcome, ...
        self.stage = stage


class OutcomeUnknown(RemoteError):
    """It was sent, and it is unknown whether it was accepted."""

    def __init__(self, reason: TwinbusError) -> None:
        text = f"It was sent, but whether it was accepted is not known: {reason.text}"
        super().__init__(reason.condition, text)
        # Why there will be no answer: the connection is gone, or the time is over.
        self.reason = reason


class ClaimRefused(RemoteError):
    """The other side did not accept the token."""

    def __init__(self, status: int, condition: str, text: str) -> None:
        super().__init__(condition, f"{status}: {text}")
        self.status = status


class CredentialFailed(RemoteError):
    """The credential gave no token."""

    def __init__(self, text: str, *, refused: bool) -> None:
        condition = "amqp:unauthorized-access" if refused else "amqp:internal-error"
        super().__init__(condition, text)
        # True: the token service said no. False: it could not be asked.
        self.refused = refused


class SettleRefused(SendRefused):
    """Some of the messages could not be settled; all others were."""
