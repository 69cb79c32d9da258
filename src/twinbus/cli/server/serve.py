"""`twinbus serve`: runs namespaces until a signal comes.

Owns the meaning of its options, the ready line on standard output (the only line there)
and the log on standard error, one line per event.
"""

from __future__ import annotations

import gc
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from twinbus import limits
from twinbus.cli.secret import database_url, dev_key
from twinbus.cli.server.logs import log_to_stderr
from twinbus.core.tier import NamespaceTier
from twinbus.errors import ConfigError

if TYPE_CHECKING:
    from twinbus.core.rights import JwtOptions
    from twinbus.core.sas import Secret
    from twinbus.server.broker.directory.config import NamespaceConfig
    from twinbus.server.broker.load.facets import Thresholds
    from twinbus.server.setup.server import Server, ServerOptions
    from twinbus.server.setup.supervised import Supervised

# The name in Microsoft's sample of a Config.json.
DEV_NAMESPACE = "sbemulatorns"
DEV_HOST = "127.0.0.1"
DEV_PORTS = {"amqp": 5672, "http": 5300}
TLS_HOST = "0.0.0.0"  # noqa: S104 - what a server is for; in TLS only
TLS_PORTS = {"amqps": 5671, "https": 443}
DATA = Path("twinbus-data")
# The folder of the ledger, below that of the data.
_LEDGER = "ledger"


app = typer.Typer()

_PORT = "The first namespace's {}; the next ones count up, 0 picks free ones."

