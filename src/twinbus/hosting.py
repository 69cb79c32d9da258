"""The server in a thread of this process, with one namespace that is kept in a folder.

Owns the thread, its event loop and the way in: loopback only, on free ports, with the
random key that is in the folder, for the folder's owner alone. A folder belongs to one
process at a time, and a restart finds all that was accepted. What is served stays until
it is stopped. Knows nothing about pairs: `embedding.py` gives such a namespace to an
application, and a pair with an outbox starts one for itself.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from twinbus.client.transport.loop_thread import LoopThread
from twinbus.core import sas
from twinbus.core.entity import QueueDescription
from twinbus.core.names import SubQueue
from twinbus.errors import ConfigError
from twinbus.server.broker.directory import keys
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.server.setup.listener import ListenOptions
from twinbus.server.setup.server import Server, ServerOptions

_HOST = "127.0.0.1"
NAME = "embedded"
# What is served stays until it is stopped, also if the application keeps only a
# connection to it: a thread ends with the last reference to it.
serving: set[ServerThread] = set()


@dataclass(frozen=True, slots=True)
class HostingOptions:
    """How a folder is served."""

    name: str = NAME
    # What listens: `https` is for administration clients.
    kinds: tuple[str, ...] = ("amqp", "https")
    # Made at the start if they are missing.
    queues: tuple[QueueDescription, ...] = ()
    # What the caller's parameter with the folder is called, for errors.
    parameter: str = "path"


class QueueFigures(NamedTuple):
    """What one queue holds now."""

    messages: int
    dead_lettered: int
    # When the oldest message came; None if there is none.
    oldest_ms: int | None


class ServerThread:
    """The server in its thread, from the start on."""

    def __init__(
        self, path: str | os.PathLike[str], options: HostingOptions | None = None
    ) -> None:
        asked = options or HostingOptions()
        name = asked.name
        self._server = Server(
            ServerOptions(
                [NamespaceConfig(name, asked.queues)],
                Path(path),
                ListenOptions(_HOST, dict.fromkeys(asked.kinds, 0)),
            )
        )
        self._thread = LoopThread("twinbus-embedded")
        try:
            ready = self._thread.run(self._server.start)
        except ConfigError as error:
            self._thread.stop()
            # The server's own users would know it by this name.
            text = error.text.replace("--data", asked.parameter)
            raise ConfigError(text) from None
        except BaseException:
            self._thread.stop()
            raise
        self._host = self._server.ports[name].host
        rules = self._host.namespace.rules
        self._root = keys.find_rule(rules, keys.ROOT_RULE_NAME)
        self._ports: dict[str, Any] = ready["namespaces"][name]
        self.ca_file: str = ready["ca_file"]
        serving.add(self)

    def connection_string(self, kind: str = "amqp") -> str:
        """What clients connect with; it carries the key."""
        root, port = self._root, self._ports[f"{kind}_port"]
        # Without TLS, which is what `dev` says, loopback needs no certificate.
        dev = kind == "amqp"
        return sas.format_connection_string(
            _HOST, port, root.name, root.primary_key, dev=dev
        )

    def queues(self) -> dict[str, QueueFigures]:
        """What every queue holds, by its path in lower case. Blocks for a turn."""
        return self._thread.run(lambda: self._host.run(_figures))

    def stop(self) -> None:
        """Stop it; in a child process there is none to stop."""
        serving.discard(self)
        if self._thread.usable:
            try:
                self._thread.run(self._server.stop)
            finally:
                self._thread.stop()


def _figures(namespace: Namespace, turn: Turn) -> dict[str, QueueFigures]:
    """Read the figures of all queues (`turn.Command`)."""
    queues = [entity for entity in namespace.entities if entity.kind == "queue"]
    return {
        entity.name.lower(): _figures_of(entity, namespace, turn) for entity in queues
    }


def _figures_of(entity: Entity, namespace: Namespace, turn: Turn) -> QueueFigures:
    store = namespace.store
    main = store.counts(entity.id)
    dead = store.counts(entity.container(SubQueue.DEAD_LETTER))
    oldest = store.peek(entity.id, 0, 1, turn.now, None) if main.active else []
    return QueueFigures(
        main.active, dead.active, oldest[0].enqueued_ms if oldest else None
    )
