"""The life of a claim: renewed under load, never widened, and gone when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.server.cbs import Cbs, attach, connect, is_refused, serving_all, wait_for
from tests.server.raw import RawClient, RawServer, connections_of
from twinbus import limits
from twinbus.core.entity import QueueDescription
from twinbus.core.rights import AuthorizationRule, Right
from twinbus.core.sas import Secret
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.wire.events import Detached, Disposed, Event
from twinbus.wire.link import Link
from twinbus.wire.message import sections
from twinbus.wire.performatives import (
    Accepted,
    Attach,
    Source,
    Target,
)
from twinbus.wire.session import Session
from twinbus.wire.types import Symbol

GROUP_ID = 10
DAY_S = 86_400
RULES = {
    "send": Right.SEND,
    "listen": Right.LISTEN,
    "both": Right.SEND | Right.LISTEN,
    "manage": Right.MANAGE,
}
CONFIG = NamespaceConfig(
    "contoso",
    queues=(QueueDescription("q"), QueueDescription("s", requires_session=True)),
    authorization_rules=tuple(
        AuthorizationRule(name, right, Secret(name)) for name, right in RULES.items()
    ),
)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RawServer]:
    async with serving_all(tmp_path, CONFIG) as servers:
        yield servers["contoso"]


@pytest.fixture
async def client(server: RawServer) -> AsyncIterator[RawClient]:
    connected = await connect(server.port)
    yield connected
    connected.abort()


@pytest.fixture
async def cbs(client: RawClient) -> Cbs:
    return await Cbs.open(client)


def in_seconds(server: RawServer, seconds: int) -> int:
    return server.clock.now().wall_ms // 1000 + seconds


def pass_time(server: RawServer, seconds: int) -> None:
    """Move the server's clock, and let its timers see it."""
    server.advance(seconds * 1000)
    for connection in connections_of(server.ports["contoso"]):
        connection.check_claims()


async def sender(client: RawClient, session: Session, address: str = "q") -> Link:
    asked = Attach(source=Source(), target=Target(address=address))
    return await attach(client, session, True, asked)


async def receiver(client: RawClient, session: Session, address: str = "q") -> Link:
    asked = Attach(source=Source(address=address), target=Target())
    return await attach(client, session, False, asked)


def gone(link: Link) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, Detached) and event.link is link


# -- renewing --------------------------------------------------------------------------


async def test_a_renewed_token_widens_nothing(client: RawClient, cbs: Cbs) -> None:
    assert (await cbs.sign("", "send", "send"))[0] == 202
    session = await client.session()

    assert (await cbs.sign("", "manage", "manage"))[0] == 202
    assert is_refused(await receiver(client, session))
    assert not is_refused(await sender(client, session))
    status, text = await cbs.sign("", "listen", "listen")

    assert status == 401
    assert "may not widen" in text
    assert is_refused(await receiver(client, session))
    assert not is_refused(await sender(client, session))


async def test_a_token_for_a_missing_entity_names_it_with_its_host(cbs: Cbs) -> None:
    status, text = await cbs.sign("nowhere", "send", "send")

    assert status == 404
    missing = "The messaging entity 'sb://localhost/nowhere' could not be found."
    assert text.startswith(missing)


