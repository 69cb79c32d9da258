"""Refused tokens: counted by address, bounded, paid by time alone."""

from __future__ import annotations

import pytest

from twinbus import limits
from twinbus.errors import EntityNotFound, Unauthorized
from twinbus.server.access.failures import TOO_MANY, Failures

NOW_MS = 1_700_000_000_000


def fail(failures: Failures, address: str, now_ms: int = NOW_MS) -> str:
    """Fail once; returns what was said."""
    with (
        pytest.raises(Unauthorized) as refused,
        failures.counted(address, now_ms),
    ):
        raise Unauthorized("no")
    return refused.value.text


def test_failures_are_refused_at_the_limit_and_allowed_again_with_time() -> None:
    failures = Failures()
    said = [fail(failures, "192.0.2.1") for _ in range(12)]
    assert said == ["no"] * 10 + [TOO_MANY] * 2

    later_ms = NOW_MS + 60_000
    said = [fail(failures, "192.0.2.1", later_ms) for _ in range(11)]

    assert said == ["no"] * 10 + [TOO_MANY]


def test_only_refused_tokens_are_counted() -> None:
    failures = Failures()
    for _ in range(100):
        with failures.counted("192.0.2.1", NOW_MS):
            pass
        with (
            pytest.raises(EntityNotFound),
            failures.counted("192.0.2.1", NOW_MS),
        ):
            raise EntityNotFound("q")

    assert fail(failures, "192.0.2.1") == "no"


def test_what_is_proved_passes_after_any_number_of_failures() -> None:
    failures = Failures()
    for _ in range(100):
        fail(failures, "192.0.2.1")

    with failures.counted("192.0.2.1", NOW_MS):
        proved = True

    assert proved


def test_failures_beyond_the_limit_are_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = Failures()
    for _ in range(100):
        fail(failures, "192.0.2.1")

    assert len(caplog.records) == limits.TOKEN_FAILURES_MAX


def test_failures_are_counted_by_address() -> None:
    failures = Failures()
    for _ in range(11):
        fail(failures, "192.0.2.1")

    assert fail(failures, "192.0.2.2") == "no"


def test_a_network_of_ipv6_is_one_address() -> None:
    failures = Failures()
    for number in range(10):
        assert fail(failures, f"2001:db8::{number}") == "no"

    assert fail(failures, "2001:db8::ffff") == TOO_MANY
    assert fail(failures, "2001:db8:0:1::1") == "no"
    assert fail(failures, "fe80::1%eth0") == "no"
    assert fail(failures, "not:an:address") == "no"


def test_a_clock_set_back_does_not_reset_failures() -> None:
    failures = Failures()
    for _ in range(10):
        fail(failures, "192.0.2.1")

    assert fail(failures, "192.0.2.1", NOW_MS - 3_600_000) == TOO_MANY


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_the_number_of_addresses_is_bounded(
    monkeypatch: pytest.MonkeyPatch, extra: int
) -> None:
    monkeypatch.setattr(limits, "BUCKET_ADDRESSES_MAX", 50)
    failures = Failures()

    for number in range(50 + extra):
        fail(failures, f"192.0.2.{number}")

    assert len(failures._buckets) == min(50 + extra, 50)


def test_addresses_without_recent_failures_are_forgotten_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "BUCKET_ADDRESSES_MAX", 2)
    failures = Failures()
    fail(failures, "192.0.2.1", NOW_MS - 5000)
    for _ in range(10):
        fail(failures, "192.0.2.2")

    fail(failures, "192.0.2.3")

    assert fail(failures, "192.0.2.2") == TOO_MANY
