"""Pings: what one is, and when."""

from __future__ import annotations

import pytest

from twinbus import limits
from twinbus.pairing.rules.ping import (
    Probe,
    choose_probe,
    next_ping_ms,
    ping_message,
    ping_timeout_ms,
)
from twinbus.wire.message import sections
from twinbus.wire.message.names import PING_CAPABILITY
from twinbus.wire.message.names import PING_CAPABILITY as OFFERED
from twinbus.wire.types import Symbol


def test_a_ping_is_empty_short_lived_and_takes_a_session() -> None:
    incoming = sections.parse(ping_message("session", "id"))

    assert incoming.content_type == "application/vnd.ms-servicebus-ping"
    assert type(incoming.content_type) is Symbol
    assert incoming.ttl_ms == 1_000
    assert incoming.session_id == "session"
    assert incoming.message_id == "id"
    assert incoming.bare.endswith(b"\x00\x53\x75\xa0\x00")


def test_pings_go_from_start_to_start() -> None:
    assert next_ping_ms(1_000, 60_000, 30_000) == 61_000
    assert next_ping_ms(1_000, 60_000, 70_000) == 70_000


@pytest.mark.parametrize(
    "interval_ms", [limits.PING_INTERVAL_MS_MIN, 60_000, limits.PING_INTERVAL_MS_MAX]
)
def test_the_timeout_of_a_ping_is_below_the_interval(interval_ms: int) -> None:
    assert 0 < ping_timeout_ms(interval_ms) < interval_ms


def test_the_capability_is_the_one_that_our_server_offers() -> None:
    assert PING_CAPABILITY == OFFERED == "twinbus:ping"


def test_a_service_that_says_so_is_pinged_and_any_other_is_not() -> None:
    assert choose_probe(None, ["twinbus:ping"]) is Probe.PING
    assert choose_probe(None, []) is Probe.LINK


def test_a_probe_can_be_forced() -> None:
    assert choose_probe("ping", []) is Probe.PING
    assert choose_probe("link", ["twinbus:ping"]) is Probe.LINK