async def test_valid_tokens_for_missing_entities_end_no_connection(
    cbs: Cbs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HANDSHAKE_BYTES_MAX", 4096)

    # Some 250 bytes each.
    statuses = [(await cbs.sign("nowhere", "send", "send"))[0] for _ in range(40)]

    assert statuses == [404] * 40


async def test_an_expired_claim_can_be_replaced_by_any_other(
    server: RawServer, client: RawClient, cbs: Cbs
) -> None:
    await cbs.sign("", "send", "send", in_seconds(server, 10))
    pass_time(server, 10)

    assert (await cbs.sign("", "listen", "listen"))[0] == 202

    session = await client.session()
    assert not is_refused(await receiver(client, session))
    assert is_refused(await sender(client, session))


async def test_a_clock_that_is_set_forward_ends_claims(
    server: RawServer, client: RawClient, cbs: Cbs
) -> None:
    await cbs.sign("", "both", "both", in_seconds(server, 3600))
    session = await client.session()
    sending = await sender(client, session)
    old_s = in_seconds(server, 3600)

    server.clock.step(2 * 3_600_000)
    server.host.tick()

    detached = await wait_for(client, gone(sending))
    assert detached.error.condition == "amqp:unauthorized-access"
    assert (await cbs.sign("", "both", "both", old_s))[0] == 401
    assert (await cbs.sign("", "both", "both", in_seconds(server, 60)))[0] == 202
    assert not is_refused(await sender(client, session))


async def test_a_clock_that_is_set_back_takes_tokens_by_the_new_time(
    server: RawServer, client: RawClient, cbs: Cbs
) -> None:
    ended_s = in_seconds(server, -60)
    assert (await cbs.sign("", "both", "both", ended_s))[0] == 401

    server.clock.step(-2 * 3_600_000)

    assert (await cbs.sign("", "both", "both", in_seconds(server, 60)))[0] == 202
    session = await client.session()
    assert not is_refused(await sender(client, session))
    pass_time(server, 60)
    assert is_refused(await sender(client, session))


async def test_a_narrower_token_takes_the_links_that_it_does_not_cover(
    client: RawClient, cbs: Cbs
) -> None:
    await cbs.sign("", "both", "both")
    session = await client.session()
    sending = await sender(client, session)
    receiving = await receiver(client, session)

    assert (await cbs.sign("", "listen", "listen"))[0] == 202

    detached = await wait_for(client, gone(sending))
    assert detached.error.condition == "amqp:unauthorized-access"
    assert not any(map(gone(receiving), client.events))
    assert is_refused(await sender(client, session))


async def test_tokens_are_renewed_under_load(
    server: RawServer, client: RawClient, cbs: Cbs
) -> None:
    """A hundred seconds of sending on tokens of ten seconds: not one is refused."""
    await cbs.sign("q", "send", "send", in_seconds(server, 10))
    link = await sender(client, await client.session())
    message = sections.encode_message(b"x")
    sent = accepted = 0

    for _ in range(20):
        for _ in range(50):
            link.send(message, b"%d" % sent)
            sent += 1
        client.flush()
        status, _ = await cbs.sign("q", "send", "send", in_seconds(server, 10))
        assert status == 202
        pass_time(server, 5)
        while accepted < sent:
            answer = await wait_for(client, lambda e: isinstance(e, Disposed))
            assert isinstance(answer.state, Accepted)
            accepted += len(answer.deliveries)

    assert not any(map(gone(link), client.events))
    entity = server.host.namespace.entities.find("q")
    assert entity is not None
    assert entity.received == sent == 1000


# -- ending ----------------------------------------------------------------------------


async def open_all(client: RawClient, session: Session) -> dict[str, Link]:
    """One link of every kind."""
    chosen = Source(address="s", filter={Symbol("com.microsoft:session-filter"): "a"})
    return {
        "send": await sender(client, session),
        "receive": await receiver(client, session),
        "dead letters": await receiver(client, session, "q/$DeadLetterQueue"),
        "requests": await sender(client, session, "q/$management"),
        "replies": await receiver(client, session, "q/$management"),
        "session": await attach(
            client, session, False, Attach(source=chosen, target=Target())
        ),
    }


async def test_every_kind_of_link_ends_with_its_claim(
    server: RawServer, client: RawClient, cbs: Cbs
) -> None:
    await cbs.sign("", "manage", "manage", in_seconds(server, 60))
    links = await open_all(client, await client.session())
    pass_time(server, 59)
    assert not any(isinstance(event, Detached) for event in client.events)

    pass_time(server, 1)

    for kind, link in links.items():
        detached = await wait_for(client, gone(link))
        assert detached.error.condition == "amqp:unauthorized-access", kind
    # The way to a new claim stays open.
    assert (await cbs.sign("", "manage", "manage"))[0] == 202
    assert not is_refused(await sender(client, await client.session()))


async def test_only_the_links_of_the_claim_that_ended_are_detached(
    server: RawServer, client: RawClient, cbs: Cbs
) -> None:
    await cbs.sign("q", "both", "both", in_seconds(server, 10))
    await cbs.sign("s", "both", "both", in_seconds(server, 20))
    session = await client.session()
    first, second = await sender(client, session), await sender(client, session, "s")

    pass_time(server, 10)
    await wait_for(client, gone(first))
    assert not any(map(gone(second), client.events))
    pass_time(server, 10)

    await wait_for(client, gone(second))


async def test_the_timer_detaches_within_five_seconds_by_itself(
    server: RawServer, client: RawClient, cbs: Cbs
) -> None:
    await cbs.sign("", "send", "send", in_seconds(server, 1))
    link = await sender(client, await client.session())
    server.clock.advance(1000)

    # Nothing is called: the connection's own timer does it, in real time.
    detached = await asyncio.wait_for(wait_for(client, gone(link)), 5)

    assert detached.error.condition == "amqp:unauthorized-access"


async def test_one_timer_watches_all_claims_and_looks_again(
    server: RawServer, client: RawClient, cbs: Cbs
) -> None:
    (connection,) = connections_of(server.ports["contoso"])
    loop = asyncio.get_running_loop()

    await cbs.sign("", "send", "send", in_seconds(server, 30 * DAY_S))
    timer = connection._claim_timer
    for seconds in (40, 50, 60):
        await cbs.sign("q", "send", "send", in_seconds(server, seconds * DAY_S))
    assert connection._claim_timer is timer
    await cbs.sign("s", "send", "send", in_seconds(server, 100))
    assert timer is not None
    assert timer.cancelled()
    assert connection._claim_timer is not None
    assert 99 < connection._claim_timer.when() - loop.time() < 101

    pass_time(server, 2 * DAY_S)

    # A claim far away is looked at once a day, so that no timer is too long.
    assert DAY_S - 10 < connection._claim_timer.when() - loop.time() < DAY_S + 10
    assert not connection._claim_timer.cancelled()


async def test_a_claim_that_ends_during_a_wait_for_a_session_refuses_it(
    server: RawServer, client: RawClient, cbs: Cbs
) -> None:
    await cbs.sign("", "listen", "listen", in_seconds(server, 10))
    session = await client.session()
    any_session = {Symbol("com.microsoft:session-filter"): None}
    waiting = session.attach(
        "waiting",
        False,
        Attach(source=Source(address="s", filter=any_session), target=Target()),
    )
    client.flush()
    await client.session()

    pass_time(server, 10)
    other = await connect(server.port)
    await (await Cbs.open(other)).sign("", "send", "send")
    link = await sender(other, await other.session(), "s")
    await other.send(link, sections.encode_message(b"x", {GROUP_ID: "a"}))

    detached = await wait_for(client, gone(waiting))
    assert detached.error.condition == "amqp:unauthorized-access"
    other.abort()
