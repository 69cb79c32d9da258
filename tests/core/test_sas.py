"""Tokens, secrets and connection strings."""

from __future__ import annotations

import base64
import hashlib
import hmac
import pickle
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus import errors, limits
from twinbus.core.names import parse_address
from twinbus.core.rights import AuthorizationRule, Right, claim_for
from twinbus.core.sas import (
    ConnectionString,
    Secret,
    check_scope,
    format_connection_string,
    is_sas,
    key_from,
    make_token,
    parse_connection_string,
    parse_token,
    proving_key,
)

NOW_S = 1_700_000_000
FIRST, SECOND = Secret("first key"), Secret("second key")


RULES = (
    AuthorizationRule("root", Right.SEND, FIRST, SECOND),
    AuthorizationRule("a b", Right.SEND, FIRST),
)


def token(**changes: str) -> str:
    """A good token as text, with fields replaced as they shall stand in it."""
    made = make_token("sb://host/orders", "root", FIRST, NOW_S + 60)
    fields = dict(part.split("=", 1) for part in made.split(" ", 1)[1].split("&"))
    fields |= changes
    return "SharedAccessSignature " + "&".join(f"{k}={v}" for k, v in fields.items())


def prove(text: str, now_s: int = NOW_S) -> None:
    """Show a token as a client does that wants to send to `orders`."""
    claim_for(text, lambda _: RULES, parse_address("orders"), now_s)


def test_a_token_is_proved_with_either_key() -> None:
    for key in (FIRST, SECOND):
        prove(make_token("sb://host/orders", "root", key, NOW_S + 60))


def test_the_signature_covers_the_resource_as_received() -> None:
    # Lower-case escapes and a bare colon: another spelling than ours of one resource.
    resource = "sb:%2f%2fhost%2forders"
    digest = hmac.new(b"first key", f"{resource}\n{NOW_S + 1}".encode(), hashlib.sha256)
    signature = quote(base64.b64encode(digest.digest()), safe="")

    prove(token(sr=resource, se=str(NOW_S + 1), sig=signature))


def test_fields_stand_in_any_order() -> None:
    parts = token().removeprefix("SharedAccessSignature ").split("&")

    prove("SharedAccessSignature " + "&".join(reversed(parts)))


def test_a_plus_in_a_signature_is_a_plus() -> None:
    made = (
        make_token("sb://host/orders", "root", FIRST, NOW_S + extra)
        for extra in range(1, 999)
    )
    text = next(text for text in made if "%2B" in text)

    prove(text.replace("%2B", "+"))


@pytest.mark.parametrize(("seconds", "live"), [(-1, True), (0, False), (1, False)])
def test_a_token_ends_in_the_second_it_names(seconds: int, live: bool) -> None:
    text = token()

    if live:
        prove(text, NOW_S + 60 + seconds)
    else:
        with pytest.raises(errors.Unauthorized, match="expired"):
            prove(text, NOW_S + 60 + seconds)


@pytest.mark.parametrize(
    "expiry",
    [
        "1e99",
        "-1",
        "",
        "1.5",
        "+1700000060",
        " 1700000060",
        "1700000060 ",
        "1_700_000_060",
        "0x7fffffff",
        "inf",
        "nan",
        "null",
        "١٧٠٠٠٠٠٠٦٠",
        "１７０００００060",  # noqa: RUF001 - digits of another script
        "²",
        "9" * 13,
        "9" * 500,
        str(limits.TOKEN_EXPIRY_SECONDS_MAX + 1),
        "%31",
    ],
)
def test_an_expiry_is_ascii_digits_in_range(expiry: str) -> None:
    with pytest.raises(errors.Unauthorized, match="not a shared access signature"):
        parse_token(token(se=expiry))


def test_the_largest_expiry_is_accepted() -> None:
    for expires_s in (
        limits.TOKEN_EXPIRY_SECONDS_MAX - 1,
        limits.TOKEN_EXPIRY_SECONDS_MAX,
    ):
        prove(make_token("sb://host/orders", "root", FIRST, expires_s))


