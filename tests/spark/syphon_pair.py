"""A primary and a secondary, and a backlog between them.

The servers are processes of their own, or, where none is killed, inside the test's.

Owns what the syphon's tests start from: messages of every kind, diverted into backlog
queues as a paired sender does it, and the judge who looks at what came home. Every
message has a fingerprint over all that must survive, and a number in the order of its
backlog queue and destination.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from tests.pairing.rules.messages import canonical
from twinbus.client.connection import Connection
from twinbus.client.message import Message
from twinbus.client.receiver import ReceiveOptions
from twinbus.clock import SystemClock
from twinbus.pairing.rules.envelope import divert
from twinbus.pairing.rules.naming import backlog_path
from twinbus.spark.syphon_job import journal
from twinbus.spark.syphon_job.storage import storage_at
from twinbus.testing.namespace import serve_namespace
from twinbus.wire.codec import decode, encode
from twinbus.wire.message import sections
from twinbus.wire.types import Described, Symbol, Timestamp, UInt, ULong

PRIMARY = "contoso"
SESSIONS = ("red", "green", "blue")
_READY_SECONDS_MAX = 60
_TIME_TO_LIVE_MS = 3_600_000
_BATCH = 200


# -- servers -------------------------------------------------------------------------


class Place:
    """One namespace, wherever it runs."""

    def __init__(self, connection_string: str = "") -> None:
        self.connection_string = connection_string

    def connection(self) -> Connection:
        return Connection.from_connection_string(self.connection_string)


class Server(Place):
    """A process, which can be killed and started again on the same port."""

    def __init__(self, folder: Path, name: str, entities: dict[str, Any]) -> None:
        super().__init__()
        self.name = name
        self._folder = folder / name
        self._folder.mkdir(parents=True)
        config = {"namespaces": [{"name": name, **entities}]}
        (self._folder / "config.json").write_text(json.dumps(config))
        self._port = 0
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> Self:
        """Run it, and return when it is ready."""
        command = [sys.executable, "-m", "twinbus.cli.main", "serve", "--dev"]
        command += ["--no-supervisor", "--no-ledger"]
        command += ["--data", str(self._folder / "data"), "--http-port", "0"]
        command += ["--config", str(self._folder / "config.json")]
        command += ["--amqp-port", str(self._port), "--log-level", "warning"]
        with (self._folder / "stderr.log").open("a") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, (self._folder / "stderr.log").read_text()
        ready = json.loads(line)["namespaces"][self.name]
        self._port = ready["amqp_port"]
        self.connection_string = ready["connection_string"]
        return self

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End it; SIGKILL leaves it no time for anything."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(_READY_SECONDS_MAX)
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None


@dataclass(frozen=True, slots=True)
class Shape:
    """What the two namespaces have."""

    queues: tuple[str, ...] = ("orders", "billing")
    topics: tuple[str, ...] = ("events",)
    session_queues: tuple[str, ...] = ("rooms",)
    backlog_queues: int = 3
    lock: str = "PT5S"
    # Those that remember message ids.
    detecting: tuple[str, ...] = ()

    @property
    def destinations(self) -> tuple[str, ...]:
        return (*self.queues, *self.topics, *self.session_queues)

    def home(self) -> dict[str, Any]:
        """The primary's entities."""
        plain = [self._named(name) for name in self.queues]
        grouped = [
            {**self._named(name), "requires_session": True}
            for name in self.session_queues
        ]
        topics = [
            {**self._named(name), "subscriptions": [{"name": "all"}]}
            for name in self.topics
        ]
        return {"queues": plain + grouped, "topics": topics}

    def _named(self, name: str) -> dict[str, Any]:
        detects = name in self.detecting
        return {"name": name, "requires_duplicate_detection": detects}

    def backlog(self) -> dict[str, Any]:
        """The secondary's."""
        queues = [
            {
                "name": backlog_path(PRIMARY, index),
                "lock_duration": self.lock,
                "max_delivery_count": 1_000_000,
            }
            for index in range(self.backlog_queues)
        ]
        return {"queues": queues}


PlaceT_co = TypeVar("PlaceT_co", bound=Place, covariant=True)


@dataclass(frozen=True)
class Pair(Generic[PlaceT_co]):
    """Two servers that run."""

    primary: PlaceT_co
    secondary: PlaceT_co
    shape: Shape
    folder: Path

    @property
    def options(self) -> dict[str, object]:
        """The syphon's options for these."""
        return {
            "primaryConnectionString": self.primary.connection_string,
            "secondaryConnectionString": self.secondary.connection_string,
            "primaryName": PRIMARY,
            "journalLocation": str(self.folder / "journal"),
        }

    @property
    def journal_pair(self) -> str:
        authority = self.secondary.connection_string.split("sb://")[1].split(";")[0]
        return f"{authority.strip('/').replace(':', '-')}/{PRIMARY}"


Rules = Sequence[dict[str, Any]]


