"""A namespace on several nodes, each a process, with one PostgreSQL.

Owns the start and the end of the nodes. They have the same entities and a database of
their own on a server that may be shared.
"""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusClient
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus.core.sas import DEV_KEY_NAME, DEV_KEY_TEXT, Secret, make_token
from twinbus.testing.server_process import ServerProcess

# The year 2100.
NEVER_S = 4_102_444_800


class Cluster:
    """Nodes that serve one namespace."""

    def __init__(self, nodes: list[ServerProcess], url: str) -> None:
        self.nodes = nodes
        self.url = url
        self._stack = contextlib.ExitStack()

    def client(self, node: int) -> ServiceBusClient:
        """The official client, connected to one node."""
        text = self.nodes[node].connection_string
        client = ServiceBusClient.from_connection_string(text, retry_total=0)
        return self._stack.enter_context(client)

    def admin(self, node: int) -> ServiceBusAdministrationClient:
        """The official administration client, connected to one node."""
        text = self.nodes[node].admin_connection_string
        client = ServiceBusAdministrationClient.from_connection_string(
            text, connection_verify=self.nodes[node].ca_file
        )
        return self._stack.enter_context(client)

    def health(self, node: int) -> dict[str, Any]:
        """What a node says of itself."""
        port = self.nodes[node].ports["http"]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                text = error.read()
        found: dict[str, Any] = json.loads(text)
        return found

    def post(self, node: int, queue: str, body: bytes) -> int:
        """Send a message over HTTP; returns the status."""
        port = self.nodes[node].ports["http"]
        url = f"http://127.0.0.1:{port}/{queue}/messages"
        token = make_token(url, DEV_KEY_NAME, Secret(DEV_KEY_TEXT), NEVER_S)
        headers = {"Authorization": token}
        request = urllib.request.Request(url, body, headers, method="POST")
        try:
            with urllib.request.urlopen(request) as answer:  # noqa: S310
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    def close(self) -> None:
        self._stack.close()


@contextlib.contextmanager
def cluster(
    folder: Path,
    url: str,
    entities: Mapping[str, Any],
    count: int = 3,
    shards: int = 1,
) -> Iterator[Cluster]:
    """Run nodes until the block ends; fails if one of them has met a defect."""
    options = ["--database", url, "--shards", str(shards)]
    with contextlib.ExitStack() as stack:
        nodes = []
        for number in range(count):
            node = ServerProcess(folder / str(number), entities, options=options)
            nodes.append(stack.enter_context(node))
        site = Cluster(nodes, url)
        stack.callback(site.close)
        yield site
    for node in nodes:
        said = node.log.read_text()
        assert "Traceback" not in said, said
