"""The REST data plane: who may ask for what, and what a signature may be made for."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest

from tests.server.rest_site import (
    AUTHORITY,
    KEY,
    OWN,
    Answer,
    RestSite,
    serving,
    signed,
)
from twinbus import limits


@pytest.fixture
async def site() -> AsyncIterator[RestSite]:
    async with serving() as started:
        yield started


ERRANDS = {
    "send": ("POST", "/q/messages"),
    "lock": ("POST", "/q/messages/head?timeout=0"),
    "take": ("DELETE", "/q/messages/head?timeout=0"),
    "complete": ("DELETE", f"/q/messages/1/{uuid.UUID(int=1)}"),
    "unlock": ("PUT", f"/q/messages/1/{uuid.UUID(int=1)}"),
    "renew": ("POST", f"/q/messages/1/{uuid.UUID(int=1)}"),
}


def _let_in(answer: Answer) -> bool:
    return answer.status != 401


@pytest.mark.parametrize("errand", ERRANDS)
@pytest.mark.parametrize("rule", ["root", "sends", "listens", "none"])
async def test_a_right_opens_its_own_verbs_alone(
    site: RestSite, errand: str, rule: str
) -> None:
    granted = {"sends": ["send"], "root": [*ERRANDS], "none": []}
    wanted = granted.get(rule, [name for name in ERRANDS if name != "send"])

    answer = await site.ask(*ERRANDS[errand], {"Authorization": signed(name=rule)})

    assert _let_in(answer) == (errand in wanted)


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
async def test_a_signature_is_for_what_it_names(
    site: RestSite, resource: str, is_open: bool
) -> None:
    header = {"Authorization": signed(resource)}

    answer = await site.ask("POST", "/q/messages/head?timeout=0", header)

    assert _let_in(answer) == is_open


async def test_a_host_that_the_client_makes_up_widens_nothing(site: RestSite) -> None:
    header = {"Authorization": signed("q2"), "Host": "q2"}

    answer = await site.ask("POST", "/q/messages", header)

    assert answer.status == 401


async def test_a_key_of_a_queue_opens_that_queue_alone(site: RestSite) -> None:
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
        signed(name="nobody"),
        signed()[:-10],
        signed().replace("sig=", "sig=A"),
        f"Bearer {signed(name='nobody')}",
        "Bearer a.b.c",
    ],
)
async def test_a_token_that_proves_nothing_is_refused(
    site: RestSite, header: str
) -> None:
    answer = await site.ask("POST", "/q/messages", {"Authorization": header})

    assert answer.status == 401
    assert KEY.reveal().encode() not in answer.body


async def test_a_signature_may_come_as_a_bearer(site: RestSite) -> None:
    header = {"Authorization": f"Bearer {signed()}"}

    assert (await site.ask("POST", "/q/messages", header)).status == 201


async def test_who_guesses_has_to_wait(site: RestSite) -> None:
    wrong = {"Authorization": signed(name="nobody")}
    for _ in range(limits.TOKEN_FAILURES_MAX):
        await site.ask("POST", "/q/messages", wrong)

    refused = await site.ask("POST", "/q/messages")
    site.advance(60_000)
    right = await site.ask("POST", "/q/messages")

    assert (refused.status, right.status) == (401, 201)
