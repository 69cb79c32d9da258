"""Every error of ours becomes one that users of the official client know."""

from __future__ import annotations

import ssl
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import exceptions as sdk

import twinbus.errors
from tests.pairing.official import listening
from twinbus.errors import (
    ArgumentError,
    Bug,
    BusyError,
    CallerError,
    ClaimRefused,
    CredentialFailed,
    DeadlineExceeded,
    DecodeError,
    Disconnected,
    EntityNotFound,
    MessageTooLarge,
    OutcomeUnknown,
    RemoteError,
    SendRefused,
    SettleRefused,
    TwinbusError,
    Unreachable,
)
from twinbus.pairing import errors as pairing
from twinbus.pairing.errors import (
    AliasInvalid,
    InvalidMessage,
    MessageTooLargeForBacklog,
    PairingError,
    TooManyHeldSends,
)
from twinbus.pairing.rules.classification import CONDITIONS, Failure, verdict_of
from twinbus.pairing.sdk.errors import as_sdk_error

TOO_LARGE = MessageTooLargeForBacklog("orders", 300, 256, "A message")
LOST = Disconnected()
LATE = DeadlineExceeded("outcome", 5)
FULL = RemoteError("amqp:resource-limit-exceeded", "The queue is full.")

ERRORS: list[tuple[Exception, type[Exception]]] = [
    (LOST, sdk.ServiceBusConnectionError),
    (Unreachable("x:5671 cannot be reached."), sdk.ServiceBusConnectionError),
    (LATE, sdk.OperationTimeoutError),
    (OutcomeUnknown(LOST), sdk.ServiceBusConnectionError),
    (OutcomeUnknown(LATE), sdk.OperationTimeoutError),
    (FULL, sdk.ServiceBusQuotaExceededError),
    (SendRefused({3: FULL}), sdk.ServiceBusQuotaExceededError),
    (
        SettleRefused({0: RemoteError("com.microsoft:message-lock-lost")}),
        sdk.MessageLockLostError,
    ),
    (
        ClaimRefused(401, "amqp:unauthorized-access", "no"),
        sdk.ServiceBusAuthenticationError,
    ),
    (ClaimRefused(400, "amqp:invalid-field", "no"), sdk.ServiceBusAuthenticationError),
    (ClaimRefused(404, "amqp:not-found", "no"), sdk.MessagingEntityNotFoundError),
    (
        ClaimRefused(503, "com.microsoft:server-busy", "no"),
        sdk.ServiceBusServerBusyError,
    ),
    (ClaimRefused(500, "amqp:internal-error", "no"), sdk.ServiceBusError),
    (CredentialFailed("no", refused=True), sdk.ServiceBusAuthenticationError),
    (CredentialFailed("no", refused=False), sdk.ServiceBusCommunicationError),
    (MessageTooLarge(), sdk.MessageSizeExceededError),
    (EntityNotFound("orders"), sdk.MessagingEntityNotFoundError),
    (ArgumentError("wrong"), sdk.ServiceBusError),
    (BusyError(), sdk.ServiceBusServerBusyError),
    (DecodeError(), sdk.ServiceBusError),
    (InvalidMessage(), sdk.ServiceBusError),
    (AliasInvalid("reason", "text"), sdk.ServiceBusError),
    (TooManyHeldSends(5, 6), sdk.ServiceBusServerBusyError),
    (TOO_LARGE, sdk.MessageSizeExceededError),
    (ConnectionResetError("gone"), sdk.ServiceBusConnectionError),
    (TimeoutError(), sdk.OperationTimeoutError),
    (ssl.SSLCertVerificationError("no"), sdk.ServiceBusConnectionError),
]
UNCHANGED: list[Exception] = [
    TypeError("a"),
    ValueError("a"),
    KeyError("a"),
    Bug("a"),
    PairingError("a"),
    pairing.PairedFactoryError(),
    sdk.ServiceBusError("a"),
    sdk.MessageAlreadySettled(),
    ClientAuthenticationError("a"),
]


