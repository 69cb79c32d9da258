"""What counts: every condition, every class of the official client, every fault."""

from __future__ import annotations

import asyncio
import inspect
import socket
import ssl
from typing import Any

import pytest
from azure.core import exceptions as core_exceptions
from azure.servicebus import exceptions as sdk_exceptions
from azure.servicebus._pyamqp.error import ErrorCondition

from twinbus import errors
from twinbus.pairing.errors import (
    InvalidMessage,
    MessageTooLargeForBacklog,
    PairingError,
    TooManyHeldSends,
)
from twinbus.pairing.rules.classification import (
    CONDITIONS,
    FAULTS,
    Failure,
    Verdict,
    kind_of,
    kind_of_condition,
    kind_of_status,
    verdict_of,
)

COUNTED = Verdict.COUNTED
RAISE = Verdict.RAISE
BUSY = Verdict.BUSY


# -- conditions --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "verdict"),
    [
        # What a namespace answers when it is asked to take a message.
        ("amqp:not-found", RAISE),
        ("amqp:unauthorized-access", RAISE),
        ("amqp:not-allowed", RAISE),
        ("com.microsoft:server-busy", BUSY),
        ("com.microsoft:entity-disabled", RAISE),
        ("com.microsoft:timeout", COUNTED),
        ("amqp:internal-error", COUNTED),
        ("com.microsoft:session-cannot-be-locked", RAISE),
        ("amqp:connection:forced", COUNTED),
        ("amqp:session:unattached-handle", COUNTED),
        ("amqp:link:message-size-exceeded", RAISE),
        ("amqp:resource-limit-exceeded", RAISE),
        ("com.microsoft:message-lock-lost", RAISE),
        ("com.microsoft:message-not-found", RAISE),
        ("com.microsoft:session-lock-lost", RAISE),
        ("com.microsoft:argument-error", RAISE),
        ("com.microsoft:argument-out-of-range", RAISE),
        ("com.microsoft:auth-failed", RAISE),
        ("com.microsoft:entity-already-exists", RAISE),
        ("com.microsoft:operation-cancelled", COUNTED),
        ("amqp:link:detach-forced", COUNTED),
        ("amqp:link:transfer-limit-exceeded", COUNTED),
        ("amqp:precondition-failed", RAISE),
        ("amqp:not-implemented", RAISE),
        ("amqp:invalid-field", RAISE),
        ("amqp:decode-error", RAISE),
    ],
)
def test_a_condition_has_its_verdict(condition: str, verdict: Verdict) -> None:
    assert condition in CONDITIONS
    assert verdict_of(errors.RemoteError(condition)) is verdict


@pytest.mark.parametrize("condition", ErrorCondition)
def test_every_condition_that_the_official_client_knows_is_in_the_table(
    condition: ErrorCondition,
) -> None:
    assert condition.value.decode() in CONDITIONS


def our_errors() -> list[type[errors.TwinbusError]]:
    classes = inspect.getmembers(errors, inspect.isclass)
    return [each for _, each in classes if issubclass(each, errors.TwinbusError)]


@pytest.mark.parametrize("error", our_errors())
def test_every_condition_that_our_server_answers_is_in_the_table(
    error: type[errors.TwinbusError],
) -> None:
    assert error.condition in CONDITIONS


def test_an_unknown_condition_counts() -> None:
    assert kind_of_condition("com.example:novelty").verdict is COUNTED


def test_quota_exceeded_is_the_callers_and_a_failed_store_is_the_services() -> None:
    assert verdict_of(errors.QuotaExceeded()) is RAISE
    assert verdict_of(errors.StoreFault()) is COUNTED


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (None, COUNTED),
        (400, RAISE),
        (401, RAISE),
        (403, RAISE),
        (404, RAISE),
        (408, COUNTED),
        (409, RAISE),
        (410, RAISE),
        (429, BUSY),
        (500, COUNTED),
        (501, RAISE),
        (502, COUNTED),
        (503, BUSY),
        (504, COUNTED),
    ],
)
def test_a_status_without_a_condition_has_its_verdict(
    status: int | None, verdict: Verdict
) -> None:
    assert kind_of_status(status).verdict is verdict


# -- the official client -----------------------------------------------------------


SDK_VERDICTS = {
    "ServiceBusError": COUNTED,
    "ServiceBusConnectionError": COUNTED,
    "ServiceBusCommunicationError": COUNTED,
    "OperationTimeoutError": COUNTED,
    "ServiceBusServerBusyError": BUSY,
    "ServiceBusAuthenticationError": RAISE,
    "ServiceBusAuthorizationError": RAISE,
    "MessagingEntityNotFoundError": RAISE,
    "MessagingEntityDisabledError": RAISE,
    "MessagingEntityAlreadyExistsError": RAISE,
    "ServiceBusQuotaExceededError": RAISE,
    "MessageSizeExceededError": RAISE,
    "MessageAlreadySettled": RAISE,
    "MessageLockLostError": RAISE,
    "MessageNotFoundError": RAISE,
    "SessionLockLostError": RAISE,
    "SessionCannotBeLockedError": RAISE,
    "AutoLockRenewFailed": RAISE,
    "AutoLockRenewTimeout": RAISE,
}
# Only `ServiceBusError` and what renews locks take their text by position.
BY_POSITION = ("ServiceBusError", "AutoLockRenewFailed", "AutoLockRenewTimeout")


