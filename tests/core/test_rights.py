"""Rights: the matrix of operations, and claims from tokens."""

from __future__ import annotations

import dataclasses

import pytest

from twinbus import errors, limits
from twinbus.core.names import parse_address
from twinbus.core.rights import (
    AuthorizationRule,
    Claim,
    Operation,
    Right,
    allowed,
    check_rules,
    claim_for,
    dated,
    format_rights,
    parse_rights,
    renewed,
    standing,
)
from twinbus.core.sas import Secret, make_token

NOW_S = 1_700_000_000
NONE = Right(0)

SEND = {Operation.SEND_LINK, Operation.SCHEDULE, Operation.CANCEL_SCHEDULED}
MANAGE = {
    Operation.CREATE_ENTITY,
    Operation.READ_ENTITY,
    Operation.UPDATE_ENTITY,
    Operation.DELETE_ENTITY,
    Operation.LIST_ENTITIES,
    Operation.READ_NAMESPACE,
    Operation.PURGE,
    Operation.RESET_NAMESPACE,
    Operation.READ_RULES,
    Operation.CHANGE_RULES,
    Operation.REHEARSE_FAULTS,
    Operation.CLOSE_CONNECTION,
}
EITHER = {Operation.MANAGEMENT_LINK, Operation.OPEN_CONSOLE}
LISTEN = set(Operation) - SEND - MANAGE - EITHER


def claim(
    audience: str = "orders",
    rights: Right = Right.MANAGE,
    expires_s: int = NOW_S + 60,
    rule_key: str = "",
) -> Claim:
    return Claim(rights, parse_address(audience), expires_s, rule_key)


def may(operation: Operation, path: str, *claims: Claim, now_s: int = NOW_S) -> bool:
    try:
        allowed(claims, operation, parse_address(path), now_s)
    except errors.Unauthorized:
        return False
    return True


@pytest.mark.parametrize("operation", Operation)
@pytest.mark.parametrize(
    "rights",
    [NONE, Right.SEND, Right.LISTEN, Right.SEND | Right.LISTEN, Right.MANAGE],
)
@pytest.mark.parametrize(
    ("audience", "covered"),
    [
        ("orders", True),
        ("", True),
        ("sb://other-host/ORDERS", True),
        ("orders2", False),
        ("order", False),
        ("orders/$management", False),
        ("events", False),
    ],
)
def test_the_whole_matrix(
    operation: Operation, rights: Right, audience: str, covered: bool
) -> None:
    held = (
        (operation in SEND | EITHER and Right.SEND in rights)
        or (operation in LISTEN | EITHER and Right.LISTEN in rights)
        or (operation in MANAGE and Right.MANAGE in rights)
    )

    assert may(operation, "orders", claim(audience, rights)) is (held and covered)


@pytest.mark.parametrize("operation", Operation)
def test_nothing_is_allowed_without_a_live_claim(operation: Operation) -> None:
    assert not may(operation, "orders")
    assert may(operation, "orders", claim(), now_s=NOW_S + 59)
    assert not may(operation, "orders", claim(), now_s=NOW_S + 60)
    assert not may(operation, "orders", claim(), now_s=NOW_S + 61)


@pytest.mark.parametrize(
    ("audience", "path", "covered"),
    [
        ("orders", "orders/$management", True),
        ("orders", "orders/$DeadLetterQueue", True),
        ("orders", "orders/$DeadLetterQueue/$management", True),
        ("events", "events/Subscriptions/all", True),
        ("events/subscriptions/all", "events/Subscriptions/ALL/$management", True),
        ("events/subscriptions/all", "events/Subscriptions/all2", False),
        ("events/subscriptions/all", "events", False),
        ("orders/$management", "orders", False),
        ("orders/$DeadLetterQueue", "orders", False),
    ],
)
def test_a_claim_covers_what_is_below_its_audience(
    audience: str, path: str, covered: bool
) -> None:
    assert may(Operation.PEEK, path, claim(audience)) is covered


def test_one_claim_of_several_is_enough_but_they_do_not_add_up() -> None:
    claims = (claim("x"), claim(rights=Right.SEND), claim(rights=Right.LISTEN))

    assert may(Operation.SEND_LINK, "orders", *claims)
    assert may(Operation.RECEIVE_LINK, "orders", *claims)
    assert not may(Operation.READ_ENTITY, "orders", *claims)


def test_a_rule_of_one_queue_does_not_reach_a_queue_with_a_longer_path() -> None:
    own = claim("a", rule_key="a")

    assert may(Operation.SEND_LINK, "a", own)
    assert may(Operation.PEEK, "a/$management", own)
    assert not may(Operation.SEND_LINK, "a/b", own)


