"""The administration API: rights, signatures and rules of entities."""

from __future__ import annotations

import base64
import hashlib
import hmac
import urllib.parse
from collections.abc import AsyncIterator
from itertools import product

import pytest

from tests.server.http.admin_site import (
    HOST,
    KEY,
    ROOT,
    ROOT_RULE,
    AdminSite,
    Answer,
    described,
    local,
)
from twinbus.core.rights import AuthorizationRule, Right
from twinbus.core.sas import Secret, make_token

INVALID = "claim is empty or token is invalid."
SENDER = AuthorizationRule("sender", Right.SEND, Secret("s"))
LISTENER = AuthorizationRule("listener", Right.LISTEN, Secret("l"))
BOTH = AuthorizationRule("both", Right.SEND | Right.LISTEN, Secret("b"))
OWNER_XML = """
<AuthorizationRules><AuthorizationRule i:type="SharedAccessAuthorizationRule">
<ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue>
<Rights><AccessRights>{right}</AccessRights></Rights>
<KeyName>owner</KeyName><PrimaryKey>{key}</PrimaryKey>
</AuthorizationRule></AuthorizationRules>
"""
OWNER = AuthorizationRule("owner", Right.MANAGE, Secret("o"))
SUBSCRIPTION = "/events/subscriptions/s"
# Each request needs Manage; a body that does not fit is looked at later.
REQUESTS = [
    ("PUT", "/new", "QueueDescription"),
    ("PUT", "/orders", "QueueDescription"),
    ("GET", "/orders", ""),
    ("DELETE", "/orders", ""),
    ("GET", SUBSCRIPTION, ""),
    ("PUT", "/events/subscriptions/new", "SubscriptionDescription"),
    ("DELETE", SUBSCRIPTION, ""),
    ("GET", "/events/subscriptions", ""),
    ("GET", f"{SUBSCRIPTION}/rules", ""),
    ("GET", f"{SUBSCRIPTION}/rules/$Default", ""),
    ("PUT", f"{SUBSCRIPTION}/rules/new", "RuleDescription"),
    ("DELETE", f"{SUBSCRIPTION}/rules/$Default", ""),
    ("GET", "/$Resources/queues", ""),
    ("GET", "/$Resources/topics", ""),
    ("GET", "/$namespaceinfo", ""),
]


@pytest.fixture
async def site() -> AsyncIterator[AdminSite]:
    site = AdminSite()
    site.rules += [SENDER, LISTENER, BOTH]
    owned = OWNER_XML.format(right="Manage", key="o")
    await site.put("/orders", "QueueDescription", owned)
    await site.put("/events", "TopicDescription", owned)
    for path in ("/orders2", "/orders/x", "/victim"):
        await site.put(path, "QueueDescription")
    await site.put(SUBSCRIPTION, "SubscriptionDescription")
    yield site
    await site.host.close()


async def asked(
    site: AdminSite, method: str, path: str, kind: str, token: str | None
) -> Answer:
    body = described(kind) if kind else ""
    match = "*" if (method, path) == ("PUT", "/orders") else None
    return await site.ask(method, path, body, authorization=token, if_match=match)


@pytest.mark.parametrize(("method", "path", "kind"), REQUESTS)
async def test_administration_needs_the_manage_right(
    site: AdminSite, method: str, path: str, kind: str
) -> None:
    for rule in (SENDER, LISTENER, BOTH):
        refused = await asked(site, method, path, kind, site.token(ROOT, rule))
        assert refused.status == 401
        assert "'Manage' claim(s) are required" in refused.detail
    assert (await asked(site, method, path, kind, None)).detail.startswith(INVALID)

    allowed = await asked(site, method, path, kind, site.token())

    assert allowed.status in (200, 201)


def _forged(site: AdminSite) -> dict[str, str]:
    now_s = site.clock.now_ms() // 1000
    good = site.token()
    return {
        "empty": "",
        "bearer": "Bearer eyJhbGciOiJSUzI1NiJ9.e30.c2ln",
        "basic": "Basic cm9vdDprZXk=",
        "expired": site.token(seconds=0),
        "other key": make_token(ROOT, "root", Secret("guess"), now_s + 60),
        "other name": make_token(ROOT, "unknown", KEY, now_s + 60),
        "truncated": good[:-30],
        "twice": good + "&se=99999999999",
        "longer": good.replace(f"se={now_s + 60}", f"se={now_s + 6000}"),
        "other scope": site.token(f"{ROOT}/victim"),
        "sibling": site.token(f"{ROOT}/orders2"),
        "shorter sibling": site.token(f"{ROOT}/order"),
        "child": site.token(f"{ROOT}/orders/x"),
        "escaped sibling": site.token(f"{ROOT}/orders%2Fx"),
        "escaped slash": site.token(f"{ROOT}/%2F"),
        "escaped nothing": site.token(f"{ROOT}/%2F%2F"),
        "escaped name": site.token(f"{ROOT}/order%73"),
        "entity key elsewhere": make_token(
            f"{ROOT}/victim", "owner", OWNER.primary_key, now_s + 60
        ),
    }


