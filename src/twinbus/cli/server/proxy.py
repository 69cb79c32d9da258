"""`twinbus proxy`: a TCP proxy that breaks connections to any endpoint on command.

Owns where commands come from: standard input, and HTTP on loopback. What they do is
`testing/proxy_commands.py`. Bytes pass as they are, so TLS goes through: a client
checks the certificate of the endpoint, not of the proxy.
"""

from __future__ import annotations

import json
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from twinbus import limits
from twinbus.cli.output import Json
from twinbus.errors import ConfigError

if TYPE_CHECKING:
    from twinbus.testing.proxy import FaultyProxy
    from twinbus.testing.proxy_commands import ProxyCommands

LOOPBACK = "127.0.0.1"
AMQPS_PORT = 5671

app = typer.Typer()


@app.command()
def proxy(
    listen: Annotated[
        str, typer.Argument(help="PORT on loopback, or HOST:PORT; 0 picks a free one.")
    ],
    target: Annotated[
        str, typer.Argument(help="The endpoint: HOST, or HOST:PORT if it is not 5671.")
    ],
    http: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=limits.PORT_MAX,
            help="Take commands by HTTP, too, on this port of loopback.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Pass connections on to an endpoint, and break them on command.

    Reads commands from standard input, one per line; `help` lists them. It ends with
    standard input, or with --http when a signal comes.
    """
    from twinbus.testing.proxy_commands import ProxyCommands

    # Ends like Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _open(listen, target) as made:
            commands = ProxyCommands(made)
            with _served(commands, http) as http_port:
                _tell_ready(made, http_port, as_json)
                _read(commands, as_json)
                if http is not None:
                    threading.Event().wait()
    except KeyboardInterrupt:
        return


def _open(listen: str, target: str) -> FaultyProxy:
    from twinbus.testing.proxy import FaultyProxy

    address = _place("LISTEN", f"{LOOPBACK}:{listen}" if listen.isdecimal() else listen)
    host, port = _place("TARGET", target, AMQPS_PORT)
    try:
        socket.getaddrinfo(host, port)
    except OSError as error:
        raise ConfigError(f"TARGET {host} is not found: {error.strerror}.") from None
    try:
        return FaultyProxy(host, port, listen=address)
    except OSError as error:
        raise ConfigError(
            f"{address[0]}:{address[1]} cannot be listened on: {error.strerror}. "
            "Choose another LISTEN; port 0 picks a free one."
        ) from None


def _place(name: str, text: str, port: int | None = None) -> tuple[str, int]:
    """A host and a port, as they were given."""
    try:
        parts = urlsplit(f"//{text}")
        found = port if parts.port is None else parts.port
    except ValueError:
        parts, found = urlsplit(""), None
    if not parts.hostname or found is None or parts.netloc != text:
        raise ConfigError(f"{name} {text!r} must be HOST:PORT, such as 127.0.0.1:5672.")
    return parts.hostname, found


def _tell_ready(made: FaultyProxy, http_port: int | None, as_json: bool) -> None:
    host, port = made.address
    target = "{}:{}".format(*made.target)
    if as_json:
        ready = {"ready": True, "host": host, "port": port, "target": target}
        print(json.dumps({**ready, "http_port": http_port}), flush=True)
    else:
        print(f"{host}:{port} passes on to {target}. Type help.", flush=True)


def _read(commands: ProxyCommands, as_json: bool) -> None:
    """Obey standard input until it ends."""
    for line in sys.stdin:
        if line.strip() == "exit":
            return
        if line.strip():
            answer = commands.obey(line)
            print(json.dumps(answer) if as_json else _shown(answer), flush=True)


def _shown(answer: dict[str, Any]) -> str:
    if "help" in answer:
        return str(answer["help"])
    if not answer["ok"]:
        return f"error: {answer['error']}"
    faults = [
        "refusing" if answer["refusing"] else "",
        answer["fault"] or "",
        f"delay {answer['delay_ms']} ms" if answer["delay_ms"] else "",
        f"jitter {answer['jitter_ms']} ms" if answer["jitter_ms"] else "",
        f"trickle {answer['bytes_per_second']:g}" if answer["bytes_per_second"] else "",
    ]
    state = ", ".join(filter(None, faults)) or "all passes"
    return (
        f"{state}; {answer['connections']} connections, {answer['accepted']} so far, "
        f"{answer['strikes']} struck"
    )


# -- HTTP --------------------------------------------------------------------------


class _Handler(BaseHTTPRequestHandler):
    """GET shows the status, POST obeys its body."""

    server: CommandServer

    def do_GET(self) -> None:
        self._answer("status")

    def do_POST(self) -> None:
        size = self.headers.get("Content-Length", "")
        if not size.isdecimal() or int(size) > limits.PROXY_COMMAND_BYTES_MAX:
            self.send_error(413)
            return
        self._answer(self.rfile.read(int(size)).decode("utf-8", "replace"))

    def _answer(self, line: str) -> None:
        if "Origin" in self.headers:
            # A page of any site could be the one that asks.
            self.send_error(403)
            return
        answer = self.server.commands.obey(line)
        body = json.dumps(answer).encode() + b"\n"
        self.send_response(200 if answer["ok"] else 400)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: standard output is for answers."""


class CommandServer(ThreadingHTTPServer):
    """ProxyCommands over HTTP."""

    daemon_threads = True

    def __init__(self, commands: ProxyCommands, port: int) -> None:
        self.commands = commands
        super().__init__((LOOPBACK, port), _Handler)


@contextmanager
def _served(commands: ProxyCommands, port: int | None) -> Iterator[int | None]:
    """Serve commands over HTTP, if a port is given; gives the port."""
    if port is None:
        yield None
        return
    try:
        server = CommandServer(commands, port)
    except OSError as error:
        raise ConfigError(f"--http {port} cannot be used: {error.strerror}.") from None
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
