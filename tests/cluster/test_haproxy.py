"""HAProxy with the configuration of the guide: clients go on at another node."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.cluster.site import Cluster, cluster
from tests.cluster.test_faults import until
from tests.postgres import shared_server
from tests.printed import blocks

PAGE = "docs/cluster.md"
# A user's own path may not have the folder that Debian puts it into.
HAPROXY = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
ENTITIES = {"queues": [{"name": "orders"}]}

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"),
    pytest.mark.timeout(120),
    pytest.mark.skipif(HAPROXY is None, reason="needs haproxy"),
]


def configuration(site: Cluster, amqp_port: int, https_port: int) -> str:
    """The block of the guide, with the addresses of nodes on this machine."""
    [(_, text)] = blocks(PAGE, __file__)
    text = text.replace("bind :5671", f"bind 127.0.0.1:{amqp_port}")
    text = text.replace("bus.example.org", "localhost")
    text = text.replace("bind :443", f"bind 127.0.0.1:{https_port}")
    for number, node in enumerate(site.nodes, 1):
        https = node.ports["https"]
        for kind, port in (("amqp", 5671), ("https", 443)):
            here = f"127.0.0.1:{node.ports[kind]} port {https}"
            text = text.replace(f"10.0.0.1{number}:{port}", here)
    return f"global\n    maxconn 500\n\n{text}"


def free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


@contextlib.contextmanager
def haproxy(site: Cluster, folder: Path) -> Iterator[int]:
    """Run it until the block ends; gives the port for AMQP."""
    amqp_port, https_port = free_ports()
    config = folder / "haproxy.cfg"
    config.write_text(configuration(site, amqp_port, https_port))
    with (folder / "haproxy.log").open("wb") as log:
        assert HAPROXY is not None
        command = [HAPROXY, "-db", "-f", str(config)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            until(lambda: is_open(amqp_port))
            yield amqp_port
        finally:
            process.terminate()
            process.wait(30)


def is_open(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def test_clients_go_on_when_all_nodes_but_one_are_killed(tmp_path: Path) -> None:
    url = shared_server().new_database()
    with cluster(tmp_path, url, ENTITIES) as site, haproxy(site, tmp_path) as port:
        text = site.nodes[0].connection_string_through(port)
        with ServiceBusClient.from_connection_string(text) as client:
            sent = send_and_kill(client, site)
            found = receive_all(client, len(sent))

    assert found == sent


def send_and_kill(client: ServiceBusClient, site: Cluster) -> set[str]:
    """Send through one connection, and kill node after node but the last."""
    sent: set[str] = set()
    with client.get_queue_sender("orders") as sender:
        for node in site.nodes:
            for number in range(3):
                text = f"{node.ports['amqp']}-{number}"
                sender.send_messages(ServiceBusMessage(text))
                sent.add(text)
            if node is not site.nodes[-1]:
                node.kill()
    return sent


def receive_all(client: ServiceBusClient, count: int) -> set[str]:
    found: set[str] = set()
    with client.get_queue_receiver("orders") as receiver:
        while len(found) < count:
            for message in receiver.receive_messages(20, max_wait_time=30):
                found.add(str(message))
                receiver.complete_message(message)
    return found
