"""The arguments of the official client, as our own client understands them.

Owns the translation and nothing else: namespace, TLS, WebSocket, proxy, gateway,
retries, and how long an attempt may take; and the way back, so that the official client
connects to the same host and port. Arguments that only concern the official client's
own transport are passed on to it for receivers, and mean nothing here.
"""

from __future__ import annotations

import math
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from twinbus import limits
from twinbus.client.transport.endpoint import AMQPS_PORT, HTTPS_PORT, Endpoint, Proxy
from twinbus.core.sas import Secret
from twinbus.pairing.rules.retry import Backoff


@dataclass(frozen=True, slots=True)
class SendSettings:
    """How a sender without a pair tries again, and how long one attempt may take."""

    retries: int
    attempt_seconds: float
    backoff: Backoff

    def pause_ms(self, failures: int, busy: bool) -> int:
        """How long to wait before another attempt."""
        pause_ms = self.backoff.pause_ms(failures)
        return max(pause_ms, self.backoff.pause_ms(0, busy=True)) if busy else pause_ms

    @property
    def attempt_ms(self) -> int:
        return round(self.attempt_seconds * 1000)


def endpoint_from(fully_qualified_namespace: str, keywords: dict[str, Any]) -> Endpoint:
    """Where the namespace is, and the way there."""
    text = fully_qualified_namespace.strip()
    parts = urlsplit(text if "://" in text else f"sb://{text}")
    if not parts.hostname:
        raise ValueError(
            "fully_qualified_namespace must be a host name, such as "
            f"contoso.servicebus.windows.net, not {fully_qualified_namespace!r}."
        )
    gateway = keywords.get("custom_endpoint_address")
    websocket = _is_websocket(keywords)
    return Endpoint(
        host=parts.hostname,
        port=parts.port,
        tls=_tls(keywords),
        websocket=websocket,
        address=None if gateway is None else _address(gateway, websocket),
        proxy=_proxy(keywords.get("http_proxy")),
    )


def official_keywords(endpoint: Endpoint, keywords: dict[str, Any]) -> dict[str, Any]:
    """The keywords with which the official client connects to `endpoint.target`.

    It drops the port of a name with TLS or over a WebSocket, and connects to 5671 or
    443. The port of a custom endpoint address counts with both transports.
    """
    named = endpoint.port is not None and endpoint.address is None
    if not named or (endpoint.tls is None and not endpoint.websocket):
        return keywords
    from azure.servicebus import TransportType

    transport = TransportType.Amqp
    if endpoint.websocket:
        transport = TransportType.AmqpOverWebsocket
    return {
        **keywords,
        "custom_endpoint_address": f"sb://{endpoint.authority}",
        "transport_type": transport,
    }


def send_settings_from(keywords: dict[str, Any]) -> SendSettings:
    """How often and how long to try, by the official client's options."""
    attempt_seconds = keywords.get("try_timeout")
    if attempt_seconds is None:
        attempt_seconds = limits.ATTEMPT_MS_MAX / 1000
    if not attempt_seconds > 0:
        raise ValueError("try_timeout must be greater than 0.")
    retries = keywords.get("retry_total", 3)
    if not isinstance(retries, int) or retries < 0:
        raise ValueError("retry_total must be a whole number that is not negative.")
    return SendSettings(retries, float(attempt_seconds), _backoff(keywords))


def _backoff(keywords: dict[str, Any]) -> Backoff:
    """The pauses of the official client: the factor as it is, or doubled each time."""
    factor = _seconds(keywords, "retry_backoff_factor", limits.RETRY_FACTOR_SECONDS)
    longest = _seconds(keywords, "retry_backoff_max", limits.RETRY_SECONDS_MAX)
    mode = keywords.get("retry_mode", "exponential")
    mode = str(getattr(mode, "value", mode)).lower()
    if mode not in ("exponential", "fixed"):
        raise ValueError("retry_mode must be 'exponential' or 'fixed'.")
    longest_ms = round(longest * 1000)
    if mode == "fixed":
        longest_ms = min(longest_ms, round(factor * 1000))
    # Its first pause is twice the factor already.
    return Backoff(round(factor * 2000), longest_ms)


def _seconds(keywords: dict[str, Any], name: str, default: float) -> float:
    value = keywords.get(name, default)
    if not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a number of seconds that is not negative.")
    return value


def _tls(keywords: dict[str, Any]) -> ssl.SSLContext | None:
    if not keywords.get("use_tls", True):
        return None
    given = keywords.get("ssl_context")
    if given is not None:
        if not isinstance(given, ssl.SSLContext):
            raise TypeError("ssl_context must be an ssl.SSLContext.")
        return given
    context = ssl.create_default_context(cafile=keywords.get("connection_verify"))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _is_websocket(keywords: dict[str, Any]) -> bool:
    if keywords.get("http_proxy"):
        # As the official client: proxies let nothing else through.
        return True
    transport = keywords.get("transport_type")
    if transport is None:
        # As the official client: to a gateway, a WebSocket is usual.
        return bool(keywords.get("custom_endpoint_address"))
    name = getattr(transport, "name", transport)
    return str(name).lower() == "amqpoverwebsocket"


def _address(gateway: str, websocket: bool) -> tuple[str, int]:
    parts = urlsplit(gateway if "://" in gateway else f"sb://{gateway}")
    if not parts.hostname:
        raise ValueError(f"custom_endpoint_address has no host: {gateway!r}.")
    # As the official client connects, whose documentation says 443 for both.
    return parts.hostname, parts.port or (HTTPS_PORT if websocket else AMQPS_PORT)


def _proxy(given: dict[str, Any] | None) -> Proxy | None:
    if not given:
        return None
    try:
        host, port = given["proxy_hostname"], int(given["proxy_port"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            "http_proxy must have 'proxy_hostname' and 'proxy_port'."
        ) from error
    password = given.get("password")
    secret = None if password is None else Secret(password)
    return Proxy(host, port, given.get("username"), secret)
