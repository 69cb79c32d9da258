"""Bearer tokens: JSON web tokens of an issuer that the operator trusts.

Owns how such a token is read and proved, and which rights its roles give. The keys come
from a file of the operator's: nothing is fetched. A file that has changed is read anew
and used only if all of it can be; until then the keys of before go on. A token names
its key (`kid`) and its algorithm, RS256 or ES256, and both must fit; so a token cannot
choose how it is proved. The signature is proved before any claim in the token is looked
at. Times are compared as whole seconds. What is missing or odd is refused.
Knows nothing about connections; `rights.py` decides what a proved claim may do.
"""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinbus import limits
from twinbus.core import sas
from twinbus.core.names import EntityPath
from twinbus.core.rights import Claim, JwtOptions, Right, RulesOf, claim_for
from twinbus.errors import ConfigError, Unauthorized

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    PublicKey = RSAPublicKey | EllipticCurvePublicKey

log = logging.getLogger("twinbus.jwt")

_BASE64URL = re.compile(r"[A-Za-z0-9_-]*")
_ES256_BYTES = 64

_MALFORMED = "The bearer token is not a JSON web token. Check how it was made."
_NOT_PROVED = "The signature of the bearer token is wrong."
_NOT_ACCEPTED = (
    "This server does not accept bearer tokens. Start it with --jwt-issuer and "
    "--jwt-jwks (or put `jwt` into the configuration of the namespace), or use a "
    "shared access signature."
)


def claim_from(
    text: str,
    target: EntityPath,
    rules_of: RulesOf,
    tokens: BearerTokens | None,
    now_s: int,
) -> Claim:
    """Prove a credential of either kind, told apart by what it looks like."""
    if sas.is_sas(text) or text.count(".") != 2:
        return claim_for(text, rules_of, target, now_s)
    if tokens is None:
        raise Unauthorized(_NOT_ACCEPTED)
    return tokens.claim(text, target, now_s)


class BearerTokens:
    """Proves the tokens of one issuer."""

    def __init__(self, options: JwtOptions) -> None:
        self._options = options
        # Before the file is read: what is written from now on is read again.
        self._stamp = _stamp(options.jwks)
        self._keys: Mapping[str, PublicKey] = read_keys(options.jwks)
        self._looked_s: int | None = None

    @classmethod
    def load(cls, options: JwtOptions) -> BearerTokens:
        """Read the file of keys; `ConfigError` says what is wrong with it."""
        return cls(options)

    def _refresh(self, now_s: int) -> None:
        """Read the file again if it has changed; look at most every few seconds."""
        looked_s, path = self._looked_s, self._options.jwks
        if looked_s is not None and abs(now_s - looked_s) < limits.JWKS_LOOK_SECONDS:
            return
        self._looked_s = now_s
        before = _stamp(path)
        if before == self._stamp:
            return
        try:
            keys = read_keys(path)
        except ConfigError as error:
            log.warning("the keys of before go on: %s", error.text)
            return
        # The file was written while it was read: look again next time.
        if _stamp(path) == before:
            self._keys, self._stamp = keys, before
            log.info("%s: %d keys", path, len(keys))

    def claim(self, text: str, target: EntityPath, now_s: int) -> Claim:
        """Prove a token and say what it gives for a target; else `Unauthorized`."""
        self._refresh(now_s)
        claims = self._proved(text)
        options = self._options
        if claims.get("iss") != options.issuer:
            raise Unauthorized("The bearer token is of another issuer.")
        if not _is_for(claims.get("aud"), options.audience):
            raise Unauthorized(
                f"The bearer token is for another audience than {options.audience}."
            )
        expires_s = _seconds(claims, "exp")
        if expires_s is None:
            raise Unauthorized("The bearer token has no expiry (exp).")
        if now_s >= expires_s:
            raise Unauthorized("The bearer token has expired. Get a new one.")
        valid_from_s = _seconds(claims, "nbf")
        if valid_from_s is not None and now_s < valid_from_s:
            raise Unauthorized("The bearer token is not valid yet.")
        return Claim(self._rights(claims), target, expires_s)

    def _proved(self, text: str) -> dict[str, Any]:
        """What a token claims, once its signature is proved."""
        if len(text.encode("utf-8", "replace")) > limits.BEARER_TOKEN_BYTES_MAX:
            raise Unauthorized(
                f"The token is longer than {limits.BEARER_TOKEN_BYTES_MAX} bytes."
            )
        parts = text.split(".")
        if len(parts) != 3:
            raise Unauthorized(_MALFORMED)
        header = _read_json(parts[0])
        if "crit" in header:
            # An extension that must be understood, and none of them is.
            raise Unauthorized("The bearer token needs an extension (crit).")
        kid = header.get("kid")
        key = self._keys.get(kid) if isinstance(kid, str) else None
        if key is None:
            raise Unauthorized("The bearer token names a key that is not in the JWKS.")
        signature = _decode(parts[2])
        # Signed is the text as it came, which is plain letters or it is no token.
        _decode(parts[1])
        signed = f"{parts[0]}.{parts[1]}".encode("ascii")
        _verify(key, header.get("alg"), signature, signed)
        return _read_json(parts[1])

    def _rights(self, claims: Mapping[str, Any]) -> Right:
        """The rights of all roles and scopes in a token, together."""
        roles, scopes = claims.get("roles", []), claims.get("scp", "")
        if not isinstance(roles, list) or not isinstance(scopes, str):
            raise Unauthorized(_MALFORMED)
        rights = Right(0)
        for name in (*roles, *scopes.split()):
            if isinstance(name, str):
                rights |= self._options.roles.get(name, Right(0))
        if not rights:
            known = ", ".join(f"'{name}'" for name in self._options.roles)
            raise Unauthorized(
                f"The bearer token has no role or scope that gives a right ({known})."
            )
        return rights


