"""Receives the orders, and brings home what was sent while the primary was down.

    pip install /path/to/twinbus
    PRIMARY=... SECONDARY=... python worker.py

Servers of your own also need SECONDARY_ADMIN and CA_FILE, as in `docs/pairing.md`.

Senders leave the syphon off; a receiver turns it on. One such process is enough.
"""

from __future__ import annotations

import os

from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus import MessagingFactory, SendAvailabilityPairedNamespaceOptions


def main() -> None:
    primary_text, secondary_text = os.environ["PRIMARY"], os.environ["SECONDARY"]
    with (
        ServiceBusAdministrationClient.from_connection_string(
            os.environ.get("SECONDARY_ADMIN", secondary_text),
            connection_verify=os.environ.get("CA_FILE") or True,
        ) as manager,
        MessagingFactory.from_connection_string(secondary_text) as secondary,
        MessagingFactory.from_connection_string(primary_text) as primary,
    ):
        primary.pair_namespace(
            SendAvailabilityPairedNamespaceOptions(
                manager, secondary, enable_syphon=True
            )
        )
        # It is the official client's receiver, on the primary alone.
        with primary.get_queue_receiver("orders") as receiver:
            for message in receiver:
                print("order", message, flush=True)
                receiver.complete_message(message)


if __name__ == "__main__":
    main()