def test_a_refusal_names_the_right_and_the_resource() -> None:
    with pytest.raises(errors.Unauthorized, match=r"'Send' claim.*'orders'"):
        allowed([], Operation.SEND_LINK, parse_address("sb://h/orders"), NOW_S)
    with pytest.raises(errors.Unauthorized, match="'Send' or 'Listen' claim"):
        allowed([], Operation.MANAGEMENT_LINK, parse_address("orders"), NOW_S)


# -- rules -------------------------------------------------------------------------


def test_rights_have_names() -> None:
    assert parse_rights(["Send", "LISTEN"]) == Right.SEND | Right.LISTEN
    assert parse_rights(["manage"]) == Right.MANAGE
    assert parse_rights([]) == NONE
    assert format_rights(Right.MANAGE) == ("Manage", "Send", "Listen")
    assert format_rights(Right.SEND | Right.LISTEN) == ("Send", "Listen")
    with pytest.raises(errors.ArgumentError, match="'Receive' is not known"):
        parse_rights(["Receive"])


def rule(name: str = "root", rights: Right = Right.MANAGE) -> AuthorizationRule:
    return AuthorizationRule(name, rights, Secret(f"{name} key"))


@pytest.mark.parametrize(
    ("extra", "fits"),
    [(-1, True), (0, True), (1, False)],
)
def test_a_scope_has_a_bounded_number_of_rules(extra: int, fits: bool) -> None:
    rules = [rule(f"r{i}") for i in range(limits.AUTHORIZATION_RULES_MAX + extra)]

    if fits:
        check_rules(rules)
    else:
        with pytest.raises(errors.ArgumentOutOfRange, match="at most 12"):
            check_rules(rules)


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ({"name": ""}, "1 to 256"),
        ({"name": "n" * 257}, "1 to 256"),
        ({"rights": NONE}, "no rights"),
        ({"primary_key": Secret("")}, "1 to 256"),
        ({"primary_key": Secret("k" * 257)}, "1 to 256"),
        ({"secondary_key": Secret("k" * 257)}, "1 to 256"),
    ],
)
def test_a_bad_rule_is_refused_without_a_leak(
    bad: dict[str, object], problem: str
) -> None:
    with pytest.raises(errors.CallerError, match=problem) as refusal:
        dataclasses.replace(rule(), **bad).validate()  # type: ignore[arg-type]

    assert "kkk" not in refusal.value.text


def test_rules_at_the_edge_and_unlike_names_are_taken() -> None:
    edge = AuthorizationRule("n" * 256, Right.SEND, Secret("k" * 256), Secret("k"))

    check_rules([edge, rule("a"), rule("A")])
    with pytest.raises(errors.ArgumentError, match="two authorization_rules named 'a'"):
        check_rules([rule("a"), rule("a")])


# -- claims from tokens ------------------------------------------------------------

ROOT = rule("root")
NAMESAKE = AuthorizationRule("root", Right.LISTEN, Secret("of the queue"))
SENDER = AuthorizationRule("sender", Right.SEND, Secret("1st"), Secret("2nd"))
RULES = {"": [ROOT], "orders": [SENDER, NAMESAKE], "orders/x": [rule("other")]}


def made(name: str, key: str, target: str, uri: str = "sb://h/") -> Claim:
    text = make_token(uri, name, Secret(key), NOW_S + 60)
    return claim_for(text, lambda key: RULES.get(key, ()), parse_address(target), NOW_S)


def test_a_token_of_the_namespace_gives_a_claim_anywhere() -> None:
    path = parse_address("events/subscriptions/all")

    assert made("root", "root key", path.text) == Claim(
        Right.MANAGE, path, NOW_S + 60, ""
    )
    assert made("root", "root key", "sb://h/").covers(path)


@pytest.mark.parametrize("key", ["1st", "2nd"])
def test_a_rule_of_a_queue_gives_a_claim_on_it(key: str) -> None:
    got = made("sender", key, "orders/$management", "sb://h/orders")

    assert got.rights is Right.SEND
    assert got.rule_key == "orders"


def test_a_name_in_both_scopes_is_told_apart_by_its_key() -> None:
    assert made("root", "root key", "orders").rights is Right.MANAGE
    assert made("root", "of the queue", "orders").rights is Right.LISTEN


@pytest.mark.parametrize(
    ("name", "key", "target", "uri"),
    [
        ("root", "wrong", "orders", "sb://h/"),
        ("unknown", "root key", "orders", "sb://h/"),
        ("sender", "1st", "events", "sb://h/"),
        ("sender", "1st", "", "sb://h/"),
        ("sender", "1st", "orders2", "sb://h/"),
        ("sender", "1st", "orders/x", "sb://h/"),
        ("other", "other key", "orders", "sb://h/"),
        ("root", "root key", "orders2", "sb://h/orders"),
        ("root", "root key", "", "sb://h/orders"),
    ],
)
def test_a_token_gives_nothing_beyond_its_rule_and_scope(
    name: str, key: str, target: str, uri: str
) -> None:
    with pytest.raises(errors.Unauthorized):
        made(name, key, target, uri)