def sdk_classes() -> list[str]:
    return [
        name
        for name, each in inspect.getmembers(sdk_exceptions, inspect.isclass)
        if each.__module__ == sdk_exceptions.__name__
    ]


@pytest.mark.parametrize("name", sdk_classes())
def test_every_exception_of_the_official_client_has_its_verdict(name: str) -> None:
    arguments = ("text",) if name in BY_POSITION else ()
    error = getattr(sdk_exceptions, name)(*arguments)

    assert f"{sdk_exceptions.__name__}.{name}" in FAULTS
    assert verdict_of(error) is SDK_VERDICTS[name]


def test_a_subclass_is_judged_by_its_nearest_base() -> None:
    class Own(sdk_exceptions.ServiceBusServerBusyError):
        """An application's own."""

    assert verdict_of(Own()) is BUSY


# -- faults ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        errors.Disconnected(),
        errors.DecodeError("nonsense"),
        errors.LimitExceeded("too much"),
        errors.OperationTimeout(),
        ConnectionRefusedError(),
        ConnectionResetError(),
        BrokenPipeError(),
        OSError("no route"),
        socket.gaierror(-2, "no such name"),
        ssl.SSLError("handshake"),
        ssl.SSLEOFError(),
        TimeoutError(),
        EOFError(),
        asyncio.IncompleteReadError(b"", 8),
    ],
)
def test_a_fault_of_the_connection_and_any_timeout_count(fault: Exception) -> None:
    assert verdict_of(fault) is COUNTED


@pytest.mark.parametrize(
    "fault",
    [
        errors.Unauthorized(),
        errors.EntityNotFound("q"),
        errors.EntityDisabled(),
        errors.MessageTooLarge(),
        errors.ArgumentError(),
        errors.Bug(),
        ssl.SSLCertVerificationError("self-signed"),
        ValueError(),
        TypeError(),
        UnicodeEncodeError("utf-8", "", 0, 0, ""),
        AttributeError(),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        PairingError(),
        TooManyHeldSends(1, 1),
        MessageTooLargeForBacklog("q", 2, 1, "A message"),
    ],
)
def test_errors_that_the_caller_must_act_on_are_raised(fault: BaseException) -> None:
    assert verdict_of(fault) is RAISE


def test_a_message_that_cannot_be_encoded_never_counts() -> None:
    assert verdict_of(InvalidMessage()) is RAISE


def test_a_busy_service_is_asked_again() -> None:
    assert verdict_of(errors.BusyError()) is BUSY


# -- token endpoints ---------------------------------------------------------------


def http_error(
    cls: type[core_exceptions.HttpResponseError], status: int
) -> core_exceptions.HttpResponseError:
    error = cls(message="no")
    error.status_code = status
    return error


@pytest.mark.parametrize(
    "fault",
    [
        core_exceptions.AzureError("no answer"),
        core_exceptions.ServiceRequestError("no connection"),
        core_exceptions.ServiceRequestTimeoutError("late"),
        core_exceptions.ServiceResponseError("cut off"),
        core_exceptions.HttpResponseError("no response"),
        core_exceptions.DecodeError("a page of a proxy"),
        http_error(core_exceptions.HttpResponseError, 500),
        http_error(core_exceptions.ClientAuthenticationError, 503),
    ],
)
def test_a_token_endpoint_that_cannot_be_reached_counts(fault: Exception) -> None:
    assert verdict_of(fault) is COUNTED


def test_a_credential_that_wraps_a_fault_of_its_connection_counts() -> None:
    error = core_exceptions.ClientAuthenticationError("could not ask")
    error.__cause__ = core_exceptions.ServiceRequestError("no connection")

    assert verdict_of(error) is COUNTED


@pytest.mark.parametrize(
    "fault",
    [
        core_exceptions.ClientAuthenticationError("wrong secret"),
        http_error(core_exceptions.ClientAuthenticationError, 401),
        http_error(core_exceptions.ClientAuthenticationError, 400),
        http_error(core_exceptions.HttpResponseError, 403),
    ],
)
def test_a_token_endpoint_that_says_no_does_not_count(fault: Exception) -> None:
    assert verdict_of(fault) is RAISE


def test_a_token_endpoint_that_asks_for_time_gets_it() -> None:
    error = http_error(core_exceptions.ClientAuthenticationError, 429)

    assert verdict_of(error) is BUSY


def test_causes_that_go_round_in_circles_come_to_an_end() -> None:
    first = core_exceptions.ClientAuthenticationError("a")
    second = core_exceptions.ClientAuthenticationError("b")
    first.__cause__, second.__cause__ = second, first

    assert kind_of(first) is Failure.ACCESS


# -- an application's own ----------------------------------------------------------


def test_an_applications_classifier_is_asked_first() -> None:
    def own(error: BaseException) -> Verdict | None:
        return COUNTED if isinstance(error, errors.QuotaExceeded) else None

    assert verdict_of(errors.QuotaExceeded(), own) is COUNTED
    assert verdict_of(errors.EntityNotFound("q"), own) is RAISE


def test_a_classifier_that_answers_nonsense_is_refused() -> None:
    wrong: Any = lambda _: "nonsense"  # noqa: E731

    with pytest.raises(ValueError, match="nonsense"):
        verdict_of(TimeoutError(), wrong)


def test_only_what_no_other_entity_would_take_either_blames_the_message() -> None:
    blaming = {kind for kind in Failure if kind.blames_message}

    assert blaming == {Failure.TOO_LARGE, Failure.MESSAGE, Failure.CALLER}
