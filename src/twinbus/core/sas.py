"""Shared access signatures, keys and connection strings.

Owns how a token is written, read and proved. A token is parsed once, in full, before
anything is believed; its signature is proved before its expiry or scope is looked at,
so that a refusal tells a stranger nothing. Keys are `Secret`s, which print as `***`.
Knows nothing about rights: `rights.py` says what a proved token may do.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import urllib.parse
from dataclasses import dataclass

from twinbus import errors, limits
from twinbus.core import names

# What Microsoft's emulator documents, for use on loopback only.
DEV_KEY_NAME = "RootManageSharedAccessKey"
DEV_KEY_TEXT = "SAS_KEY_VALUE"

_SCHEME = "SharedAccessSignature "
_FIELDS = frozenset({"sr", "sig", "se", "skn"})
_DIGITS = re.compile(r"[0-9]{1,12}")
_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")

_MALFORMED = "The token is not a shared access signature. Check how it was made."
NOT_PROVED = "The key name or the signature of the token is wrong."
_EXPIRED = "The token has expired. Make a new one."
_OUT_OF_SCOPE = "The token was made for another resource."


class Secret:
    """A text that never prints. `reveal()` is the only way to it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself; for signing and for showing keys to their owner."""
        return self._text

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash(self._text)


KeyPair = tuple[Secret, Secret | None]

# Signed with when there is no key, so that an unknown name costs as much as a known.
_NO_KEY = Secret("no key has this text, and a match with it never counts")


@dataclass(frozen=True, slots=True)
class SasToken:
    """A token as received. Nothing in it is proved."""

    # The resource exactly as it stands in the token: this is what was signed.
    resource_encoded: str
    resource_key: str
    key_name: str
    expiry_text: str
    expires_s: int
    signature: Secret

    def key_names(self) -> tuple[str, ...]:
        """The key name, and what it is if the Python SDK encoded it twice."""
        again = urllib.parse.unquote(self.key_name)
        return (self.key_name,) if again == self.key_name else (self.key_name, again)

    def covers(self, target: names.EntityPath) -> bool:
        """Whether the resource is the target or holds it."""
        return names.covers(self.resource_key, target.scope_key)


def key_from(entropy: bytes) -> Secret:
    """The usual text of a key: base64 of at least 32 random bytes."""
    assert len(entropy) >= 32
    return Secret(base64.b64encode(entropy).decode("ascii"))


def make_token(resource_uri: str, key_name: str, key: Secret, expires_at_s: int) -> str:
    """Sign a token for a resource; the caller holds the key."""
    resource = urllib.parse.quote(resource_uri, safe="")
    signature = _sign(key, resource, str(expires_at_s))
    return (
        f"{_SCHEME}sr={resource}&sig={urllib.parse.quote(signature, safe='')}"
        f"&se={expires_at_s}&skn={urllib.parse.quote(key_name, safe='')}"
    )


def is_sas(text: str) -> bool:
    """Whether a credential claims to be a shared access signature."""
    return text.startswith(_SCHEME)


def parse_token(text: str) -> SasToken:
    """Take a token apart; `Unauthorized` unless every field is there once and sound."""
    if len(text.encode("utf-8", "replace")) > limits.TOKEN_BYTES_MAX:
        raise errors.Unauthorized(
            f"The token is longer than {limits.TOKEN_BYTES_MAX} bytes."
        )
    if not is_sas(text):
        raise errors.Unauthorized(_MALFORMED)
    fields: dict[str, str] = {}
    for part in text[len(_SCHEME) :].split("&"):
        name, separator, value = part.partition("=")
        if not separator or not value or name not in _FIELDS or name in fields:
            raise errors.Unauthorized(_MALFORMED)
        fields[name] = value
    if fields.keys() != _FIELDS:
        raise errors.Unauthorized(_MALFORMED)
    return SasToken(
        resource_encoded=fields["sr"],
        resource_key=names.strip_uri(_decode(fields["sr"])).lower(),
        key_name=_decode(fields["skn"]),
        expiry_text=fields["se"],
        expires_s=_expiry(fields["se"]),
        signature=Secret(_decode(fields["sig"])),
    )


def proving_key(token: SasToken, keys: KeyPair | None) -> Secret | None:
    """The key that made the token, if one did. Costs the same whatever the answer."""
    primary, secondary = keys or (_NO_KEY, None)
    first = _matches(token, primary)
    second = _matches(token, secondary or _NO_KEY)
    if keys is None:
        return None
    if first:
        return primary
    return secondary if second else None


def check_expiry(token: SasToken, now_s: int) -> None:
    """Refuse a token from the second on that it names."""
    if now_s >= token.expires_s:
        raise errors.Unauthorized(_EXPIRED)


def check_scope(token: SasToken, target: names.EntityPath) -> None:
    """Refuse a token whose resource does not hold the target."""
    if not token.covers(target):
        raise errors.Unauthorized(_OUT_OF_SCOPE)


@dataclass(frozen=True, slots=True)
class ConnectionString:
    """How to reach a namespace, and with what: a key, or a ready token."""

    host: str
    port: int | None
    key_name: str | None = None
    key: Secret | None = None
    token: Secret | None = None
    entity_path: str | None = None
    dev: bool = False


_CONNECTION_FIELDS = {
    "endpoint": "Endpoint",
    "sharedaccesskeyname": "SharedAccessKeyName",
    "sharedaccesskey": "SharedAccessKey",
    "sharedaccesssignature": "SharedAccessSignature",
    "entitypath": "EntityPath",
    "usedevelopmentemulator": "UseDevelopmentEmulator",
}


def parse_connection_string(text: str) -> ConnectionString:
    """Read a connection string; the errors name fields and never show values."""
    fields: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, separator, value = part.partition("=")
        name = name.strip().lower()
        if not separator or name not in _CONNECTION_FIELDS:
            raise errors.ArgumentError(
                f"Part {len(fields) + 1} of the connection string is not known. Use "
                f"Name=value with {', '.join(_CONNECTION_FIELDS.values())}."
            )
        if name in fields:
            raise errors.ArgumentError(
                f"The connection string has {_CONNECTION_FIELDS[name]} twice."
            )
        fields[name] = value.strip()
    host, port = _endpoint(fields.get("endpoint", ""))
    key, token = fields.get("sharedaccesskey"), fields.get("sharedaccesssignature")
    key_name = fields.get("sharedaccesskeyname")
    if bool(token) == bool(key and key_name):
        raise errors.ArgumentError(
            "The connection string needs SharedAccessKeyName and SharedAccessKey, or "
            "SharedAccessSignature alone."
        )
    return ConnectionString(
        host=host,
        port=port,
        key_name=key_name,
        key=Secret(key) if key else None,
        token=Secret(token) if token else None,
        entity_path=fields.get("entitypath") or None,
        dev=fields.get("usedevelopmentemulator", "").lower() == "true",
    )


def format_connection_string(
    host: str, port: int | None, key_name: str, key: Secret, dev: bool
) -> str:
    """Write a connection string as the portal does, or as the emulator's guide does.

    The only text in this file that shows a key.
    """
    authority = f"[{host}]" if ":" in host else host
    if port is not None:
        authority += f":{port}"
    text = (
        f"Endpoint=sb://{authority}/;SharedAccessKeyName={key_name};"
        f"SharedAccessKey={key.reveal()}"
    )
    return text + ";UseDevelopmentEmulator=true;" if dev else text


def _endpoint(text: str) -> tuple[str, int | None]:
    try:
        url = urllib.parse.urlsplit(text)
        host, port = url.hostname, url.port
    except ValueError:
        host, port = None, None
    if not host or url.scheme not in ("sb", "amqps", "amqp"):
        raise errors.ArgumentError(
            "The connection string needs Endpoint=sb://<host>/ with a host name."
        )
    return host, port


def _sign(key: Secret, resource_encoded: str, expiry_text: str) -> str:
    signed = f"{resource_encoded}\n{expiry_text}".encode("utf-8", "surrogatepass")
    digest = hmac.new(key.reveal().encode(), signed, hashlib.sha256).digest()
    return base64.b64encode(digest).decode("ascii")


def _matches(token: SasToken, key: Secret) -> bool:
    expected = _sign(key, token.resource_encoded, token.expiry_text).encode("ascii")
    return hmac.compare_digest(
        expected, token.signature.reveal().encode("utf-8", "replace")
    )


def _expiry(text: str) -> int:
    # Only ASCII digits: `int` and `str.isdigit` would also take other scripts.
    if not _DIGITS.fullmatch(text):
        raise errors.Unauthorized(_MALFORMED)
    expires_s = int(text)
    if expires_s > limits.TOKEN_EXPIRY_SECONDS_MAX:
        raise errors.Unauthorized(_MALFORMED)
    return expires_s


def _decode(text: str) -> str:
    """Percent-decode once; a plus is a plus."""
    if _STRAY_PERCENT.search(text):
        raise errors.Unauthorized(_MALFORMED)
    try:
        return urllib.parse.unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise errors.Unauthorized(_MALFORMED) from None
