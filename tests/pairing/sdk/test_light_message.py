"""A message of `twinbus.ServiceBusMessage` is one of the official client's."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage as OfficialMessage

import twinbus
import twinbus.aio
from tests.pairing.official import listening, sections_of
from twinbus import ServiceBusMessage
from twinbus.pairing.sdk.conversion import payload_of, payloads_of
from twinbus.wire.message import sections

LATER = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
# Every attribute that can be set, with a value for it.
ATTRIBUTES: dict[str, Any] = {
    "application_properties": {"a": 1, "b": "text", "c": b"bytes"},
    "session_id": "s",
    "message_id": "id",
    "content_type": "text/plain",
    "correlation_id": "c",
    "subject": "label",
    "to": "to",
    "reply_to": "r",
    "reply_to_session_id": "rs",
    "scheduled_enqueue_time_utc": LATER,
    "time_to_live": timedelta(minutes=5),
    "partition_key": "s",
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "text": {"body": "grüße"},
    "bytes": {"body": b"\x00a"},
    "empty": {"body": b""},
    "no body": {"body": None},
    "long id": {"body": "a", "message_id": "ü" * 128},
    "long subject": {"body": "a", "subject": "x" * 300},
    "nothing said": {"body": "a", **dict.fromkeys(ATTRIBUTES)},
    "everything": {"body": "a", **ATTRIBUTES},
    "another encoding": {"body": "ü", "encoding": "latin-1"},
    "unknown": {"body": "a", "colour": "red"},
    **{name: {"body": "a", name: value} for name, value in ATTRIBUTES.items()},
}
READ = ("body_type", *(name for name in ATTRIBUTES if name != "message_id"))


def seen(message: OfficialMessage) -> list[Any]:
    """What a program can read of a message."""
    body = message.body
    values = [getattr(message, name) for name in READ]
    return [body if body is None else list(body), *values]


def with_id(arguments: dict[str, Any]) -> dict[str, Any]:
    """The same with an id, which otherwise each message has of its own."""
    return {**arguments, "message_id": arguments.get("message_id") or "own"}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_light_message_is_sent_as_the_official_one(name: str) -> None:
    arguments = with_id(ARGUMENTS[name])

    light = payload_of(ServiceBusMessage(**arguments), True)

    assert light == payload_of(OfficialMessage(**arguments), True)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_light_message_is_read_as_the_official_one(name: str) -> None:
    arguments = with_id(ARGUMENTS[name])
    light, official = ServiceBusMessage(**arguments), OfficialMessage(**arguments)

    assert isinstance(light, OfficialMessage)
    assert seen(light) == seen(official)
    assert light.message_id == official.message_id
    assert (str(light), repr(light)) == (str(official), repr(official))


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_that_is_set_later_is_sent(name: str) -> None:
    light = ServiceBusMessage("a", message_id="own")
    official = OfficialMessage("a", message_id="own")

    for message in (light, official):
        payload_of(message, True)
        setattr(message, name, ATTRIBUTES[name])

    assert payload_of(light, True) == payload_of(official, True)
    assert getattr(light, name) == getattr(official, name)


def test_properties_that_are_changed_before_the_send_are_sent() -> None:
    own: dict[str | bytes, Any] = {"a": 1}
    message = ServiceBusMessage("a", message_id="own", application_properties=own)
    own["a"] = 2

    official = OfficialMessage("a", message_id="own", application_properties=own)
    assert payload_of(message, True) == payload_of(official, True)
    assert message.application_properties is own


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"body": 5}, TypeError),
        ({"body": "\ud800"}, UnicodeEncodeError),
        ({"body": "a", "message_id": "x" * 129}, ValueError),
        ({"body": "a", "session_id": "x" * 129}, ValueError),
        ({"body": "a", "partition_key": "x" * 129}, ValueError),
        ({"body": "a", "partition_key": "p", "session_id": "s"}, ValueError),
        ({"message_id": "a"}, TypeError),
    ],
)
def test_arguments_are_refused_as_by_the_official_one(
    arguments: dict[str, Any], error: type[Exception]
) -> None:
    for kind in (ServiceBusMessage, OfficialMessage):
        with pytest.raises(error):
            kind(**arguments)


@pytest.mark.parametrize("look", [payload_of, lambda each, _: each.message_id])
def test_a_message_without_an_id_keeps_the_one_it_is_given(
    look: Callable[[ServiceBusMessage, bool], Any],
) -> None:
    message = ServiceBusMessage("a")
    look(message, False)

    first, second = payloads_of([message, message], False)

    assert first == second
    assert sections.read_properties(bytes(first))[0] == message.message_id
    assert ServiceBusMessage("a").message_id != message.message_id


@pytest.mark.parametrize(
    "again",
    [
        copy.copy,
        copy.deepcopy,
        lambda each: pickle.loads(pickle.dumps(each)),  # noqa: S301
    ],
)
def test_a_copy_is_the_same_message(
    again: Callable[[ServiceBusMessage], ServiceBusMessage],
) -> None:
    message = ServiceBusMessage("a", message_id="own", application_properties={"a": 1})

    copied = again(message)

    assert payload_of(copied, True) == payload_of(message, True)
    assert copied.subject is None
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        copied.colour  # noqa: B018


def test_the_official_client_sends_it() -> None:
    arguments = with_id(ARGUMENTS["everything"])
    with listening() as listener:
        heard = [
            sections_of(listener.heard(message))
            for message in (
                ServiceBusMessage(**arguments),
                OfficialMessage(**arguments),
            )
        ]

    assert heard[0] == heard[1]


def test_both_surfaces_have_it() -> None:
    assert twinbus.ServiceBusMessage is twinbus.aio.ServiceBusMessage
