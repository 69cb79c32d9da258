"""A service at the edge: it sends to a primary that may be away, with a local outbox.

    python -m tests.pairing.edge_service FOLDER PRIMARY

Sends numbered messages without end, and prints each number once it was accepted. A test
kills it. FOLDER is where the outbox is, PRIMARY the primary's connection string.
"""

from __future__ import annotations

import sys
from itertools import count

from azure.servicebus import ServiceBusMessage

import twinbus

PRIMARY_NAME = "contoso"
QUEUE = "orders"


def main(folder: str, primary_text: str) -> None:
    with (
        twinbus.embedded(folder) as outbox,
        twinbus.MessagingFactory.from_connection_string(primary_text) as primary,
    ):
        primary.pair_namespace(
            twinbus.SendAvailabilityPairedNamespaceOptions(
                outbox.manager,
                outbox.messaging_factory,
                backlog_queue_count=2,
                failover_interval=0,
                primary_name=PRIMARY_NAME,
            )
        )
        with primary.get_queue_sender(QUEUE) as sender:
            for number in count():
                sender.send_messages(ServiceBusMessage(str(number)))
                print(number, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
