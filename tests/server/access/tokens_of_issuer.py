"""An issuer of bearer tokens for tests, which also makes every kind of bad one.

Keys are made once in a process, since RSA keys take their time.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

ISSUER = "https://issuer.example/"
AUDIENCE = "https://servicebus.azure.net"
SENDER = "Azure Service Bus Data Sender"
RECEIVER = "Azure Service Bus Data Receiver"
OWNER = "Azure Service Bus Data Owner"


@cache
def rsa_key(name: str = "rsa", bits: int = 2048) -> rsa.RSAPrivateKey:
    """A key of that name."""
    del name
    return rsa.generate_private_key(65537, bits)


@cache
def ec_key(name: str = "ec") -> ec.EllipticCurvePrivateKey:
    """A key of that name."""
    del name
    return ec.generate_private_key(ec.SECP256R1())


def encoded(data: bytes) -> str:
    """Base64 as tokens have it."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int) -> str:
    """A number as keys have it."""
    return encoded(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def jwk_rsa(kid: str, key: rsa.RSAPrivateKey) -> dict[str, Any]:
    """The public half of a key."""
    numbers = key.public_key().public_numbers()
    return {"kty": "RSA", "kid": kid, "n": number(numbers.n), "e": number(numbers.e)}


def jwk_ec(kid: str, key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
    """The public half of a key."""
    numbers = key.public_key().public_numbers()
    x, y = (encoded(value.to_bytes(32, "big")) for value in (numbers.x, numbers.y))
    return {"kty": "EC", "kid": kid, "crv": "P-256", "x": x, "y": y, "use": "sig"}


def jwks() -> dict[str, Any]:
    """The keys of the issuer."""
    other = {"kty": "oct", "kid": "shared", "k": "AAAA"}
    for_encryption = {**jwk_rsa("enc", rsa_key()), "use": "enc"}
    keys = [jwk_rsa("rsa", rsa_key()), jwk_ec("ec", ec_key()), other, for_encryption]
    return {"keys": keys}


def write_jwks(folder: Path) -> Path:
    """Put the keys of the issuer into a file."""
    path = folder / "jwks.json"
    path.write_text(json.dumps(jwks()))
    return path


def claims(now_s: int, **changes: Any) -> dict[str, Any]:
    """What a good token claims; a change to None leaves a claim out."""
    found = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "exp": now_s + 3600,
        "nbf": now_s,
        "iat": now_s,
        "roles": [OWNER],
        **changes,
    }
    return {name: value for name, value in found.items() if value is not None}


def token(payload: dict[str, Any] | str, **changes: Any) -> str:
    """A token, signed as its header says; a change to None leaves a field out."""
    header = {"typ": "JWT", "alg": "RS256", "kid": "rsa", **changes}
    header = {name: value for name, value in header.items() if value is not None}
    text = payload if isinstance(payload, str) else json.dumps(payload)
    signed = f"{encoded(json.dumps(header).encode())}.{encoded(text.encode())}"
    return f"{signed}.{encoded(_signature(header.get('alg'), signed.encode()))}"


def _signature(algorithm: object, signed: bytes) -> bytes:
    if algorithm == "ES256":
        pair = decode_dss_signature(ec_key().sign(signed, ec.ECDSA(SHA256())))
        return b"".join(part.to_bytes(32, "big") for part in pair)
    if algorithm == "HS256":
        # The trick: the public key, which is published, as the shared one.
        numbers = rsa_key().public_key().public_numbers()
        return hmac.digest(number(numbers.n).encode(), signed, hashlib.sha256)
    if algorithm == "none":
        return b""
    return rsa_key().sign(signed, padding.PKCS1v15(), SHA256())
