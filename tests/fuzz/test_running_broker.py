"""Well-formed messages, rules and actions of any kind against a running server.

One client sends messages with properties of all types and values to a topic, and gives
its subscriptions rules and actions that were put together by chance. Each case may be
accepted or refused; it must not fail the server. The official client sends, receives
and completes on a queue of its own meanwhile, and must not see an error.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from twinbus.client.connection import Connection
from twinbus.client.receiver import ReceiveOptions
from twinbus.core.filters import SqlFilter, SqlRuleAction
from twinbus.core.rule import RuleDescription
from twinbus.errors import RemoteError
from twinbus.testing.server_process import ServerProcess
from twinbus.wire.encoder import encode
from twinbus.wire.message import sections
from twinbus.wire.types import (
    Byte,
    Char,
    Decimal,
    Described,
    Float32,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

SUBSCRIPTIONS = 6
# Cases between two changes of the rules, and those on their way at one time.
ROUND = 200
NAMES = ["a", "b", "c", "A", "n", "", "é", "x" * 60, "a b"]
# Each edge with its neighbours.
EDGES = [
    sign * (1 << bits) + step
    for bits in (0, 7, 8, 15, 16, 31, 32, 53, 62, 63)
    for sign in (1, -1)
    for step in (-1, 0, 1)
]
OPERANDS = [
    *("a", "b", "c", "[a b]", "sys.Label", "sys.MessageId", "sys.SessionId"),
    *("sys.TimeToLive", "sys.EnqueuedTimeUtc", "sys.SequenceNumber", "user.n"),
    *("1", "0", "-1", "9223372036854775807", "1.5", "1e308", "'a'", "'%a_b%'", "''"),
    *("newid()", "property('a')", "NULL", "TRUE", "FALSE"),
]
COMPARISONS = ["=", "<>", "!=", "<", "<=", ">", ">=", "LIKE", "NOT LIKE"]
SETTABLE = ["a", "b", "fresh", "[a b]", "sys.Label", "sys.SessionId", "sys.TimeToLive"]


# -- what is sent --------------------------------------------------------------------


def number(random: Random, bits: int, *, signed: bool) -> int:
    """A number of so many bits, often at an edge."""
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, 2**bits - 1)
    near = random.choice(EDGES)
    return near if low <= near <= high else random.randint(low, high)


def text(random: Random) -> str:
    kind = random.randrange(4)
    if kind == 0:
        return "ab%_z" * random.randrange(9)
    if kind == 1:
        return "a" * random.choice((1, 63, 64, 127, 128, 129, 5_000))
    return "".join(chr(random.randrange(1, 0xD7FF)) for _ in range(random.randrange(8)))


def value(random: Random) -> Any:
    """A property of any type that a message may carry."""
    ticks = number(random, 64, signed=True)
    return random.choice(
        (
            lambda: None,
            lambda: random.random() < 0.5,
            lambda: UByte(number(random, 8, signed=False)),
            lambda: UShort(number(random, 16, signed=False)),
            lambda: UInt(number(random, 32, signed=False)),
            lambda: ULong(number(random, 64, signed=False)),
            lambda: Byte(number(random, 8, signed=True)),
            lambda: Short(number(random, 16, signed=True)),
            lambda: Int(number(random, 32, signed=True)),
            lambda: ticks,
            lambda: Float32(random.choice((0.0, 1.5, float("inf"), float("nan")))),
            lambda: random.choice((0.0, -0.0, 1e308, float("-inf"), float("nan"))),
            lambda: Decimal(random.randbytes(random.choice((4, 8, 16)))),
            lambda: Char("z"),
            lambda: Timestamp(ticks),
            lambda: UUID(int=random.getrandbits(128)),
            lambda: random.randbytes(random.randrange(9)),
            lambda: text(random),
            lambda: Symbol("symbol"),
            lambda: Described(Symbol("com.microsoft:timespan"), ticks),
            lambda: Described(Symbol("com.microsoft:datetime-offset"), ticks),
            lambda: Described(Symbol("com.microsoft:uri"), text(random)),
            lambda: Described(ULong(7), text(random)),
        )
    )()


def section(code: int, held: Any) -> bytes:
    return encode(Described(ULong(code), held))


def message(random: Random, now_ms: int) -> bytes:
    """A whole message with some of all sections, in their order."""
    parts = []
    if random.random() < 0.5:
        ttl = random.choice((None, UInt(0), UInt(1), UInt(50), UInt(2**32 - 1)))
        parts.append(section(sections.HEADER, [True, UByte(4), ttl]))
    if random.random() < 0.4:
        annotations: dict[Symbol, Any] = {}
        if random.random() < 0.5:
            when = random.choice((now_ms + 30, now_ms - 1, 0, -1))
            annotations[Symbol("x-opt-scheduled-enqueue-time")] = Timestamp(when)
        if random.random() < 0.3:
            annotations[Symbol("x-opt-partition-key")] = text(random)[:130]
        annotations[Symbol("x-opt-any")] = value(random)
        parts.append(section(sections.MESSAGE_ANNOTATIONS, annotations))
    if random.random() < 0.8:
        fields = [random.choice((None, value(random), text(random))) for _ in range(13)]
        # Those whose types the standard gives, mostly of that type.
        if random.random() < 0.9:
            fields[1] = b"user"
            fields[2:5] = [text(random), text(random), text(random)]
            fields[6:8] = [Symbol("a/b"), None]
            fields[8:10] = [Timestamp(now_ms), None]
            fields[10:13] = [text(random)[:130], UInt(1), text(random)]
        parts.append(section(sections.PROPERTIES, fields[: random.randrange(14)]))
    if random.random() < 0.9:
        names = random.sample(NAMES, random.randrange(len(NAMES)))
        properties = {name: value(random) for name in names}
        parts.append(section(sections.APPLICATION_PROPERTIES, properties))
    body = random.randrange(3)
    if body == 0:
        parts.append(section(sections.DATA, random.randbytes(random.randrange(200))))
    elif body == 1:
        parts.append(section(sections.VALUE, value(random)))
    else:
        parts.append(section(sections.SEQUENCE, [value(random), value(random)]))
    return b"".join(parts)


def expression(random: Random, depth: int = 2) -> str:
    if depth and random.random() < 0.5:
        sign = random.choice("+-*/%")
        left, right = expression(random, depth - 1), expression(random, depth - 1)
        return f"({left} {sign} {right})"
    return random.choice(("", "", "-")) + random.choice(OPERANDS)


def condition(random: Random, depth: int = 2) -> str:
    if depth and random.random() < 0.4:
        word = random.choice(("AND", "OR"))
        left, right = condition(random, depth - 1), condition(random, depth - 1)
        return f"{random.choice(('', 'NOT '))}({left} {word} {right})"
    left = expression(random)
    kind = random.randrange(5)
    if kind == 0:
        return f"{left} IN ({expression(random, 0)}, {expression(random, 0)})"
    if kind == 1:
        return f"{left} IS {random.choice(('', 'NOT '))}NULL"
    if kind == 2:
        return "EXISTS (a)"
    return f"{left} {random.choice(COMPARISONS)} {expression(random)}"


def rule(random: Random, name: str) -> RuleDescription:
    steps = [
        f"SET {random.choice(SETTABLE)} = {expression(random)}"
        if random.random() < 0.8
        else f"REMOVE {random.choice(SETTABLE)}"
        for _ in range(random.randrange(4))
    ]
    action = SqlRuleAction("; ".join(steps)) if steps else None
    chosen = random.choice((condition(random), "1=1"))
    return RuleDescription(name, SqlFilter(chosen), action)


# -- who sends it --------------------------------------------------------------------


class Wild:
    """The client that sends anything."""

    def __init__(self, connection: Connection, random: Random) -> None:
        self._connection = connection
        self._random = random
        self.outcomes: Counter[str] = Counter()
        self.failures: list[str] = []

    async def run(self, cases: int) -> None:
        places = [f"wild/Subscriptions/s{each}" for each in range(SUBSCRIPTIONS)]
        places = [
            *places[:-1],
            "sink",
            *(f"{each}/$DeadLetterQueue" for each in places),
        ]
        draining = [asyncio.create_task(self._drain(place)) for place in places]
        sender = self._connection.sender("wild")
        for _ in range(0, cases, ROUND):
            await self._change_rules()
            now_ms = int(time.time() * 1000)
            payloads = [message(self._random, now_ms) for _ in range(ROUND)]
            sent = [sender.send(payload) for payload in payloads]
            for error in await asyncio.gather(*sent, return_exceptions=True):
                self._note("message", error)
        for task in draining:
            task.cancel()
        ended = await asyncio.gather(*draining, return_exceptions=True)
        for error in ended:
            if not isinstance(error, asyncio.CancelledError):
                self.failures.append(repr(error))

    async def _change_rules(self) -> None:
        place = f"wild/Subscriptions/s{self._random.randrange(SUBSCRIPTIONS)}"
        management = self._connection.management(place)
        for known in await management.rules():
            await management.remove_rule(known.name)
        for each in range(self._random.randrange(1, 4)):
            try:
                await management.add_rule(rule(self._random, f"r{each}"))
                self._note("rule", None)
            except RemoteError as error:
                self._note("rule", error)

    async def _drain(self, path: str) -> None:
        receiver = self._connection.receiver(path, ReceiveOptions(deletes=True))
        while True:
            for got in await receiver.receive(100, 60):
                if b"InternalError" in got.payload:
                    self.failures.append(f"set aside in {path}: {got.payload!r}")

    def _note(self, what: str, error: BaseException | None) -> None:
        if error is None:
            self.outcomes[f"{what} accepted"] += 1
        elif isinstance(error, RemoteError) and error.condition not in _FAILURES:
            self.outcomes[f"{what} refused"] += 1
        else:
            self.failures.append(f"{what}: {error!r}")


_FAILURES = ("amqp:internal-error", "com.microsoft:server-error")


class Honest(threading.Thread):
    """The official client, on a queue of its own."""

    def __init__(self, connection_string: str) -> None:
        super().__init__(daemon=True)
        self._connection_string = connection_string
        self.stopped = threading.Event()
        self.rounds = 0
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001
            self.error = error

    def _work(self) -> None:
        with (
            ServiceBusClient.from_connection_string(
                self._connection_string, retry_total=0
            ) as client,
            client.get_queue_sender("honest") as sender,
            client.get_queue_receiver("honest") as receiver,
        ):
            while not self.stopped.is_set():
                sender.send_messages(ServiceBusMessage(str(self.rounds)))
                (got,) = receiver.receive_messages(1, max_wait_time=60)
                assert str(got) == str(self.rounds)
                receiver.complete_message(got)
                self.rounds += 1


@contextmanager
def honest(connection_string: str) -> Iterator[Honest]:
    client = Honest(connection_string)
    client.start()
    yield client
    client.stopped.set()
    client.join()


ENTITIES: dict[str, Any] = {
    "queues": ["honest", "sink"],
    "topics": [
        {
            "name": "wild",
            "subscriptions": [
                {
                    "name": f"s{number}",
                    "dead_lettering_on_filter_evaluation_exceptions": number % 2 == 0,
                    "dead_lettering_on_message_expiration": number % 3 == 0,
                }
                | ({"forward_to": "sink"} if number == SUBSCRIPTIONS - 1 else {})
                for number in range(SUBSCRIPTIONS)
            ],
        }
    ],
}


def check(folder: Path, seed: int, cases: int) -> None:
    with ServerProcess(folder, ENTITIES) as server:

        async def run() -> Wild:
            text = server.connection_string
            async with Connection.from_connection_string(text) as connection:
                wild = Wild(connection, Random(seed))
                await wild.run(cases)
                return wild

        with honest(server.connection_string) as client:
            wild = asyncio.run(run())
        assert server.stop() == 0
    print(dict(wild.outcomes), client.rounds)
    assert wild.failures == []
    assert client.error is None
    assert client.rounds > 0
    for what in ("message accepted", "message refused", "rule accepted"):
        assert wild.outcomes[what], what
    log = server.log.read_text()
    assert "Traceback" not in log, log[-5_000:]


def test_no_message_and_no_rule_fails_the_server(tmp_path: Path) -> None:
    check(tmp_path, seed=1, cases=2_000)


@pytest.mark.campaign
def test_a_million_messages_do_not_fail_the_server(tmp_path: Path) -> None:
    check(tmp_path, int(os.environ.get("FUZZ_SEED", "2")), cases=1_000_000)
