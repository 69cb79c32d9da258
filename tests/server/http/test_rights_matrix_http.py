"""Who may do what over HTTP: every verb, right and scope, on real connections.

The scopes and keys are those of `test_rights_matrix.py`. `VERBS` is the table to
extend. Whatever is granted here is asked for in a way that it changes nothing, so all
of it runs on one server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import pytest_asyncio

from tests.server.amqp.test_rights_matrix import (
    EVENTS,
    ORDERS,
    SCOPES,
    SESSIONS,
    SUBSCRIPTION,
    THIS,
    L,
    M,
    S,
    Scope,
    _config,
    key_of,
)
from twinbus.clock import ManualClock
from twinbus.core.sas import Secret, make_token
from twinbus.server.setup.listener import ListenOptions
from twinbus.server.setup.server import Server, ServerOptions

NO_LOCK = "00000000-0000-0000-0000-000000000001"
DEAD_LETTERS = f"{ORDERS}/$DeadLetterQueue"
# Reached by those who hold the whole namespace alone.
NAMESPACE = ""

# operation -> (method, path, what it is about, who may).
VERBS: dict[str, tuple[str, str, str, set[str]]] = {
    # Messages. A body that is no batch is refused after the right was looked at.
    "send": ("POST", f"{ORDERS}/messages", ORDERS, {S, M}),
    "send to a topic": ("POST", f"{EVENTS}/messages", EVENTS, {S, M}),
    "lock": ("POST", f"{ORDERS}/messages/head?timeout=0", ORDERS, {L, M}),
    "take": ("DELETE", f"{ORDERS}/messages/head?timeout=0", ORDERS, {L, M}),
    "lock from a subscription": (
        "POST",
        f"{SUBSCRIPTION}/messages/head?timeout=0",
        SUBSCRIPTION,
        {L, M},
    ),
    "take dead letters": (
        "DELETE",
        f"{DEAD_LETTERS}/messages/head?timeout=0",
        DEAD_LETTERS,
        {L, M},
    ),
    "complete": ("DELETE", f"{ORDERS}/messages/1/{NO_LOCK}", ORDERS, {L, M}),
    "unlock": ("PUT", f"{ORDERS}/messages/1/{NO_LOCK}", ORDERS, {L, M}),
    "renew": ("POST", f"{ORDERS}/messages/1/{NO_LOCK}", ORDERS, {L, M}),
    # Administration. Nothing has the body that it needs.
    "read a queue": ("GET", ORDERS, ORDERS, {M}),
    "create or change a queue": ("PUT", SESSIONS, SESSIONS, {M}),
    "read a subscription": ("GET", SUBSCRIPTION, SUBSCRIPTION, {M}),
    "change a subscription": ("PUT", SUBSCRIPTION, SUBSCRIPTION, {M}),
    "list rules": ("GET", f"{SUBSCRIPTION}/rules", SUBSCRIPTION, {M}),
    "read a rule": ("GET", f"{SUBSCRIPTION}/rules/$Default", SUBSCRIPTION, {M}),
    "change a rule": ("PUT", f"{SUBSCRIPTION}/rules/$Default", SUBSCRIPTION, {M}),
    "delete a rule": ("DELETE", f"{SUBSCRIPTION}/rules/none", SUBSCRIPTION, {M}),
    "list subscriptions": ("GET", f"{EVENTS}/subscriptions", EVENTS, {M}),
    "delete a subscription": (
        "DELETE",
        f"{EVENTS}/subscriptions/none",
        f"{EVENTS}/Subscriptions/none",
        {M},
    ),
    "list queues": ("GET", "$Resources/queues", NAMESPACE, {M}),
    "list topics": ("GET", "$Resources/topics", NAMESPACE, {M}),
    "read the namespace": ("GET", "$namespaceinfo", NAMESPACE, {M}),
    # Upkeep. There is nothing to purge, and a reset makes what is there.
    "purge a queue": ("POST", f"{ORDERS}/$purge", ORDERS, {M}),
    "purge dead letters": ("POST", f"{DEAD_LETTERS}/$purge", DEAD_LETTERS, {M}),
    "purge a subscription": ("POST", f"{SUBSCRIPTION}/$purge", SUBSCRIPTION, {M}),
    "purge everything": ("POST", "$purge", NAMESPACE, {M}),
    "reset": ("POST", "$reset", NAMESPACE, {M}),
    "show shards": ("GET", "$shards", NAMESPACE, {M}),
    "list authorization rules": ("GET", "$authorizationRules", NAMESPACE, {M}),
    "put an authorization rule": ("PUT", "$authorizationRules/x", NAMESPACE, {M}),
    "delete an authorization rule": (
        "DELETE",
        "$authorizationRules/none",
        NAMESPACE,
        {M},
    ),
    "list keys": ("POST", "$authorizationRules/none/listKeys", NAMESPACE, {M}),
    "regenerate keys": (
        "POST",
        "$authorizationRules/none/regenerateKeys",
        NAMESPACE,
        {M},
    ),
    # No verb gets further than the right that the path needs.
    "a wrong verb": ("DELETE", "$authorizationRules", NAMESPACE, {M}),
    "a wrong verb for a purge": ("PUT", f"{ORDERS}/$purge", ORDERS, {M}),
}


class Site(NamedTuple):
    """A server and its clock."""

    port: int
    clock: ManualClock

    async def is_granted(self, method: str, path: str, token: str | None) -> bool:
        """Ask for something over a connection of its own."""
        # Refusals cost the address something; let it be paid.
        self.clock.advance(1000)
        head = [f"{method} /{path} HTTP/1.1", f"Host: localhost:{self.port}"]
        head += ["Connection: close", "Content-Length: 1"]
        head += ["Content-Type: application/vnd.microsoft.servicebus.json"]
        if token is not None:
            head.append(f"Authorization: {token}")
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write("\r\n".join([*head, "", "x"]).encode())
            answer = await asyncio.wait_for(reader.read(), 10)
        finally:
            writer.close()
        status = int(answer.split(b" ")[1])
        assert status < 500 or status == 501, answer
        return status != 401


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    clock = ManualClock()
    listen = ListenOptions("127.0.0.1", {"http": 0})
    configs = _config("contoso", ""), _config("fabrikam", "elsewhere")
    folder = tmp_path_factory.mktemp("http")
    options = ServerOptions(configs, folder, listen, in_memory=True)
    server = Server(options, clock)
    ready = await server.start()
    try:
        yield Site(ready["namespaces"]["contoso"]["http_port"], clock)
    finally:
        await server.stop()


def is_below(path: str, above: str) -> bool:
    return not above or f"{path}/".lower().startswith(f"{above}/".lower())


def token_for(scope: Scope, about: str, right: str) -> str:
    """The token of a scope that comes nearest to what a request is about."""
    roots = [is_below(about, this) for this in THIS]
    index = roots.index(True) if True in roots and len(scope.audiences) > 1 else 0
    rule = scope.rules[index] if len(scope.rules) > 1 else scope.rules[0]
    audience = f"sb://localhost/{scope.audiences[index]}"
    return make_token(audience, right, Secret(key_of(rule, right)), 1 << 33)


def is_reached(scope: Scope, about: str) -> bool:
    """Whether the model lets the scope reach it."""
    if about == NAMESPACE:
        return scope.audiences == ("",)
    return any(is_below(about, at) for at in scope.reaches)


@pytest.mark.parametrize("right", [S, L, M])
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.asyncio(loop_scope="module")
async def test_exactly_the_granted_verbs_work(
    site: Site, scope: str, right: str
) -> None:
    granted = set()
    for name, (method, path, about, _) in VERBS.items():
        token = token_for(SCOPES[scope], about, right)
        if await site.is_granted(method, path, token):
            granted.add(name)

    assert granted == {
        name
        for name, (_, _, about, rights) in VERBS.items()
        if right in rights and is_reached(SCOPES[scope], about)
    }


@pytest.mark.parametrize("name", VERBS)
@pytest.mark.asyncio(loop_scope="module")
async def test_nothing_works_without_a_token_or_with_a_foreign_one(
    site: Site, name: str
) -> None:
    method, path, _, _ = VERBS[name]
    foreign = make_token("sb://localhost/", M, Secret(key_of("elsewhere", M)), 1 << 33)

    assert not await site.is_granted(method, path, None)
    assert not await site.is_granted(method, path, foreign)
