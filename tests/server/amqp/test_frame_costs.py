"""What a frame costs does not grow with the links, deliveries and claims there are.

Counts lines, and looks at all entries of a dict. No test here looks at a clock.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.server.near import MESSAGE, NearClient
from tests.server.raw import RawServer, serving
from tests.server.strangers import until
from twinbus import limits
from twinbus.clock import Now, SystemClock
from twinbus.core.entity import QueueDescription
from twinbus.server.access.port import NamespacePort
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.wire.events import Answered, Attached, Delivered
from twinbus.wire.frames import encode_frame
from twinbus.wire.link import Link
from twinbus.wire.performatives import (
    Accepted,
    Flow,
    Modified,
    Source,
    Transfer,
)
from twinbus.wire.session import Session
from twinbus.wire.types import Symbol


def lines_of(work: Callable[[], object]) -> int:
    """How many lines of Python one call runs, and how many calls of built-ins."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    def profile(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "c_call"

    traced, profiled = sys.gettrace(), sys.getprofile()
    # What the garbage collector calls is not the work's.
    gc.disable()
    sys.settrace(trace)
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.settrace(traced)
        sys.setprofile(profiled)
        gc.enable()
    return count


class CountingClock(SystemClock):
    """Counts how often the time was asked for, as each check of a right does."""

    looks = 0

    def now(self) -> Now:
        self.looks += 1
        return super().now()


class CountingDict(dict[Any, Any]):
    """Counts how many entries were looked at by going over all of them."""

    looks = 0

    def values(self) -> Any:
        self.looks += len(self)
        return super().values()

    def items(self) -> Any:
        self.looks += len(self)
        return super().items()


