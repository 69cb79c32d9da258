"""Programs for the official client run with ours, but for the import and the name.

Each program of `programs/` runs three times, each time with a namespace of its own on
one real server: as it is; with `ServiceBusClient` exchanged for `MessagingFactory`; and
so exchanged with a pair, which takes one line more. What it prints must be the same,
and so must what it leaves behind. `DIFFERENCES` has all that is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.sdk import drop_in
from tests.sdk.drop_in import NAMES, WAYS, exchanged, namespace_name, source_of
from tests.sdk.servers import serving
from tests.server.access import tokens_of_issuer as issuer

# What the official client leads a program to print, and what ours does. The guide for
# those who come from it says the same.
_ALWAYS = {
    # It says that the token was refused, because it asks for the token first.
    "no such queue: ServiceBusAuthenticationError, of the service bus": (
        "no such queue: MessagingEntityNotFoundError, of the service bus"
    ),
    "missing check the key": "missing create the entity",
    # It notices only while it writes the message.
    "cancel a text: ServiceBusError, of the service bus": "cancel a text: TypeError",
    # It refuses a list that is too large for one batch; ours takes several batches.
    "a long list: one by one": "a long list: at once",
    # It does not know whether it was closed.
    "a closed client makes senders": "a closed client makes no senders",
}
# A paired sender does not give up for a lost connection, but when its time is over.
_HELD = {
    "unreachable: ServiceBusConnectionError, of the service bus": (
        "unreachable: OperationTimeoutError, of the service bus"
    ),
    "unreachable check the network": "unreachable OperationTimeoutError",
}
DIFFERENCES = {"exchanged": _ALWAYS, "paired": {**_ALWAYS, **_HELD}}

_LARGE = {"name": "r", "filter": {"sql": "amount > 10"}}
_ENTITIES: dict[str, Any] = {
    "queues": [
        {"name": "orders"},
        {"name": "sessions", "requires_session": True},
        {"name": "disabled", "status": "Disabled"},
        {"name": "tiny", "max_size_in_megabytes": 1},
    ],
    "topics": [
        {
            "name": "events",
            "subscriptions": [{"name": "all"}, {"name": "large", "rules": [_LARGE]}],
        }
    ],
    "authorization_rules": [
        {
            "name": drop_in.LISTENER[0],
            "rights": ["Listen"],
            "primary_key": drop_in.LISTENER[1],
        }
    ],
    "jwt": {"issuer": issuer.ISSUER, "jwks": "jwks.json"},
}

Runs = dict[tuple[str, str], Future[tuple[str, list[Any]]]]


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runs]:
    """All programs at work, several at once: the official client mostly waits."""
    folder = tmp_path_factory.mktemp("drop-in")
    issuer.write_jwks(folder)
    asked = {
        str(item.callspec.params["name"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and "runs" in item.fixturenames
    }
    wanted = [(name, way) for name in sorted(asked) for way in WAYS]
    namespaces = [{"name": namespace_name(*each), **_ENTITIES} for each in wanted]
    namespaces.append({"name": drop_in.SECONDARY})
    with (
        serving(folder, {"namespaces": namespaces}) as server,
        ThreadPoolExecutor(6) as pool,
    ):
        yield {each: pool.submit(drop_in.run, server, *each) for each in wanted}


@pytest.mark.parametrize("name", NAMES)
def test_a_program_does_not_see_the_difference(name: str, runs: Runs) -> None:
    official, left = runs[name, "official"].result()
    assert official, "the program printed nothing"

    for way, different in DIFFERENCES.items():
        expected = [different.get(line, line) for line in official.splitlines()]
        printed, still_there = runs[name, way].result()

        assert printed.splitlines() == expected, way
        assert still_there == left, way


@pytest.mark.parametrize("name", NAMES)
def test_nothing_but_the_import_and_the_name_is_exchanged(name: str) -> None:
    source = source_of(name)
    named = source.replace("ServiceBusClient", "MessagingFactory").splitlines()

    changed = [line for line in exchanged(source).splitlines() if line not in named]

    assert all("import" in line for line in changed), changed
    assert len(changed) <= 2, changed
