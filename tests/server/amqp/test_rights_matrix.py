"""Who may do what over AMQP: every operation, right and scope, on real connections.

The model is written here once more, by hand, so that a slip in `core/rights.py` cannot
excuse itself. `LINKS` and `REQUESTS` are the tables to extend: an operation, where it
is tried, and which one of the rights is enough. What is not granted must also leave no
trace in the namespace.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from tests.server.cbs import (
    Cbs,
    RequestLinks,
    attach,
    connect,
    is_refused,
    serving_all,
    wait_for,
)
from tests.server.raw import RawClient, RawServer
from twinbus.core.entity import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.core.rights import AuthorizationRule, Operation, Right
from twinbus.core.rule import default_rule
from twinbus.core.sas import Secret
from twinbus.server.broker.directory.config import (
    NamespaceConfig,
    SubscriptionConfig,
    TopicConfig,
)
from twinbus.wire.events import Detached
from twinbus.wire.performatives import Attach, Source, Target
from twinbus.wire.session import Session
from twinbus.wire.types import Symbol

S, L, M = "Send", "Listen", "Manage"

# The entities under test, and those whose rights must not reach them.
ORDERS, SESSIONS, EVENTS = "area/orders", "area/sessions", "area/events"
THIS = (ORDERS, SESSIONS, EVENTS)
SUBSCRIPTION = f"{EVENTS}/Subscriptions/all"

# operation -> (address, direction, who may). Manage implies the other two.
LINKS: dict[str, tuple[str, str, set[str]]] = {
    "send to a queue": (ORDERS, "send", {S, M}),
    "send to a topic": (EVENTS, "send", {S, M}),
    "receive": (ORDERS, "receive", {L, M}),
    "receive from a subscription": (SUBSCRIPTION, "receive", {L, M}),
    "receive dead letters": (f"{ORDERS}/$DeadLetterQueue", "receive", {L, M}),
    "receive transfer dead letters": (
        f"{ORDERS}/$Transfer/$DeadLetterQueue",
        "receive",
        {L, M},
    ),
    "receive a session": (SESSIONS, "session", {L, M}),
    "management of a queue": (f"{ORDERS}/$management", "request", {S, L, M}),
    "management of a topic": (f"{EVENTS}/$management", "request", {S, L, M}),
    "management of dead letters": (
        f"{ORDERS}/$DeadLetterQueue/$management",
        "request",
        {S, L, M},
    ),
}

# operation -> (entity, who may).
REQUESTS: dict[str, tuple[str, set[str]]] = {
    "com.microsoft:renew-lock": (ORDERS, {L, M}),
    "com.microsoft:renew-session-lock": (SESSIONS, {L, M}),
    "com.microsoft:peek-message": (ORDERS, {L, M}),
    "com.microsoft:receive-by-sequence-number": (ORDERS, {L, M}),
    "com.microsoft:update-disposition": (ORDERS, {L, M}),
    "com.microsoft:schedule-message": (ORDERS, {S, M}),
    "com.microsoft:cancel-scheduled-message": (ORDERS, {S, M}),
    "com.microsoft:get-session-state": (SESSIONS, {L, M}),
    "com.microsoft:set-session-state": (SESSIONS, {L, M}),
    "com.microsoft:get-message-sessions": (SESSIONS, {L, M}),
    "com.microsoft:add-rule": (SUBSCRIPTION, {L, M}),
    "com.microsoft:remove-rule": (SUBSCRIPTION, {L, M}),
    "com.microsoft:enumerate-rules": (SUBSCRIPTION, {L, M}),
    "com.microsoft:batch-delete-messages": (ORDERS, {L, M}),
}


class Scope(NamedTuple):
    """Where a claim comes from and what it is for."""

    # Where the rule sits: the namespace (empty) or these entities, one each.
    rules: tuple[str, ...]
    # What the tokens are for; as many as there are rules, or for one rule any number.
    audiences: tuple[str, ...]
    # The addresses that the claim reaches; all of them begin like this.
    reaches: tuple[str, ...]


def _each(change: str) -> tuple[str, ...]:
    return tuple(change.format(path) for path in THIS)


# `area/order` is no parent of `area/orders`.
SHORTER = tuple(path[:-1] for path in THIS)

# Everything that a claim could be about, seen from the entities under test.
SCOPES: dict[str, Scope] = {
    "this entity, by its own rule": Scope(THIS, THIS, THIS),
    "this entity, by a rule of the namespace": Scope(("",), THIS, THIS),
    "the namespace": Scope(("",), ("",), THIS),
    "the path above, by a rule of the namespace": Scope(("",), ("area",), THIS),
    "the queue above, by its own rule": Scope(("area",), ("area",), ()),
    "a sibling, by its own rule": Scope(_each("{}2"), _each("{}2"), ()),
    "a sibling, by a rule of the namespace": Scope(("",), _each("{}2"), ()),
    "a shorter name, by its own rule": Scope(SHORTER, SHORTER, ()),
    "a shorter name, by a rule of the namespace": Scope(("",), SHORTER, ()),
    "a queue below, by its own rule": Scope(_each("{}/b"), _each("{}/b"), ()),
    "a queue below, by a rule of the namespace": Scope(("",), _each("{}/b"), ()),
    "the dead letters alone": Scope(
        ("",), (f"{ORDERS}/$DeadLetterQueue",), (f"{ORDERS}/$DeadLetterQueue",)
    ),
    "the subscription alone": Scope((EVENTS,), (SUBSCRIPTION,), (SUBSCRIPTION,)),
}


def _rules(where: str) -> tuple[AuthorizationRule, ...]:
    rights = {S: Right.SEND, L: Right.LISTEN, M: Right.MANAGE}
    return tuple(
        AuthorizationRule(name, right, Secret(key_of(where, name)))
        for name, right in rights.items()
    )


def key_of(where: str, name: str) -> str:
    """The key of a rule; each place has its own."""
    return f"{name} at {where}"


def _topic(name: str) -> TopicConfig:
    subscription = SubscriptionDescription(name, "all")
    return TopicConfig(
        TopicDescription(name, authorization_rules=_rules(name)),
        (SubscriptionConfig(subscription, (default_rule(0),)),),
    )


def _config(namespace: str, root: str) -> NamespaceConfig:
    queues = ["area", ORDERS, *SHORTER]
    queues += [f"{ORDERS}2", f"{SESSIONS}2", f"{EVENTS}2"]
    queues += [f"{ORDERS}/b", f"{SESSIONS}/b", f"{EVENTS}/b"]
    plain = [QueueDescription(q, authorization_rules=_rules(q)) for q in queues]
    sessions = QueueDescription(
        SESSIONS, requires_session=True, authorization_rules=_rules(SESSIONS)
    )
    return NamespaceConfig(
        namespace,
        queues=(*plain, sessions),
        topics=(_topic(EVENTS),),
        authorization_rules=_rules(root),
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[dict[str, RawServer]]:
    folder: Path = tmp_path_factory.mktemp("rights")
    configs = _config("contoso", ""), _config("fabrikam", "elsewhere")
    async with serving_all(folder, *configs) as started:
        yield started


class Tries:
    """Tries every operation on one connection."""

    def __init__(self, client: RawClient, session: Session, number: int) -> None:
        self._client = client
        self._session = session
        self._number = number
        self._management: dict[str, RequestLinks] = {}

    async def all(self) -> set[str]:
        """What was granted."""
        granted = set()
        for name, (address, direction, _) in LINKS.items():
            if await self._attaches(address, direction):
                granted.add(name)
        for name, (entity, _) in REQUESTS.items():
            if await self._is_answered(name, entity):
                granted.add(name)
        return granted

    async def _attaches(self, address: str, direction: str) -> bool:
        if direction == "request":
            return not is_refused((await self._requests(address)).sender)
        source = Source(address=address)
        asked = Attach(source=source, target=Target())
        if direction == "session":
            name = f"session {self._number}"
            source.filter = {Symbol("com.microsoft:session-filter"): name}
        elif direction == "send":
            asked = Attach(source=Source(), target=Target(address=address))
        link = await attach(self._client, self._session, direction == "send", asked)
        if is_refused(link):
            await self._expect_unauthorized()
            return False
        return True

    async def _requests(self, address: str) -> RequestLinks:
        known = self._management.get(address)
        if known is None:
            known = await RequestLinks.open(self._client, self._session, address)
            self._management[address] = known
            # Both ways need the same right.
            assert is_refused(known.sender) == is_refused(known.receiver)
            if is_refused(known.sender):
                await self._expect_unauthorized()
                await self._expect_unauthorized()
        return known

    async def _expect_unauthorized(self) -> None:
        gone = await wait_for(self._client, lambda e: isinstance(e, Detached))
        assert gone.error.condition == "amqp:unauthorized-access"

    async def _is_answered(self, operation: str, entity: str) -> bool:
        links = await self._requests(f"{entity}/$management")
        if is_refused(links.sender):
            return False
        # Without arguments nothing can happen; who may not ask is told so first.
        answer = await links.ask({"operation": operation}, {})
        status = answer.application_properties["statusCode"]
        condition = answer.application_properties.get("errorCondition")
        assert (status == 401) == (condition == "amqp:unauthorized-access")
        return bool(status != 401)


_NUMBERS = iter(range(1_000_000))


async def granted_to(server: RawServer, claims: list[tuple[str, str, str, int]]) -> Any:
    """What a connection may do after tokens (path, key name, key, status) were put."""
    client = await connect(server.port)
    try:
        cbs = await Cbs.open(client)
        for path, name, key, expected in claims:
            # Refusals cost the address something; let it be paid.
            server.clock.advance(1000)
            status, text = await cbs.sign(path, name, key)
            assert status == expected, (path, name, text)
        session = await client.session()
        return await Tries(client, session, next(_NUMBERS)).all()
    finally:
        client.abort()


def expected_of(right: str, scope: Scope) -> set[str]:
    """The model: the right is enough, and the claim reaches the place."""

    def is_reached(address: str) -> bool:
        return any(f"{address}/".startswith(f"{at}/") for at in scope.reaches)

    granted = {
        name
        for name, (address, _, rights) in LINKS.items()
        if right in rights and is_reached(address)
    }
    return granted | {
        name
        for name, (entity, rights) in REQUESTS.items()
        if right in rights and is_reached(f"{entity}/$management")
    }


def traces(server: RawServer) -> list[Any]:
    """What is in the namespace: a refusal must not change it."""
    namespace = server.ports["contoso"].host.namespace
    return [
        (entity.key, entity.description, sorted(entity.rules), entity.received)
        for entity in namespace.entities
    ]


@pytest.mark.parametrize("right", [S, L, M])
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.asyncio(loop_scope="module")
async def test_exactly_the_granted_operations_work(
    servers: dict[str, RawServer], scope: str, right: str
) -> None:
    rules, audiences, _ = SCOPES[scope]
    signers = rules if len(rules) == len(audiences) else rules * len(audiences)
    claims = [
        (path, right, key_of(rule, right), 202)
        for rule, path in zip(signers, audiences, strict=True)
    ]
    before = traces(servers["contoso"])

    granted = await granted_to(servers["contoso"], claims)

    assert granted == expected_of(right, SCOPES[scope])
    assert traces(servers["contoso"]) == before


@pytest.mark.asyncio(loop_scope="module")
async def test_without_a_token_nothing_works(servers: dict[str, RawServer]) -> None:
    # So many refused links would be too many for a peer without any claim, so they
    # are tried on several connections.
    server = servers["contoso"]
    for name, (address, direction, _) in LINKS.items():
        client = await connect(server.port)
        tries = Tries(client, await client.session(), next(_NUMBERS))
        assert not await tries._attaches(address, direction), name
        client.abort()


@pytest.mark.parametrize("right", [S, L, M])
@pytest.mark.parametrize("path", ["", *THIS])
@pytest.mark.asyncio(loop_scope="module")
async def test_keys_of_another_namespace_prove_nothing(
    servers: dict[str, RawServer], path: str, right: str
) -> None:
    client = await connect(servers["contoso"].port)
    cbs = await Cbs.open(client)
    servers["contoso"].clock.advance(1000)

    status, _ = await cbs.sign(path, right, key_of("elsewhere", right))

    assert status == 401
    link = await attach(
        client,
        await client.session(),
        True,
        Attach(source=Source(), target=Target(address=path or ORDERS)),
    )
    assert is_refused(link)
    client.abort()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_host_name_leads_to_that_namespace_and_no_other(
    servers: dict[str, RawServer],
) -> None:
    client = await connect(servers["contoso"].port, "fabrikam.example")
    cbs = await Cbs.open(client)
    servers["contoso"].clock.advance(2000)

    assert (await cbs.sign("", S, key_of("", S)))[0] == 401
    assert (await cbs.sign("", S, key_of("elsewhere", S)))[0] == 202
    sender = await attach(
        client,
        await client.session(),
        True,
        Attach(source=Source(), target=Target(address=ORDERS)),
    )
    assert not is_refused(sender)
    await client.send(sender, b"\x00\x53\x75\xa0\x01x")

    ports = servers["contoso"].ports
    received = {}
    for name, port in ports.items():
        entity = port.host.namespace.entities.find(ORDERS)
        assert entity is not None
        received[name] = entity.received
    assert received == {"contoso": 0, "fabrikam": 1}
    client.abort()


def test_the_tables_name_every_operation() -> None:
    of_amqp = {o.value for o in Operation if o.value.startswith("com.microsoft:")}

    assert of_amqp == REQUESTS.keys()