async def test_invalid_tokens_are_refused(site: AdminSite) -> None:
    for name, token in _forged(site).items():
        answer = await site.ask("GET", "/orders", authorization=token)

        assert answer.status == 401, name
        assert answer.detail.startswith(INVALID), name
        assert answer.headers["connection"] == "close"
        assert "the key of the namespace" not in answer.text


async def test_the_body_of_an_unauthorized_request_is_not_read(site: AdminSite) -> None:
    body = b"x" * 10_000_000

    assert (await site.ask("PUT", "/q", body, authorization="")).status == 401


@pytest.mark.parametrize("key", [KEY, ROOT_RULE.secondary_key])
async def test_both_keys_of_a_rule_are_accepted(site: AdminSite, key: Secret) -> None:
    end_s = site.clock.now_ms() // 1000 + 60
    token = make_token(ROOT, "root", key, end_s)

    assert (await site.ask("GET", "/orders", authorization=token)).status == 200


async def test_a_signature_is_accepted_as_a_bearer_token(site: AdminSite) -> None:
    token = f"Bearer {site.token()}"

    assert (await site.ask("GET", "/orders", authorization=token)).status == 200


# -- signed URLs -----------------------------------------------------------------------


def signed_like_javascript(site: AdminSite, url: str) -> str:
    """What the official JavaScript client puts into the header."""
    quoted = urllib.parse.quote(url.lower(), safe="!'()*~").lower()
    end_s = site.clock.now_ms() // 1000 + 300
    text = f"{quoted}\n{end_s}".encode()
    digest = hmac.new(KEY.reveal().encode(), text, hashlib.sha256).digest()
    signature = urllib.parse.quote(base64.b64encode(digest).decode(), safe="")
    return f"SharedAccessSignature sig={signature}&se={end_s}&skn=root&sr={quoted}"


PATHS = [
    "/orders",
    "/orders/x",
    "/orders%2Fx",
    "/Orders%2FX",
    "/events/Subscriptions/",
    "/events/Subscriptions/s/Rules/$Default",
    "/$Resources/queues",
    "/$namespaceinfo",
    "/%6Frders",
]


@pytest.mark.parametrize("path", PATHS)
async def test_a_url_may_be_signed_as_it_was_written(
    site: AdminSite, path: str
) -> None:
    query = "api-version=2021-05&$skip=0"
    token = signed_like_javascript(site, f"{ROOT}{path}?{query}")

    answer = await site.ask("GET", f"{path}?{query}", authorization=token)

    assert answer.status == 200


async def test_a_signed_url_is_good_for_itself_and_what_is_below(
    site: AdminSite,
) -> None:
    await site.put("/a/b", "TopicDescription")
    await site.put("/a/b2", "TopicDescription")
    await site.put("/a/b/subscriptions/s", "SubscriptionDescription")
    spellings = {"/a/b": "/a/b", "/a%2Fb": "/a%2Fb"}
    for signed, asks in product(spellings, spellings.values()):
        token = signed_like_javascript(site, f"{ROOT}{signed}?api-version=2021-05")

        for below in ("", "/subscriptions", "/subscriptions/s/rules/$Default"):
            answer = await site.ask("GET", f"{asks}{below}", authorization=token)
            # An escaped scope is only good for the spelling that was signed.
            is_good = signed in (asks, "/a/b")
            assert answer.status == (200 if is_good else 401)
        for other in ("2", "2/subscriptions", "%2Fx", "/x/../../victim"):
            answer = await site.ask("GET", f"{asks}{other}", authorization=token)
            is_below = other.startswith(("%2F", "/x"))
            assert answer.status == 401 or is_below
        for other in ("/victim", "/a", "/a%2F", "/a/b2", "/a%2Fb2", "/"):
            answer = await site.ask("GET", other, authorization=token)
            assert answer.status in (400, 401)


# -- rules of entities -----------------------------------------------------------------


async def test_a_rule_of_an_entity_reaches_the_entity_alone(site: AdminSite) -> None:
    token = site.token(ROOT, OWNER)
    reached = ("/orders", "/events", SUBSCRIPTION, f"{SUBSCRIPTION}/rules")
    others = ("/orders2", "/orders/x", "/victim", "/order", "/$Resources/queues")

    for path in reached:
        assert (await site.ask("GET", path, authorization=token)).status == 200
    for path in (*others, "/$Resources/topics", "/$namespaceinfo"):
        assert (await site.ask("GET", path, authorization=token)).status == 401


