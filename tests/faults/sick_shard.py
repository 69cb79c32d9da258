"""A server with two shards, one of which falls sick, and what its clients must see.

Owns the queues, the clients and the judge. Official clients send to queues of the shard
that will be sick, with the retries that they make by themselves; each attempt is
counted. So the judge knows how often a message may arrive: as often as it was sent, one
directly after the other. Knows nothing about how a shard is made sick.
"""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from azure.core.exceptions import HttpResponseError
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
)
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.suites.crossing import problems
from twinbus.pairing.rules.classification import Verdict, verdict_of
from twinbus.testing.server_process import ServerProcess

# Each is placed in the shard that has fewest: every second one is in the sick shard.
QUEUES = ("well", "a", "beside", "b", "between", "probed")
# Clients that wait so long have waited in vain.
_WAIT_SECONDS_MAX = 30
_PEEKED_MAX = 1000
# An error of the service, which administration clients retry. Not 503: that is busy.
_RETRYABLE_STATUSES = (500,)


@contextmanager
def two_shards(
    folder: Path, sick_folder: Path | None = None, *options: str
) -> Iterator[ServerProcess]:
    """A server; the second shard can have a folder that is given."""
    folders = [folder / "disk-0", sick_folder or folder / "disk-1"]
    config = {
        "queues": [{"name": name} for name in QUEUES],
        "shards": [str(each) for each in folders],
    }
    with ServerProcess(folder / "server", config, options=options) as server:
        yield server


def connect(server: ServerProcess, retries: int = 8) -> ServiceBusClient:
    """A client that retries by itself for longer than a test lets a shard be sick."""
    return ServiceBusClient.from_connection_string(
        server.connection_string, retry_total=retries, retry_backoff_max=2
    )


def ask(server: ServerProcess, path: str) -> str:
    """What the server answers over HTTP."""
    url = f"http://127.0.0.1:{server.ports['http']}{path}"
    with urllib.request.urlopen(url, timeout=_WAIT_SECONDS_MAX) as answer:
        text: str = answer.read().decode()
    return text


def health(server: ServerProcess) -> dict[str, Any]:
    """What `/health` says."""
    found: dict[str, Any] = json.loads(ask(server, "/health"))
    return found


# -- sending ---------------------------------------------------------------------------


class CountedSender:
    """Sends messages one after the other, and counts the attempts of each."""

    def __init__(self, client: ServiceBusClient, queue: str, name: str) -> None:
        self.queue = queue
        self.accepted: list[str] = []
        self.attempts: Counter[str] = Counter()
        self._name = name
        self._sender = client.get_queue_sender(queue)
        # The method that the client calls again when it retries.
        attempt: Callable[..., None] = self._sender._send

        def counted(message: Any, **options: Any) -> None:
            self.attempts[str(message.message_id)] += 1
            attempt(message, **options)

        vars(self._sender)["_send"] = counted

    def send(self, count: int, body: bytes = b"") -> None:
        """Send so many more; returns when all are accepted."""
        for _ in range(count):
            name = f"{self._name} {len(self.accepted)}"
            message = ServiceBusMessage(body, message_id=name)
            self._sender.send_messages(message)
            self.accepted.append(name)

    @property
    def retried(self) -> int:
        """How many messages were sent more than once."""
        return sum(count > 1 for count in self.attempts.values())

    def close(self) -> None:
        self._sender.close()

    def judged(self, arrived: list[str]) -> list[str]:
        """What is wrong with what has arrived in the queue."""
        ours = [name for name in arrived if name.startswith(f"{self._name} ")]
        left = self.attempts - Counter(dict.fromkeys(self.attempts, 1))
        found: list[str] = []
        for name in ours:
            if found and found[-1] == name and left[name] > 0:
                # The client has sent it once more, since it was told of a failure.
                left[name] -= 1
            else:
                found.append(name)
        return [f"{self._name}: {text}" for text in problems(self.accepted, found)]


# -- receiving -------------------------------------------------------------------------


def round_trips(server: ServerProcess, queue: str, count: int) -> None:
    """Send, receive and complete one message after the other, without a retry."""
    with (
        connect(server, retries=0) as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
    ):
        for number in range(count):
            sender.send_messages(ServiceBusMessage(f"{number}"))
            (message,) = receiver.receive_messages(1, max_wait_time=_WAIT_SECONDS_MAX)
            assert str(message) == f"{number}"
            receiver.complete_message(message)


