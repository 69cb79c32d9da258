"""Messages between HTTP and AMQP: every kind of body and value, and odd ones."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from twinbus.server.http.rest.messages import Shown, read_single
from twinbus.store.base import Stored
from twinbus.wire.codec import encode
from twinbus.wire.message import sections
from twinbus.wire.message.sections import Incoming
from twinbus.wire.types import Described, Float32, Symbol, Timestamp, UByte, ULong


def stored(*parts: tuple[int, Any], extra: bytes = b"") -> Stored:
    """A message that an AMQP client sent."""
    written = b"".join(encode(Described(ULong(code), value)) for code, value in parts)
    message = sections.parse(written + extra)
    return kept(message)


def kept(message: Incoming) -> Stored:
    head = message.head()
    return Stored(
        4 << 40 | 7, 0, 0, 0, None, None, None, None, None, head, message.bare
    )


def shown(message: Stored) -> Shown:
    return Shown(message, None, 0)


def headers(message: Stored) -> dict[str, str]:
    return dict(shown(message).headers)


@pytest.mark.parametrize(
    ("parts", "body"),
    [
        ([], b""),
        ([(sections.DATA, b"a"), (sections.DATA, b"b")], b"ab"),
        ([(sections.VALUE, "tëxt")], "tëxt".encode()),
        ([(sections.VALUE, b"\xff")], b"\xff"),
        ([(sections.VALUE, None)], b""),
        ([(sections.VALUE, {"a": [1, True, None]})], b'{"a":[1,true,null]}'),
        ([(sections.VALUE, 1.5)], b"1.5"),
        ([(sections.SEQUENCE, [1, "b"])], b'[1,"b"]'),
        ([(sections.SEQUENCE, [1]), (sections.SEQUENCE, [2])], b"[[1],[2]]"),
    ],
)
def test_every_body_can_be_shown(parts: list[tuple[int, Any]], body: bytes) -> None:
    assert shown(stored(*parts)).body == body


def test_a_body_that_cannot_be_read_is_shown_as_it_is() -> None:
    # A string of two bytes that are not UTF-8.
    odd = b"\xa1\x02\xff\xfe"

    assert shown(stored(extra=b"\x00\x53\x77" + odd)).body == odd


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", '"a"'),
        (Symbol("s"), '"s"'),
        (UByte(7), "7"),
        (-5, "-5"),
        (True, "true"),
        (Float32(0.5), "0.5"),
        (float("nan"), '"nan"'),
        (Timestamp(0), '"Thu, 01 Jan 1970 00:00:00 GMT"'),
        (uuid.UUID(int=1), f'"{uuid.UUID(int=1)}"'),
        (b"\x00", '"AA=="'),
        (Described(Symbol("com.microsoft:timespan"), 5), "5"),
    ],
)
def test_every_value_has_a_header(value: Any, text: str) -> None:
    message = stored((sections.APPLICATION_PROPERTIES, {"X": value}))

    assert headers(message)["X"] == text


@pytest.mark.parametrize("value", [None, [1], {"a": 1}])
def test_values_without_a_json_form_are_left_out(value: Any) -> None:
    message = stored((sections.APPLICATION_PROPERTIES, {"X": value}))

    assert "X" not in headers(message)


@pytest.mark.parametrize(
    ("message_id", "text"),
    [
        (ULong(7), "7"),
        (uuid.UUID(int=1), str(uuid.UUID(int=1))),
        (b"\x01\x02", "0102"),
        ("text", "text"),
    ],
)
def test_ids_of_all_types_are_shown(message_id: Any, text: str) -> None:
    message = stored((sections.PROPERTIES, [message_id]))

    assert json.loads(headers(message)["BrokerProperties"])["MessageId"] == text


def test_a_content_type_with_line_ends_is_left_out() -> None:
    fields = [None] * 6 + ["a\r\nX-Evil: b"]

    assert "Content-Type" not in headers(stored((sections.PROPERTIES, fields)))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'"High"', "High"),
        (b'"a \\"b\\" \\u00e4"', 'a "b" ä'),
        (b'"C:\\work"', "C:\\work"),
        (b"12", 12),
        (b"-0.5", -0.5),
        (b"false", False),
        (b"null", "null"),
        (b"NaN", "NaN"),
        (b"[1]", "[1]"),
        (b"99999999999999999999", "99999999999999999999"),
        (b"", ""),
        ("ä".encode(), "ä"),
        ("ä".encode("latin-1"), "ä"),
    ],
)
def test_headers_become_properties(text: bytes, value: Any) -> None:
    message = read_single([(b"Some-Name", text)], b"")

    read = sections.read_application_properties(message.bare)
    assert read == {"Some-Name": value}
    assert type(read["Some-Name"]) is type(value)


def test_a_message_sent_over_http_is_received_unchanged() -> None:
    sent = [(b"Priority", b'"High"'), (b"N", b"1"), (b"Content-Type", b"text/plain")]

    found = headers(kept(read_single(sent, b"body")))

    assert (found["Priority"], found["N"]) == ('"High"', "1")
    assert found["Content-Type"] == "text/plain"


def test_a_time_to_live_has_three_spellings_and_for_ever() -> None:
    def ttl_ms(broker: str) -> int | None:
        return read_single([(b"BrokerProperties", broker.encode())], b"").ttl_ms

    assert ttl_ms('{"TimeToLive": 1.5}') == 1500
    assert ttl_ms('{"TimeToLive": "90"}') == 90_000
    assert ttl_ms('{"TimeToLiveTimeSpan": "1.02:03:04.5"}') == 93_784_500
    assert ttl_ms('{"TimeToLive": 922337203685.4775}') is None
    assert ttl_ms('{"TimeToLive": 0.0001}') == 1
