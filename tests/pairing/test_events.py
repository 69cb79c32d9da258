"""Events: what a log shows of one."""

from __future__ import annotations

from twinbus.pairing.events import EventKind, PairingEvent


def test_an_event_says_what_where_and_why() -> None:
    event = PairingEvent(
        EventKind.FAILED_OVER, "orders", 5, OSError("refused"), {"held": 3}
    )

    assert event.text == "orders: failed over held=3 (OSError: refused)"
    assert event.level == "WARNING"


def test_an_event_without_a_cause_names_none() -> None:
    event = PairingEvent(EventKind.FAILED_BACK, "orders", 5)

    assert event.text == "orders: failed back"
    assert event.level == "INFO"


def test_a_fault_is_an_error() -> None:
    assert PairingEvent(EventKind.FAULTED, "contoso", 5).level == "ERROR"


def test_the_kinds_that_applications_rely_on_are_there() -> None:
    assert {kind.value for kind in EventKind} >= {
        "suspect",
        "failed over",
        "ping failed",
        "ping accepted",
        "failed back",
        "backlog queue out",
        "backlog queue in",
        "syphon progress",
        "faulted",
    }