@pytest.mark.parametrize("field", ["sr", "sig", "se", "skn"])
def test_every_field_is_there_exactly_once_and_not_empty(field: str) -> None:
    parts = token().removeprefix("SharedAccessSignature ").split("&")
    own = next(part for part in parts if part.startswith(f"{field}="))
    rest = [part for part in parts if part != own]

    for bad in (rest, [*parts, own], [*rest, f"{field}="], [*rest, field]):
        with pytest.raises(errors.Unauthorized):
            parse_token("SharedAccessSignature " + "&".join(bad))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Bearer abc",
        "SharedAccessSignature",
        "SharedAccessSignature ",
        "sharedaccesssignature sr=a&sig=b&se=1&skn=c",
        "SharedAccessSignature  sr=a&sig=b&se=1&skn=c",
        "SharedAccessSignature sr=a&sig=b&se=1&skn=c&",
        "SharedAccessSignature sr=a&sig=b&se=1&skn=c&x=1",
        "SharedAccessSignature SR=a&sig=b&se=1&skn=c",
        "SharedAccessSignature sr=a%zz&sig=b&se=1&skn=c",
        "SharedAccessSignature sr=a&sig=b&se=1&skn=%",
        "SharedAccessSignature sr=%ff&sig=b&se=1&skn=c",
    ],
)
def test_malformed_tokens_are_refused(text: str) -> None:
    with pytest.raises(errors.Unauthorized):
        parse_token(text)


@pytest.mark.parametrize(("extra", "fits"), [(-1, True), (0, True), (1, False)])
def test_a_token_is_bounded_in_bytes(extra: int, fits: bool) -> None:
    room = limits.TOKEN_BYTES_MAX - len(token(skn="")) + extra
    text = token(skn="n" * room)
    assert len(text) == limits.TOKEN_BYTES_MAX + extra

    if fits:
        parse_token(text)
    else:
        with pytest.raises(errors.Unauthorized, match="longer than"):
            parse_token(text)


