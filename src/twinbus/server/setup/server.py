"""Starts and stops a server: its namespaces, their hosts and their listeners.

Owns the order of things. To start: ports, folders, keys, configuration, hosts, and only
then clients, so that no client is let in before the namespace is whole. To stop:
listeners, connections, hosts, so that what was accepted is on disk. If a start fails
half way, what was opened is closed again. Knows nothing about the command line or about
what a connection does.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinbus import limits
from twinbus.clock import Clock, SystemClock
from twinbus.core.rights import JwtOptions
from twinbus.core.sas import Secret
from twinbus.core.tier import NamespaceTier
from twinbus.errors import ConfigError
from twinbus.ledger.files import writer_name
from twinbus.ledger.keeper import LedgerKeeper
from twinbus.ledger.schema import SERVER
from twinbus.ledger.writer import LedgerOptions, LedgerWriter
from twinbus.server.access.entrance import Entrance, ProtocolFactory
from twinbus.server.access.jwt import BearerTokens
from twinbus.server.access.memory import Ledger
from twinbus.server.access.port import NamespacePort
from twinbus.server.access.switchboard import Switchboard
from twinbus.server.broker.directory import keys
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.broker.faults import Faults
from twinbus.server.broker.host import Host
from twinbus.server.broker.load.facets import Thresholds
from twinbus.server.setup import listener
from twinbus.server.setup.diagnostics import load_all
from twinbus.server.setup.listener import ListenOptions
from twinbus.server.setup.load_watch import LoadWatch
from twinbus.server.setup.namespaces import (
    close_all,
    open_namespace,
    set_up,
    settle_hosts,
    start_hosts,
    stop_hosts,
)
from twinbus.server.setup.served_at import ServedAt
from twinbus.store.opening import DatabaseUrl
from twinbus.wire.performatives import Error

if TYPE_CHECKING:
    from twinbus.server.http.server import HttpServer
    from twinbus.server.setup.certificates import TlsOptions

log = logging.getLogger("twinbus.server")

_EVERY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - to compare with
_HTTP = "twinbus.server.http.server"

Connect = Callable[[NamespacePort], asyncio.Protocol]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What a server is asked to be."""

    namespaces: Sequence[NamespaceConfig]
    data: Path
    listen: ListenOptions
    # The emulator's documented key works, for loopback only; or another one.
    dev: bool = False
    dev_key: Secret = keys.DOCUMENTED_KEY
    tls: TlsOptions | None = None
    # Messages per second of each namespace that its configuration does not limit.
    message_rate: int | None = None
    # From where on a part of a namespace denies sends because of load.
    throttle: Thresholds | None = None
    # Whose bearer tokens are accepted, where the configuration does not say.
    jwt: JwtOptions | None = None
    # What namespaces allow whose configuration does not say; None: as before.
    tier: NamespaceTier | None = None
    # Whether `twinbus fault` may switch faults on.
    faults: bool = False
    # Whether `/$console/` is served; with `dev` it is in any case.
    console: bool = False
    # Messages and entities are gone when the server stops; for tests.
    in_memory: bool = False
    # Disk space that is kept for receiving and deleting, for each namespace; 0: none.
    reserve_bytes: int = 0
    # Parts of each namespace that its configuration says nothing of; None: as many as
    # its folder has.
    shards: int | None = None
    # Where namespaces are kept that several nodes share; None: in `data`.
    database: DatabaseUrl | None = None
    # The folder in which billable operations are counted; None: nowhere.
    ledger: Path | None = None
    # Sockets that another process has bound, as NAMESPACE.KIND (`handover.py`).
    sockets: Mapping[str, socket.socket] = field(default_factory=dict)