@contextmanager
def serving(
    folder: Path, shape: Shape, rules: Rules = ({}, {})
) -> Iterator[Pair[Server]]:
    """Run both until the block ends; `rules` is one more key for each."""
    entities = [shape.home(), shape.backlog()]
    for each, rule in zip(entities, rules, strict=True):
        each["authorization_rules"] = [rule] if rule else []
    primary = Server(folder, PRIMARY, entities[0])
    secondary = Server(folder, "backlog", entities[1])
    try:
        yield Pair(primary.start(), secondary.start(), shape, folder)
    finally:
        for server in (primary, secondary):
            server.stop(signal.SIGKILL)


@contextmanager
def inside(folder: Path, shape: Shape) -> Iterator[Pair[Place]]:
    """Both in this process, and started faster."""
    with (
        serve_namespace(shape.home(), name=PRIMARY) as primary,
        serve_namespace(shape.backlog(), name="backlog") as secondary,
    ):
        home, away = (
            Place(primary.connection_string),
            Place(secondary.connection_string),
        )
        yield Pair(home, away, shape, folder)


# -- the backlog ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that was diverted."""

    destination: str
    index: int
    # Its place among those for the same destination in the same backlog queue.
    number: int
    fingerprint: str
    has_ttl: bool
    session_id: str | None


@dataclass
class Expected:
    """All that was diverted, by message id."""

    sent: dict[str, Sent] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.sent)


def fingerprint(payload: bytes) -> str:
    """Over all that must survive but the time to live, which shrinks on the way."""
    found = canonical(payload, after_a_broker=True)
    found[sections.HEADER] = found[sections.HEADER][:2]
    return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()


class Maker:
    """Makes messages of every kind, from a seed."""

    def __init__(self, seed: int, body_bytes: int | None = None) -> None:
        self._chance = random.Random(seed)
        self._body_bytes = body_bytes
        self._count = 0

    def make(self, session_id: str | None) -> tuple[str, bytes]:
        """An id and the message as the application would send it."""
        chance = self._chance
        self._count += 1
        message_id = f"m{self._count}-{chance.getrandbits(32):08x}"
        size = self._body_bytes or chance.choice((0, 10, 300, 1024, 5000))
        properties: dict[int, Any] = {sections.MESSAGE_ID: message_id}
        if session_id is not None:
            properties[sections.GROUP_ID] = session_id
        if chance.random() < 0.3:
            properties[sections.CONTENT_TYPE] = Symbol("application/json")
        ttl_ms = _TIME_TO_LIVE_MS if chance.random() < 0.2 else None
        body = chance.randbytes(size)
        payload = sections.encode_message(body, properties, ttl_ms)
        return message_id, self._extended(payload)

    def _extended(self, payload: bytes) -> bytes:
        """With annotations and properties of the application's own."""
        chance = self._chance
        if chance.random() < 0.5:
            return payload
        pairs: dict[str, Any] = {"n": UInt(self._count), "x-ms-path": "not an alias"}
        added = encode(Described(ULong(sections.APPLICATION_PROPERTIES), pairs))
        if chance.random() < 0.2:
            # Long ago, so it is delivered now; the time itself must come home.
            due = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(1_600_000_000_000)}
            added = encode(Described(ULong(sections.MESSAGE_ANNOTATIONS), due)) + added
        return _with_sections(payload, added)


def _with_sections(payload: bytes, added: bytes) -> bytes:
    parts = [
        (code, data[begin:end])
        for data in (payload, added)
        for code, begin, _start, end in sections.find_sections(data)
    ]
    return b"".join(data for _, data in sorted(parts, key=lambda part: part[0]))


async def fill(
    pair: Pair[Place], count: int, seed: int, size: int | None = None
) -> Expected:
    """Divert messages for all destinations into all backlog queues."""
    shape = pair.shape
    chance, maker = random.Random(seed), Maker(seed, size)
    expected = Expected()
    lanes: Counter[tuple[str, int]] = Counter()
    waiting: list[list[bytes]] = [[] for _ in range(shape.backlog_queues)]
    now_ms = SystemClock().now_ms()
    async with pair.secondary.connection() as connection:
        senders = [
            connection.sender(backlog_path(PRIMARY, index))
            for index in range(shape.backlog_queues)
        ]
        for _ in range(count):
            path = chance.choice(shape.destinations)
            index = chance.randrange(shape.backlog_queues)
            session = chance.choice(SESSIONS) if path in shape.session_queues else None
            message_id, payload = maker.make(session)
            expected.sent[message_id] = Sent(
                destination=path,
                index=index,
                number=lanes[path, index],
                fingerprint=fingerprint(payload),
                has_ttl=_ttl(payload) is not None,
                session_id=session,
            )
            lanes[path, index] += 1
            waiting[index].append(divert(payload, path, now_ms))
            if len(waiting[index]) == _BATCH:
                await senders[index].send(waiting[index])
                waiting[index] = []
        for sender, rest in zip(senders, waiting, strict=True):
            if rest:
                await sender.send(rest)
    return expected


