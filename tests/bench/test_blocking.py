"""The blocking client against a real server, and against none."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from bench.blocking import BlockingConnection
from tests.sdk.servers import Endpoint, Server, serving
from twinbus.core import sas
from twinbus.errors import (
    Disconnected,
    OperationTimeout,
    RemoteError,
    SendRefused,
)
from twinbus.wire.message.sections import MESSAGE_ID, encode_message, read_properties

NAME = "contoso"
_QUEUES = [f"q{number}" for number in range(12)]
_unused = iter(_QUEUES)
_numbers = count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    queues = [{"name": name} for name in _QUEUES]
    config = {"namespaces": [{"name": NAME, "queues": queues}]}
    with serving(tmp_path_factory.mktemp("blocking"), config) as running:
        yield running


@pytest.fixture
def endpoint(server: Server) -> Endpoint:
    return server.namespaces[NAME]


@pytest.fixture
def queue() -> str:
    """A queue that no other test uses."""
    return next(_unused)


@contextmanager
def connected(endpoint: Endpoint, queue: str) -> Iterator[BlockingConnection]:
    with BlockingConnection("127.0.0.1", endpoint.amqp_port).open() as connection:
        claim(connection, endpoint, queue)
        yield connection


def claim(connection: BlockingConnection, endpoint: Endpoint, queue: str) -> None:
    given = sas.parse_connection_string(endpoint.connection_string)
    assert given.key is not None
    assert given.key_name is not None
    uri = f"sb://127.0.0.1/{queue}"
    ends_at_s = int(time.time()) + 600
    token = sas.make_token(uri, given.key_name, given.key, ends_at_s)
    connection.put_token(uri, token)


def message(body: bytes = b"body") -> bytes:
    return encode_message(body, {MESSAGE_ID: f"id-{next(_numbers)}"})


def id_of(payload: bytes) -> object:
    """The message id behind the header and annotations that a server adds."""
    at = payload.index(b"\x00\x53\x73")
    return read_properties(payload[at:])[MESSAGE_ID]


def test_many_messages_go_in_and_come_out_in_order(
    endpoint: Endpoint, queue: str
) -> None:
    sent = [message() for _ in range(3000)]

    with connected(endpoint, queue) as connection:
        assert connection.sender(queue, window=300).send(sent) == 3000
        receiver = connection.receiver(queue, credit=200)
        received: list[object] = []
        while len(received) < 3000:
            deliveries = receiver.receive(500)
            received += [id_of(each.payload) for each in deliveries]
            receiver.accept(deliveries)
        receiver.confirm()

    assert received == [id_of(payload) for payload in sent]


@pytest.mark.parametrize("count", [1, 150, 700])
def test_no_more_than_the_count_of_a_receiver_is_asked_for(
    endpoint: Endpoint, queue: str, count: int
) -> None:
    with connected(endpoint, queue) as connection:
        connection.sender(queue).send([message() for _ in range(1000)])
        receiver = connection.receiver(queue, credit=200, count=count)
        taken = 0
        while taken < count:
            deliveries = receiver.receive(1000)
            taken += len(deliveries)
            receiver.accept(deliveries)
        receiver.confirm()
        other = connection.receiver(queue)
        rest = 0
        while rest < 1000 - count:
            rest += len(other.receive(1000))

        assert taken == count
        assert receiver.receive(1, timeout_seconds=0.05) == []


def test_what_was_confirmed_is_gone(endpoint: Endpoint, queue: str) -> None:
    with connected(endpoint, queue) as connection:
        connection.sender(queue).send([message(), message(), message()])
        receiver = connection.receiver(queue)
        taken = receiver.receive(3)
        while len(taken) < 3:
            taken += receiver.receive(3 - len(taken))
        # Not neighbours, so these are two dispositions; the rest stays locked.
        receiver.accept([taken[0], taken[2]])
        receiver.confirm()
        receiver.detach()
        again = connection.receiver(queue)

        assert receiver.unconfirmed == 0
        assert again.receive(1, timeout_seconds=0.2) == []


def test_settled_completions_are_not_waited_for(endpoint: Endpoint, queue: str) -> None:
    with connected(endpoint, queue) as connection:
        connection.sender(queue).send([message()])
        receiver = connection.receiver(queue)
        receiver.accept(receiver.receive(1), settled=True)

        assert receiver.unconfirmed == 0
        receiver.confirm()


def test_receive_and_delete_needs_no_settlement(endpoint: Endpoint, queue: str) -> None:
    with connected(endpoint, queue) as connection:
        connection.sender(queue).send([message()])
        (taken,) = connection.receiver(queue, deletes=True).receive(1)

    assert taken.settled


def test_refused_messages_are_named_and_the_others_accepted(
    endpoint: Endpoint, queue: str
) -> None:
    sent = [message(), message(b"x" * 300_000), message(), b"no message"]

    with connected(endpoint, queue) as connection:
        with pytest.raises(SendRefused) as refused:
            connection.sender(queue).send(sent)
        receiver = connection.receiver(queue, deletes=True)
        first = receiver.receive(1)[0]
        second = receiver.receive(1)[0]

    failures = refused.value.failures
    assert sorted(failures) == [1, 3]
    assert failures[1].condition == "amqp:link:message-size-exceeded"
    assert [id_of(first.payload), id_of(second.payload)] == [
        id_of(sent[0]),
        id_of(sent[2]),
    ]


def test_an_empty_queue_gives_nothing_in_time(endpoint: Endpoint, queue: str) -> None:
    with connected(endpoint, queue) as connection:
        assert connection.receiver(queue).receive(1, timeout_seconds=0.05) == []


def test_without_a_claim_a_link_is_refused(endpoint: Endpoint) -> None:
    with (
        BlockingConnection("127.0.0.1", endpoint.amqp_port).open() as connection,
        pytest.raises(RemoteError) as refused,
    ):
        connection.sender(_QUEUES[0])

    assert refused.value.condition == "amqp:unauthorized-access"


def test_a_wrong_token_is_refused(endpoint: Endpoint) -> None:
    uri = f"sb://127.0.0.1/{_QUEUES[0]}"
    key = sas.key_from(b"0" * 32)
    token = sas.make_token(uri, "RootManageSharedAccessKey", key, 2_000_000_000)

    with (
        BlockingConnection("127.0.0.1", endpoint.amqp_port).open() as connection,
        pytest.raises(RemoteError, match="401"),
    ):
        connection.put_token(uri, token)


def test_over_tls(server: Server, endpoint: Endpoint) -> None:
    tls = ssl.create_default_context(cafile=server.ca_file)
    connection = BlockingConnection(
        "127.0.0.1", endpoint.amqps_port, tls=tls, hostname="localhost"
    )
    queue = next(_unused)

    with connection.open():
        claim(connection, endpoint, queue)

        assert connection.sender(queue).send([message()] * 500) == 500


def test_a_port_without_a_listener() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        connection = BlockingConnection("127.0.0.1", unused.getsockname()[1])

        with pytest.raises(Disconnected, match="cannot be reached"):
            connection.open()


def test_a_server_that_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        connection = BlockingConnection("127.0.0.1", port, timeout_seconds=0.05)

        with pytest.raises(OperationTimeout, match="'open'"), connection:
            connection.open()


def test_a_server_that_hangs_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = BlockingConnection("127.0.0.1", server.getsockname()[1])
        server.shutdown(socket.SHUT_RDWR)

        with pytest.raises(Disconnected), connection:
            connection.open()


def test_a_connection_that_was_never_opened() -> None:
    connection = BlockingConnection("127.0.0.1", 1)

    with pytest.raises(Disconnected, match="not open"):
        connection.sender("q")
    connection.close()
