"""Counting: rows by place, operation, outcome and size class."""

from __future__ import annotations

import pytest

from twinbus import limits
from twinbus.ledger.counts import NO_NAME, LedgerCounts, LedgerEvent, LedgerPlace
from twinbus.ledger.schema import size_class

ORDERS = LedgerPlace("contoso", "server", "orders", "Root", "amqp")


@pytest.mark.parametrize(
    ("size_bytes", "units"),
    [(0, 1), (1, 1), (65_536, 1), (65_537, 2), (131_072, 2), (1_048_576, 16)],
)
def test_a_message_counts_once_for_each_64_kb_begun(
    size_bytes: int, units: int
) -> None:
    assert size_class(size_bytes) == units


def test_equal_operations_share_a_row() -> None:
    counts = LedgerCounts()

    counts.account(ORDERS).run_in("send", "accepted", 3, 300)
    counts.account(ORDERS).messages_in("send", "accepted", [100, 65_536])

    assert counts.cells == {(ORDERS, "send", "accepted", 1): [5, 5, 65_936, 0]}


def test_messages_of_different_size_classes_have_rows_of_their_own() -> None:
    counts = LedgerCounts()

    counts.account(ORDERS).messages_out("receive", [10, 70_000, 100_000, 200_000])

    assert counts.cells == {
        (ORDERS, "receive", "accepted", 1): [1, 1, 0, 10],
        (ORDERS, "receive", "accepted", 2): [4, 2, 0, 170_000],
        (ORDERS, "receive", "accepted", 4): [4, 1, 0, 200_000],
    }


@pytest.mark.parametrize(
    "text",
    [
        "Endpoint=sb://contoso/;SharedAccessKeyName=Root;SharedAccessKey=c2VjcmV0",
        "SharedAccessSignature sr=x&sig=c2VjcmV0%3D&se=1&skn=Root",
        "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3I=",
        "x" * (limits.LEDGER_NAME_CHARS_MAX + 1),
    ],
)
def test_what_cannot_be_a_name_is_not_kept(text: str) -> None:
    counts = LedgerCounts()

    counts.account(ORDERS._replace(entity=text, key=text)).calls("poll", "accepted")
    counts.tell(LedgerEvent(1, "one", "two", text, "failed over"))

    (place, *_), *others = counts.cells
    assert others == []
    assert (place.entity, place.key) == (NO_NAME, NO_NAME)
    assert [event.entity for event in counts.events] == [NO_NAME]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "aufträge/eilig_2.~x-y",
        f"{'t' * 260}/subscriptions/{'s' * 50}/$transfer/$deadletterqueue",
    ],
)
def test_names_are_kept_as_they_are(text: str) -> None:
    counts = LedgerCounts()

    counts.account(ORDERS._replace(entity=text)).calls("poll", "accepted")

    ((place, *_),) = counts.cells
    assert place.entity == text


def test_what_is_taken_is_counted_no_more() -> None:
    counts = LedgerCounts()
    counts.account(ORDERS).calls("poll", "accepted")

    first, second = counts.take(), counts.take()

    assert list(first.cells.values()) == [[1, 0, 0, 0]]
    assert second.rows == 0


def test_rows_have_the_names_that_namespaces_give_themselves() -> None:
    counts = LedgerCounts()
    by_address = ORDERS._replace(namespace="localhost:5672")
    counts.account(by_address).calls("poll", "accepted")
    counts.account(ORDERS).calls("poll", "accepted")
    counts.tell(LedgerEvent(1, "localhost:5672", "elsewhere", "orders", "failed over"))
    counts.names["localhost:5672"] = "contoso"

    taken = counts.take()

    assert taken.cells == {(ORDERS, "poll", "accepted", 0): [2, 0, 0, 0]}
    assert taken.events == [
        LedgerEvent(1, "contoso", "elsewhere", "orders", "failed over")
    ]


def test_rows_of_a_minute_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LEDGER_ROWS_PER_MINUTE_MAX", 2)
    monkeypatch.setattr(limits, "LEDGER_EVENTS_PER_MINUTE_MAX", 1)
    counts = LedgerCounts()

    for name in ("a", "b", "c", "a"):
        counts.account(ORDERS._replace(entity=name)).calls("manage", "refused", 2)
    for _ in range(2):
        counts.tell(LedgerEvent(1, "one", "two", "", "paired"))

    assert [key[0].entity for key in counts.cells] == ["a", "b"]
    assert counts.cells[(ORDERS._replace(entity="a"), "manage", "refused", 0)][0] == 4
    assert len(counts.events) == 1
    assert counts.dropped == 3
