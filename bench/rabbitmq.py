"""RabbitMQ as a peer: Debian's broker, run privately beside whatever else is there.

Owns its start and its end. Everything it needs (node name, database, log, plugins,
cookie, name server) lies in a folder of its own and listens on loopback only, so the
machine's own broker, if there is one, is neither used nor disturbed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
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
    epmd = shutil.which("epmd")
    if not SERVER.exists() or epmd is None:
        yield Missing("rabbitmq", "rabbitmq-server is not installed: make peers")
        return
    folder.mkdir(parents=True)
    amqp_port, http_port, names_port = free_port(), free_port(), free_port()
    environment = _environment(folder, names_port)
    config = _CONFIG.format(amqp_port=amqp_port, http_port=http_port)
    (folder / "rabbitmq.conf").write_text(config)
    (folder / "enabled_plugins").write_text(PLUGINS)
    (folder / "env.conf").write_text("")
    # For programs that give commands to this broker.
    own = {
        name: value
        for name, value in environment.items()
        if name.startswith(("HOME", "RABBITMQ_", "ERL_"))
    }
    (folder / "environment.json").write_text(json.dumps(own))
    # It gives credit for 65,536, and is a tenth faster when fewer are on their way.
    target = Target("127.0.0.1", amqp_port, "/queue/{}", "guest", "guest", window=1000)
    log = (folder / "start.log").open("wb")
    children: list[subprocess.Popen[bytes]] = []
    try:
        for command in ([epmd, "-port", str(names_port)], [str(SERVER)]):
            child = subprocess.Popen(
                command, env=environment, cwd=folder, stdout=log, stderr=log
            )
            children.append(child)
        broker = children[1]
        yield wait_until_started(
            "rabbitmq",
            replace(target, pid=broker.pid),
            broker,
            folder / "start.log",
        )
    finally:
        # The broker before the name server that it is registered with.
        for child in reversed(children):
            stop(child)
        log.close()


def _environment(folder: Path, names_port: int) -> dict[str, str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("RABBITMQ_", "ERL_"))
    }
    return environment | {
        "HOME": str(folder),
        # The script then becomes the broker, so that its process is ours to stop.
        "RUNNING_UNDER_SYSTEMD": "true",
        "ERL_EPMD_PORT": str(names_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"twinbus-bench-{os.getpid()}@localhost",
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