class Server:
    """A running server."""

    def __init__(
        self,
        options: ServerOptions,
        clock: Clock | None = None,
        connect: Connect | None = None,
    ) -> None:
        self.options = options
        # What `stop` waits for.
        self.stopping = "the server"
        self.ports: dict[str, NamespacePort] = {}
        self._clock = clock or SystemClock()
        self._connect = connect or _server_connection()
        self._tokens: dict[Host, BearerTokens] = {}
        self._memory = Ledger()
        throttle = options.throttle or Thresholds.by_default(dev=options.dev)
        self._load = LoadWatch(throttle)
        self._bound: dict[str, dict[str, socket.socket]] = {}
        self._ledgers: list[LedgerKeeper] = []
        self._entrances: list[Entrance] = []
        self._http: list[HttpServer] = []
        self._joining: asyncio.Task[None] | None = None
        self._tls: ssl.SSLContext | None = None
        self._ca_file: Path | None = None

    # -- starting ------------------------------------------------------------------

    async def start(self) -> dict[str, Any]:
        """Start everything; returns what the ready line says."""
        try:
            self._bind()
            self._prepare_tls()
            for config in self.options.namespaces:
                self._open(config)
                await settle_hosts(self.ports[config.name].host)
            hosts = {name.lower(): port.host for name, port in self.ports.items()}
            http_ports = {
                port.host: {
                    kind: number
                    for kind, number in self._ports_of(name).items()
                    if kind in listener.HTTP_KINDS
                }
                for name, port in self.ports.items()
            }
            for port in self.ports.values():
                port.hosts, port.http_ports = hosts, http_ports
                port.own_names = self._own_names()
            for name in self.ports:
                self._listen(name)
            if listener.HTTP_KINDS & set(self.options.listen.first_ports):
                self._joining = asyncio.create_task(self._join_http())
                self._joining.add_done_callback(_report)
            self._load.start()
        except BaseException:
            await self.stop()
            raise
        return self._ready()

    def _bind(self) -> None:
        """Take all ports first: a taken one is the most common mistake, and cheap."""
        options = self.options.listen
        listener.check_plaintext(options)
        names_given = [config.name for config in self.options.namespaces]
        handed = dict(self.options.sockets)
        for name, kinds in listener.plan_ports(options, names_given).items():
            sockets = self._bound.setdefault(name, {})
            for kind, port in kinds.items():
                bound = handed.pop(f"{name.lower()}.{kind}", None)
                if bound is None:
                    bound = listener.bind(options.host, port, kind)
                else:
                    listener.adopt(bound, kind, options, public=self._is_public)
                sockets[kind] = bound
        if handed:
            raise ConfigError(
                f"The socket {min(handed)} in LISTEN_FDNAMES is not served. Call each "
                "NAMESPACE.KIND, in lower case, and give that kind's port option."
            )

    def _prepare_tls(self) -> None:
        if not listener.TLS_KINDS & set(self.options.listen.first_ports):
            return
        from twinbus.server.setup.certificates import TlsOptions, prepare

        given = [config.name for config in self.options.namespaces]
        options = self.options.tls or TlsOptions()
        host = self.options.listen.host
        if host not in _EVERY_ADDRESS:
            # Clients may well use the address itself.
            options = replace(options, hosts=(*options.hosts, host))
        folder, now_ms = self.options.data / "tls", self._clock.now().wall_ms
        self._tls, self._ca_file = prepare(folder, given, options, now_ms)

    def _open(self, config: NamespaceConfig) -> None:
        config = replace(config, tier=config.tier or self.options.tier)
        jwt = config.jwt or self.options.jwt
        tokens = BearerTokens.load(jwt) if jwt else None
        rate = config.message_rate_per_second or self.options.message_rate
        data: Path | DatabaseUrl | None = self.options.database or self.options.data
        if self.options.in_memory:
            data = None
        wanted = config.shards or self.options.shards
        reserve_bytes = self.options.reserve_bytes
        opened = open_namespace(data, config.name, rate, reserve_bytes, wanted)
        try:
            for namespace in opened.shards:
                namespace.dev_key = self.options.dev_key if self.options.dev else None
            set_up(opened.shards, config, self._clock.now())
            host = start_hosts(opened, self._clock)
            for each in host.hosts:
                self._load.add(each)
        except BaseException:
            close_all(opened.shards)
            raise
        port = self.ports[config.name] = NamespacePort(host, self._tokens.get)
        port.memory = self._memory
        port.has_console = self.options.console or self.options.dev
        if len(self.options.namespaces) == 1 and self.options.data.is_dir():
            # A bundle is about the process: it names entities of all its namespaces.
            port.bundles = partial(load_all, self.options.data)
        self._count_in_ledger(port, config)
        if self.options.faults:
            faults = Faults()
            for namespace in opened.shards:
                namespace.faults = faults
            port.switchboard = Switchboard(port, faults)
        if tokens is not None:
            self._tokens[host] = tokens
        count = sum(1 for _entity in opened.shards.entities())
        log.info("namespace %s: %d entities", config.name, count)

    def _count_in_ledger(self, port: NamespacePort, config: NamespaceConfig) -> None:
        """Let operations on a namespace be counted, unless no ledger is asked for."""
        folder = self.options.ledger if config.ledger is None else config.ledger
        if not folder:
            return
        name = writer_name(socket.gethostname(), config.name)
        options = LedgerOptions(folder, name, config.name, SERVER, compacts_apart=True)
        keeper = LedgerKeeper(LedgerWriter(options), self._clock)
        keeper.start()
        self._ledgers.append(keeper)
        port.ledger = keeper
        for each in port.host.hosts:
            each.namespace.ledger = keeper.counts

    def _listen(self, name: str) -> None:
        port = self.ports[name]
        for kind, bound in self._bound[name].items():
            if kind in listener.HTTP_KINDS:
                # Clients that come before `_join_http` is done wait for it.
                listener.queue(bound, kind)
            else:
                self._serve(bound, kind, lambda: self._connect(port))

    def _serve(self, bound: socket.socket, kind: str, factory: ProtocolFactory) -> None:
        tls = self._tls if kind in listener.TLS_KINDS else None
        entrance = listener.listen(bound, kind, factory, tls, self._is_busy)
        self._entrances.append(entrance)

    def _is_busy(self) -> bool:
        """All namespaces share a loop, so one that has work is enough."""
        return any(port.is_busy() for port in self.ports.values())

    async def _join_http(self) -> None:
        """Serve HTTP as soon as its modules are there: a fifth of a start is theirs."""
        module = await asyncio.to_thread(importlib.import_module, _HTTP)
        for name, port in self.ports.items():
            sockets = self._bound[name].items()
            asked = {kind: s for kind, s in sockets if kind in listener.HTTP_KINDS}
            if asked:
                http = module.HttpServer(port, self._connect)
                self._http.append(http)
                for kind, bound in asked.items():
                    self._serve(bound, kind, http.protocol)

    @property
    def _is_public(self) -> bool:
        """Whether a key works that all the world knows."""
        return self.options.dev and self.options.dev_key == keys.DOCUMENTED_KEY

    # -- running -------------------------------------------------------------------

    @property
    def sockets(self) -> dict[str, socket.socket]:
        """All listening sockets, as NAMESPACE.KIND."""
        return {
            f"{name.lower()}.{kind}": bound
            for name, sockets in self._bound.items()
            for kind, bound in sockets.items()
        }

    def _own_names(self) -> frozenset[str]:
        """The names of this server that the operator has given."""
        given = [self.options.listen.host]
        if self.options.tls is not None:
            given += self.options.tls.hosts
        for name in self.ports:
            given += [name, f"{name}.servicebus.windows.net"]
        return frozenset(name.lower() for name in given)

    def _ready(self) -> dict[str, Any]:
        namespaces = {name: self._ready_namespace(name) for name in self.ports}
        ca_file = str(self._ca_file.resolve()) if self._ca_file else None
        return {"ready": True, "ca_file": ca_file, "namespaces": namespaces}

    def _ports_of(self, name: str) -> dict[str, int]:
        sockets = self._bound[name].items()
        return {kind: bound.getsockname()[1] for kind, bound in sockets}

    def _ready_namespace(self, name: str) -> dict[str, Any]:
        ports = self._ports_of(name)
        described: dict[str, Any] = {**self._strings(name, ports)}
        for kind in listener.KINDS:
            described[f"{kind}_port"] = ports.get(kind)
        hosts = self.ports[name].host.hosts
        about = hosts[0].namespace.store.about()
        if "durability" in about:
            described["durability"] = about["durability"]
        if len(hosts) > 1:
            described["shards"] = len(hosts)
            away = [each.namespace.shard for each in hosts if each.fault is not None]
            described["shards_away"] = away
        return described

    def _strings(self, name: str, ports: dict[str, int]) -> dict[str, str | None]:
        """The connection strings; with a key only if it is that of `--dev`."""
        host = self.options.listen.host
        if host in _EVERY_ADDRESS:
            host = "localhost"
        served_at = ServedAt(host, ports, self.options.dev)
        if not self.options.in_memory and self.options.database is None:
            try:
                served_at.remember(self.options.data / name.lower())
            except OSError as error:
                # It is for `twinbus keys` alone: no reason not to serve.
                log.warning("the ports are not remembered: %s", error.strerror)
        if not self.options.dev:
            return served_at.strings(keys.ROOT_RULE_NAME, None)
        rules = self.ports[name].host.namespace.rules_of("")
        root = keys.find_rule(rules, keys.ROOT_RULE_NAME)
        return served_at.strings(root.name, root.primary_key)

    # -- stopping ------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop accepting, close the connections and the stores. Safe to call twice.

        Waits for its disks; `stopping` says for which.
        """
        self._load.stop()
        if self._joining is not None:
            self._joining.cancel()
            await asyncio.wait([self._joining])
        entrances, self._entrances = self._entrances, []
        for entrance in entrances:
            entrance.close()
        ports, self.ports = self.ports, {}
        await _close_connections(list(ports.values()))
        https, self._http = self._http, []
        for http in https:
            await http.close()
        for name, port in ports.items():
            self.stopping = f"namespace {name}"
            if port.switchboard is not None:
                port.switchboard.close()
            await stop_hosts(port.host)
        self.stopping = "the ledger"
        ledgers, self._ledgers = self._ledgers, []
        for ledger in ledgers:
            await ledger.close()
        bound, self._bound = self._bound, {}
        for sockets in bound.values():
            for taken in sockets.values():
                taken.close()


async def _close_connections(ports: Sequence[NamespacePort]) -> None:
    """Tell all clients, and wait a little for those that read slowly."""
    text = "The server is shutting down. Connect again."
    error = Error(condition="amqp:connection:forced", description=text)
    for port in ports:
        for connection in list(port.connections):
            connection.close(error)
    loop = asyncio.get_running_loop()
    end = loop.time() + limits.SERVER_CLOSE_SECONDS_MAX
    # Connections come and go by themselves, so there is no event to wait for.
    while any(p.connections for p in ports) and loop.time() < end:  # noqa: ASYNC110
        await asyncio.sleep(limits.SERVER_CLOSE_POLL_SECONDS)
    for port in ports:
        for connection in list(port.connections):
            connection.drop("it has not read the end")


def _report(task: asyncio.Task[None]) -> None:
    """A start that went wrong after it was ready is at least said."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("HTTP is not served: %s", error)


def _server_connection() -> Connect:
    # Not above: a connection knows ports, and tests of this file need none.
    from twinbus.server.amqp.connection import ServerConnection

    return ServerConnection


__all__ = ["Server", "ServerOptions"]
