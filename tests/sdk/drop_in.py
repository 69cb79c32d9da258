"""Runs programs for the official client: as they are, and with ours instead.

Owns the exchange, which is a change of text, and the run of a program in a thread: what
it finds in the environment and what it prints are its own. The programs are in
`programs/`, and `test_drop_in.py` compares.
"""

from __future__ import annotations

import asyncio
import inspect
import io
import os
import re
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from azure.servicebus.management import ServiceBusAdministrationClient

import twinbus
import twinbus.aio
from tests.sdk.servers import Endpoint, Server
from tests.server.access import tokens_of_issuer as issuer
from twinbus.core.sas import DEV_KEY_NAME, DEV_KEY_TEXT

PROGRAMS = Path(__file__).parent / "programs"
NAMES = sorted(path.stem for path in PROGRAMS.glob("[a-z]*.py"))
WAYS = ("official", "exchanged", "paired")
SECONDARY = "secondary"
LISTENER = ("listener", "listen" * 8)

_FROM = "from azure.servicebus"
_FUTURE = "from __future__ import annotations\n"
# Where an application adds a line.
_PAIR = re.compile(r"^( *)# The pair is made here\.$", re.MULTILINE)
# Programs read the environment while they are loaded; it is one for all threads.
_environment = threading.Lock()


# -- the exchange ----------------------------------------------------------------------


def source_of(name: str) -> str:
    """A program as it was written."""
    return (PROGRAMS / f"{name}.py").read_text()


def exchanged(source: str) -> str:
    """The program for our client: another import and another class name."""
    # The class is imported alone, first, last, or on a line of its own.
    text = source.replace(f"{_FROM}.aio import ServiceBusClient\n", "")
    text = re.sub(rf"({_FROM}\S* import .*?)ServiceBusClient, ", r"\1", text)
    text = re.sub(rf"({_FROM}\S* import .*), ServiceBusClient\n", r"\1\n", text)
    text = text.replace("    ServiceBusClient,\n", "")
    text = text.replace("ServiceBusClient", "MessagingFactory")
    package = "twinbus.aio" if _is_async(source) else "twinbus"
    return text.replace(_FUTURE, f"{_FUTURE}from {package} import MessagingFactory\n")


def paired(source: str) -> str:
    """The exchanged program with the line that makes a pair."""
    wait = "await " if _is_async(source) else ""
    text, count = _PAIR.subn(rf"\1{wait}pair(client)", exchanged(source))
    assert count, "the program has no place for a pair"
    return text


def _is_async(source: str) -> bool:
    return f"{_FROM}.aio import" in source


_CHANGES: dict[str, Callable[[str], str]] = {
    "official": str,
    "exchanged": exchanged,
    "paired": paired,
}


# -- the run ---------------------------------------------------------------------------


def namespace_name(name: str, way: str) -> str:
    """Each run of a program has a namespace of its own."""
    return f"{way}-{name.replace('_', '-')}"


def run(server: Server, name: str, way: str) -> tuple[str, list[Any]]:
    """Run a program in one of the ways; returns what it printed and what it left."""
    text = _CHANGES[way](source_of(name))
    endpoint = server.namespaces[namespace_name(name, way)]
    pairs = _Pairs(server)
    printed = io.StringIO()
    scope: dict[str, Any] = {
        "__name__": name,
        "print": partial(print, file=printed),
        "pair": pairs.pair_async if _is_async(source_of(name)) else pairs.pair,
    }
    with _environment:
        before = dict(os.environ)
        os.environ.update(_variables(server, endpoint))
        try:
            exec(compile(text, f"{name} {way}", "exec"), scope)  # noqa: S102
        finally:
            os.environ.clear()
            os.environ.update(before)
    main = scope["main"]
    if inspect.iscoroutinefunction(main):
        asyncio.run(pairs.around(main))
    else:
        main()
        pairs.close()
    return printed.getvalue(), _left_behind(endpoint, server.ca_file)


def _variables(server: Server, endpoint: Endpoint) -> dict[str, str]:
    """Where the namespace is, as the programs read it."""
    now_s = int(time.time())
    return {
        "SERVICEBUS_CONNECTION_STR": endpoint.connection_string,
        "SERVICEBUS_LISTENER_STR": endpoint.signed(*LISTENER),
        # Nothing listens there: the port is one that only root may have.
        "SERVICEBUS_UNREACHABLE": "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=a;"
        "SharedAccessKey=b;UseDevelopmentEmulator=true;",
        "SERVICEBUS_NAMESPACE": "localhost",
        "SERVICEBUS_TLS_ENDPOINT": f"sb://localhost:{endpoint.amqps_port}",
        "SERVICEBUS_WEBSOCKET_ENDPOINT": f"sb://localhost:{endpoint.https_port}",
        "SERVICEBUS_CA_FILE": server.ca_file,
        "SERVICEBUS_KEY_NAME": DEV_KEY_NAME,
        "SERVICEBUS_KEY": DEV_KEY_TEXT,
        "SERVICEBUS_TOKEN": issuer.token(issuer.claims(now_s, roles=[issuer.OWNER])),
    }


class _Pairs:
    """Pairs factories with the secondary, and closes what that took."""

    def __init__(self, server: Server) -> None:
        self._endpoint = server.namespaces[SECONDARY]
        self._ca_file = server.ca_file
        self._made: list[Any] = []

    def pair(self, client: twinbus.MessagingFactory) -> None:
        client.pair_namespace(self._options(twinbus.MessagingFactory))

    async def pair_async(self, client: twinbus.aio.MessagingFactory) -> None:
        await client.pair_namespace(self._options(twinbus.aio.MessagingFactory))

    def _options(self, kind: Any) -> twinbus.SendAvailabilityPairedNamespaceOptions:
        manager = _administration(self._endpoint, self._ca_file)
        factory = kind.from_connection_string(self._endpoint.connection_string)
        self._made += [manager, factory]
        return twinbus.SendAvailabilityPairedNamespaceOptions(
            manager, factory, backlog_queue_count=1
        )

    async def around(self, main: Any) -> None:
        await main()
        for each in self._made:
            closing = each.close()
            if closing is not None:
                await closing

    def close(self) -> None:
        for each in self._made:
            each.close()


def _left_behind(endpoint: Endpoint, ca_file: str) -> list[Any]:
    """How many messages there are in each entity: ready, dead, scheduled."""
    with _administration(endpoint, ca_file) as client:
        found: list[Any] = [
            *client.list_queues_runtime_properties(),
            *client.list_subscriptions_runtime_properties("events"),
        ]
        waiting = client.get_topic_runtime_properties("events").scheduled_message_count
    counts = [
        (
            each.name,
            each.active_message_count,
            each.dead_letter_message_count,
            getattr(each, "scheduled_message_count", None),
        )
        for each in found
    ]
    return [*counts, waiting]


def _administration(endpoint: Endpoint, ca_file: str) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        endpoint.secured(f"localhost:{endpoint.https_port}"), connection_verify=ca_file
    )
