"""A ping is accepted if a send would be, and only after a commit that wrote a row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from twinbus.clock import Now
from twinbus.core.entity import ActiveStatus, QueueDescription
from twinbus.core.names import EntityPath
from twinbus.errors import (
    BusyError,
    CallerError,
    EntityDisabled,
    QuotaExceeded,
    TwinbusError,
)
from twinbus.pairing.rules.ping import ping_message
from twinbus.server.broker.commands import Send
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn, Work, run
from twinbus.store.base import PROBE
from twinbus.store.sqlite.file import FILE_NAME
from twinbus.store.sqlite.store import SqliteStore
from twinbus.wire.message import sections
from twinbus.wire.message.sections import Incoming

NOW_MS = 1_700_000_000_000


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[Namespace]:
    store = SqliteStore.open(tmp_path)
    store.begin()
    made = Namespace("contoso", store)
    for description in (
        QueueDescription("q"),
        QueueDescription("closed", status=ActiveStatus.SEND_DISABLED),
        QueueDescription("small", max_size_in_megabytes=1),
        QueueDescription("slow", message_rate_per_second=1),
    ):
        made.entities.create(description, NOW_MS)
    store.commit()
    made.undo_log.clear()
    yield made
    store.close()


@pytest.fixture
def queue(namespace: Namespace) -> Entity:
    return namespace.entities.get(EntityPath("q"))


def ping(number: int = 1) -> Incoming:
    return sections.parse(ping_message("s", str(number)))


def message(body: bytes) -> Incoming:
    return sections.parse(sections.encode_message(body))


def largest() -> Incoming:
    """As large as a queue takes: four of them fill one megabyte."""
    more_bytes = len(message(bytes(1000)).bare) - 1000
    return message(bytes(256 * 1024 - more_bytes))


def send(entity: Entity, *deliveries: list[Incoming]) -> Send:
    return Send(entity, *deliveries)


def written_bytes(namespace: Namespace, tmp_path: Path, *commands: Send) -> int:
    """Run a turn and commit it; tells how much it added to the log of the database."""
    log = tmp_path / f"{FILE_NAME}-wal"
    before = log.stat().st_size
    namespace.store.begin()
    run(namespace, Work(Now.at(NOW_MS), commands))
    namespace.store.commit()
    return log.stat().st_size - before


def test_a_turn_with_a_ping_writes_to_the_log(
    namespace: Namespace, queue: Entity, tmp_path: Path
) -> None:
    nothing = written_bytes(namespace, tmp_path)
    once = written_bytes(namespace, tmp_path, send(queue, [ping()]))
    pings = [[ping(number)] for number in range(100)]
    often = written_bytes(namespace, tmp_path, send(queue, *pings), send(queue, *pings))

    assert nothing == 0
    assert once > 0
    # The first ping of a turn writes for all of them.
    assert often == once
    assert queue.pings == 201


def test_a_ping_after_one_that_was_undone_writes_again(
    namespace: Namespace, queue: Entity
) -> None:
    large = message(bytes(queue.message_bytes_max + 1))

    def fails(names: Namespace, turn: Turn) -> None:
        names.send(queue, [ping()], turn)
        names.send(queue, [large], turn)

    namespace.store.begin()
    outcome = run(namespace, Work(Now.at(NOW_MS), [fails, send(queue, [ping(2)])]))
    probed = namespace.store.counts(PROBE).last_sequence
    namespace.store.commit()

    assert isinstance(outcome.answers[0], CallerError)
    assert outcome.answers[1] == {}
    assert probed == 1


def test_a_ping_is_no_message_and_no_use_of_the_entity(
    namespace: Namespace, queue: Entity, tmp_path: Path
) -> None:
    before = namespace.store.counts(queue.id)

    written_bytes(namespace, tmp_path, send(queue, [ping()]))

    assert namespace.store.counts(queue.id) == before
    assert before.accessed_ms == 0
    assert namespace.store.counts(PROBE).active == 0
    assert (queue.received, queue.pings) == (0, 1)


@pytest.mark.parametrize(
    ("name", "first", "error"),
    [
        ("closed", None, EntityDisabled),
        ("small", [largest() for _ in range(4)], QuotaExceeded),
        ("slow", [message(b"x")], BusyError),
    ],
)
def test_a_ping_is_refused_like_an_empty_send(
    namespace: Namespace,
    name: str,
    first: list[Incoming] | None,
    error: type[TwinbusError],
) -> None:
    entity = namespace.entities.get(EntityPath(name))
    if first is not None:
        namespace.store.begin()
        assert run(namespace, Work(Now.at(NOW_MS), [send(entity, first)])).answers == [
            {}
        ]
        namespace.store.commit()

    namespace.store.begin()
    commands = [send(entity, [ping()]), send(entity, [message(b"")])]
    pinged, sent = run(namespace, Work(Now.at(NOW_MS), commands)).answers
    namespace.store.rollback()

    refused: list[TwinbusError] = [pinged[0], sent[0]]
    assert [type(each) for each in refused] == [error, error]
    assert refused[0].text == refused[1].text