async def test_rules_come_back_with_their_keys_and_times(site: AdminSite) -> None:
    made_at = "2023-11-14T22:13:20.000Z"
    site.clock.advance(1000)
    changed = OWNER_XML.format(right="Listen", key="p")
    await site.put("/orders", "QueueDescription", changed, if_match="*")

    read = await site.get("/orders")

    (rules,) = (e for e in read.description if local(e.tag) == "AuthorizationRules")
    (rule,) = rules
    assert [(local(e.tag), e.text) for e in rule][:2] == [
        ("ClaimType", "SharedAccessKey"),
        ("ClaimValue", "None"),
    ]
    values = {local(e.tag): e.text for e in rule}
    assert list(values)[2:] == [
        "Rights",
        "CreatedTime",
        "ModifiedTime",
        "KeyName",
        "PrimaryKey",
        "SecondaryKey",
    ]
    assert [e.text for e in rule[2]] == ["Listen"]
    assert (values["KeyName"], values["PrimaryKey"]) == ("owner", "p")
    assert (values["CreatedTime"], values["ModifiedTime"]) == (
        made_at,
        "2023-11-14T22:13:21.000Z",
    )
    # It came without a second key, so it was given one, which it keeps.
    assert len(values["SecondaryKey"] or "") == 44
    again = await site.put("/orders", "QueueDescription", changed, if_match="*")
    assert str(values["SecondaryKey"]) in again.text


async def test_a_rule_works_from_its_creation_until_its_deletion(
    site: AdminSite,
) -> None:
    token = site.token(ROOT, OWNER)
    assert (await site.ask("GET", "/victim", authorization=token)).status == 401

    owned = OWNER_XML.format(right="Manage", key="o")
    await site.put("/victim", "QueueDescription", owned, if_match="*")
    assert (await site.ask("GET", "/victim", authorization=token)).status == 200

    await site.put("/victim", "QueueDescription", if_match="*")
    assert (await site.ask("GET", "/victim", authorization=token)).status == 401


async def test_a_queue_created_again_has_new_times_in_its_rules(
    site: AdminSite,
) -> None:
    await site.ask("DELETE", "/orders")
    site.clock.advance(5000)

    owned = OWNER_XML.format(right="Manage", key="o")
    made = await site.put("/orders", "QueueDescription", owned)

    assert "<CreatedTime>2023-11-14T22:13:25.000Z</CreatedTime>" in made.text


# -- forwarding ------------------------------------------------------------------------

TO_VICTIM = "<ForwardTo>sb://contoso.example/victim</ForwardTo>"
DEAD_TO_VICTIM = TO_VICTIM.replace("ForwardTo", "ForwardDeadLetteredMessagesTo")
KEEPING = OWNER_XML.format(right="Manage", key="o")


@pytest.mark.parametrize("inner", [TO_VICTIM, DEAD_TO_VICTIM])
async def test_forwarding_needs_the_right_to_send_to_the_target(
    site: AdminSite, inner: str
) -> None:
    token = site.token(ROOT, OWNER)

    answer = await site.put(
        "/orders",
        "QueueDescription",
        KEEPING + inner,
        if_match="*",
        authorization=token,
    )

    assert answer.status == 401
    assert "'Send' claim(s) are required" in answer.detail.replace("Manage' or '", "")
    assert "Forward" not in (await site.get("/orders")).text


async def test_a_token_for_the_target_allows_forwarding_to_it(site: AdminSite) -> None:
    token = site.token(ROOT, OWNER)
    target = site.token(f"sb://{HOST}/victim", SENDER)

    first = await site.put(
        "/orders",
        "QueueDescription",
        KEEPING + TO_VICTIM,
        if_match="*",
        authorization=token,
        servicebussupplementaryauthorization=target,
    )
    # What is set already may stay without the second token.
    second = await site.put(
        "/orders",
        "QueueDescription",
        KEEPING + TO_VICTIM,
        if_match="*",
        authorization=token,
    )

    assert (first.status, second.status) == (200, 200)


@pytest.mark.parametrize(
    ("host", "signed", "status"),
    [
        ("contoso.example:8443", "contoso.example:8443", 200),
        ("contoso.example", "contoso.example", 200),
        ("localhost", "localhost", 200),
        # The client chooses its Host, so it could name it after what it may reach.
        ("orders", "orders", 401),
        ("contoso.example", "contoso.example:8443", 401),
        ("orders2.example", "orders2.example", 401),
    ],
)
async def test_the_bare_host_may_be_signed_for_the_target(
    site: AdminSite, host: str, signed: str, status: int
) -> None:
    answer = await site.put(
        "/orders",
        "QueueDescription",
        KEEPING + TO_VICTIM,
        if_match="*",
        host=host,
        authorization=site.token(f"{ROOT}/orders"),
        servicebussupplementaryauthorization=site.token(signed),
    )

    assert answer.status == status
