"""Goes through a WebSocket, because the firewall knows nothing else."""

from __future__ import annotations

import os

from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType

NAMESPACE = os.environ["SERVICEBUS_NAMESPACE"]
KEY = (os.environ["SERVICEBUS_KEY_NAME"], os.environ["SERVICEBUS_KEY"])
GATEWAY = os.environ["SERVICEBUS_WEBSOCKET_ENDPOINT"]
CA_FILE = os.environ["SERVICEBUS_CA_FILE"]


def main() -> None:
    client = ServiceBusClient(
        NAMESPACE,
        AzureNamedKeyCredential(*KEY),
        transport_type=TransportType.AmqpOverWebsocket,
        custom_endpoint_address=GATEWAY,
        connection_verify=CA_FILE,
        logging_enable=False,
    )
    with client:
        # The pair is made here.
        with client.get_topic_sender("events") as sender:
            sender.send_messages(ServiceBusMessage("through the wall"))
        with client.get_subscription_receiver(
            "events", "all", max_wait_time=5
        ) as receiver:
            message = next(receiver)
            print(message)
            receiver.complete_message(message)
