"""The faulty proxy breaks what it is told to, where it is told to, and no more."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from itertools import pairwise
from time import monotonic
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus import limits
from twinbus.testing.proxy import Fault, FaultyProxy
from twinbus.testing.proxy_stream import Marks
from twinbus.wire.frames import AMQP_HEADER, HEARTBEAT, SASL_HEADER, encode_frame
from twinbus.wire.performatives import Attach, Begin, Open, Source, Target

# Long enough for anything that comes; what must not come is waited for as long as this.
SECONDS = 10.0
SILENCE_SECONDS = 0.2


class Echo:
    """A server that gives back what it gets, and remembers it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.news = threading.Condition()
        self.received = b""
        self.ended: list[str] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, work: Any, *args: Any) -> None:
        thread = threading.Thread(target=work, args=args)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client:
            how = "closed"
            try:
                while data := client.recv(65536):
                    with self.news:
                        self.received += data
                        self.news.notify_all()
                    if data.endswith(b"bye"):
                        break
                    # What came before a reset can be read, but not answered.
                    if how == "closed" and not self._answer(client, data):
                        how = "reset"
            except OSError:
                how = "reset"
            with self.news:
                self.ended.append(how)
                self.news.notify_all()

    @staticmethod
    def _answer(client: socket.socket, data: bytes) -> bool:
        try:
            client.sendall(data)
        except OSError:
            return False
        return True

    def wait_for(self, received: bytes) -> None:
        with self.news:
            assert self.news.wait_for(lambda: self.received == received, SECONDS), (
                self.received
            )

    def close(self) -> None:
        # A blocked accept is woken by this, and not by close.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(SECONDS)
            assert not thread.is_alive()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[FaultyProxy]:
    with FaultyProxy("127.0.0.1", echo.port) as made:
        yield made
    assert "proxy" not in {thread.name for thread in threading.enumerate()}


@pytest.fixture
def client(proxy: FaultyProxy) -> Iterator[socket.socket]:
    with connected(proxy) as made:
        yield made


def connected(proxy: FaultyProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), SECONDS)


