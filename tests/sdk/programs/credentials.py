"""Comes with credential objects instead of a connection string, over TLS."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import time
from typing import Any
from urllib.parse import quote_plus

from azure.core.credentials import (
    AccessToken,
    AzureNamedKeyCredential,
    AzureSasCredential,
)
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType

NAMESPACE = os.environ["SERVICEBUS_NAMESPACE"]
OPTIONS: dict[str, Any] = {
    "custom_endpoint_address": os.environ["SERVICEBUS_TLS_ENDPOINT"],
    "transport_type": TransportType.Amqp,
    "connection_verify": os.environ["SERVICEBUS_CA_FILE"],
    "retry_total": 1,
    "retry_backoff_factor": 0.1,
    "retry_mode": "fixed",
    "user_agent": "an application",
}
KEY = (os.environ["SERVICEBUS_KEY_NAME"], os.environ["SERVICEBUS_KEY"])
TOKEN = os.environ["SERVICEBUS_TOKEN"]


class TokenCredential:
    """Gives the token of an identity, as azure-identity does."""

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        print("asked for", scopes, sorted(options))
        return AccessToken(TOKEN, int(time.time()) + 3600)


def signature() -> str:
    """A shared access signature, made as the documentation says."""
    resource = quote_plus(f"sb://{NAMESPACE}/orders")
    end = str(int(time.time()) + 3600)
    digest = hmac.new(KEY[1].encode(), f"{resource}\n{end}".encode(), hashlib.sha256)
    proof = quote_plus(base64.b64encode(digest.digest()))
    return f"SharedAccessSignature sr={resource}&sig={proof}&se={end}&skn={KEY[0]}"


def run(credential: Any) -> None:
    with ServiceBusClient(
        fully_qualified_namespace=NAMESPACE, credential=credential, **OPTIONS
    ) as client:
        # The pair is made here.
        print(client.fully_qualified_namespace)
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage(type(credential).__name__))
        with client.get_queue_receiver("orders", max_wait_time=5) as receiver:
            message = next(receiver)
            print(message)
            receiver.complete_message(message)


def main() -> None:
    run(AzureNamedKeyCredential(*KEY))
    run(AzureSasCredential(signature()))
    run(TokenCredential())
