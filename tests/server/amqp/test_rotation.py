"""Keys that change while clients are there: the old one ends at once, the other stays.

Over AMQP and HTTP, for rules of the namespace and of an entity.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.server.cbs import attach, is_refused, wait_for
from tests.server.http.upkeep_site import ROOT, UpkeepSite, serving
from tests.server.raw import RawClient
from tests.server.strangers import until
from twinbus.core.entity import QueueDescription
from twinbus.core.rights import AuthorizationRule, Right
from twinbus.core.sas import DEV_KEY_TEXT, Secret
from twinbus.errors import StoreFault
from twinbus.server.broker.directory import keys
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.wire.events import Detached, Event
from twinbus.wire.link import Link
from twinbus.wire.message import sections
from twinbus.wire.performatives import Accepted, Attach, Source, Target

pytestmark = pytest.mark.turns

OWN = AuthorizationRule("own", Right.SEND, Secret("own 1"), Secret("own 2"))
CONFIG = NamespaceConfig(
    "contoso",
    queues=(QueueDescription("q"), QueueDescription("q2", authorization_rules=(OWN,))),
    authorization_rules=(AuthorizationRule("filed", Right.SEND, Secret("filed")),),
)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[UpkeepSite]:
    async with serving(tmp_path, CONFIG) as started:
        yield started


async def sender(client: RawClient, address: str = "q") -> Link:
    asked = Attach(source=Source(), target=Target(address=address))
    return await attach(client, await client.session(), True, asked)


def gone(link: Link) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, Detached) and event.link is link


async def puts(site: UpkeepSite, name: str, key: Secret) -> int:
    """What a fresh connection is told when it puts a token of that key."""
    site.server.clock.advance(1000)
    client, cbs = await site.desk()
    status, _ = await cbs.sign("q", name, key.reveal())
    client.abort()
    return status


# -- the namespace ---------------------------------------------------------------------


@pytest.mark.parametrize("which", ["PrimaryKey", "SecondaryKey"])
async def test_a_rotated_key_of_the_namespace_ends_at_once(
    site: UpkeepSite, which: str
) -> None:
    old = site.rules[ROOT]
    assert old.secondary_key is not None
    ended, kept = old.primary_key, old.secondary_key
    if which == "SecondaryKey":
        ended, kept = kept, ended
    lost, lost_cbs = await site.desk()
    stays, stays_cbs = await site.desk()
    await lost_cbs.sign("", ROOT, ended.reveal())
    await stays_cbs.sign("", ROOT, kept.reveal())
    ending, staying = await sender(lost), await sender(stays)

    told = await site.ask(
        "POST",
        f"/$authorizationRules/{ROOT}/regenerateKeys",
        {"keyType": which},
        site.signed(ROOT, kept),
    )

    # The link of the old key ends, the link of the other one does not.
    detached = await wait_for(lost, gone(ending))
    assert detached.error.condition == "amqp:unauthorized-access"
    assert await stays.send(staying, sections.encode_message(b"x")) == Accepted()
    # New claims of the old key are refused, on old connections and on new ones.
    assert (await lost_cbs.sign("", ROOT, ended.reveal()))[0] == 401
    assert is_refused(await sender(lost))
    assert await puts(site, ROOT, ended) == 401
    assert await puts(site, ROOT, kept) == 202
    # And over HTTP.
    for key, status in ((ended, 401), (kept, 200)):
        token = site.signed(ROOT, key)
        assert (await site.ask("GET", "/q", token=token)).status == status
    # The new key is the answer, and works.
    made = json.loads(told.body)[which[0].lower() + which[1:]]
    assert made not in (ended.reveal(), kept.reveal())
    assert await puts(site, ROOT, Secret(made)) == 202
    lost.abort()
    stays.abort()


async def test_a_rotation_survives_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path, CONFIG) as site:
        old = site.rules[ROOT]
        told = await site.regenerate(ROOT)

    async with serving(tmp_path, CONFIG) as site:
        assert await puts(site, ROOT, old.primary_key) == 401
        assert await puts(site, ROOT, Secret(told["primaryKey"])) == 202
        assert await puts(site, ROOT, Secret(told["secondaryKey"])) == 202


async def test_a_deleted_rule_takes_its_links_along(site: UpkeepSite) -> None:
    await site.ask(
        "PUT", "/$authorizationRules/guest", {"properties": {"rights": ["Send"]}}
    )
    guest = site.rules["guest"]
    client, cbs = await site.desk()
    assert (await cbs.sign("", "guest", guest.primary_key.reveal()))[0] == 202
    link = await sender(client)

    assert (await site.ask("DELETE", "/$authorizationRules/guest")).status == 200

    await wait_for(client, gone(link))
    assert await puts(site, "guest", guest.primary_key) == 401
    client.abort()


async def test_a_rule_that_is_narrowed_takes_the_links_that_it_no_longer_covers(
    site: UpkeepSite,
) -> None:
    both = {"properties": {"rights": ["Send", "Listen"]}}
    await site.ask("PUT", "/$authorizationRules/guest", both)
    key = site.rules["guest"].primary_key.reveal()
    client, cbs = await site.desk()
    await cbs.sign("", "guest", key)
    sending = await sender(client)
    asked = Attach(source=Source(address="q"), target=Target())
    receiving = await attach(client, await client.session(), False, asked)

    listen = {"properties": {"rights": ["Listen"]}}
    await site.ask("PUT", "/$authorizationRules/guest", listen)

    await wait_for(client, gone(sending))
    assert not any(map(gone(receiving), client.events))
    assert is_refused(await sender(client))
    # Its keys are what they were.
    assert site.rules["guest"].primary_key.reveal() == key
    client.abort()


async def test_a_rotated_key_ends_a_receive_over_http(
    site: UpkeepSite,
) -> None:
    token = site.signed(ROOT, site.rules[ROOT].primary_key)
    waiting = asyncio.create_task(
        site.ask("POST", "/q/messages/head?timeout=60", token=token)
    )
    await until(lambda: bool(site.server.host.claim_holders))

    await site.regenerate(ROOT)

    answer = await waiting
    assert answer.status == 401
    assert not site.server.host.claim_holders


async def test_with_the_documented_key_rotation_ends_the_random_one_alone(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, CONFIG, dev=True) as site:
        random_key, known = site.rules[ROOT].primary_key, Secret(DEV_KEY_TEXT)
        client, cbs = await site.desk()
        await cbs.sign("", ROOT, known.reveal())
        link = await sender(client)

        await site.regenerate(ROOT)

        assert await puts(site, ROOT, random_key) == 401
        assert await puts(site, ROOT, known) == 202
        assert await client.send(link, sections.encode_message(b"x")) == Accepted()
        client.abort()


async def test_a_key_of_the_file_is_changed_in_the_file(site: UpkeepSite) -> None:
    """It would come back with the next start, leaked or not."""
    path = "/$authorizationRules/filed"
    for method, below, body in (
        ("POST", "/regenerateKeys", {"keyType": "PrimaryKey"}),
        ("PUT", "", {"properties": {"rights": ["Manage"]}}),
        ("DELETE", "", None),
    ):
        answer = await site.ask(method, path + below, body)
        assert answer.status == 400
        assert b"configuration file" in answer.body
    assert await puts(site, "filed", Secret("filed")) == 202


async def test_a_rotation_that_the_disk_did_not_take_did_not_happen(
    site: UpkeepSite,
) -> None:
    host, old = site.server.host, site.rules[ROOT]
    client, cbs = await site.desk()
    await cbs.sign("", ROOT, old.primary_key.reveal())
    link = await sender(client)

    def fails(namespace: Namespace, turn: Turn) -> None:
        namespace.change_rules(
            lambda store: keys.regenerate_key(
                store, ROOT, turn.now.wall_ms, secondary=False
            ),
            turn,
        )
        raise StoreFault("The disk is full.")

    with pytest.raises(StoreFault):
        await host.run(fails)
    await host.recovery.attempt()

    assert site.rules[ROOT] == old
    assert await puts(site, ROOT, old.primary_key) == 202
    assert await client.send(link, sections.encode_message(b"x")) == Accepted()
    client.abort()


# -- an entity ------------------------------------------------------------------------


async def change_own(site: UpkeepSite, *rules: AuthorizationRule) -> None:
    def change(namespace: Namespace, turn: Turn) -> None:
        entity = namespace.entities.find("q2")
        assert entity is not None
        assert isinstance(entity.description, QueueDescription)
        changed = replace(entity.description, authorization_rules=rules)
        namespace.entities.update(changed, turn)

    await site.server.host.run(change)


@pytest.mark.parametrize("key", ["own 1", "own 2"])
async def test_a_rotated_key_of_a_queue_takes_its_links_along(
    site: UpkeepSite, key: str
) -> None:
    client, cbs = await site.desk()
    await cbs.sign("q2", "own", key)
    link = await sender(client, "q2")

    await change_own(site, replace(OWN, primary_key=Secret("new")))

    if key == "own 1":
        await wait_for(client, gone(link))
        assert (await cbs.sign("q2", "own", key))[0] == 401
    else:
        outcome = await client.send(link, sections.encode_message(b"x"))
        assert outcome == Accepted()
    client.abort()


async def test_a_claim_on_a_deleted_queue_does_not_reach_its_successor(
    site: UpkeepSite,
) -> None:
    client, cbs = await site.desk()
    await cbs.sign("q2", "own", "own 1")
    assert not is_refused(await sender(client, "q2"))

    assert (await site.ask("DELETE", "/q2")).status == 200
    queue = QueueDescription("q2")
    await site.server.host.run(
        lambda namespace, turn: namespace.entities.create(queue, turn.now.wall_ms)
    )

    assert is_refused(await sender(client, "q2"))
    client.abort()
