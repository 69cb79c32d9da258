"""Backlog queues: their names, and how they are made."""

from __future__ import annotations

from datetime import timedelta

import pytest
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from twinbus.core.names import check_entity_path
from twinbus.pairing.rules.naming import (
    BACKLOG_QUEUE_PROPERTIES,
    IndexSearch,
    backlog_index,
    backlog_path,
    found_indexes,
    primary_label,
)


def search(existing: set[int], known: tuple[int, ...] = ()) -> tuple[list[int], int]:
    """What a search finds, and how many indexes it has asked for."""
    found = IndexSearch(known)
    asked: list[int] = []
    while group := found.group():
        asked += group
        found.found += [index for index in group if index in existing]
    assert asked == list(range(len(asked)))
    return found.found, len(asked)


@pytest.mark.parametrize(
    ("existing", "known", "found", "asked"),
    [
        (set(), (), [], 100),
        ({0, 1, 2}, (), [0, 1, 2], 103),
        ({0, 50, 150, 250}, (), [0, 50, 150, 250], 351),
        ({0, 101}, (), [0], 101),
        # One that is known is asked for, whether it still exists or not.
        ({0, 101}, (0, 40), [0, 101], 202),
        ({0}, (300,), [0], 401),
    ],
)
def test_a_search_by_index_ends_after_a_hundred_that_are_missing(
    existing: set[int], known: tuple[int, ...], found: list[int], asked: int
) -> None:
    assert search(existing, known) == (found, asked)


def test_the_first_backlog_queue_of_contoso() -> None:
    assert backlog_path("contoso", 0) == "contoso/x-servicebus-transfer/0"


@pytest.mark.parametrize(
    ("host", "label"),
    [
        ("contoso.servicebus.windows.net", "contoso"),
        ("Contoso.ServiceBus.Windows.NET", "contoso"),
        ("contoso", "contoso"),
        ("localhost", "localhost-5672"),
        ("LOCALHOST", "localhost-5672"),
        ("127.0.0.1", "127-0-0-1-5672"),
        ("[::1]", "1-5672"),
        ("fe80::1", "fe80--1-5672"),
    ],
)
def test_the_primary_is_named_by_its_first_label_or_host_and_port(
    host: str, label: str
) -> None:
    assert primary_label(host, 5672) == label
    check_entity_path(backlog_path(label, 0))


@pytest.mark.parametrize(
    ("path", "index"),
    [
        ("contoso/x-servicebus-transfer/0", 0),
        ("contoso/x-servicebus-transfer/12", 12),
        ("Contoso/X-ServiceBus-Transfer/7", 7),
        ("contoso/x-servicebus-transfer/07", None),
        ("contoso/x-servicebus-transfer/-1", None),
        ("contoso/x-servicebus-transfer/1/2", None),
        ("contoso/x-servicebus-transfer/", None),
        ("contoso/x-servicebus-transfer/\u0661", None),
        ("other/x-servicebus-transfer/1", None),
        ("orders", None),
    ],
)
def test_an_index_is_read_from_a_path(path: str, index: int | None) -> None:
    assert backlog_index(path, "contoso") == index


def test_every_index_is_found_also_beyond_the_count() -> None:
    paths = [backlog_path("contoso", index) for index in (7, 0, 3)]

    assert found_indexes([*paths, "orders", *paths], "contoso") == [0, 3, 7]


def test_the_properties_that_are_set_explicitly() -> None:
    assert dict(BACKLOG_QUEUE_PROPERTIES) == {
        "max_size_in_megabytes": 5120,
        "max_delivery_count": 2147483647,
        "default_message_time_to_live": "P10675199DT2H48M5.4775807S",
        "auto_delete_on_idle": "P10675199DT2H48M5.4775807S",
        "lock_duration": timedelta(minutes=1),
        "dead_lettering_on_message_expiration": True,
        "enable_batched_operations": True,
    }


def test_the_administration_client_takes_these_properties() -> None:
    documented = ServiceBusAdministrationClient.create_queue.__doc__ or ""

    assert [name for name in BACKLOG_QUEUE_PROPERTIES if name not in documented] == []
