"""Bearer tokens: the good one, every kind of bad one, and the file of keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.server.access import tokens_of_issuer as issuer
from tests.server.access.tokens_of_issuer import OWNER, RECEIVER, SENDER, claims, token
from tests.server.http.rest_site import RestSite, serving
from tests.server.raw import RawClient
from tests.server.raw import serving as serving_amqp
from twinbus import limits
from twinbus.clock import ManualClock
from twinbus.core.entity import QueueDescription
from twinbus.core.names import EntityPath
from twinbus.core.rights import JwtOptions, Right
from twinbus.errors import ConfigError, Unauthorized
from twinbus.server.access.jwt import BearerTokens, read_keys
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.setup.config import load_config

NOW_S = ManualClock().now_ms() // 1000
TARGET = EntityPath("q")
AUDIENCE = "sb://localhost/q"


@pytest.fixture
def options(tmp_path: Path) -> JwtOptions:
    return JwtOptions(issuer.ISSUER, issuer.write_jwks(tmp_path))


@pytest.fixture
def tokens(options: JwtOptions) -> BearerTokens:
    return BearerTokens.load(options)


# -- good ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [{"alg": "RS256"}, {"alg": "ES256", "kid": "ec"}])
@pytest.mark.parametrize("audience", [issuer.AUDIENCE, f"{issuer.AUDIENCE}/"])
def test_a_good_token_gives_its_roles_until_its_end(
    tokens: BearerTokens, kind: dict[str, str], audience: str
) -> None:
    text = token(claims(NOW_S, aud=["x", audience], roles=[SENDER, "other"]), **kind)

    claim = tokens.claim(text, TARGET, NOW_S)

    assert (claim.rights, claim.audience_path) == (Right.SEND, TARGET)
    assert claim.expires_s == NOW_S + 3600


@pytest.mark.parametrize(
    ("changes", "rights"),
    [
        ({"roles": [SENDER]}, Right.SEND),
        ({"roles": [RECEIVER]}, Right.LISTEN),
        ({"roles": [SENDER, RECEIVER]}, Right.SEND | Right.LISTEN),
        ({"roles": [OWNER]}, Right.MANAGE),
        ({"nbf": None, "iat": None}, Right.MANAGE),
    ],
)
def test_roles_give_rights(
    tokens: BearerTokens, changes: dict[str, Any], rights: Right
) -> None:
    text = token(claims(NOW_S, **changes))

    assert tokens.claim(text, TARGET, NOW_S).rights == rights


def test_roles_and_scopes_can_be_mapped(options: JwtOptions) -> None:
    roles = {"writer": Right.SEND, "read": Right.LISTEN}
    mapped = JwtOptions(options.issuer, options.jwks, "api://bus", roles)
    tokens = BearerTokens.load(mapped)
    text = token(claims(NOW_S, aud="api://bus", roles=["writer"], scp="a read b"))

    assert tokens.claim(text, TARGET, NOW_S).rights == Right.SEND | Right.LISTEN
    with pytest.raises(Unauthorized):
        tokens.claim(token(claims(NOW_S, aud="api://bus")), TARGET, NOW_S)


# -- bad -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://other.example/"},
        {"iss": issuer.ISSUER.rstrip("/")},
        {"iss": None},
        {"aud": "https://vault.azure.net"},
        {"aud": []},
        {"aud": [1]},
        {"aud": None},
        {"exp": NOW_S},
        {"exp": NOW_S - 1},
        {"exp": None},
        {"exp": NOW_S + 0.5},
        {"exp": float(NOW_S + 60)},
        {"exp": str(NOW_S + 60)},
        {"exp": True},
        {"exp": -1},
        {"exp": limits.TOKEN_EXPIRY_SECONDS_MAX + 1},
        {"nbf": NOW_S + 1},
        {"nbf": "0"},
        {"nbf": 0.0},
        {"roles": []},
        {"roles": None},
        {"roles": ["Owner"]},
        {"roles": OWNER},
        {"roles": [[OWNER]]},
        {"roles": None, "scp": OWNER},
        {"scp": [OWNER]},
    ],
)
def test_a_claim_that_is_wrong_is_refused(
    tokens: BearerTokens, changes: dict[str, Any]
) -> None:
    with pytest.raises(Unauthorized):
        tokens.claim(token(claims(NOW_S, **changes)), TARGET, NOW_S)


@pytest.mark.parametrize(
    "changes",
    [
        {"alg": "none"},
        {"alg": "None"},
        {"alg": "HS256"},
        {"alg": "RS384"},
        {"alg": "PS256"},
        {"alg": "ES256"},
        {"alg": "RS256", "kid": "ec"},
        {"alg": None},
        {"alg": ["RS256"]},
        {"kid": "unknown"},
        {"kid": "enc"},
        {"kid": "shared"},
        {"kid": None},
        {"kid": 1},
        {"kid": ["rsa"]},
        {"crit": ["exp"]},
    ],
)
def test_a_token_cannot_choose_how_it_is_proved(
    tokens: BearerTokens, changes: dict[str, Any]
) -> None:
    with pytest.raises(Unauthorized):
        tokens.claim(token(claims(NOW_S), **changes), TARGET, NOW_S)


def _bad_texts() -> dict[str, str]:
    good = token(claims(NOW_S))
    header, payload, signature = good.split(".")
    other = token(claims(NOW_S + 1)).split(".")
    curve = token(claims(NOW_S), alg="ES256", kid="ec")
    return {
        "another payload": f"{header}.{other[1]}.{signature}",
        "another signature": f"{header}.{payload}.{other[2]}",
        "no signature": f"{header}.{payload}.",
        "a short signature": good[:-4],
        "a short curve signature": curve[:-4],
        "a curve signature of zeros": f"{curve.rpartition('.')[0]}.{'A' * 86}",
        "two parts": f"{header}.{payload}",
        "four parts": f"{good}.x",
        "padding": f"{header}=.{payload}.{signature}",
        "not base64": f"{header}.{payload}.{signature[:-1]}!",
        "not ASCII": f"{header}.ä{payload}.{signature}",
        "not an object": token("[]"),
        "not JSON": token("{"),
        "a key twice": token('{"iss": "a", "iss": "b"}'),
        "deep": token("[" * 3000),
        "too long": token(claims(NOW_S, more="x" * limits.BEARER_TOKEN_BYTES_MAX)),
        "nothing": "..",
    }


@pytest.mark.parametrize("name", _bad_texts())
def test_a_changed_token_is_refused(tokens: BearerTokens, name: str) -> None:
    with pytest.raises(Unauthorized):
        tokens.claim(_bad_texts()[name], TARGET, NOW_S)


def test_every_cut_and_every_changed_letter_is_refused(tokens: BearerTokens) -> None:
    good = token(claims(NOW_S))
    # The last letter holds bits that no byte needs, so some changes of it mean nothing.
    for place in range(len(good) - 1):
        changed = "A" if good[place] != "A" else "B"
        for text in (good[:place], good[:place] + changed + good[place + 1 :]):
            with pytest.raises(Unauthorized):
                tokens.claim(text, TARGET, NOW_S)


# -- keys ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not a JWKS"),
        ("[]", "not a JWKS"),
        ('{"keys": 1}', "not a JWKS"),
        ('{"keys": ["a"]}', "not a JWKS"),
        ('{"keys": []}', "no RSA or EC key"),
        ('{"keys": [{"kty": "oct", "kid": "a", "k": "AA"}]}', "no RSA or EC key"),
        ('{"keys": [{"kty": "RSA", "n": "AQ", "e": "AQAB"}]}', "'kid'"),
        ('{"keys": [{"kty": "RSA", "kid": "a", "n": "AQ", "e": "AQAB"}]}', "'a'"),
        ('{"keys": [{"kty": "RSA", "kid": "a", "n": 1, "e": "AQAB"}]}', "'a'"),
        ('{"keys": [{"kty": "EC", "kid": "a", "crv": "P-384"}]}', "'a'"),
    ],
)
def test_a_file_of_keys_that_cannot_be_used_says_why(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(text)

    with pytest.raises(ConfigError) as refused:
        read_keys(path)

    assert str(path) in refused.value.text
    assert problem in refused.value.text


def test_small_keys_and_missing_files_are_refused(tmp_path: Path) -> None:
    small = issuer.jwk_rsa("a", issuer.rsa_key("small", 1024))
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": [small]}))

    for bad in (path, tmp_path / "none.json"):
        with pytest.raises(ConfigError):
            read_keys(bad)


def test_the_configuration_of_a_namespace_names_its_issuer(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        """
        namespaces:
          - name: contoso
            jwt:
              issuer: https://issuer.example/
              jwks: keys/jwks.json
              roles: {writer: [Send], both: [Send, Listen]}
        """
    )

    (config,) = load_config(path)

    assert config.jwt == JwtOptions(
        "https://issuer.example/",
        tmp_path / "keys" / "jwks.json",
        roles={"writer": Right.SEND, "both": Right.SEND | Right.LISTEN},
    )


@pytest.mark.parametrize(
    "text",
    [
        "{issuer: a}",
        "{jwks: a}",
        "{issuer: a, jwks: b, keys: c}",
        "{issuer: a, jwks: b, roles: {x: [Fly]}}",
        "{issuer: a, jwks: b, roles: {x: Send}}",
    ],
)
def test_a_configuration_that_is_wrong_names_the_key(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"namespaces: [{{name: contoso, jwt: {text}}}]")

    with pytest.raises(ConfigError) as refused:
        load_config(path)

    assert "namespaces[0].jwt" in refused.value.text


# -- a file that changes ---------------------------------------------------------------

LATER_S = NOW_S + limits.JWKS_LOOK_SECONDS


def is_taken(tokens: BearerTokens, now_s: int, **header: str) -> bool:
    try:
        tokens.claim(token(claims(NOW_S), **header), TARGET, now_s)
    except Unauthorized:
        return False
    return True


def write(options: JwtOptions, *kids: str) -> None:
    """Put other keys into the file, whole, as an operator should."""
    keys = [key for key in issuer.jwks()["keys"] if key["kid"] in kids]
    new = options.jwks.with_suffix(".new")
    new.write_text(json.dumps({"keys": keys}))
    new.replace(options.jwks)


def test_a_changed_file_is_read_again_after_a_while(
    options: JwtOptions, tokens: BearerTokens
) -> None:
    assert is_taken(tokens, NOW_S)
    write(options, "ec")

    assert is_taken(tokens, LATER_S - 1)
    assert not is_taken(tokens, LATER_S)
    assert is_taken(tokens, LATER_S, alg="ES256", kid="ec")


@pytest.mark.parametrize("half", ["", "{", '{"keys": []}', None])
def test_a_file_that_cannot_be_used_changes_nothing(
    options: JwtOptions, tokens: BearerTokens, half: str | None
) -> None:
    """Half-written, empty or gone: the keys of before go on until it is whole."""
    if half is None:
        options.jwks.unlink()
    else:
        options.jwks.write_text(half)
    assert is_taken(tokens, NOW_S)
    assert is_taken(tokens, LATER_S)

    write(options, "ec")

    assert not is_taken(tokens, LATER_S + limits.JWKS_LOOK_SECONDS)


def test_a_truncated_key_file_changes_nothing(
    options: JwtOptions, tokens: BearerTokens
) -> None:
    keys = [key for key in issuer.jwks()["keys"] if key["kid"] == "ec"]
    text = json.dumps({"keys": keys})
    for end in range(0, len(text), 7):
        options.jwks.write_text(text[:end])
        assert is_taken(tokens, NOW_S + end * limits.JWKS_LOOK_SECONDS % 3000), end


def test_the_file_is_looked_at_again_when_the_clock_goes_back(
    options: JwtOptions, tokens: BearerTokens
) -> None:
    assert is_taken(tokens, NOW_S + 100)
    write(options, "ec")

    assert not is_taken(tokens, NOW_S)


# -- where tokens come in --------------------------------------------------------------


async def _post(site: RestSite, text: str, path: str = "/q/messages") -> int:
    header = {"Authorization": f"Bearer {text}"}
    return (await site.ask("POST", path, header)).status


async def test_over_http_a_token_gives_its_rights(tokens: BearerTokens) -> None:
    sender = token(claims(NOW_S, roles=[SENDER]))
    receiver = token(claims(NOW_S, roles=[RECEIVER]), alg="ES256", kid="ec")
    head = "/q/messages/head?timeout=0"
    async with serving(tokens=tokens) as site:
        assert await _post(site, sender) == 201
        assert await _post(site, receiver) == 401
        assert await _post(site, sender, head) == 401
        assert await _post(site, receiver, head) == 201
        site.advance(3_600_000)
        assert await _post(site, sender) == 401


async def test_a_token_that_is_not_valid_yet_waits_for_its_time(
    tmp_path: Path, options: JwtOptions, tokens: BearerTokens
) -> None:
    """Over HTTP and on `$cbs`: refused a second before, taken at its first one."""
    early = token(claims(NOW_S, nbf=NOW_S + 60))
    async with serving(tokens=tokens) as site:
        site.advance(59_000)
        assert await _post(site, early) == 401
        site.advance(1000)
        assert await _post(site, early) == 201
    config = NamespaceConfig("contoso", queues=(QueueDescription("q"),), jwt=options)
    async with serving_amqp(tmp_path / "data", config) as server:
        client = await RawClient.connect(server.port)
        for milliseconds, status in ((59_000, 401), (1000, 202)):
            server.advance(milliseconds)
            session = await client.session()
            assert await client.authorize(session, AUDIENCE, token=early) == status
        client.abort()


@pytest.mark.parametrize(("role", "status"), [(OWNER, 200), (RECEIVER, 401)])
async def test_administration_takes_a_token_of_an_owner(
    tokens: BearerTokens, role: str, status: int
) -> None:
    header = {"Authorization": f"Bearer {token(claims(NOW_S, roles=[role]))}"}
    async with serving(tokens=tokens) as site:
        answer = await site.ask("GET", "/q?api-version=2021-05", header)

    assert answer.status == status


async def test_without_an_issuer_a_token_is_refused_and_the_option_is_named() -> None:
    header = {"Authorization": f"Bearer {token(claims(NOW_S))}"}
    async with serving() as site:
        answer = await site.ask("POST", "/q/messages", header)

    assert answer.status == 401
    assert b"--jwt-issuer" in answer.body
    assert b"--jwt-jwks" in answer.body


@pytest.mark.parametrize("with_issuer", [True, False])
async def test_on_cbs_a_token_gives_its_rights(
    tmp_path: Path, options: JwtOptions, with_issuer: bool
) -> None:
    jwt = options if with_issuer else None
    config = NamespaceConfig("contoso", queues=(QueueDescription("q"),), jwt=jwt)
    async with serving_amqp(tmp_path / "data", config) as server:
        client = await RawClient.connect(server.port)
        good = token(claims(NOW_S, roles=[SENDER]))
        bad = token(claims(NOW_S, roles=[SENDER]), alg="HS256")

        statuses = [
            await client.authorize(await client.session(), AUDIENCE, token=text)
            for text in (bad, good)
        ]
        client.abort()

    assert statuses == [401, 202 if with_issuer else 401]
