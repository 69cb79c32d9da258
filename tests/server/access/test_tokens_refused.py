"""Tokens that prove nothing are refused, over real connections; and failures cost.

Every refused token is followed by an attempt to attach: nothing was gained. The clock
moves a second for each failure, so that the bucket of the address never runs dry except
where a test wants that.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import urllib.parse
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.server.cbs import Cbs, attach, connect, is_refused, serving_all
from tests.server.raw import RawClient, RawServer
from twinbus import limits
from twinbus.core.entity import QueueDescription
from twinbus.core.rights import AuthorizationRule, Right
from twinbus.core.sas import Secret, make_token
from twinbus.server.access.failures import TOO_MANY
from twinbus.server.broker.directory import keys
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.server.setup.namespaces import open_namespace
from twinbus.wire.performatives import Attach, Source, Target

AUDIENCE = "sb://localhost/orders"
KEY, OWN_KEY = Secret("the key of the namespace"), Secret("the key of the queue")
ALL = AuthorizationRule("all", Right.MANAGE, KEY, Secret("the second key"))
OWN = AuthorizationRule("own", Right.SEND, OWN_KEY)
CONFIG = NamespaceConfig(
    "contoso",
    queues=(
        QueueDescription("orders", authorization_rules=(OWN,)),
        QueueDescription("orders2"),
        QueueDescription("orders/b"),
    ),
    authorization_rules=(ALL,),
)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RawServer]:
    async with serving_all(tmp_path, CONFIG) as servers:
        yield servers["contoso"]


@pytest.fixture
async def client(server: RawServer) -> AsyncIterator[RawClient]:
    connected = await connect(server.port)
    yield connected
    connected.abort()


@pytest.fixture
async def cbs(client: RawClient) -> Cbs:
    return await Cbs.open(client)


def signed(se: str, *, sr: str = AUDIENCE, skn: str = "all", key: Secret = KEY) -> str:
    """A token whose fields are signed as they stand, whatever stands there."""
    resource = urllib.parse.quote(sr, safe="")
    text = f"{resource}\n{se}".encode()
    digest = hmac.new(key.reveal().encode(), text, hashlib.sha256).digest()
    signature = urllib.parse.quote(base64.b64encode(digest), safe="")
    return f"SharedAccessSignature sr={resource}&sig={signature}&se={se}&skn={skn}"


GOOD = signed("8589934592")


async def is_let_in(client: RawClient) -> bool:
    """Whether the connection can attach to the queue."""
    asked = Attach(source=Source(), target=Target(address="orders"))
    link = await attach(client, await client.session(), True, asked)
    return not is_refused(link)


def _forged(now_s: int) -> dict[str, str]:
    soon, sig = str(now_s + 60), GOOD.split("sig=")[1].split("&")[0]
    return {
        "another key": signed(soon, key=Secret("a guess")),
        "an empty key": signed(soon, key=Secret("")),
        "an unknown name": signed(soon, skn="unknown"),
        "an empty name": signed(soon, skn=""),
        "a name in another case": signed(soon, skn="ALL"),
        "the key of the queue under the name of the other": signed(soon, key=OWN_KEY),
        "a signature of something else": f"{signed(soon).split('&sig=')[0]}"
        f"&sig={sig}&se={soon}&skn=all",
        "no signature": GOOD.replace(f"sig={sig}", "sig="),
        "a later expiry than was signed": GOOD.replace("8589934592", "8589934593"),
        "another resource than was signed": GOOD.replace("orders", "orders2"),
        "expired": signed(str(now_s - 1)),
        "expired this very second": signed(str(now_s)),
        "not yet valid": f"{signed(soon)}&st={now_s + 30}",
    }


def _out_of_scope(now_s: int) -> dict[str, str]:
    soon = str(now_s + 60)
    return {
        "a sibling": signed(soon, sr="sb://localhost/orders2"),
        "the beginning of the name": signed(soon, sr="sb://localhost/order"),
        "a queue below": signed(soon, sr="sb://localhost/orders/b"),
        "a dot segment": signed(soon, sr="sb://localhost/orders2/../orders"),
        "the dead letters": signed(soon, sr=f"{AUDIENCE}/$DeadLetterQueue"),
        "encoded twice": signed(soon, sr="sb://localhost/%6frders"),
    }


def _malformed(now_s: int) -> dict[str, str]:
    soon = signed(str(now_s + 60))
    parts = soon.removeprefix("SharedAccessSignature ").split("&")
    repeated = {f"{part.split('=')[0]} twice": f"{soon}&{part}" for part in parts}
    missing = {
        f"no {part.split('=')[0]}": "SharedAccessSignature "
        + "&".join(other for other in parts if other is not part)
        for part in parts
    }
    return {
        **repeated,
        **missing,
        "empty": "",
        "another scheme": soon.replace("SharedAccessSignature ", "Bearer "),
        "the scheme in small letters": soon.replace("Shared", "shared"),
        "a space before": f" {soon}",
        "a line end behind": f"{soon}\n",
        "twice": soon + soon,
        "twice with a comma": f"{soon},{soon}",
        "twice with an ampersand": f"{soon}&{soon}",
        "one inside the other": f"SharedAccessSignature {soon}",
        "an unknown field": f"{soon}&x=1",
        "an empty field": f"{soon}&",
        "fields with semicolons": soon.replace("&", ";"),
        "a stray percent sign": soon.replace("sr=", "sr=%"),
        "bytes that are no text": soon.replace("skn=all", "skn=%ff"),
        "a null behind the name": soon.replace("skn=all", "skn=all%00"),
        "no JSON web token": "eyJhbGciOiJub25lIn0.e30.",
    }


def _odd_expiries(now_s: int) -> dict[str, str]:
    ends = "1e99 -1 +9999999999 9999999999.0 0x2ffffffff inf NaN 9_999_999_999"
    given = {f"expiry {end}": signed(end) for end in ends.split()}
    digits = "".join(chr(0x660 + int(d)) for d in "8589934592")
    return {
        **given,
        "no expiry": signed(""),
        "a space in the expiry": signed(" 8589934592"),
        "digits of another script": signed(digits),
        "an expiry after year 9999": signed("253402300800"),
        "an endless expiry": signed("9" * 40),
        "milliseconds": signed(str((now_s + 60) * 1000)),
    }


@pytest.mark.parametrize("kind", [_forged, _out_of_scope, _malformed, _odd_expiries])
async def test_bad_tokens_are_refused(
    server: RawServer, client: RawClient, cbs: Cbs, kind: Any
) -> None:
    for name, token in kind(server.clock.now_ms() // 1000).items():
        server.clock.advance(1000)

        status, text = await cbs.put(AUDIENCE, token)

        assert status == 401, name
        assert text != TOO_MANY
        assert "the key of" not in text, "a refusal shows no secret"
    assert not await is_let_in(client)
    assert (await cbs.put(AUDIENCE, GOOD))[0] == 202


async def test_a_truncated_token_is_refused(
    server: RawServer, client: RawClient
) -> None:
    # On several connections, since all the bytes of one would be too many.
    for start in range(0, len(GOOD), 40):
        cbs = await Cbs.open(other := await connect(server.port))
        for end in range(start, min(start + 40, len(GOOD))):
            server.clock.advance(1000)
            assert (await cbs.put(AUDIENCE, GOOD[:end]))[0] == 401, end
        other.abort()
    assert not await is_let_in(client)


async def test_no_other_letter_in_the_signature_is_taken(server: RawServer) -> None:
    start = GOOD.index("sig=") + 4
    for at in range(start, GOOD.index("&", start)):
        cbs = await Cbs.open(other := await connect(server.port))
        server.clock.advance(1000)
        letter = "A" if GOOD[at] != "A" else "B"
        changed = GOOD[:at] + letter + GOOD[at + 1 :]
        assert (await cbs.put(AUDIENCE, changed))[0] == 401, at
        other.abort()


@pytest.mark.parametrize("body", [None, 1, b"bytes", ["list"], {"a": "map"}])
async def test_a_token_is_a_text(client: RawClient, cbs: Cbs, body: Any) -> None:
    if isinstance(body, bytes):
        body = {"binary": body}

    status, _ = await cbs.put(AUDIENCE, body)

    assert status == 400
    assert not await is_let_in(client)


@pytest.mark.parametrize("extra", [-1, 0, 1])
async def test_a_token_has_a_longest_length(
    server: RawServer, cbs: Cbs, extra: int
) -> None:
    """At the limit it is read and found to be wrong; above it is not read at all."""
    server.clock.advance(1000)
    token = signed("8589934592", skn="x")
    token += "x" * (limits.TOKEN_BYTES_MAX + extra - len(token))

    status, text = await cbs.put(AUDIENCE, token)

    assert status == 401
    assert ("longer than" in text) == (extra > 0)


# -- rotation --------------------------------------------------------------------------


async def test_a_rotated_key_of_a_queue_ends_at_once(
    server: RawServer, client: RawClient, cbs: Cbs
) -> None:
    old = make_token(AUDIENCE, "own", OWN_KEY, 1 << 33)
    assert (await cbs.put(AUDIENCE, old))[0] == 202
    rotated = replace(OWN, primary_key=Secret("new"), secondary_key=OWN_KEY)

    await change_rules(server, rotated)
    # The old key is the second one now: tokens of it are good until that goes, too.
    assert (await cbs.put(AUDIENCE, old))[0] == 202
    await change_rules(server, replace(rotated, secondary_key=Secret("newer")))

    again = await Cbs.open(other := await connect(server.port))
    for desk in (cbs, again):
        server.clock.advance(1000)
        assert (await desk.put(AUDIENCE, old))[0] == 401
    assert not await is_let_in(other)
    fresh = make_token(AUDIENCE, "own", Secret("newer"), 1 << 33)
    assert (await again.put(AUDIENCE, fresh))[0] == 202
    other.abort()


async def change_rules(server: RawServer, rule: AuthorizationRule) -> None:
    """Give the queue another rule, as the administration API does."""

    def change(namespace: Namespace, turn: Turn) -> None:
        entity = namespace.entities.find("orders")
        assert entity is not None
        assert isinstance(entity.description, QueueDescription)
        changed = replace(entity.description, authorization_rules=(rule,))
        namespace.entities.update(changed, turn)

    await server.host.run(change)


async def test_a_token_of_before_a_rotation_is_refused_after_a_restart(
    tmp_path: Path,
) -> None:
    async with serving_all(tmp_path, NamespaceConfig("contoso")) as servers:
        store = servers["contoso"].host.namespace.store
        root = keys.find_rule(keys.load_rules(store), keys.ROOT_RULE_NAME)
    token = make_token("sb://localhost/", root.name, root.primary_key, 1 << 33)
    namespace = open_namespace(tmp_path, "contoso").first
    namespace.store.begin()
    new = keys.regenerate_key(namespace.store, root.name, 1000, secondary=False)
    namespace.store.commit()
    namespace.store.close()

    async with serving_all(tmp_path, NamespaceConfig("contoso")) as servers:
        cbs = await Cbs.open(client := await connect(servers["contoso"].port))
        replayed, _ = await cbs.put("sb://localhost/", token)
        made_anew, _ = await cbs.sign("", root.name, new.primary_key.reveal())
        client.abort()

    assert (replayed, made_anew) == (401, 202)


# -- what failures cost ----------------------------------------------------------------


async def test_after_ten_failures_no_reason_is_given(
    server: RawServer, cbs: Cbs
) -> None:
    for _ in range(limits.TOKEN_FAILURES_MAX):
        status, text = await cbs.put(AUDIENCE, "wrong")
        assert (status, text) != (401, TOO_MANY)

    assert await cbs.put(AUDIENCE, "wrong") == (401, TOO_MANY)
    assert await cbs.put(AUDIENCE, signed("1")) == (401, TOO_MANY)


async def test_wrong_tokens_do_not_lock_out_the_right_key_of_an_address(
    server: RawServer, cbs: Cbs
) -> None:
    """45 wrong tokens a second for three seconds, and each second a right one."""
    let_in = []
    for _ in range(3):
        noisy = await Cbs.open(other := await connect(server.port))
        for _ in range(45):
            assert (await noisy.put(AUDIENCE, "wrong"))[0] == 401
        other.abort()
        let_in.append((await cbs.put(AUDIENCE, GOOD))[0])
        server.clock.advance(1000)

    assert let_in == [202] * 3


async def test_one_failure_a_second_is_explained(server: RawServer, cbs: Cbs) -> None:
    for _ in range(limits.TOKEN_FAILURES_MAX):
        await cbs.put(AUDIENCE, "wrong")
    server.clock.advance(999)
    assert await cbs.put(AUDIENCE, "wrong") == (401, TOO_MANY)

    server.clock.advance(1)
    assert (await cbs.put(AUDIENCE, "wrong"))[1] != TOO_MANY
    assert await cbs.put(AUDIENCE, "wrong") == (401, TOO_MANY)


async def test_failures_are_counted_for_the_address_and_not_the_connection(
    server: RawServer,
) -> None:
    for _ in range(limits.TOKEN_FAILURES_MAX):
        cbs = await Cbs.open(client := await connect(server.port))
        await cbs.put(AUDIENCE, "wrong")
        client.abort()

    cbs = await Cbs.open(client := await connect(server.port))
    assert await cbs.put(AUDIENCE, "wrong") == (401, TOO_MANY)
    client.abort()


async def test_good_tokens_are_not_counted(client: RawClient, cbs: Cbs) -> None:
    for _ in range(5 * limits.TOKEN_FAILURES_MAX):
        assert (await cbs.put(AUDIENCE, GOOD))[0] == 202
    # Nor does a proved token for something that does not exist.
    for _ in range(2 * limits.TOKEN_FAILURES_MAX):
        assert (await cbs.sign("nowhere", "all", KEY.reveal()))[0] == 404

    assert await is_let_in(client)
