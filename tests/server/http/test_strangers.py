"""Requests without a valid claim: counted by address, and refused when too many.

The clock stands still, so what an address may send at once is all that it may send.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from tests.server.http.rest_site import RestSite, serving, signed
from twinbus import limits

NO_TOKEN = {"Authorization": ""}
WRONG = {"Authorization": signed(name="unknown")}
SENT = limits.STRANGER_REQUESTS_MAX + 20


@pytest.fixture
async def site() -> AsyncIterator[RestSite]:
    async with serving() as started:
        yield started


async def statuses(
    site: RestSite, target: str, headers: dict[str, str]
) -> Counter[int]:
    """The statuses of many requests, by how often each came."""
    answers = [await site.ask("GET", target, headers) for _ in range(SENT)]
    return Counter(answer.status for answer in answers)


@pytest.mark.parametrize(
    ("target", "headers", "status"),
    [
        ("/health", NO_TOKEN, 200),
        ("/metrics", NO_TOKEN, 200),
        ("/q", NO_TOKEN, 401),
        ("/q", WRONG, 401),
        ("/q/messages/1/a", NO_TOKEN, 401),
        ("/$faults", WRONG, 401),
    ],
)
async def test_strangers_are_refused_when_they_are_too_many(
    site: RestSite, target: str, headers: dict[str, str], status: int
) -> None:
    found = await statuses(site, target, headers)

    assert found == {status: limits.STRANGER_REQUESTS_MAX, 429: 20}


async def test_a_refused_stranger_is_told_when_to_come_back(site: RestSite) -> None:
    await statuses(site, "/health", NO_TOKEN)

    refused = await site.ask("GET", "/health", NO_TOKEN)
    site.advance(1000 * limits.STRANGER_RETRY_AFTER_SECONDS)
    later = [await site.ask("GET", "/health", NO_TOKEN) for _ in range(50)]

    assert refused.status == 429
    assert refused.headers["retry-after"] == "1"
    assert refused.body.startswith(
        b"There were too many requests without a valid token"
    )
    assert {answer.status for answer in later} == {200}


async def test_the_connection_of_a_refused_stranger_is_closed(site: RestSite) -> None:
    """So each further request needs a connection, and those are paced."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.number)

    writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * SENT)
    answers = await asyncio.wait_for(reader.read(), 10)

    assert answers.count(b"HTTP/1.1 200 ") == limits.STRANGER_REQUESTS_MAX
    assert answers.count(b"HTTP/1.1 429 ") == 1
    writer.close()


async def test_a_valid_claim_passes_however_many_strangers_come(
    site: RestSite,
) -> None:
    await statuses(site, "/health", NO_TOKEN)
    await statuses(site, "/q", WRONG)

    for _ in range(SENT):
        assert (await site.ask("GET", "/q")).status == 200
    assert (await site.ask("GET", "/metrics")).status == 200