def test_an_expired_token_gives_nothing() -> None:
    text = make_token("sb://h/", "root", Secret("root key"), NOW_S)

    with pytest.raises(errors.Unauthorized, match="expired"):
        claim_for(text, lambda key: RULES.get(key, ()), parse_address("orders"), NOW_S)


# -- renewal -----------------------------------------------------------------------


def test_a_first_claim_is_not_changed() -> None:
    assert renewed(None, claim(), NOW_S) == claim()


def test_a_renewal_prolongs_and_narrows() -> None:
    old = claim(rights=Right.SEND | Right.LISTEN)
    new = claim(rights=Right.LISTEN, expires_s=NOW_S + 600)

    assert renewed(old, new, NOW_S) == new


def test_a_renewal_never_widens() -> None:
    old = claim(rights=Right.LISTEN, rule_key="orders")
    new = claim(rights=Right.MANAGE, expires_s=NOW_S + 600)

    after = renewed(old, new, NOW_S)

    assert after.rights is Right.LISTEN
    assert after.rule_key == "orders"
    assert after.expires_s == NOW_S + 600
    with pytest.raises(errors.Unauthorized, match="widen"):
        renewed(old, claim(rights=Right.SEND), NOW_S)


def test_an_expired_claim_no_longer_holds_back_its_successor() -> None:
    old = claim(rights=Right.LISTEN, expires_s=NOW_S)

    assert renewed(old, claim(), NOW_S) == claim()


# -- rules that change ---------------------------------------------------------------


def left(got: Claim, **rules: list[AuthorizationRule]) -> Claim | None:
    """What is left of a claim if the namespace and `orders` have these rules."""
    by_key = {"": rules.get("root", []), "orders": rules.get("orders", [])}
    return standing(got, lambda key: by_key.get(key, ()))


@pytest.mark.parametrize("key", ["1st", "2nd"])
def test_a_claim_ends_with_the_key_that_proved_it(key: str) -> None:
    got = made("sender", key, "orders", "sb://h/orders")
    without_first = dataclasses.replace(SENDER, primary_key=Secret("new"))
    without_second = dataclasses.replace(SENDER, secondary_key=None)

    assert left(got, orders=[SENDER]) == got
    assert (left(got, orders=[without_first]) is None) is (key == "1st")
    assert (left(got, orders=[without_second]) is None) is (key == "2nd")
    assert left(got) is None


def test_a_key_that_changes_places_is_still_the_key() -> None:
    got = made("sender", "1st", "orders")
    turned = dataclasses.replace(
        SENDER, primary_key=Secret("new"), secondary_key=Secret("1st")
    )

    assert left(got, orders=[turned]) == got


def test_a_claim_needs_the_rule_that_proved_it() -> None:
    got = made("sender", "1st", "orders")

    assert left(got, root=[SENDER]) is None
    assert left(got, orders=[dataclasses.replace(SENDER, name="other")]) is None


def test_a_claim_shrinks_with_its_rule_and_never_grows() -> None:
    got = made("root", "root key", "orders")
    sends = dataclasses.replace(ROOT, rights=Right.SEND)
    listens = dataclasses.replace(SENDER, rights=Right.LISTEN)
    all_rights = dataclasses.replace(SENDER, rights=Right.MANAGE)

    after = left(got, root=[sends])
    assert after is not None
    assert after.rights is Right.SEND
    sender = made("sender", "1st", "orders")
    assert left(sender, orders=[listens]) is None
    assert left(sender, orders=[all_rights]) == sender


def test_a_claim_without_a_rule_survives_changes_of_rules() -> None:
    assert left(claim()) == claim()


def test_a_renewed_claim_depends_on_the_new_key_alone() -> None:
    old = made("sender", "1st", "orders")
    new = made("root", "root key", "orders")

    after = renewed(old, new, NOW_S)

    assert after.rule_key == "orders"
    assert left(after, root=[ROOT]) == after
    assert left(after, orders=[SENDER]) is None


def test_a_claim_does_not_print_its_key() -> None:
    assert "1st" not in repr(made("sender", "1st", "orders"))


def test_rules_remember_when_they_were_made_and_changed() -> None:
    first = dated([ROOT, SENDER], (), 1000)
    changed = dataclasses.replace(SENDER, rights=Right.LISTEN)

    second = dated([ROOT, changed, rule("new")], first, 2000)

    assert [(r.created_at_ms, r.modified_at_ms) for r in second] == [
        (1000, 1000),
        (1000, 2000),
        (2000, 2000),
    ]
    assert second[0] == ROOT
