"""Takes orders over HTTP and passes them on, also while the primary is down.

    pip install /path/to/twinbus flask gunicorn
    PRIMARY=... SECONDARY=... gunicorn "flask_orders:create_app()"

Servers of your own also need SECONDARY_ADMIN and CA_FILE, as in `docs/pairing.md`.

A pair belongs to one process. A server that starts workers by forking has to make the
application in each of them, as gunicorn does unless it is told to preload.
"""

from __future__ import annotations

import atexit
import os

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError
from azure.servicebus.management import ServiceBusAdministrationClient
from flask import Flask, Response, jsonify, request

from twinbus import MessagingFactory, SendAvailabilityPairedNamespaceOptions


def create_app() -> Flask:
    primary = paired_factory()
    # Any number of threads may use it at once.
    orders = primary.get_queue_sender("orders")
    app = Flask(__name__)

    @app.post("/orders")
    def order() -> tuple[Response, int]:
        """Accept an order: it is durable when this returns."""
        message = ServiceBusMessage(request.get_data())
        try:
            orders.send_messages(message, timeout=30)
        except OperationTimeoutError:
            # Neither namespace took it in time.
            return jsonify(detail="Please try again."), 503
        return jsonify(id=str(message.message_id)), 202

    @app.get("/status")
    def status() -> Response:
        """How the pair is doing, for a dashboard."""
        return jsonify(primary.pairing.status().as_dict())

    return app


def paired_factory() -> MessagingFactory:
    """The primary, paired; it is closed when the process ends."""
    primary_text, secondary_text = os.environ["PRIMARY"], os.environ["SECONDARY"]
    # On Azure the administration has the same connection string. On a server of your
    # own it may have a port and a certificate of its own.
    manager = ServiceBusAdministrationClient.from_connection_string(
        os.environ.get("SECONDARY_ADMIN", secondary_text),
        connection_verify=os.environ.get("CA_FILE") or True,
    )
    secondary = MessagingFactory.from_connection_string(secondary_text)
    primary = MessagingFactory.from_connection_string(primary_text)
    primary.pair_namespace(
        SendAvailabilityPairedNamespaceOptions(
            manager, secondary, failover_interval=1, ping_primary_interval=5
        )
    )
    for each in (manager, secondary, primary):
        # They are closed the other way round: the primary first.
        atexit.register(each.close)
    return primary
