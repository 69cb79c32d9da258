"""RabbitMQ as a peer: Debian's broker, run privately beside whatever else is there.

Owns its start and its end, of one node or of several. Everything it needs (node name,
database, log, plugins, cookie, name server) lies in a folder of its own and listens on
loopback only, so the machine's own broker, if there is one, is neither used nor
disturbed.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from bench.peer import free_port, stop, wait_until_started
from bench.target import Missing, Target

# The script behind Debian's wrapper, which would change to a user of its own.
SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
PLUGINS = "[rabbitmq_amqp1_0, rabbitmq_shovel, rabbitmq_shovel_management]."
_CONFIG = """\
listeners.tcp.local = 127.0.0.1:{amqp_port}
management.tcp.ip = 127.0.0.1
management.tcp.port = {http_port}
# Otherwise a full disk of the machine would block the sender.
disk_free_limit.absolute = 50MB
log.file.level = warning
"""


@contextmanager
def rabbitmq(folder: Path) -> Iterator[Target | Missing]:
    """Run a broker until the block ends; says why if there can be none."""
    with rabbitmq_nodes(folder, 1) as targets:
        yield targets if isinstance(targets, Missing) else targets[0]


@contextmanager
def rabbitmq_nodes(folder: Path, count: int) -> Iterator[list[Target] | Missing]:
    """Run the nodes of one broker until the block ends."""
    epmd = shutil.which("epmd")
    if not SERVER.exists() or epmd is None:
        yield Missing("rabbitmq", "rabbitmq-server is not installed: make peers")
        return
    folder.mkdir(parents=True)
    names_port = free_port()
    names = [f"twinbus-bench-{os.getpid()}-{n}@localhost" for n in range(count)]
    with ExitStack() as stack:
        log = stack.enter_context((folder / "start.log").open("wb"))

        def start(command: str, environment: dict[str, str]) -> subprocess.Popen[bytes]:
            child = subprocess.Popen(
                [command], env=environment, cwd=folder, stdout=log, stderr=log
            )
            # The brokers end before the name server that they are registered with.
            stack.callback(stop, child)
            return child

        start(epmd, _environment(folder, folder, names[0], names_port))
        targets: list[Target] = []
        for name in names:
            own = folder if count == 1 else folder / name
            environment = _environment(folder, own, name, names_port)
            target = _prepare(own, names, environment)
            broker = start(str(SERVER), environment)
            found = wait_until_started(
                "rabbitmq",
                replace(target, pid=broker.pid),
                broker,
                folder / "start.log",
            )
            if isinstance(found, Missing):
                yield found
                return
            targets.append(found)
        yield targets


def _prepare(own: Path, names: list[str], environment: dict[str, str]) -> Target:
    """Write what one node reads at its start; says where it will be."""
    own.mkdir(parents=True, exist_ok=True)
    amqp_port, http_port = free_port(), free_port()
    config = _CONFIG.format(amqp_port=amqp_port, http_port=http_port)
    if len(names) > 1:
        config += "cluster_formation.peer_discovery_backend = classic_config\n"
        for number, name in enumerate(names, 1):
            config += f"cluster_formation.classic_config.nodes.{number} = {name}\n"
    (own / "rabbitmq.conf").write_text(config)
    (own / "enabled_plugins").write_text(PLUGINS)
    (own / "env.conf").write_text("")
    # For programs that give commands to this broker.
    given = {
        name: value
        for name, value in environment.items()
        if name.startswith(("HOME", "RABBITMQ_", "ERL_"))
    }
    (own / "environment.json").write_text(json.dumps(given))
    # It gives credit for 65,536, and is a tenth faster when fewer are on their way.
    return Target(
        "127.0.0.1",
        amqp_port,
        "/queue/{}",
        "guest",
        "guest",
        window=1000,
        http_port=http_port,
    )


def make_quorum_queue(targets: list[Target], queue: str) -> list[Target]:
    """Make a queue with a copy on each node; returns how clients find it."""
    url = f"http://127.0.0.1:{targets[0].http_port}/api/queues/%2F/{queue}"
    body = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
    login = base64.b64encode(b"guest:guest").decode()
    request = urllib.request.Request(
        url,
        json.dumps(body).encode(),
        {"Authorization": f"Basic {login}", "Content-Type": "application/json"},
        method="PUT",
    )
    with urllib.request.urlopen(request):  # noqa: S310 - loopback
        return [replace(target, address="/amq/queue/{}") for target in targets]


def _environment(
    home: Path, folder: Path, name: str, names_port: int
) -> dict[str, str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("RABBITMQ_", "ERL_"))
    }
    return environment | {
        # All nodes have the cookie that is there.
        "HOME": str(home),
        # The script then becomes the broker, so that its process is ours to stop.
        "RUNNING_UNDER_SYSTEMD": "true",
        "ERL_EPMD_PORT": str(names_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": name,
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
            "-kernel inet_dist_use_interface {127,0,0,1}"
        ),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "env.conf"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
    }
