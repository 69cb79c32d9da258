"""What clients do while the server is killed, and the look at what is left.

Owns a story for the official client: two producers and three consumers that send,
receive, settle and use sessions, and write down each operation. Then `drain` takes out
everything that is left, so that the history can be judged. Knows only a connection
string; an operation that breaks is `unknown`, and ends its client.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import (
    MessageLockLostError,
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from twinbus.testing.history import Event, QueueRules, Recorder, Rules

LOCK_SECONDS = 5
MAX_DELIVERIES = 10
DEAD = "/$deadletterqueue"
# Longer than a lock, so that a long poll outlives the locks of a killed run.
_POLL_SECONDS = LOCK_SECONDS + 2

CONFIG = {
    "namespaces": [
        {
            "name": "n",
            "queues": [
                {"name": "plain", "lock_duration": f"PT{LOCK_SECONDS}S"},
                {
                    "name": "grouped",
                    "lock_duration": f"PT{LOCK_SECONDS}S",
                    "requires_session": True,
                },
                {"name": "fast", "lock_duration": f"PT{LOCK_SECONDS}S"},
            ],
        }
    ]
}
# The client keeps credit open between calls, so counts have a lower bound only.
_PLAIN = QueueRules(
    lock_ms=LOCK_SECONDS * 1000,
    max_delivery_count=MAX_DELIVERIES,
    exact_counts=False,
    strict_locks=True,
)
RULES = Rules(default=_PLAIN)

_AHEAD_MAX = 6
QUEUES = ("plain", "grouped", "fast")
SESSIONS = ("s0", "s1", "s2")

# Anything that a broken connection may raise out of the official client.
BROKEN = (ServiceBusError, OSError, ValueError, AttributeError, RuntimeError)


def connect(connection_string: str) -> ServiceBusClient:
    """A client that notices a dead server at once and repeats nothing by itself."""
    return ServiceBusClient.from_connection_string(
        connection_string, retry_total=0, try_timeout=10
    )


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:16]


class Actor:
    """One client process of the history."""

    def __init__(self, name: str, recorder: Recorder) -> None:
        self.name = name
        self.recorder = recorder
        self.links = 0

    @property
    def link(self) -> str:
        return f"{self.name}/{self.links}"

    def start(self, op: str, queue: str, **known: Any) -> Event:
        return self.recorder.start(self.name, op, queue=queue, **known)

    # -- sending -------------------------------------------------------------------

    def send(self, sender: Any, queue: str, keys: Sequence[str], session: str) -> None:
        """Send some messages in one transfer; they are accepted together."""
        bodies = [(key * 20).encode() for key in keys]
        begun = [
            self.start("send", queue, key=key, digest=_digest(body), session=session)
            for key, body in zip(keys, bodies, strict=True)
        ]
        messages = [
            ServiceBusMessage(body, message_id=key, session_id=session or None)
            for key, body in zip(keys, bodies, strict=True)
        ]
        try:
            sender.send_messages(messages if len(messages) > 1 else messages[0])
        except BROKEN:
            for event in begun:
                self.recorder.finish(event, "unknown")
            raise
        for event in begun:
            self.recorder.finish(event)

    # -- receiving -----------------------------------------------------------------

    def receive(
        self, receiver: ServiceBusReceiver, queue: str, limit: int, seconds: float
    ) -> list[ServiceBusReceivedMessage]:
        mode = _mode_of(receiver)
        begun = self.start("receive", queue, link=self.link, mode=mode)
        try:
            found = receiver.receive_messages(limit, max_wait_time=seconds)
        except BROKEN:
            self.recorder.finish(begun, "unknown", credit=limit)
            raise
        for message in found:
            self._delivered(receiver, begun, message)
        return found

    def receive_deferred(
        self, receiver: ServiceBusReceiver, queue: str, sequence: int
    ) -> list[ServiceBusReceivedMessage]:
        begun = self.start("receive", queue, link=self.link, mode="deferred")
        try:
            found = receiver.receive_deferred_messages(sequence)
        except BROKEN:
            self.recorder.finish(begun, "unknown", credit=1)
            raise
        for message in found:
            self._delivered(receiver, begun, message)
        return found

    def _delivered(
        self,
        receiver: ServiceBusReceiver,
        begun: Event,
        message: ServiceBusReceivedMessage,
    ) -> None:
        until = None
        if begun.mode != "receive_and_delete":
            until = message.locked_until_utc
            if message.session_id:
                until = receiver.session.locked_until_utc
        self.recorder.finish(
            begun,
            key=str(message.message_id),
            session=message.session_id or "",
            sequence=message.sequence_number,
            # The client counts from 0.
            delivery_count=(message.delivery_count or 0) + 1,
            token=_token(message),
            lock_until=until.timestamp() * 1000 if until else 0,
            digest=_digest(b"".join(message.body)),
        )

    def settle(
        self,
        receiver: ServiceBusReceiver,
        queue: str,
        message: ServiceBusReceivedMessage,
        op: str,
    ) -> None:
        event = self.start(op, queue, key=str(message.message_id), link=self.link)
        event.token = _token(message)
        try:
            getattr(receiver, f"{op}_message")(message)
        except (MessageLockLostError, SessionLockLostError):
            self.recorder.finish(event, "fail", error="lock-lost")
        except BROKEN:
            self.recorder.finish(event, "unknown")
            raise
        else:
            self.recorder.finish(event)

    def lose(self, closing: Event | None = None) -> None:
        """The link was closed, by us or by the server's death."""
        event = closing or self.start("detach", "", link=self.link)
        self.recorder.finish(event)
        self.links += 1

    @contextmanager
    def session(
        self, client: ServiceBusClient, name: Any, seconds: float
    ) -> Iterator[ServiceBusReceiver]:
        """Hold a session, by name or the next one with messages, and say how long."""
        event = self.start("accept", "grouped", link=self.link)
        receiver = client.get_queue_receiver(
            "grouped", session_id=name, max_wait_time=seconds
        )
        closing: Event | None = None
        try:
            with receiver:
                held = receiver.session
                until = held.locked_until_utc
                self.recorder.finish(
                    event,
                    session=held.session_id,
                    lock_until=until.timestamp() * 1000 if until else 0,
                )
                yield receiver
                # Another receiver may have the session before this one is closed.
                closing = self.start("detach", "", link=self.link)
        finally:
            self.lose(closing)