Names = Annotated[
    list[str] | None,
    typer.Option(
        "--namespace",
        metavar="NAME",
        help="A namespace to serve; several. Otherwise those of --config.",
    ),
]
Dev = Annotated[
    bool,
    typer.Option(
        "--dev",
        help="Loopback only, in clear text, with the emulator's known key. With a key "
        "of your own in TWINBUS_KEY also on another --host.",
    ),
]
Data = Annotated[Path, typer.Option(help="The folder that keeps everything.")]
ListenHost = Annotated[str | None, typer.Option(help="The address to listen on.")]
AmqpPort = Annotated[int | None, typer.Option(help=_PORT.format("port for AMQP"))]
AmqpsPort = Annotated[int | None, typer.Option(help=_PORT.format("port for AMQP, TLS"))]
HttpPort = Annotated[int | None, typer.Option(help=_PORT.format("port for HTTP"))]
HttpsPort = Annotated[int | None, typer.Option(help=_PORT.format("port for HTTPS"))]
Config = Annotated[
    Path | None,
    typer.Option(help="Entities: YAML, JSON, or the emulator's Config.json."),
]
AllowPlaintext = Annotated[
    bool,
    typer.Option(
        "--allow-plaintext",
        help="Let keys and messages cross the network in clear text.",
    ),
]
Certificates = Annotated[
    list[Path] | None,
    typer.Option(
        "--certificate",
        metavar="FILE",
        help="A certificate chain; several by host name.",
    ),
]
PrivateKeys = Annotated[
    list[Path] | None,
    typer.Option(
        "--private-key", metavar="FILE", help="Its key, in the order of --certificate."
    ),
]
TlsHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--tls-host",
        metavar="HOST",
        help="One more name in the server's own certificate.",
    ),
]
MessageRate = Annotated[
    int | None,
    typer.Option(min=1, help="Messages per second that a namespace accepts."),
]
ThrottleCommit = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="SECONDS",
        help="Deny sends above this commit latency: to entities that get more than "
        "their share, and from four times this on to all; 0 for never. Otherwise "
        f"{limits.THROTTLE_COMMIT_SECONDS}, with --dev never.",
    ),
]
ThrottlePending = Annotated[
    int,
    typer.Option(
        min=0, metavar="BYTES", help="The same for bytes that wait to be written."
    ),
]
ThrottleLag = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="SECONDS",
        help="The same for the lag of the event loop; otherwise "
        f"{limits.THROTTLE_LAG_SECONDS}, with --dev never.",
    ),
]
MemoryLimit = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="BYTES",
        help="Deny all sends above this memory, and some from 90 % on; 0 for never. "
        "Otherwise 80 % of what the container or machine has.",
    ),
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL",
        help="Keep the namespaces in PostgreSQL, which several servers may share: "
        "postgresql://USER:PASSWORD@HOST/NAME, @FILE or env:NAME.",
    ),
]
Reserve = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="BYTES",
        help="Disk space that each namespace keeps for receiving; 0 for none. "
        "Otherwise 128 MiB or 5 % of the disk, and with --dev none.",
    ),
]
Shards = Annotated[
    int | None,
    typer.Option(
        help="Parts of each namespace that can fail one by one, each with a database "
        "of its own; can be raised later, never lowered. In a --database they take "
        "turns side by side, and their number is fixed. Otherwise as before, or 1.",
    ),
]
TierOption = Annotated[
    NamespaceTier | None,
    typer.Option(
        "--tier",
        help="standard refuses messages over 256 KB, and queues and topics that ask "
        "for them. Otherwise as before, or premium.",
    ),
]
JwtIssuer = Annotated[
    str | None,
    typer.Option(help="Accept bearer tokens of this issuer; needs --jwt-jwks."),
]
JwtJwks = Annotated[
    Path | None, typer.Option(help="A JWKS file with the issuer's public keys.")
]
JwtAudience = Annotated[
    str | None,
    typer.Option(
        help="Whom the tokens are for; otherwise https://servicebus.azure.net."
    ),
]
Rehearse = Annotated[
    bool,
    typer.Option(
        "--faults", help="Let `twinbus fault` switch faults on, to rehearse outages."
    ),
]
ConsoleOn = Annotated[
    bool,
    typer.Option(
        "--console",
        help="Serve the console for browsers at /$console/; with --dev it is served in "
        "any case.",
    ),
]
LedgerFolder = Annotated[
    Path | None,
    typer.Option(
        "--ledger",
        metavar="DIR",
        help="Where billable operations are counted, as Parquet files; otherwise in "
        "the folder ledger of --data.",
    ),
]
NoLedger = Annotated[bool, typer.Option("--no-ledger", help="Count nothing.")]
NoSupervisor = Annotated[
    bool,
    typer.Option(
        "--no-supervisor",
        help="Serve in this process, where systemd or a container restarts it.",
    ),
]
LogLevel = Annotated[str, typer.Option(help="debug, info, warning or error.")]
LogFormat = Annotated[str, typer.Option(help="text, or json: an object per line.")]


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options as they were given."""

    names: list[str]
    dev: bool
    data: Path
    host: str | None
    ports: Mapping[str, int | None]
    config: Path | None
    allow_plaintext: bool
    certificates: list[Path]
    private_keys: list[Path]
    tls_hosts: list[str]
    message_rate: int | None
    # With --dev: instead of the documented key.
    dev_key: Secret | None = None
    # As `Thresholds` takes them.
    throttle: tuple[Any, ...] = (None, limits.THROTTLE_PENDING_BYTES, None, None)
    database: str | None = None
    reserve: int | None = None
    shards: int | None = None
    tier: NamespaceTier | None = None
    faults: bool = False
    console: bool = False
    # False for none, None for the usual place.
    ledger: Path | Literal[False] | None = None
    # The issuer, the file with its keys and the audience of bearer tokens.
    jwt: tuple[str | None, Path | None, str | None] = (None, None, None)


@app.command()
def serve(
    namespace: Names = None,
    dev: Dev = False,
    data: Data = DATA,
    host: ListenHost = None,
    amqp_port: AmqpPort = None,
    amqps_port: AmqpsPort = None,
    http_port: HttpPort = None,
    https_port: HttpsPort = None,
    config: Config = None,
    allow_plaintext: AllowPlaintext = False,
    certificate: Certificates = None,
    private_key: PrivateKeys = None,
    tls_host: TlsHosts = None,
    message_rate: MessageRate = None,
    throttle_commit: ThrottleCommit = None,
    throttle_pending: ThrottlePending = limits.THROTTLE_PENDING_BYTES,
    throttle_lag: ThrottleLag = None,
    memory_limit: MemoryLimit = None,
    database: DatabaseOption = None,
    reserve: Reserve = None,
    shards: Shards = None,
    tier: TierOption = None,
    faults: Rehearse = False,
    console: ConsoleOn = False,
    ledger: LedgerFolder = None,
    no_ledger: NoLedger = False,
    jwt_issuer: JwtIssuer = None,
    jwt_jwks: JwtJwks = None,
    jwt_audience: JwtAudience = None,
    no_supervisor: NoSupervisor = False,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
) -> None:
    """Run namespaces until SIGTERM or SIGINT. Prints a JSON line when ready."""
    del no_supervisor  # `main.py` has looked at it: this is the server.
    given = ServeOptions(
        names=namespace or [],
        dev=dev,
        data=data,
        host=host,
        ports=_ports(amqp_port, amqps_port, http_port, https_port),
        config=config,
        allow_plaintext=allow_plaintext,
        certificates=certificate or [],
        private_keys=private_key or [],
        tls_hosts=tls_host or [],
        message_rate=message_rate,
        throttle=(throttle_commit, throttle_pending, throttle_lag, memory_limit),
        database=database,
        reserve=reserve,
        shards=shards,
        tier=tier,
        faults=faults,
        console=console,
        ledger=_ledger_asked(ledger, no_ledger),
        jwt=(jwt_issuer, jwt_jwks, jwt_audience),
    )
    _start(given, log_level, log_format)


def _ports(*given: int | None) -> Mapping[str, int | None]:
    return dict(zip(("amqp", "amqps", "http", "https"), given, strict=True))


def _start(given: ServeOptions, log_level: str, log_format: str) -> None:
    from twinbus.server.setup.handover import received
    from twinbus.server.setup.supervised import Supervised

    log_to_stderr(log_level, log_format)
    supervised = Supervised.here()
    if given.dev:
        given = replace(given, dev_key=dev_key())
    options = replace(options_from(given), sockets=received())
    about = {"log_level": log_level, "log_format": log_format}
    about["data"] = str(given.data.resolve())
    _run(options, supervised, about)


def _thresholds(given: ServeOptions) -> Thresholds:
    """From where on sends are denied; options come before what is the default."""
    from twinbus.server.broker.load.facets import Thresholds

    default = Thresholds.by_default(dev=given.dev)
    commit, pending, lag, memory = given.throttle
    return Thresholds(
        default.commit_seconds if commit is None else commit,
        pending,
        default.lag_seconds if lag is None else lag,
        memory,
    )


def options_from(given: ServeOptions) -> ServerOptions:
    """What the server is asked to be; refuses options that contradict each other."""
    from twinbus.server.access.port import is_loopback
    from twinbus.server.broker.directory.keys import DOCUMENTED_KEY
    from twinbus.server.setup.certificates import TlsOptions
    from twinbus.server.setup.listener import ListenOptions
    from twinbus.server.setup.server import ServerOptions

    host = given.host or (DEV_HOST if given.dev else TLS_HOST)
    if given.dev and given.dev_key is None and not is_loopback(host):
        raise ConfigError(
            f"--dev uses a published key, so it cannot listen on {host}. Give a key of "
            "your own in the environment (TWINBUS_KEY), or leave --host or --dev out."
        )
    if len(given.certificates) != len(given.private_keys):
        raise ConfigError("Give one --private-key for each --certificate.")
    _check_shards(given)
    defaults = DEV_PORTS if given.dev else TLS_PORTS
    asked = {kind: port for kind, port in given.ports.items() if port is not None}
    # Any port without --dev says what is wanted; the defaults are for those who do not.
    ports = {**defaults, **asked} if given.dev or not asked else asked
    reserve_bytes = given.reserve
    if reserve_bytes is None:
        # Tests and laptops have many folders, and their messages are not worth it.
        reserve_bytes = 0 if given.dev else limits.RESERVE_BYTES_MAX
    pairs = zip(given.certificates, given.private_keys, strict=True)
    namespaces = _namespaces(given)
    if given.ledger is False:
        namespaces = [replace(each, ledger=False) for each in namespaces]
    return ServerOptions(
        namespaces=namespaces,
        data=given.data,
        listen=ListenOptions(
            host, ports, given.allow_plaintext or given.dev_key is not None
        ),
        dev=given.dev,
        dev_key=given.dev_key or DOCUMENTED_KEY,
        tls=TlsOptions(tuple(pairs), tuple(given.tls_hosts)),
        message_rate=given.message_rate,
        throttle=_thresholds(given),
        reserve_bytes=reserve_bytes,
        database=None if given.database is None else database_url(given.database),
        shards=given.shards,
        tier=given.tier,
        faults=given.faults,
        console=given.console,
        ledger=_ledger(given, namespaces),
        jwt=_jwt(given),
    )


def _check_shards(given: ServeOptions) -> None:
    if given.shards is not None and not 1 <= given.shards <= limits.SHARDS_MAX:
        raise ConfigError(
            f"--shards {given.shards} is not possible. A namespace has 1 to "
            f"{limits.SHARDS_MAX}."
        )


def _ledger_asked(folder: Path | None, none: bool) -> Path | Literal[False] | None:
    if none and folder is not None:
        raise ConfigError("--ledger and --no-ledger contradict each other.")
    return False if none else folder


def _ledger(given: ServeOptions, namespaces: list[NamespaceConfig]) -> Path | None:
    """The folder of the ledger; None for none."""
    if given.ledger is False:
        return None
    folder = given.ledger or given.data / _LEDGER
    taken = {given.data / each.name.lower() for each in namespaces}
    if folder in taken:
        raise ConfigError(
            f"{folder} is the folder of a namespace. Give another one for the ledger "
            "with --ledger DIR, or --no-ledger."
        )
    return folder


def _jwt(given: ServeOptions) -> JwtOptions | None:
    from twinbus.core.rights import AUDIENCE, JwtOptions

    issuer, jwks, audience = given.jwt
    if issuer is None and jwks is None:
        if audience is not None:
            raise ConfigError("--jwt-audience needs --jwt-issuer and --jwt-jwks.")
        return None
    if issuer is None or jwks is None:
        raise ConfigError(
            "--jwt-issuer and --jwt-jwks belong together: one says whose tokens are "
            "accepted, the other holds the keys that prove them."
        )
    return JwtOptions(issuer, jwks, audience or AUDIENCE)


def _namespaces(given: ServeOptions) -> list[NamespaceConfig]:
    from twinbus.core.names import check_namespace_name
    from twinbus.server.broker.directory.config import NamespaceConfig
    from twinbus.server.setup.config import load_config

    configured = load_config(given.config) if given.config else []
    by_key = {config.name.lower(): config for config in configured}
    if not given.names:
        if configured:
            return configured
        if not given.dev:
            raise ConfigError("Say which namespace to serve: --namespace NAME.")
        return [NamespaceConfig(DEV_NAMESPACE)]
    chosen: dict[str, NamespaceConfig] = {}
    for name in given.names:
        check_namespace_name(name)
        if name.lower() in chosen:
            raise ConfigError(f"--namespace {name} is given twice. Leave one out.")
        chosen[name.lower()] = by_key.get(name.lower()) or NamespaceConfig(name)
    for key, config in by_key.items():
        if key not in chosen:
            logging.getLogger("twinbus.server").warning(
                "%s: namespace %s is not served, since --namespace does not name it",
                given.config,
                config.name,
            )
    return list(chosen.values())


def _run(
    options: ServerOptions, supervised: Supervised | None, about: dict[str, Any]
) -> None:
    import asyncio

    import uvloop

    from twinbus.server.setup.server import Server

    _allow_files()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(Server(options), supervised, about))


def _allow_files() -> None:
    """Take as many open files as the system lets us: each connection is one."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _serve(
    server: Server, supervised: Supervised | None, about: dict[str, Any]
) -> None:
    import asyncio
    import signal

    from twinbus.server.setup.systemd import Systemd

    systemd = Systemd()
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    ready = await server.start()
    try:
        # What exists now lives as long as the server: never look at it again.
        gc.freeze()
        gc.set_threshold(limits.SERVER_GC_OBJECTS)
        gc.enable()
        ready["pid"] = os.getpid()
        if supervised is None:
            print(json.dumps({**ready, "supervisor_pid": None}), flush=True)
            systemd.tell_ready()
        else:
            supervised.start(server)
            ready["supervisor_pid"] = supervised.supervisor_pid
            handed = server.options.sockets
            made = {n: s for n, s in server.sockets.items() if n not in handed}
            supervised.tell_ready(ready, about, made)
        await stopped.wait()
        systemd.tell_stopping()
    finally:
        await _stop(server)


async def _stop(server: Server) -> None:
    """Stop, and end the process if a disk hangs: a thread would wait for it."""
    import asyncio

    stopping = asyncio.ensure_future(server.stop())
    seconds = limits.SERVER_STOP_SECONDS_MAX
    done, _ = await asyncio.wait([stopping], timeout=seconds)
    if not done:
        logging.getLogger("twinbus.server").warning(
            "%s did not stop in %g s: the disk hangs. What was accepted is on disk.",
            server.stopping,
            seconds,
        )
        logging.shutdown()
        os._exit(1)
    await stopping