def take_all(client: ServiceBusClient, queue: str, expected: set[str]) -> list[str]:
    """Receive until all that is expected has come, and what is there besides."""
    found: list[str] = []
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_queue_receiver(queue, receive_mode=mode) as receiver:
        while not expected <= set(found):
            messages = receiver.receive_messages(500, max_wait_time=_WAIT_SECONDS_MAX)
            if not messages:
                break
            found += [str(message.message_id) for message in messages]
    return found + peek(client, queue)


def peek(client: ServiceBusClient, queue: str) -> list[str]:
    """What is in a queue, in order."""
    with client.get_queue_receiver(queue) as receiver:
        found = receiver.peek_messages(_PEEKED_MAX, sequence_number=1)
    return [str(message.message_id) for message in found]


def judge(server: ServerProcess, senders: list[CountedSender]) -> list[str]:
    """Take all messages out of the queues, and say what is wrong with them."""
    found: list[str] = []
    with connect(server) as client:
        for queue in dict.fromkeys(each.queue for each in senders):
            ours = [each for each in senders if each.queue == queue]
            expected = {name for each in ours for name in each.accepted}
            arrived = take_all(client, queue, expected)
            for each in ours:
                found += each.judged(arrived)
    return found


# -- what else a sick shard is asked ---------------------------------------------------


def _refusal(request: Callable[[], object]) -> str:
    """How a request was answered: `refused`, if as it should be."""
    try:
        return f"answered: {request()}"
    except OperationTimeoutError:
        return "not answered"
    except ServiceBusError as error:
        counted = verdict_of(error) is Verdict.COUNTED
        retryable = error._retryable
        return "refused" if counted and retryable else repr(error)
    except HttpResponseError as error:
        return "refused" if error.status_code in _RETRYABLE_STATUSES else repr(error)


class Probes:
    """Requests to a queue of a shard, each of which must be refused while it is sick.

    Made while it is well, so that there are receivers with a locked message each; or
    without these, with `locked=False`.
    """

    def __init__(
        self, server: ServerProcess, queue: str, *, locked: bool = True
    ) -> None:
        self._client = connect(server, retries=0)
        self._queue = queue
        # A receiver cannot settle what it has locked after an error of its link.
        self._locked = [self._lock_one() for _ in range(2)] if locked else []
        self._admin = ServiceBusAdministrationClient.from_connection_string(
            server.admin_connection_string,
            connection_verify=server.ca_file,
            retry_total=0,
        )

    def _lock_one(self) -> tuple[ServiceBusReceiver, ServiceBusReceivedMessage]:
        with self._client.get_queue_sender(self._queue) as sender:
            sender.send_messages(ServiceBusMessage("probe"))
        receiver = self._client.get_queue_receiver(self._queue)
        (message,) = receiver.receive_messages(1, max_wait_time=_WAIT_SECONDS_MAX)
        return receiver, message

    def not_refused(self) -> dict[str, str]:
        """Make all requests; returns those that were not refused as they must be.

        That is with an error that is counted and may be retried. A request without an
        answer ends with a timeout, or with no messages.
        """
        requests = {**self._requests(), **self._settlements()}
        with ThreadPoolExecutor() as pool:
            asked = {
                name: pool.submit(_refusal, each) for name, each in requests.items()
            }
        answered = {name: each.result() for name, each in asked.items()}
        return {name: text for name, text in answered.items() if text != "refused"}

    def _settlements(self) -> dict[str, Callable[[], object]]:
        if not self._locked:
            return {}
        (first, one), (second, other) = self._locked
        return {
            "complete": lambda: first.complete_message(one),
            "renew": lambda: second.renew_message_lock(other),
        }

    def _requests(self) -> dict[str, Callable[[], object]]:
        return {
            "peek": self._with_receiver(lambda each: each.peek_messages()),
            "receive": self._with_receiver(
                lambda each: each.receive_messages(max_wait_time=_WAIT_SECONDS_MAX)
            ),
            "deferred": self._with_receiver(
                lambda each: each.receive_deferred_messages([1])
            ),
            "schedule": self._schedule,
            "update": self._update,
        }

    def _with_receiver(
        self, request: Callable[[ServiceBusReceiver], object]
    ) -> Callable[[], object]:
        def ask() -> object:
            with self._client.get_queue_receiver(self._queue) as receiver:
                return request(receiver)

        return ask

    def _schedule(self) -> object:
        at = datetime.now(UTC) + timedelta(hours=1)
        with self._client.get_queue_sender(self._queue) as sender:
            return sender.schedule_messages(ServiceBusMessage(""), at)

    def _update(self) -> None:
        self._admin.update_queue(self._admin.get_queue(self._queue))

    def close(self) -> None:
        """Disconnect; the locked messages stay."""
        self._admin.close()
        self._client.close()