def _ttl(payload: bytes) -> Any:
    for code, _begin, start, _end in sections.find_sections(payload):
        if code == sections.HEADER:
            return decode(payload, start)[0][2]
    return None


# -- what came home ------------------------------------------------------------------


@dataclass
class Home:
    """All that the primary's receivers got, in their order."""

    by_destination: dict[str, list[Message]] = field(default_factory=dict)

    @property
    def ids(self) -> Counter[str]:
        return Counter(
            str(message.message_id)
            for messages in self.by_destination.values()
            for message in messages
        )

    def duplicates(self, *paths: str) -> int:
        """How many came more than once; at some destinations, or at all."""
        found = 0
        for path in paths or self.by_destination:
            ids = [str(each.message_id) for each in self.by_destination[path]]
            found += len(ids) - len(set(ids))
        return found


async def collect(pair: Pair[Place]) -> Home:
    """Take everything out of the primary."""
    home = Home()
    shape = pair.shape
    async with pair.primary.connection() as connection:
        for path in (*shape.queues, *shape.topics):
            address = f"{path}/Subscriptions/all" if path in shape.topics else path
            home.by_destination[path] = await _take(
                connection, address, ReceiveOptions(deletes=True)
            )
        for path in shape.session_queues:
            found = home.by_destination.setdefault(path, [])
            for session in SESSIONS:
                options = ReceiveOptions(deletes=True, session_id=session)
                found += await _take(connection, path, options)
    return home


async def _take(
    connection: Connection, path: str, options: ReceiveOptions
) -> list[Message]:
    found: list[Message] = []
    async with connection.receiver(path, options) as receiver:
        while part := await receiver.receive(1000, 0.3):
            found += part
    return found


def differences(expected: Expected, home: Home, *, ordered: bool = True) -> list[str]:
    """What is not as it should be: lost, strange, changed, or out of order."""
    counts = home.ids
    wrong = [f"lost: {each}" for each in expected.sent if each not in counts]
    wrong += [f"from nowhere: {each}" for each in counts if each not in expected.sent]
    for path, messages in home.by_destination.items():
        for message in messages:
            sent = expected.sent.get(str(message.message_id))
            if sent is not None:
                wrong += _changes(message, sent, path)
        if ordered:
            wrong += _disorder(expected, path, messages)
    return wrong[:20]


def _changes(message: Message, sent: Sent, path: str) -> Iterator[str]:
    name = message.message_id
    if sent.destination != path:
        yield f"{name} went to {path}, not to {sent.destination}"
    if message.session_id != sent.session_id:
        yield f"{name} has the session {message.session_id}"
    if fingerprint(message.payload) != sent.fingerprint:
        yield f"{name} has changed"
    ttl_ms = message.header[2]
    if sent.has_ttl and not (ttl_ms and 0 < ttl_ms <= _TIME_TO_LIVE_MS):
        yield f"{name} lives for {ttl_ms} ms"


def _disorder(
    expected: Expected, path: str, messages: Sequence[Message]
) -> Iterator[str]:
    """Within a destination, what one backlog queue held comes in its order.

    Sessions are received one after the other, so each is looked at alone.
    """
    last: dict[tuple[int, str | None], int] = {}
    seen: set[str] = set()
    for message in messages:
        name = str(message.message_id)
        sent = expected.sent.get(name)
        if sent is None or name in seen:
            continue
        seen.add(name)
        lane = sent.index, sent.session_id
        if sent.number < last.get(lane, -1):
            yield f"{name} of backlog queue {sent.index} for {path} is out of order"
        last[lane] = sent.number


async def left_behind(pair: Pair[Place]) -> int:
    """How many messages the backlog queues still hold, ready or locked or dead."""
    left = 0
    async with pair.secondary.connection() as connection:
        for index in range(pair.shape.backlog_queues):
            path = backlog_path(PRIMARY, index)
            for place in (path, f"{path}/$deadletterqueue"):
                left += len(await connection.management(place).peek(250))
    return left


def filled(
    pair: Pair[Place], count: int, seed: int, size: int | None = None
) -> Expected:
    """Divert messages, from code that is not async."""
    return asyncio.run(fill(pair, count, seed, size))


def judged(pair: Pair[Place], expected: Expected, *, ordered: bool = True) -> Home:
    """Take all out of the primary; fails unless everything is home and equal."""
    assert asyncio.run(left_behind(pair)) == 0
    home = asyncio.run(collect(pair))
    assert differences(expected, home, ordered=ordered) == []
    return home


def receipts(pair: Pair[Place]) -> tuple[int, int]:
    """How many receipts there are, and for how many messages."""
    storage = storage_at(str(pair.options["journalLocation"]))
    written, distinct = 0, 0
    for table in journal.all_receipts(storage, pair.journal_pair).values():
        written += len(table)
        columns = [table[name].to_pylist() for name in ("sequence", "enqueued_ms")]
        distinct += len(set(zip(*columns, strict=True)))
    return written, distinct
