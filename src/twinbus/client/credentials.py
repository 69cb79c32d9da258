"""Credentials: where the tokens come from that are shown to a namespace.

A credential is read each time a token is needed, never kept: a key or signature that
its owner replaces is used from the next token on. The SDK's credential classes are
known by what they offer, not by name, so that the SDK need not be installed:

| offers      | such as                                  | token                       |
|-------------|------------------------------------------|-----------------------------|
| `named_key` | `SasKey` here, `AzureNamedKeyCredential` | signed here, for one entity |
| `signature` | `SasSignature`, `AzureSasCredential`     | as it is                    |
| `get_token` | `TokenCredential`, sync or async         | asked for                   |
"""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple, Protocol

from twinbus import limits
from twinbus.client.transport.daemon import in_daemon
from twinbus.core import sas
from twinbus.errors import ArgumentError, CredentialFailed, Unauthorized

SCOPE = "https://servicebus.azure.net//.default"
_SAS_TYPE = "servicebus.windows.net:sastoken"
_JWT_TYPE = "jwt"


class Token(NamedTuple):
    """What is put to `$cbs`."""

    text: str
    kind: str
    expires_ms: int


class TokenSource(Protocol):
    """Gives tokens for entities."""

    async def token(self, audience: str, now_ms: int) -> Token:
        """A token for an entity, by the name that tokens give it."""


class SasKey:
    """A shared access key by its name; `update` replaces it while it is in use."""

    def __init__(self, name: str, key: str | sas.Secret) -> None:
        self._pair = (name, _secret(key))

    @property
    def named_key(self) -> tuple[str, sas.Secret]:
        """Name and key, both of one moment."""
        return self._pair

    def update(self, name: str, key: str | sas.Secret) -> None:
        """Use another key from the next token on."""
        self._pair = (name, _secret(key))


class SasSignature:
    """A ready token, as connection strings may carry; `update` replaces it."""

    def __init__(self, signature: str | sas.Secret) -> None:
        self._signature = _secret(signature)

    @property
    def signature(self) -> str:
        """The token itself."""
        return self._signature.reveal()

    def update(self, signature: str | sas.Secret) -> None:
        """Use another token from now on."""
        self._signature = _secret(signature)


def credential_of(text: sas.ConnectionString) -> SasKey | SasSignature:
    """The credential that a connection string carries."""
    if text.token is not None:
        return SasSignature(text.token)
    assert text.key_name is not None
    assert text.key is not None
    return SasKey(text.key_name, text.key)


def source_of(credential: Any) -> TokenSource:
    """How to get tokens from a credential."""
    if hasattr(credential, "named_key"):
        return _KeySource(credential)
    if hasattr(credential, "signature"):
        return _SignatureSource(credential)
    if hasattr(credential, "get_token"):
        return _BearerSource(credential)
    name = type(credential).__name__
    raise ArgumentError(f"'{name}' is no credential: it can neither sign nor be asked.")


def _secret(text: str | sas.Secret) -> sas.Secret:
    return text if isinstance(text, sas.Secret) else sas.Secret(text)


class _KeySource:
    def __init__(self, credential: Any) -> None:
        self._credential = credential

    async def token(self, audience: str, now_ms: int) -> Token:
        name, key = self._credential.named_key
        expires_s = now_ms // 1000 + limits.CLIENT_TOKEN_SECONDS
        text = sas.make_token(audience, name, _secret(key), expires_s)
        return Token(text, _SAS_TYPE, expires_s * 1000)


class _SignatureSource:
    def __init__(self, credential: Any) -> None:
        self._credential = credential

    async def token(self, audience: str, now_ms: int) -> Token:
        del audience
        text = self._credential.signature
        try:
            expires_ms = sas.parse_token(text).expires_s * 1000
        except Unauthorized:
            # The server decides what it is worth; here it lasts as long as others.
            expires_ms = now_ms + limits.CLIENT_TOKEN_SECONDS * 1000
        return Token(text, _SAS_TYPE, expires_ms)


class _BearerSource:
    def __init__(self, credential: Any) -> None:
        self._credential = credential

    async def token(self, audience: str, now_ms: int) -> Token:
        del audience, now_ms
        ask = self._credential.get_token
        try:
            if inspect.iscoroutinefunction(ask):
                given = await ask(SCOPE)
            else:
                given = await in_daemon(lambda: ask(SCOPE))
                if inspect.isawaitable(given):
                    given = await given
        except Exception as error:
            # Whatever a credential raises, it gave no token.
            raise _failed(error) from error
        return Token(given.token, _JWT_TYPE, int(given.expires_on) * 1000)


def _failed(error: Exception) -> CredentialFailed:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    refused = "ClientAuthenticationError" in kinds
    return CredentialFailed(f"The credential gave no token: {error}", refused=refused)
