"""`twinbus proxy`: a real process between a client and a server, told what to do."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.run import Run
from tests.printed import blocks
from tests.testing.test_proxy import SECONDS, Echo, how_it_ends, is_silent, take
from tests.walking import OwnNetwork, Walk
from twinbus.client.sync.connection import Connection
from twinbus.errors import OutcomeUnknown
from twinbus.testing.namespace import serve_namespace
from twinbus.testing.proxy_commands import HELP
from twinbus.wire.message.sections import MESSAGE_ID, encode_message

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"


class Proxy:
    """A running `twinbus proxy --json`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.ready = self._line()
        self.port: int = self.ready["port"]

    def _line(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def tell(self, line: str) -> Any:
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)
        return self._line()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), SECONDS)


@contextmanager
def proxying(target: int, *options: str) -> Iterator[Proxy]:
    command = [sys.executable, "-m", "twinbus.cli.main", "proxy", "0"]
    with subprocess.Popen(
        [*command, f"127.0.0.1:{target}", "--json", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Proxy(process)
        finally:
            process.kill()


@pytest.fixture(name="echo")
def _echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.close()


@pytest.fixture(name="proxy")
def _proxy(echo: Echo) -> Iterator[Proxy]:
    with proxying(echo.port) as made:
        yield made


def test_it_is_ready_with_one_line_and_ends_with_its_input(
    echo: Echo, proxy: Proxy
) -> None:
    assert proxy.ready == {
        "ready": True,
        "host": "127.0.0.1",
        "port": proxy.port,
        "target": f"127.0.0.1:{echo.port}",
        "http_port": None,
    }
    assert proxy.process.stdin is not None
    proxy.process.stdin.close()
    assert proxy.process.wait(SECONDS) == 0


def test_a_cut_ends_old_connections_and_refuses_new_ones(proxy: Proxy) -> None:
    with proxy.connect() as client:
        client.sendall(b"hello")
        take(client, 5)

        assert proxy.tell("cut")["refusing"] is True

        assert how_it_ends(client) == "reset"
    with pytest.raises(ConnectionRefusedError):
        proxy.connect()

    assert proxy.tell("heal")["refusing"] is False
    with proxy.connect() as client:
        client.sendall(b"again")
        assert take(client, 5) == b"again"
        # All connections once, and no more.
        assert proxy.tell("drop")["ok"]
        assert how_it_ends(client) == "reset"
    proxy.connect().close()


@pytest.mark.parametrize(
    ("towards", "arrives"),
    [("", False), (" towards server", False), (" towards client", True)],
)
def test_a_black_hole_is_one_way_or_both(
    echo: Echo, proxy: Proxy, towards: str, arrives: bool
) -> None:
    assert proxy.tell(f"silence{towards}")["fault"] == f"silence{towards}"
    with proxy.connect() as client:
        client.sendall(b"hello")
        if arrives:
            echo.wait_for(b"hello")

        assert is_silent(client)
        assert (echo.received == b"hello") is arrives


def test_delay_jitter_and_trickle_add_up(proxy: Proxy) -> None:
    proxy.tell("delay 20 10")
    answer = proxy.tell("trickle 1000")

    slow = {key: answer[key] for key in ("delay_ms", "jitter_ms", "bytes_per_second")}
    assert slow == {"delay_ms": 20, "jitter_ms": 10, "bytes_per_second": 1000}
    assert proxy.tell("delay 0")["bytes_per_second"] == 1000


def test_a_message_is_torn_in_two() -> None:
    with serve_namespace({"queues": ["orders"]}) as namespace:
        port, text = namespace.amqp_port, namespace.connection_string
        with proxying(port) as proxy:
            through = text.replace(f":{port}", f":{proxy.port}")
            with Connection.from_connection_string(through) as client:
                sender = client.sender("orders")
                sender.open()
                # The messages of a client, not those of its token.
                proxy.tell("reset towards server inside transfer")
                with pytest.raises(OutcomeUnknown):
                    sender.send(encode_message(b"hello", {MESSAGE_ID: "torn"}))
                assert proxy.tell("status")["strikes"] == 1
                proxy.tell("heal")
                sender.send(encode_message(b"hello", {MESSAGE_ID: "whole"}))
        receiver = namespace.client().get_queue_receiver("orders", max_wait_time=5)
        assert [m.message_id for m in receiver.receive_messages(5)] == ["whole"]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("fly", "There is no command 'fly'; help has all."),
        ("cut now", "Nothing comes after cut."),
        ("silence towards up", "After towards comes server, client or both."),
        ("reset at 5", "Write: after BYTES, after FRAME or inside FRAME."),
        ("reset inside lunch", "after_frame='lunch' must be one of "),
        ("reset inside 5", "after_frame='5' must be one of "),
        ("delay", "Write: delay MS [JITTER_MS]."),
        ("delay soon", "delay takes whole numbers, not 'soon'."),
        ("trickle", "Write: trickle BYTES_PER_SECOND, 0 for no limit."),
        ('{"do": 5}', 'A program writes {"do": "COMMAND"}; help has all commands.'),
        ("{", 'A program writes {"do": "COMMAND"}; help has all commands.'),
    ],
)
def test_what_makes_no_sense_changes_nothing(
    proxy: Proxy, line: str, error: str
) -> None:
    before = proxy.tell('{"do": "status"}')

    refused = proxy.tell(line)

    assert refused["ok"] is False
    assert refused["error"].startswith(error)
    assert proxy.tell("status") == before