def test_bytes_are_counted_and_not_characters() -> None:
    with pytest.raises(errors.Unauthorized, match="longer than"):
        parse_token(token(skn="é" * (limits.TOKEN_BYTES_MAX // 2)))


def test_unknown_names_and_wrong_signatures_look_the_same() -> None:
    wrong = make_token("sb://host/orders", "root", Secret("guess"), NOW_S + 60)
    unknown = make_token("sb://host/orders", "unknown", FIRST, NOW_S + 60)
    stale = make_token("sb://host/orders", "root", Secret("guess"), NOW_S - 60)
    texts = set()

    for text in (wrong, unknown, stale, token(sig="%C3%A9"), token(sr="sb://host/x")):
        with pytest.raises(errors.Unauthorized) as refusal:
            prove(text)
        texts.add(refusal.value.text)

    assert len(texts) == 1


def test_the_stand_in_for_a_missing_key_opens_nothing() -> None:
    stand_in = Secret("no key has this text, and a match with it never counts")
    text = make_token("sb://host/orders", "a b", stand_in, NOW_S + 60)

    assert proving_key(parse_token(text), None) is None
    assert proving_key(parse_token(text), (FIRST, None)) is None


def test_a_key_name_that_was_encoded_twice_is_found() -> None:
    made = make_token("sb://host/orders", "a%20b", FIRST, NOW_S + 60)

    prove(made)
    assert parse_token(made).key_names() == ("a%20b", "a b")


@pytest.mark.parametrize(
    ("resource", "target", "covered"),
    [
        ("sb://host/orders", "orders", True),
        ("sb://host/orders/", "orders", True),
        ("sb://HOST/Orders", "oRDERS", True),
        ("/orders", "orders", True),
        ("/orders", "orders2", False),
        ("sb://host/orders", "orders2", False),
        ("sb://host/orders", "orders/$management", True),
        ("sb://host/orders", "orders/$DeadLetterQueue", True),
        ("sb://host/events", "events/subscriptions/all", True),
        ("sb://host/events/subscriptions/all", "events", False),
        ("https://host", "anything", True),
        ("https://host/orders?api-version=2021-05", "orders", True),
        ("http://host:5300/orders#x", "orders2", False),
        ("sb://host/orders%2Fx", "orders/x", False),
        ("host/orders", "orders", False),
    ],
)
def test_a_token_covers_whole_segments_below_it(
    resource: str, target: str, covered: bool
) -> None:
    made = parse_token(make_token(resource, "root", FIRST, NOW_S + 60))

    assert made.covers(parse_address(target)) is covered
    if covered:
        check_scope(made, parse_address(target))
    else:
        with pytest.raises(errors.Unauthorized, match="another resource"):
            check_scope(made, parse_address(target))


@given(st.text() | st.text(alphabet="srigekn=&%0123456789abZ+/").map("x".__add__))
def test_only_unauthorized_leaves_the_parser(text: str) -> None:
    for candidate in (text, f"SharedAccessSignature {text}", token(sr=text or "x")):
        try:
            prove(candidate)
        except errors.Unauthorized as refusal:
            assert refusal.condition == "amqp:unauthorized-access"  # noqa: PT017


@given(st.text(min_size=1, max_size=50), st.text(min_size=1, max_size=20))
def test_a_token_that_was_made_is_proved(resource: str, key_name: str) -> None:
    made = parse_token(make_token(resource, key_name, FIRST, NOW_S + 1))

    assert proving_key(made, (FIRST, None)) == FIRST
    assert made.key_name == key_name


def test_a_secret_does_not_print() -> None:
    secret = Secret("planted")

    for shown in (
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret!r:>9}",
    ):
        assert "planted" not in shown
    assert "planted" not in repr(ConnectionString("host", None, "root", secret))
    assert secret.reveal() == "planted"


def test_secrets_are_values() -> None:
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a"), Secret("b")}) == 2
    assert pickle.loads(pickle.dumps(Secret("é"))) == Secret("é")  # noqa: S301


def test_a_key_is_base64_of_its_entropy() -> None:
    assert key_from(bytes(32)).reveal() == "A" * 43 + "="


def test_only_a_shared_access_signature_is_taken_for_one() -> None:
    assert is_sas(token())
    assert not is_sas("eyJ0eXAi.e30.x")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            (
                "Endpoint=sb://localhost:5672;SharedAccessKeyName=root;"
                "SharedAccessKey=a=b==;UseDevelopmentEmulator=true;"
            ),
            ConnectionString("localhost", 5672, "root", Secret("a=b=="), dev=True),
        ),
        (
            (
                "endpoint=sb://contoso.example/ ; sharedaccesskeyname=root;"
                "sharedaccesskey=k;EntityPath=orders"
            ),
            ConnectionString(
                "contoso.example", None, "root", Secret("k"), entity_path="orders"
            ),
        ),
        (
            "Endpoint=sb://h/;SharedAccessSignature=SharedAccessSignature sr=a&sig=b",
            ConnectionString(
                "h", None, token=Secret("SharedAccessSignature sr=a&sig=b")
            ),
        ),
        (
            (
                "Endpoint=amqps://[::1]:5671;SharedAccessKeyName=r;SharedAccessKey=k;"
                "UseDevelopmentEmulator=false"
            ),
            ConnectionString("::1", 5671, "r", Secret("k")),
        ),
    ],
)
def test_connection_strings_are_read(text: str, wanted: ConnectionString) -> None:
    assert parse_connection_string(text) == wanted


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "Endpoint"),
        ("SharedAccessKeyName=r;SharedAccessKey=planted", "Endpoint"),
        ("Endpoint=h;SharedAccessKeyName=r;SharedAccessKey=planted", "Endpoint"),
        ("Endpoint=ftp://h;SharedAccessKeyName=r;SharedAccessKey=planted", "Endpoint"),
        ("Endpoint=sb://h:x;SharedAccessKeyName=r;SharedAccessKey=planted", "Endpoint"),
        ("Endpoint=sb://[::1;SharedAccessKey=planted", "Endpoint"),
        ("Endpoint=sb://h;SharedAccessKey=planted", "SharedAccessKeyName"),
        ("Endpoint=sb://h;SharedAccessKeyName=r", "SharedAccessKey"),
        (
            (
                "Endpoint=sb://h;SharedAccessKeyName=r;SharedAccessKey=planted;"
                "SharedAccessSignature=planted"
            ),
            "alone",
        ),
        ("Endpoint=sb://h;planted", "Part 2"),
        ("Endpoint=sb://h;Planted=planted", "Part 2"),
        ("Endpoint=sb://h;SharedAccessKey=planted;sharedaccesskey=planted", "twice"),
    ],
)
def test_bad_connection_strings_are_refused_without_a_leak(
    text: str, problem: str
) -> None:
    with pytest.raises(errors.ArgumentError, match=problem) as refusal:
        parse_connection_string(text)

    assert "planted" not in refusal.value.text


@pytest.mark.parametrize("port", [None, 5672])
@pytest.mark.parametrize("dev", [True, False])
@pytest.mark.parametrize("host", ["localhost", "::1"])
def test_connection_strings_survive_writing(
    host: str, port: int | None, dev: bool
) -> None:
    text = format_connection_string(host, port, "root", Secret("k=="), dev)

    assert parse_connection_string(text) == ConnectionString(
        host, port, "root", Secret("k=="), dev=dev
    )
    assert ("UseDevelopmentEmulator=true" in text) is dev