def _verify(key: PublicKey, algorithm: object, signature: bytes, signed: bytes) -> None:
    """Return if the key made the signature with the algorithm that belongs to it."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec, padding
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA256

    is_ec = isinstance(key, ec.EllipticCurvePublicKey)
    if algorithm != ("ES256" if is_ec else "RS256"):
        raise Unauthorized("The algorithm of the bearer token is not its key's own.")
    try:
        if not isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, signed, padding.PKCS1v15(), SHA256())
            return
        if len(signature) != _ES256_BYTES:
            raise Unauthorized(_NOT_PROVED)
        half = _ES256_BYTES // 2
        pair = (signature[:half], signature[half:])
        encoded = encode_dss_signature(*(int.from_bytes(part, "big") for part in pair))
        key.verify(encoded, signed, ec.ECDSA(SHA256()))
    except InvalidSignature:
        raise Unauthorized(_NOT_PROVED) from None


def _is_for(audience: object, wanted: str) -> bool:
    """Whether a token is for an audience; Entra writes it with a slash or without."""
    given = audience if isinstance(audience, list) else [audience]
    texts = [one.removesuffix("/") for one in given if isinstance(one, str)]
    return wanted.removesuffix("/") in texts


def _seconds(claims: Mapping[str, Any], name: str) -> int | None:
    """A time of the token; a fraction or a huge number is no time."""
    value = claims.get(name)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= limits.TOKEN_EXPIRY_SECONDS_MAX:
        raise Unauthorized(f"The time '{name}' of the bearer token is no whole second.")
    return value


# -- JSON and base64 -----------------------------------------------------------------


def _decode(text: str) -> bytes:
    if not _BASE64URL.fullmatch(text) or len(text) % 4 == 1:
        raise Unauthorized(_MALFORMED)
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _read_json(text: str) -> dict[str, Any]:
    try:
        value = json.loads(_decode(text), object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise Unauthorized(_MALFORMED) from None
    if not isinstance(value, dict):
        raise Unauthorized(_MALFORMED)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that is there twice: two readers would see two tokens."""
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError
    return values


# -- keys ----------------------------------------------------------------------------


def _stamp(path: Path) -> tuple[int, ...]:
    """What changes with a file; nothing if there is none."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


def read_keys(path: Path) -> dict[str, PublicKey]:
    """The keys of a JWKS file that can prove tokens, by their names."""
    try:
        with path.open("rb") as stream:
            data = stream.read(limits.CONFIG_BYTES_MAX)
        found = json.loads(data, object_pairs_hook=_unique)["keys"]
        listed = [dict(key) for key in found]
    except OSError as fault:
        raise ConfigError(f"{path}: cannot be read: {fault.strerror}.") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(
            f'{path}: is not a JWKS, which looks like {{"keys": [{{"kty": ...}}]}}.'
        ) from None
    keys: dict[str, PublicKey] = {}
    for index, key in enumerate(listed):
        if key.get("use", "sig") != "sig" or key.get("kty") not in _READERS:
            continue
        kid = key.get("kid")
        if not isinstance(kid, str) or kid in keys:
            raise ConfigError(f"{path}: keys[{index}] needs a 'kid' of its own.")
        try:
            keys[kid] = _READERS[key["kty"]](key)
        except (ValueError, KeyError, TypeError, Unauthorized) as fault:
            raise ConfigError(
                f"{path}: keys[{index}] ('{kid}') cannot be used. RSA keys of "
                f"{limits.RSA_KEY_BITS_MIN} bits and more and EC keys on P-256 can."
            ) from fault
    if not keys:
        raise ConfigError(f"{path}: has no RSA or EC key that signs.")
    return keys


def _number(key: Mapping[str, Any], name: str) -> int:
    return int.from_bytes(_decode(key[name]), "big")


def _read_rsa(key: Mapping[str, Any]) -> PublicKey:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers

    public = RSAPublicNumbers(_number(key, "e"), _number(key, "n")).public_key()
    if public.key_size < limits.RSA_KEY_BITS_MIN:
        raise ValueError
    return public


def _read_ec(key: Mapping[str, Any]) -> PublicKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    if key["crv"] != "P-256":
        raise ValueError
    numbers = ec.EllipticCurvePublicNumbers(
        _number(key, "x"), _number(key, "y"), ec.SECP256R1()
    )
    return numbers.public_key()


_READERS: dict[str, Callable[[Mapping[str, Any]], PublicKey]] = {
    "RSA": _read_rsa,
    "EC": _read_ec,
}