def asked(port: int, body: str | None = None, **headers: str) -> tuple[int, Any]:
    """Send a command, or ask for the status; returns the status code and the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("GET" if body is None else "POST", "/", body, headers)
        answer = connection.getresponse()
        text = answer.read()
        is_json = answer.getheader("Content-Type") == "application/json"
        return answer.status, json.loads(text) if is_json else text
    finally:
        connection.close()


def test_commands_come_by_http_too(echo: Echo) -> None:
    with proxying(echo.port, "--http", "0") as proxy:
        assert proxy.process.stdin is not None
        # It goes on, because there is another way to end it.
        proxy.process.stdin.close()
        port = proxy.ready["http_port"]

        assert asked(port)[1]["refusing"] is False
        assert asked(port, "refuse")[1]["refusing"] is True
        assert asked(port, '{"do": "heal"}')[1]["refusing"] is False
        assert asked(port, "fly")[0] == 400
        assert asked(port, "x" * 10_000)[0] == 413
        # A page in a browser is not who should say this.
        assert asked(port, "refuse", Origin="https://example.org")[0] == 403
        assert asked(port)[1]["refusing"] is False
        proxy.process.send_signal(signal.SIGTERM)
        assert proxy.process.wait(SECONDS) == 0


@pytest.mark.parametrize(
    ("listen", "target", "text"),
    [
        ("here", "127.0.0.1:1", "LISTEN 'here' must be HOST:PORT"),
        ("0", "127.0.0.1:1/x", "TARGET '127.0.0.1:1/x' must be HOST:PORT"),
        ("0", "127.0.0.1:x", "TARGET '127.0.0.1:x' must be HOST:PORT"),
        ("0", "nowhere.invalid", "TARGET nowhere.invalid is not found: "),
        ("192.0.2.1:0", "127.0.0.1:1", "192.0.2.1:0 cannot be listened on: "),
    ],
)
def test_a_place_that_cannot_be_used_is_refused(
    run: Run, listen: str, target: str, text: str
) -> None:
    result = run("proxy", listen, target)

    assert result.code == 2
    assert result.err.startswith(f"twinbus: {text}")
    assert len(result.err.splitlines()) == 1


def test_a_port_for_http_that_cannot_be_is_refused(run: Run) -> None:
    result = run("proxy", "0", "127.0.0.1:1", "--http", "65536")

    assert result.code == 2
    assert "'--http'" in result.err


def test_the_guide_has_all_commands(proxy: Proxy) -> None:
    assert proxy.tell("help")["help"] == HELP
    assert HELP in GUIDE.read_text()


@pytest.mark.skipif(not OwnNetwork.is_allowed(), reason=OwnNetwork.NEEDS)
def test_the_commands_of_the_guide_work(tmp_path: Path) -> None:
    proxies, tells = (text for _, text in blocks("docs/testing.md", __file__))
    with (
        closing(OwnNetwork()) as network,
        Walk(tmp_path, network) as walk,
        walk.start(proxies) as proxy,
    ):
        assert proxy.stdout is not None
        ready = proxy.stdout.readline()
        walk.shell(tells)
        proxy.terminate()

    assert ready.startswith("127.0.0.1:5673 passes on to 127.0.0.1:5672.")
    assert walk.printed[0].count('"delay_ms": 200, "jitter_ms": 50') == 2