def test_every_condition_has_the_class_of_the_official_client() -> None:
    """Or a more exact one of the same tree: code that catches theirs catches ours."""
    conditions = [*CONDITIONS, "com.example:unheard-of"]
    with listening() as listener, ThreadPoolExecutor(len(conditions)) as threads:
        theirs = list(threads.map(listener.raised, conditions))

    ours = [as_sdk_error(RemoteError(condition)) for condition in conditions]
    differing = {
        condition: (type(our), type(their))
        for condition, our, their in zip(conditions, ours, theirs, strict=True)
        if not isinstance(our, type(their))
    }
    assert differing == {}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_kind_is_still_known_from_the_class(condition: str) -> None:
    """An application that asks our classifier about what it caught hears the same."""
    error = RemoteError(condition)

    raised = as_sdk_error(error)

    # Their tree has one word for all that an entity or a service refuses.
    if type(raised) is not sdk.ServiceBusError and condition != "amqp:unknown-error":
        assert verdict_of(raised) is verdict_of(error)
    assert condition in str(raised)


@pytest.mark.parametrize(
    ("error", "expected"), ERRORS, ids=[type(error).__name__ for error, _ in ERRORS]
)
def test_an_error_is_raised_as_theirs(
    error: Exception, expected: type[Exception]
) -> None:
    raised = as_sdk_error(error)

    assert isinstance(raised, expected)
    assert type(raised) is expected or error is TOO_LARGE
    assert raised.__cause__ is error
    assert str(error) in str(raised)
    # It says what to do, or how not to, once.
    says_it_already = error is TOO_LARGE or "create it first" in str(error)
    assert (len(str(raised)) > len(str(error))) is not says_it_already


@pytest.mark.parametrize("error", UNCHANGED, ids=lambda error: type(error).__name__)
def test_other_errors_stay_what_they_are(error: Exception) -> None:
    assert as_sdk_error(error) is error


def test_every_error_of_a_client_is_in_the_list() -> None:
    listed = {type(error) for error, _ in ERRORS}

    assert set(_below(RemoteError)) <= listed


def test_every_error_of_ours_is_theirs_unless_it_says_that_pairing_is_wrong() -> None:
    for found in _below(CallerError, BusyError):
        condition = found.condition
        made = found.__new__(found)
        Exception.__init__(made, "text")
        # What the official client raises as a ValueError is one here, too.
        if issubclass(found, PairingError | MessageTooLargeForBacklog | ValueError):
            continue
        raised = as_sdk_error(made)
        assert isinstance(raised, sdk.ServiceBusError), (found, condition)


def _below(*bases: type[TwinbusError]) -> list[type[TwinbusError]]:
    """All classes of ours below these, these included."""
    modules: list[Any] = [twinbus.errors, pairing]
    names = {name: value for module in modules for name, value in vars(module).items()}
    return [
        value
        for value in names.values()
        if isinstance(value, type) and issubclass(value, bases)
    ]


def test_too_large_for_a_backlog_is_an_error_of_both_families() -> None:
    raised = as_sdk_error(TOO_LARGE)

    assert isinstance(raised, MessageTooLargeForBacklog)
    assert isinstance(raised, sdk.MessageSizeExceededError)
    assert isinstance(raised, ValueError)
    assert (raised.path, raised.size_bytes, raised.limit_bytes) == ("orders", 300, 256)
    assert raised.text == str(raised) == raised.message == TOO_LARGE.text
    assert verdict_of(raised) is verdict_of(TOO_LARGE)
    assert as_sdk_error(raised) is raised


def test_every_kind_but_the_callers_own_has_a_class() -> None:
    by_kind = {kind: condition for condition, kind in CONDITIONS.items()}

    assert set(by_kind) == set(Failure) - {Failure.CALLER}
