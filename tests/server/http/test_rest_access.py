"""The REST data plane: the right of each verb, and the resources of signatures."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest

from tests.server.http.rest_site import (
    AUTHORITY,
    KEY,
    OWN,
    Answer,
    RestSite,
    serving,
    signed,
)


@pytest.fixture
async def site() -> AsyncIterator[RestSite]:
    async with serving() as started:
        yield started


REQUESTS = {
    "send": ("POST", "/q/messages"),
    "lock": ("POST", "/q/messages/head?timeout=0"),
    "take": ("DELETE", "/q/messages/head?timeout=0"),
    "complete": ("DELETE", f"/q/messages/1/{uuid.UUID(int=1)}"),
    "unlock": ("PUT", f"/q/messages/1/{uuid.UUID(int=1)}"),
    "renew": ("POST", f"/q/messages/1/{uuid.UUID(int=1)}"),
}


def _is_admitted(answer: Answer) -> bool:
    return answer.status != 401


@pytest.mark.parametrize("verb", REQUESTS)
@pytest.mark.parametrize("rule", ["root", "sends", "listens", "none"])
async def test_each_verb_needs_its_right(site: RestSite, verb: str, rule: str) -> None:
    granted = {"sends": ["send"], "root": [*REQUESTS], "none": []}
    wanted = granted.get(rule, [name for name in REQUESTS if name != "send"])

    answer = await site.ask(*REQUESTS[verb], {"Authorization": signed(name=rule)})

    assert _is_admitted(answer) == (verb in wanted)


@pytest.mark.parametrize(
    ("resource", "is_open"),
    [
        (f"https://{AUTHORITY}", True),
        (f"http://{AUTHORITY}/q", True),
        (f"sb://{AUTHORITY}/Q/", True),
        (f"https://{AUTHORITY}/q/messages", True),
        (f"https://{AUTHORITY}/q/messages/head?timeout=0", True),
        (AUTHORITY, True),
        (f"{AUTHORITY}/q", True),
        (f"https://{AUTHORITY}/q2", False),
        (f"https://{AUTHORITY}/q/messages/tail", False),
        (f"{AUTHORITY}/q2", False),
        ("fabrikam.servicebus.windows.net", False),
        ("q2", False),
        ("q", True),
    ],
)
async def test_a_signature_is_valid_for_its_resource_only(
    site: RestSite, resource: str, is_open: bool
) -> None:
    header = {"Authorization": signed(resource)}

    answer = await site.ask("POST", "/q/messages/head?timeout=0", header)

    assert _is_admitted(answer) == is_open


async def test_an_invented_host_does_not_widen_a_signature(site: RestSite) -> None:
    header = {"Authorization": signed("q2"), "Host": "q2"}

    answer = await site.ask("POST", "/q/messages", header)

    assert answer.status == 401


async def test_a_key_of_a_queue_is_valid_for_that_queue_only(site: RestSite) -> None:
    header = {"Authorization": signed(name="own", key=OWN)}

    own = await site.ask("POST", "/guarded/messages", header)
    other = await site.ask("POST", "/q/messages", header)

    assert (own.status, other.status) == (201, 401)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "SharedAccessSignature",
        "Basic cm9vdDpyb290",
        signed(expires_s=1),
        signed(name="unknown"),
        signed()[:-10],
        signed().replace("sig=", "sig=A"),
        f"Bearer {signed(name='unknown')}",
        "Bearer a.b.c",
    ],
)
async def test_invalid_credentials_are_refused(site: RestSite, header: str) -> None:
    answer = await site.ask("POST", "/q/messages", {"Authorization": header})

    assert answer.status == 401
    assert KEY.reveal().encode() not in answer.body


async def test_a_signature_is_accepted_as_a_bearer_token(site: RestSite) -> None:
    header = {"Authorization": f"Bearer {signed()}"}

    assert (await site.ask("POST", "/q/messages", header)).status == 201


async def test_failures_of_an_address_do_not_lock_out_its_right_key(
    site: RestSite,
) -> None:
    wrong = {"Authorization": signed(name="unknown")}
    for _ in range(45):
        assert (await site.ask("POST", "/q/messages", wrong)).status == 401

    assert (await site.ask("POST", "/q/messages")).status == 201