async def attach_steps(client: NearClient, links: int) -> int:
    """What an attach costs on a connection that has that many."""
    sessions = [client.session() for _ in range(-(-links // 200))]
    for number in range(links):
        client.sender(sessions[number // 200], "q")
        if number % 50 == 0:
            client.talk()
            await until(client.transport.is_reading)
    client.talk()
    await until(client.transport.is_reading)
    client.talk()
    last = client.session()
    # The first on a session, and the first after another was detached.
    client.sender(last, "q").detach()
    client.talk()
    client.sender(last, "q")
    data = client.engine.take()
    return lines_of(lambda: client.connection.data_received(data))


async def test_an_attach_costs_the_same_beside_any_number_of_links(
    port: NamespacePort,
) -> None:
    few = await attach_steps(NearClient.connect(port), 10)
    many = await attach_steps(NearClient.connect(port), 5000)

    assert many <= few + 5


async def test_free_handles_are_used_from_the_lowest(client: NearClient) -> None:
    session = client.session()
    links = [client.sender(session, "q") for _ in range(200)]
    client.talk()
    await until(client.transport.is_reading)
    client.talk()
    for link in reversed(links[10:]):
        link.detach()
    client.talk()
    await until(client.transport.is_reading)
    client.talk()
    assert len(session.handles_free) == 190

    given = [client.sender(session, "q").handle for _ in range(190)]

    assert given == list(range(10, 200))


async def delivered(
    server: RawServer, client: NearClient, session: Session, count: int
) -> Link:
    """A link on which so many messages were received and not settled."""
    sender = client.sender(session, "q")
    client.talk()
    for number in range(count):
        client.connection.data_received(
            encode_frame(
                session.channel,
                Transfer(
                    handle=sender.handle,
                    delivery_id=session.next_delivery_out + number,
                    delivery_tag=b"t",
                    message_format=0,
                    settled=True,
                ),
                MESSAGE,
            )
        )
    session.next_delivery_out += count
    link = client.receiver(session, "q")
    client.talk()
    link.grant(count)
    seen = len(client.heard(Delivered))
    client.talk()

    def is_all_there() -> bool:
        client.hear()
        return len(client.heard(Delivered)) == seen + count

    await until(is_all_there)
    return link


@pytest.mark.parametrize("settled", [False, True])
async def test_a_disposition_settles_deliveries_of_several_links(
    server: RawServer, client: NearClient, settled: bool
) -> None:
    session = client.session()
    first = await delivered(server, client, session, 3)
    second = await delivered(server, client, session, 2)
    ids = [each.delivery_id for each in client.heard(Delivered)][-5:]
    namespace = server.host.namespace
    (queue,) = (each for each in namespace.entities if each.name == "q")

    session.dispose(ids[0], ids[-1], settled, Accepted())
    client.talk()
    await until(lambda: not namespace.store.counts(queue.id).active)

    assert first is not second
    assert client.connection.unsettled == 0
    (theirs,) = (
        each
        for each in client.connection.engine.sessions.values()
        if each.peer_channel == session.channel
    )
    assert not theirs.unsettled
    await server.host.turn_over()
    client.connection.flush()
    client.talk()
    answered = [each for each in client.heard(Answered) if each.session is session]
    told = [
        number
        for each in answered
        if each.state == Accepted()
        for number in range(each.first, each.last + 1)
    ]
    assert told == ([] if settled else ids)


async def test_links_know_their_own_deliveries_without_a_look_at_others(
    server: RawServer, client: NearClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = client.session()
    for _ in range(3):
        await delivered(server, client, session, 400)
    small = await delivered(server, client, session, 4)
    (theirs,) = (
        each
        for each in client.connection.engine.sessions.values()
        if each.peer_channel == session.channel
    )
    counting = CountingDict(theirs.unsettled)
    theirs.unsettled = counting
    monkeypatch.setattr(limits, "UNSETTLED_PER_LINK_MAX", 4)

    # The link is full: each flow has its locks looked at.
    small.grant(10)
    client.talk()
    await until(lambda: not server.host._scheduled)
    # Its locks have ended: what was lost takes no place, and more comes.
    server.advance(400_000)

    def comes_again() -> bool:
        client.hear()
        return len(client.heard(Delivered)) > 1204

    await until(comes_again)
    small.detach()
    client.talk()

    assert counting.looks == 0


async def test_one_session_that_can_write_again_wakes_only_its_own_links(
    client: NearClient,
) -> None:
    engine = client.connection.engine
    woken: list[int] = []
    sessions = [client.session() for _ in range(2)]
    theirs = [engine.sessions_by_peer[each.channel] for each in sessions]
    for number, each in enumerate(theirs):
        each._peer_window = 0
        each.write_transfer(b"", 0)
        each.on_unblocked[partial(woken.append, number)] = None

    flow = Flow(next_incoming_id=0, incoming_window=10, outgoing_window=10)
    client.connection.data_received(encode_frame(sessions[1].channel, flow))

    assert woken == [1]


async def test_a_disposition_over_many_deliveries_counts_as_work(
    server: RawServer, client: NearClient
) -> None:
    """One that says nothing of thousands costs as often as it comes."""
    session = client.session()
    for _ in range(4):
        await delivered(server, client, session, 400)
    session.dispose(0, 1 << 20, False, None)
    frame = client.engine.take()

    client.connection.data_received(frame * 10)

    # Each took more than a go: nine are left.
    assert not client.transport.is_reading()
    goes = 0
    while not client.transport.is_reading():
        await asyncio.sleep(0)
        goes += 1
    assert goes == 10


@pytest.mark.parametrize(
    ("state", "most"),
    [
        (Accepted(), limits.COMPLETED_DELIVERIES_MAX),
        (Modified(delivery_failed=True), limits.SETTLED_DELIVERIES_MAX),
    ],
    ids=["accepted", "modified"],
)
async def test_a_disposition_over_many_deliveries_is_divided(
    server: RawServer, client: NearClient, state: Any, most: int
) -> None:
    session = client.session()
    await delivered(server, client, session, 1200)
    first = client.heard(Delivered)[-1].delivery_id - 1199
    client.engine.take()
    client.events.clear()
    session.dispose(first, first + 1199, False, state)

    client.say()

    commands: list[Any] = [each.command for each in server.host.pending]
    counts = [sum(len(locks) for _, locks in each.items) for each in commands]
    assert max(counts) == most
    assert sum(counts) == 1200

    def answered() -> list[int]:
        client.hear()
        ranges = [range(each.first, each.last + 1) for each in client.heard(Answered)]
        return [number for each in ranges for number in each]

    await until(lambda: len(answered()) == 1200)
    assert answered() == list(range(first, first + 1200))
    assert {type(each.state) for each in client.heard(Answered)} == {type(state)}


async def test_the_rights_of_links_are_checked_once_for_all_that_need_the_same(
    client: NearClient,
) -> None:
    session = client.session()
    for _ in range(200):
        client.sender(session, "q")
    client.talk()
    await until(client.transport.is_reading)
    client.talk()
    asked = CountingClock()
    client.connection.host.token_clock = asked

    client.connection.check_claims()

    # Once for the right that all of them need, and for the end of the claim.
    assert asked.looks == 3


async def test_a_right_is_found_without_a_look_at_all_claims(
    client: NearClient,
) -> None:
    claims = client.connection.claims
    (root,) = claims._by_audience.values()
    held = CountingDict(
        {"": root} | {f"other-{number}": root for number in range(1000)}
    )
    claims._by_audience = held
    session = client.session()

    client.sender(session, "q")
    client.talk()

    assert held.looks == 0
    del held[""]
    client.sender(session, "q")
    client.talk()
    assert client.heard(Attached)[-1].link.peer_attach.target is None


async def test_a_link_that_waited_for_a_session_in_vain_is_forgotten(
    tmp_path: Path,
) -> None:
    talks = QueueDescription("talks", requires_session=True)
    config = NamespaceConfig("contoso", queues=(talks,))
    async with serving(tmp_path / "other", config) as server:
        client = NearClient.connect(server.ports["contoso"])
        session = client.session()
        wanted = {Symbol("com.microsoft:session-filter"): None}
        source = Source(address="talks", filter=wanted)
        link = client.receiver(session, "talks", source=source)
        client.talk()
        assert server.host.links
        link.state = type(link.state).ATTACHED
        link.detach()
        client.talk()

        assert not server.host.links
        assert not client.connection.needs