def _mode_of(receiver: ServiceBusReceiver) -> str:
    deletes = receiver._receive_mode == ServiceBusReceiveMode.RECEIVE_AND_DELETE
    return "receive_and_delete" if deletes else ""


def _token(message: ServiceBusReceivedMessage) -> str:
    return str(message.lock_token) if message.lock_token else ""


# -- the story -------------------------------------------------------------------


def _outcome(place: int) -> str:
    """Mostly complete, now and then something else, the same in every run."""
    return {3: "abandon", 7: "defer", 9: "dead_letter", 12: "abandon"}.get(
        place % 16, "complete"
    )


class Story:
    """The clients. They stop when all is sent and taken, or when the server dies."""

    def __init__(
        self,
        connection_string: str,
        recorder: Recorder,
        messages: int,
        suffix: str = "",
    ) -> None:
        self.connection_string = connection_string
        # Tells the clients of several stories apart.
        self.suffix = suffix
        self.recorder = recorder
        self.messages = messages
        self.broken = threading.Event()
        self.sent = threading.Event()
        # How far the producer may be ahead, so that sends and settlements mix. Where
        # several stories share the queues, consumers of another one may settle its
        # messages, so it does not wait for its own.
        self.room = threading.Semaphore(messages if suffix else _AHEAD_MAX)

    def run(self) -> None:
        """Run all clients to their end; an unexpected error of one is raised."""
        actors: dict[str, Callable[[Actor, ServiceBusClient], None]] = {
            "p": self._produce,
            "c": self._consume,
            "g": self._consume_sessions,
            "f": self._consume_fast,
        }
        errors: list[BaseException] = []
        threads = [
            threading.Thread(target=self._act, args=(name, act, errors))
            for name, act in actors.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def _act(
        self,
        name: str,
        act: Callable[[Actor, ServiceBusClient], None],
        errors: list[BaseException],
    ) -> None:
        actor = Actor(f"{name}{self.suffix}", self.recorder)
        try:
            with connect(self.connection_string) as client:
                act(actor, client)
        except BROKEN:
            # The server is gone, or going. What was open is recorded as unknown.
            self.broken.set()
            self.sent.set()
            self.room.release()
            actor.lose()
        except BaseException as error:  # noqa: BLE001 - it is raised in `run`
            errors.append(error)

    def _produce(self, actor: Actor, client: ServiceBusClient) -> None:
        plain = client.get_queue_sender("plain")
        grouped = client.get_queue_sender("grouped")
        fast = client.get_queue_sender("fast")
        with plain, grouped, fast:
            for number in range(self.messages):
                self.room.acquire()
                if self.broken.is_set():
                    break
                key = f"{actor.name}-{number}"
                batch = [f"{key}{part}" for part in "abc"[: 1 + number % 3]]
                actor.send(plain, "plain", batch, "")
                session = SESSIONS[number % len(SESSIONS)]
                actor.send(grouped, "grouped", [key], session)
                if number % 4 == 0:
                    actor.send(fast, "fast", [key], "")
        self.sent.set()

    def _consume(self, actor: Actor, client: ServiceBusClient) -> None:
        settled = 0
        with client.get_queue_receiver("plain") as receiver:
            while not self.broken.is_set():
                last = self.sent.is_set()
                found = actor.receive(receiver, "plain", 5, 0.5)
                for message in found:
                    settled += 1
                    actor.settle(receiver, "plain", message, _outcome(settled))
                    if settled % 2:
                        # Every other one: a number makes two messages on average.
                        self.room.release()
                if last and not found:
                    break
        actor.lose()

    def _consume_sessions(self, actor: Actor, client: ServiceBusClient) -> None:
        while not self.broken.is_set():
            last = self.sent.is_set()
            try:
                with actor.session(client, NEXT_AVAILABLE_SESSION, 1) as receiver:
                    for message in actor.receive(receiver, "grouped", 4, 0.5):
                        actor.settle(receiver, "grouped", message, "complete")
            except OperationTimeoutError:
                if last:
                    return

    def _consume_fast(self, actor: Actor, client: ServiceBusClient) -> None:
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        with client.get_queue_receiver("fast", receive_mode=mode) as receiver:
            while not self.broken.is_set():
                last = self.sent.is_set()
                found = actor.receive(receiver, "fast", 2, 0.5)
                if last and not found:
                    break
        actor.lose()


# -- the final look --------------------------------------------------------------


def drain(connection_string: str, recorder: Recorder) -> None:
    """Take everything out, waiting for locks of killed clients to end, and say so."""
    jobs = [
        *(partial(_drain_queue, queue) for queue in ("plain", "fast")),
        *(partial(_drain_session, session) for session in SESSIONS),
        *(partial(_drain_dead, queue) for queue in QUEUES),
    ]

    def run(number: int) -> None:
        with connect(connection_string) as client:
            jobs[number](Actor(f"drain{number}", recorder), client)

    with ThreadPoolExecutor(len(jobs)) as pool:
        list(pool.map(run, range(len(jobs))))
    for queue in QUEUES:
        recorder.finish(recorder.start("drain", "drained", queue=queue))


def _drain_queue(queue: str, actor: Actor, client: ServiceBusClient) -> None:
    with client.get_queue_receiver(queue) as receiver:
        # A look finds messages in any state, held or not.
        while left := receiver.peek_messages(250, sequence_number=1):
            for message in left:
                if message.state == ServiceBusMessageState.DEFERRED:
                    _drain_deferred(actor, receiver, message)
            for message in actor.receive(receiver, queue, 50, _POLL_SECONDS):
                actor.settle(receiver, queue, message, "complete")
    actor.lose()


def _drain_deferred(
    actor: Actor, receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage
) -> None:
    number = message.sequence_number or 0
    for found in actor.receive_deferred(receiver, "plain", number):
        actor.settle(receiver, "plain", found, "complete")


def _drain_session(session: str, actor: Actor, client: ServiceBusClient) -> None:
    # A killed client holds it until its lock ends.
    while not _drain_if_free(session, actor, client):
        pass


def _drain_if_free(session: str, actor: Actor, client: ServiceBusClient) -> bool:
    """Empty a session; False if another receiver holds it."""
    try:
        with actor.session(client, session, _POLL_SECONDS) as receiver:
            while receiver.peek_messages(1, sequence_number=1):
                for message in actor.receive(receiver, "grouped", 50, _POLL_SECONDS):
                    actor.settle(receiver, "grouped", message, "complete")
    except SessionCannotBeLockedError:
        return False
    return True


def _drain_dead(queue: str, actor: Actor, client: ServiceBusClient) -> None:
    dead = ServiceBusSubQueue.DEAD_LETTER
    with client.get_queue_receiver(queue, sub_queue=dead) as receiver:
        while receiver.peek_messages(1, sequence_number=1):
            for message in actor.receive(receiver, queue + DEAD, 50, _POLL_SECONDS):
                actor.settle(receiver, queue + DEAD, message, "complete")
    actor.lose()
