"""Addresses, scopes and names."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus import errors, limits
from twinbus.core.names import (
    EntityPath,
    SubQueue,
    check_entity_path,
    check_namespace_name,
    check_rule_name,
    check_subscription_name,
    covers,
    parse_address,
)

DEAD, TRANSFER = SubQueue.DEAD_LETTER, SubQueue.TRANSFER_DEAD_LETTER


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("orders", EntityPath("orders")),
        ("/orders/", EntityPath("orders")),
        ("amqps://localhost:5671/orders", EntityPath("orders")),
        ("sb://contoso.example/orders/", EntityPath("orders")),
        ("https://contoso.example/orders?api-version=2021-05", EntityPath("orders")),
        ("a/b/c", EntityPath("a/b/c")),
        ("orders/$DeadLetterQueue", EntityPath("orders", None, DEAD)),
        ("orders/$deadletterqueue", EntityPath("orders", None, DEAD)),
        ("a/b/$Transfer/$DeadLetterQueue", EntityPath("a/b", None, TRANSFER)),
        ("orders/$management", EntityPath("orders", management=True)),
        ("orders/$Management", EntityPath("orders", management=True)),
        ("events/Subscriptions/all", EntityPath("events", "all")),
        ("a/b/subscriptions/all", EntityPath("a/b", "all")),
        (
            "amqps://h/events/SUBSCRIPTIONS/all/$DeadLetterQueue/$management",
            EntityPath("events", "all", DEAD, management=True),
        ),
        (
            "events/Subscriptions/all/$transfer/$deadLetterQueue",
            EntityPath("events", "all", TRANSFER),
        ),
        ("$cbs", EntityPath("$cbs")),
        ("sb://contoso.example", EntityPath("")),
        ("sb://contoso.example/", EntityPath("")),
        ("", EntityPath("")),
        ("$management", EntityPath("", management=True)),
        ("$DeadLetterQueue", EntityPath("", None, DEAD)),
        ("subscriptions/x", EntityPath("subscriptions/x")),
        ("a/b://c", EntityPath("a/b://c")),
    ],
)
def test_an_address_is_taken_apart(address: str, path: EntityPath) -> None:
    assert parse_address(address) == path


def test_keys_ignore_case_and_text_is_canonical() -> None:
    path = parse_address("sb://H/Events/subscriptions/All/$deadletterqueue/$MANAGEMENT")

    assert path.text == "Events/Subscriptions/All/$DeadLetterQueue/$management"
    assert path.display == "Events/Subscriptions/All"
    assert path.key == "events/subscriptions/all"
    assert path.entity_key == "events"
    assert path.scope_key == "events/subscriptions/all/$deadletterqueue/$management"


def test_the_token_node_and_the_namespace_are_told_apart() -> None:
    assert parse_address("amqps://h/$CBS").is_cbs
    assert not parse_address("$cbs/$management").is_cbs
    assert parse_address("sb://h/").is_namespace
    assert not parse_address("orders").is_namespace


@given(st.text())
def test_no_address_fails_and_canonical_text_is_stable(address: str) -> None:
    path = parse_address(address)

    # A text with "://" inside it may look like a URI once its suffix is cut.
    if "://" not in path.text and "//" not in path.text:
        assert parse_address(path.text).scope_key == path.scope_key


@pytest.mark.parametrize(
    ("scope", "target", "covered"),
    [
        ("", "orders", True),
        ("", "", True),
        ("orders", "orders", True),
        ("orders", "orders/$management", True),
        ("orders", "orders/x", True),
        ("orders", "orders2", False),
        ("orders", "order", False),
        ("orders/x", "orders", False),
        ("orders", "", False),
        ("orders", "x/orders", False),
        ("events/subscriptions/a", "events/subscriptions/ab", False),
    ],
)
def test_a_scope_covers_whole_segments(scope: str, target: str, covered: bool) -> None:
    assert covers(scope, target) is covered


CHECKS: list[tuple[Callable[[str], None], int]] = [
    (check_entity_path, limits.ENTITY_PATH_CHARS_MAX),
    (check_subscription_name, limits.SUBSCRIPTION_NAME_CHARS_MAX),
    (check_rule_name, limits.RULE_NAME_CHARS_MAX),
    (check_namespace_name, limits.NAMESPACE_NAME_CHARS_MAX),
]


@pytest.mark.parametrize(("check", "chars_max"), CHECKS)
def test_a_name_has_one_to_its_maximum_of_characters(
    check: Callable[[str], None], chars_max: int
) -> None:
    check("a")
    check("a" * (chars_max - 1))
    check("a" * chars_max)
    with pytest.raises(errors.ArgumentOutOfRange, match=f"at most {chars_max}"):
        check("a" * (chars_max + 1))
    with pytest.raises(errors.ArgumentError, match="empty"):
        check("")


@pytest.mark.parametrize(("check", "_"), CHECKS)
@pytest.mark.parametrize(
    "name", ["a b", "a?", "a#", "a@b", "a*", "a\\b", "é", "a\n", "a%2Fb", "a:b", "\x00"]
)
def test_odd_characters_are_refused(
    check: Callable[[str], None], _: int, name: str
) -> None:
    with pytest.raises(errors.ArgumentError, match="not allowed"):
        check(name)


@pytest.mark.parametrize(
    "name", ["txt/.-_123", "a/b/c", "Q.1", "ns~topic", "subscriptions/x", "0"]
)
def test_good_entity_paths_are_taken(name: str) -> None:
    check_entity_path(name)


@pytest.mark.parametrize("name", ["/a", "a/", "a//b", "/", ".", "..", "a/../b", "a/."])
def test_empty_and_dot_segments_are_refused(name: str) -> None:
    with pytest.raises(errors.ArgumentError, match="segment"):
        check_entity_path(name)


@pytest.mark.parametrize("name", ["a/subscriptions/b", "a/Subscriptions", "$cbs"])
def test_a_path_that_addresses_cannot_reach_is_refused(name: str) -> None:
    with pytest.raises(errors.ArgumentError):
        check_entity_path(name)


def test_only_rules_take_a_dollar_and_only_paths_a_slash() -> None:
    check_rule_name("$Default")
    with pytest.raises(errors.ArgumentError):
        check_subscription_name("$Default")
    for check in (check_subscription_name, check_rule_name, check_namespace_name):
        with pytest.raises(errors.ArgumentError):
            check("a/b")