def take(client: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = client.recv(count - len(data))
        assert piece, f"ended after {data!r}"
        data += piece
    return data


def how_it_ends(client: socket.socket) -> str:
    """Read to the end; what the echo gave back may come before it."""
    try:
        while client.recv(100):
            pass
    except ConnectionResetError:
        return "reset"
    return "closed"


def is_silent(client: socket.socket) -> bool:
    client.settimeout(SILENCE_SECONDS)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(SECONDS)
    return False


def test_everything_passes(proxy: FaultyProxy, client: socket.socket) -> None:
    whole = bytes(range(256)) * 2000

    thread = threading.Thread(target=client.sendall, args=(whole,))
    thread.start()

    assert take(client, len(whole)) == whole
    thread.join()
    client.shutdown(socket.SHUT_WR)
    assert client.recv(1) == b""
    proxy.wait_until(lambda proxy: not proxy.open_connections)


def test_a_refused_port_is_the_same_port_again(proxy: FaultyProxy) -> None:
    proxy.refuse()
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        connected(proxy)

    proxy.heal()

    with connected(proxy) as client:
        client.sendall(b"again")
        assert take(client, 5) == b"again"


def test_old_connections_go_on_while_new_ones_are_refused(
    proxy: FaultyProxy, client: socket.socket
) -> None:
    client.sendall(b"a")
    take(client, 1)
    proxy.refuse()

    client.sendall(b"b")
    assert take(client, 1) == b"b"
    proxy.cut()

    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_a_black_hole_takes_everything_and_says_nothing(
    echo: Echo, proxy: FaultyProxy, client: socket.socket
) -> None:
    client.sendall(b"before")
    take(client, 6)
    proxy.black_hole()
    client.sendall(b"swallowed")
    with connected(proxy) as late:
        late.sendall(b"swallowed too")
        proxy.wait_until(lambda proxy: proxy.strikes == 2)

        assert is_silent(late)

    assert is_silent(client)
    assert echo.received == b"before"
    proxy.heal()
    with pytest.raises(ConnectionResetError):
        # The stream has a hole, so it cannot go on.
        client.recv(1)


def test_one_direction_can_be_swallowed_alone(
    echo: Echo, proxy: FaultyProxy, client: socket.socket
) -> None:
    proxy.inject(Fault("silence", towards="client"))

    client.sendall(b"heard")

    echo.wait_for(b"heard")
    proxy.wait_until(lambda proxy: proxy.strikes == 1)
    client.sendall(b" still")
    echo.wait_for(b"heard still")
    assert is_silent(client)


def test_a_swallowed_connection_does_not_see_the_end(
    echo: Echo, proxy: FaultyProxy, client: socket.socket
) -> None:
    proxy.inject(Fault("silence", towards="client"))
    client.sendall(b"one")
    proxy.wait_until(lambda proxy: proxy.strikes == 1)

    client.sendall(b"bye")

    with echo.news:
        assert echo.news.wait_for(lambda: echo.ended, SECONDS)
    assert is_silent(client)


def test_a_client_that_has_left_is_not_kept(
    proxy: FaultyProxy, client: socket.socket
) -> None:
    """It may leave before the answer comes that is swallowed."""
    proxy.inject(Fault(towards="client"))
    client.sendall(b"hello")
    client.shutdown(socket.SHUT_WR)

    proxy.wait_until(lambda proxy: not proxy.open_connections, SECONDS)


def test_what_is_held_back_arrives_when_all_is_well(
    proxy: FaultyProxy, client: socket.socket
) -> None:
    proxy.inject(Fault("hold", towards="client", after_bytes=2))
    client.sendall(b"abcdef")

    assert take(client, 2) == b"ab"
    proxy.wait_until(lambda proxy: proxy.strikes == 1)
    assert is_silent(client)
    proxy.heal()

    assert take(client, 4) == b"cdef"


@pytest.mark.parametrize(("then", "how"), [("reset", "reset"), ("close", "closed")])
def test_a_connection_ends_after_so_many_bytes(
    echo: Echo, proxy: FaultyProxy, then: Any, how: str
) -> None:
    proxy.inject(Fault(then, towards="server", after_bytes=7, connections=1))

    with connected(proxy) as client:
        client.sendall(b"0123456789")
        echo.wait_for(b"0123456")
        proxy.wait_until(lambda proxy: not proxy.open_connections)
        assert how_it_ends(client) == how

    with connected(proxy) as client:
        client.sendall(b"the next one passes")
        assert take(client, 19) == b"the next one passes"


def test_a_server_that_is_gone_resets(echo: Echo, proxy: FaultyProxy) -> None:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        proxy.target = place.getsockname()
        with connected(proxy) as client:
            client.sendall(b"hello")

            with pytest.raises(ConnectionResetError):
                client.recv(1)


def test_a_slow_connection_is_slow(proxy: FaultyProxy, client: socket.socket) -> None:
    proxy.slow_down(delay_seconds=0.05, bytes_per_second=1000)
    began = monotonic()

    client.sendall(bytes(100))
    take(client, 100)

    # A delay both ways, and a tenth of a second for a hundred bytes.
    assert monotonic() - began >= 0.2


def test_a_delay_is_one_of_latency_not_of_rate(
    proxy: FaultyProxy, client: socket.socket
) -> None:
    proxy.slow_down(delay_seconds=0.2)
    began = monotonic()

    # At least twenty pieces.
    count = 20 * limits.PROXY_READ_BYTES
    client.sendall(bytes(count))
    take(client, count)

    # Later by the delay in each direction, and not twenty times.
    assert 0.4 <= monotonic() - began < 4.0


def test_bytes_trickle_a_few_at_a_time(
    proxy: FaultyProxy, client: socket.socket
) -> None:
    proxy.slow_down(bytes_per_second=200)
    client.sendall(bytes(30))

    # Ten bytes at a time, each 50 ms after the last.
    assert len(client.recv(100)) <= 10
    take(client, 10)


def test_what_is_slow_is_fast_again_at_once(
    proxy: FaultyProxy, client: socket.socket
) -> None:
    proxy.slow_down(delay_seconds=3600, bytes_per_second=1)
    client.sendall(b"hello")
    assert is_silent(client)

    proxy.heal()

    assert take(client, 5) == b"hello"


def test_jitter_comes_on_top_of_a_delay(
    proxy: FaultyProxy, client: socket.socket
) -> None:
    proxy.slow_down(jitter_seconds=0.05)
    began = monotonic()

    for _ in range(10):
        client.sendall(b"x")
        take(client, 1)

    # Twenty waits of 25 ms in the mean.
    assert monotonic() - began > 0.2


def test_a_proxy_listens_where_it_is_told_and_finds_servers_by_name(
    echo: Echo,
) -> None:
    with (
        FaultyProxy("localhost", echo.port, listen=("127.0.0.9", 0)) as proxy,
        socket.create_connection(("127.0.0.9", proxy.port), SECONDS) as client,
    ):
        client.sendall(b"hello")
        assert take(client, 5) == b"hello"
        assert proxy.address == ("127.0.0.9", proxy.port)
    with pytest.raises(OSError, match="assign"):
        FaultyProxy("localhost", echo.port, listen=("192.0.2.1", 0))


# -- where frames begin and end ------------------------------------------------------

ATTACH = Attach("link", 0, True, source=Source(), target=Target("orders"))
FRAMES = [
    ("sasl header", SASL_HEADER),
    ("amqp header", AMQP_HEADER),
    ("open", encode_frame(0, Open(container_id="client"))),
    ("begin", encode_frame(0, Begin())),
    ("heartbeat", HEARTBEAT),
    ("attach", encode_frame(0, ATTACH)),
    ("attach", encode_frame(1, ATTACH)),
    ("heartbeat", HEARTBEAT),
]
STREAM = b"".join(data for _, data in FRAMES)


@given(st.lists(st.integers(0, len(STREAM))))
def test_frames_are_found_however_the_stream_is_cut(cuts: list[int]) -> None:
    marks, found = Marks(), []
    edges = [0, *sorted(cuts), len(STREAM)]

    for start, end in pairwise(edges):
        found += list(marks.feed(STREAM[start:end]))

    assert [name for name, _, _ in found] == [name for name, _ in FRAMES]
    assert b"".join(STREAM[start:end] for _, start, end in found) == STREAM


@given(st.lists(st.binary(min_size=1)))
def test_any_bytes_at_all_pass(pieces: list[bytes]) -> None:
    marks = Marks()

    for piece in pieces:
        list(marks.feed(piece))

    assert marks.offset == sum(map(len, pieces))


@pytest.mark.parametrize("inside", [False, True])
def test_a_fault_strikes_at_a_frame(
    echo: Echo, proxy: FaultyProxy, inside: bool
) -> None:
    fault = Fault("reset", "server", after_frame="attach", count=2, inside=inside)
    proxy.inject(fault)
    before = STREAM.rindex(encode_frame(1, ATTACH))
    last = encode_frame(1, ATTACH)

    with connected(proxy) as client:
        for place in range(0, len(STREAM), 5):
            try:
                client.sendall(STREAM[place : place + 5])
            except (ConnectionResetError, BrokenPipeError):
                break
        proxy.wait_until(lambda proxy: not proxy.open_connections)

    passed = STREAM[:before] + (last[: len(last) // 2] if inside else last)
    echo.wait_for(passed)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"then": "explode"}, "silence, hold, reset or close"),
        ({"towards": "moon"}, "server, client or both"),
        ({"after_frame": "picture"}, "must be one of"),
        ({"after_frame": "open", "after_bytes": 3}, "not both"),
        ({"count": 0}, "starts at 1"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(
    wrong: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        Fault(**wrong)
