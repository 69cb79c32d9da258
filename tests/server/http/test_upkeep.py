"""Upkeep over HTTP: purge, reset and authorization rules, and what is refused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.cbs import is_refused, wait_for
from tests.server.http.upkeep_site import ROOT, UpkeepSite, serving
from tests.server.raw import RawClient
from twinbus import limits
from twinbus.core.entity import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.core.names import EntityPath
from twinbus.core.rights import AuthorizationRule, Right
from twinbus.core.rule import default_rule
from twinbus.core.sas import Secret
from twinbus.server.broker.directory.config import (
    NamespaceConfig,
    SubscriptionConfig,
    TopicConfig,
)
from twinbus.server.broker.turn import Turn
from twinbus.server.http.upkeep import UpkeepAction, find_upkeep
from twinbus.store.base import DEAD_LETTER
from twinbus.store.records import Record
from twinbus.wire.events import Detached

pytestmark = pytest.mark.turns

OWN = Secret("the key of one queue")
CONFIG = NamespaceConfig(
    "contoso",
    queues=(
        QueueDescription(
            "q", authorization_rules=(AuthorizationRule("own", Right.MANAGE, OWN),)
        ),
        QueueDescription("q/b"),
        QueueDescription("area/orders"),
    ),
    topics=(
        TopicConfig(
            TopicDescription("t"),
            (
                SubscriptionConfig(
                    SubscriptionDescription("t", "s"), (default_rule(0),)
                ),
            ),
        ),
    ),
)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[UpkeepSite]:
    async with serving(tmp_path, CONFIG) as started:
        yield started


async def fill(site: UpkeepSite, key: str, messages: int, dead: int = 0) -> None:
    def work(namespace: Any, turn: Turn) -> None:
        entity = namespace.entities.find(key)
        records = [Record(b"", b"message")]
        namespace.store.append(entity.id, records * messages, turn.now)
        if dead:
            namespace.store.append(entity.id + DEAD_LETTER, records * dead, turn.now)

    await site.server.host.run(work)


def held(site: UpkeepSite, key: str) -> int:
    entity = site.server.host.namespace.entities.find(key)
    assert entity is not None
    store = site.server.host.namespace.store
    return store.counts(entity.id).active + store.counts(entity.id + DEAD_LETTER).active


async def sender(site: UpkeepSite, address: str) -> tuple[RawClient, Any]:
    client, cbs = await site.desk()
    await cbs.sign("", ROOT, site.rules[ROOT].primary_key.reveal())
    return client, await client.sender(await client.session(), address)


# -- purge and reset -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "purged", "left"),
    [
        ("/q/$purge", 5, {"q": 0, "q/b": 1, "t/subscriptions/s": 4}),
        ("/Q/%24PURGE/", 5, {"q": 0, "q/b": 1}),
        ("/q/$DeadLetterQueue/$purge", 2, {"q": 3, "q/b": 1}),
        ("/q%2Fb/$purge", 1, {"q": 5, "q/b": 0}),
        ("/t/$purge", 4, {"q": 5, "t/subscriptions/s": 0}),
        ("/t/subscriptions/s/$purge", 4, {"q": 5, "t/subscriptions/s": 0}),
        ("/$purge", 10, {"q": 0, "q/b": 0, "t/subscriptions/s": 0}),
    ],
)
async def test_a_purge_deletes_the_messages_below_its_path(
    site: UpkeepSite, path: str, purged: int, left: dict[str, int]
) -> None:
    await fill(site, "q", 3, dead=2)
    await fill(site, "q/b", 1)
    await fill(site, "t/subscriptions/s", 4)

    answer = await site.ask("POST", path)

    assert (answer.status, json.loads(answer.body)) == (200, {"purged": purged})
    assert {key: held(site, key) for key in left} == left


async def test_a_request_for_another_instance_changes_nothing(
    site: UpkeepSite,
) -> None:
    await fill(site, "q", 3)
    own = site.server.host.instance

    refused = await site.ask("POST", "/$purge", Twinbus_Instance=own[::-1] + "0")
    left = held(site, "q")
    done = await site.ask("POST", "/$purge", Twinbus_Instance=own)

    assert (refused.status, left) == (412, 3)
    assert (done.status, held(site, "q")) == (200, 0)


async def test_a_reset_restores_the_configured_entities(site: UpkeepSite) -> None:
    before = site.rules
    await fill(site, "q", 3)
    queue = QueueDescription("x")
    await site.server.host.run(
        lambda namespace, turn: namespace.entities.create(queue, turn.now.wall_ms)
    )
    client, link = await sender(site, "q")

    answer = await site.ask("POST", "/$reset")

    assert json.loads(answer.body) == {"deleted": 6, "made": 5}
    assert site.server.host.namespace.entities.find("x") is None
    assert held(site, "q") == 0
    assert site.rules == before
    detached = await wait_for(client, lambda e: isinstance(e, Detached))
    assert detached.link is link
    assert detached.error.condition == "amqp:not-found"
    # The claim of the namespace outlives it, and so does the way in.
    assert not is_refused(await client.sender(await client.session(), "q"))
    client.abort()


async def test_the_rule_of_an_entity_purges_it_and_nothing_else(
    site: UpkeepSite,
) -> None:
    for key in ("q", "q/b"):
        await fill(site, key, 1)
    namespace_wide = ["/$purge", "/$reset", "/q/b/$purge", "/t/$purge"]
    for path in namespace_wide:
        for resource in ("", "q", path[1:]):
            token = site.signed("own", OWN, resource)
            assert (await site.ask("POST", path, token=token)).status == 401, path
    rules = await site.ask("GET", "/$authorizationRules", token=site.signed("own", OWN))
    assert rules.status == 401

    token = site.signed("own", OWN, "q")
    assert (await site.ask("POST", "/q/$purge", token=token)).status == 200

    assert (held(site, "q"), held(site, "q/b")) == (0, 1)


async def test_a_token_for_one_url_is_good_for_that_url_alone(
    site: UpkeepSite,
) -> None:
    token = site.signed(path="q/$purge")

    for path, status in (
        ("/q/$purge", 200),
        ("/$purge", 401),
        ("/$reset", 401),
        ("/q/b/$purge", 401),
        ("/q/$DeadLetterQueue/$purge", 401),
    ):
        assert (await site.ask("POST", path, token=token)).status == status, path


# -- paths -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "//$purge",
        "/q//$purge",
        "//q/$purge",
        "/q%2F/$purge",
        "/sb:%2F%2Fhost%2Fq/$purge",
        "/q/$management/$purge",
        "/q%2F$purge",
        "/%2F$purge",
        "/q/$purge/x",
        "/x/$reset",
        "/$reset/x",
        "/q/$authorizationRules",
        "/$authorizationRules/x/y/z",
        "/$authorizationRules/x/other",
        "/%ff/$purge",
        "/$purge%00",
    ],
)
async def test_other_spellings_of_a_path_do_nothing(
    site: UpkeepSite, path: str
) -> None:
    await fill(site, "q", 1)

    answer = await site.ask("POST", path)

    assert answer.status in (400, 404, 405), answer
    assert find_upkeep("POST", path) is None
    assert held(site, "q") == 1


@pytest.mark.parametrize(
    "path", ["/q/../$purge", "/./$purge", "/q/%2e%2e/$purge", "/nowhere/$purge"]
)
async def test_a_purge_of_a_missing_entity_is_not_found(
    site: UpkeepSite, path: str
) -> None:
    await fill(site, "q", 1)

    assert (await site.ask("POST", path)).status == 404
    assert held(site, "q") == 1


def test_names_of_rules_are_decoded_once() -> None:
    found = find_upkeep("DELETE", "/$authorizationRules/a%252Fb%2Fc")

    assert found is not None
    assert (found.action, found.rule) == (UpkeepAction.DELETE_RULE, "a%2Fb/c")
    assert found.path == EntityPath("")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"])
async def test_a_wrong_method_is_refused(site: UpkeepSite, method: str) -> None:
    await fill(site, "q", 1)

    for path in ("/q/$purge", "/$purge", "/$reset"):
        assert (await site.ask(method, path)).status == 405
        unsigned = await site.ask(method, path, token="")
        assert unsigned.status == 401

    assert held(site, "q") == 1


# -- authorization rules ---------------------------------------------------------------


async def test_rules_are_made_listed_changed_and_deleted(site: UpkeepSite) -> None:
    path = "/$authorizationRules/read%20me%2Ftoo"
    body = {"properties": {"rights": ["listen"]}}

    made = await site.ask("PUT", path, body, If_None_Match="*")
    again = await site.ask("PUT", path, body, If_None_Match="*")
    shown = json.loads((await site.ask("POST", f"{path}/listKeys")).body)
    changed = await site.ask("PUT", path, {"properties": {"rights": ["Manage"]}})
    listed = await site.ask("GET", "/$authorizationRules")
    deleted = await site.ask("DELETE", path)
    missing = await site.ask("DELETE", path)

    expected = {"name": "read me/too", "properties": {"rights": ["Listen"]}}
    assert json.loads(made.body) == expected
    assert again.status == 409
    assert shown["keyName"] == "read me/too"
    assert len(shown["primaryKey"]) == len(shown["secondaryKey"]) == 44
    assert changed.status == 200
    names = [one["name"] for one in json.loads(listed.body)["value"]]
    assert names == [ROOT, "read me/too"]
    assert shown["primaryKey"].encode() not in listed.body + changed.body + made.body
    assert made.headers["cache-control"] == "no-store"
    assert (deleted.status, missing.status) == (200, 404)


async def test_the_root_rule_cannot_be_deleted_or_lose_rights(site: UpkeepSite) -> None:
    path = f"/$authorizationRules/{ROOT}"

    assert (await site.ask("DELETE", path)).status == 400
    less = await site.ask("PUT", path, {"properties": {"rights": ["Send"]}})

    assert less.status == 400
    assert site.rules[ROOT].rights is Right.MANAGE


async def test_there_are_twelve_rules_at_most(site: UpkeepSite) -> None:
    body = {"properties": {"rights": ["Send"]}}
    statuses = [
        (await site.ask("PUT", f"/$authorizationRules/r{number}", body)).status
        for number in range(limits.AUTHORIZATION_RULES_MAX)
    ]

    assert statuses == [200] * (limits.AUTHORIZATION_RULES_MAX - 1) + [400]
    assert len(site.rules) == limits.AUTHORIZATION_RULES_MAX


@pytest.mark.parametrize(
    ("method", "below", "body"),
    [
        ("PUT", "", None),
        ("PUT", "", b"{"),
        ("PUT", "", b"[" * 100_000),
        ("PUT", "", []),
        ("PUT", "", {}),
        ("PUT", "", {"properties": []}),
        ("PUT", "", {"properties": {}}),
        ("PUT", "", {"properties": {"rights": []}}),
        ("PUT", "", {"properties": {"rights": "Send"}}),
        ("PUT", "", {"properties": {"rights": [["Send"]]}}),
        ("PUT", "", {"properties": {"rights": ["Everything"]}}),
        ("PUT", "", {"properties": {"rights": ["Send"], "primaryKey": "mine"}}),
        ("PUT", "", {"properties": {"rights": ["Send"]}, "x": 1}),
        ("POST", "/regenerateKeys", None),
        ("POST", "/regenerateKeys", {}),
        ("POST", "/regenerateKeys", {"keyType": None}),
        ("POST", "/regenerateKeys", {"keyType": "primarykey"}),
        ("POST", "/regenerateKeys", {"keyType": ["PrimaryKey"]}),
        ("POST", "/regenerateKeys", {"keyType": "PrimaryKey", "key": "mine"}),
    ],
)
async def test_bodies_that_cannot_be_used_change_nothing(
    site: UpkeepSite, method: str, below: str, body: Any
) -> None:
    await site.ask(
        "PUT", "/$authorizationRules/x", {"properties": {"rights": ["Send"]}}
    )
    before = site.rules

    answer = await site.ask(method, f"/$authorizationRules/x{below}", body)

    assert answer.status == 400
    assert json.loads(answer.body)["error"]["message"]
    assert site.rules == before


@pytest.mark.parametrize("extra", [-1, 0, 1])
async def test_a_body_has_a_largest_size(site: UpkeepSite, extra: int) -> None:
    body = b" " * (limits.ADMIN_BODY_BYTES_MAX + extra)

    answer = await site.ask("PUT", "/$authorizationRules/x", body)

    assert answer.status == (413 if extra > 0 else 400)


@pytest.mark.parametrize("size", [256, 257])
async def test_a_name_has_a_longest_length(site: UpkeepSite, size: int) -> None:
    body = {"properties": {"rights": ["Send"]}}

    answer = await site.ask("PUT", f"/$authorizationRules/{'n' * size}", body)

    assert answer.status == (200 if size <= limits.KEY_NAME_CHARS_MAX else 400)


async def test_an_invalid_host_is_refused(site: UpkeepSite) -> None:
    answer = await site.ask("POST", "/$purge", Host="a b")

    assert answer.status == 400
