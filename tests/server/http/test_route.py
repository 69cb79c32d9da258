"""The shape of an HTTP surface: one of a few lines is admitted like all others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from starlette.responses import JSONResponse, PlainTextResponse, Response

from tests.server.http.rest_site import Answer, RestSite, serving, signed
from twinbus.core.names import EntityPath
from twinbus.core.rights import Claim, Operation
from twinbus.errors import EntityNotFound, TwinbusError
from twinbus.server.access.port import NamespacePort
from twinbus.server.broker.answers import status_of
from twinbus.server.http.auth import Asked
from twinbus.server.http.route import STATUSES, Exchange, SurfaceRoute
from twinbus.server.http.server import HttpServer
from twinbus.server.setup import listener


def find_depth(method: str, raw_path: str) -> str | None:
    name = raw_path.removeprefix("/").removesuffix("/$depth")
    return name if method == "GET" and raw_path.endswith("/$depth") else None


class DepthExchange(Exchange):
    """How many messages a queue holds."""

    def asked(self) -> Asked:
        path = EntityPath(self.found)
        return Asked(
            Operation.READ_ENTITY, path, f"{self.found}/$depth", self.authority
        )

    async def answer(self, claim: Claim) -> Response:
        del claim
        entity = self.host.namespace.entities.find(self.found)
        if entity is None:
            raise EntityNotFound(self.found)
        return JSONResponse(self.host.namespace.store.counts(entity.id).active)

    def refusal(self, error: TwinbusError) -> Response:
        return PlainTextResponse(error.text, status_of(error, STATUSES))


def connect(port: NamespacePort) -> asyncio.Protocol:
    raise AssertionError(port)


@pytest.fixture
async def site() -> AsyncIterator[RestSite]:
    """A site whose requests go to a server with one more surface."""
    async with serving() as started:
        http = HttpServer(started.port, connect)
        http.routes.append(SurfaceRoute(started.port, find_depth, DepthExchange))
        bound = listener.bind("127.0.0.1", 0, "http")
        server = listener.listen(bound, "http", http.protocol, None)
        started.number = bound.getsockname()[1]
        yield started
        server.close()
        await http.close()


async def depth(site: RestSite, name: str = "q", **headers: str) -> Answer:
    return await site.ask("GET", f"/{name}/$depth", headers)


async def test_a_surface_answers_the_requests_that_it_finds(site: RestSite) -> None:
    await site.send()

    answer = await depth(site)
    other = await site.ask("DELETE", "/q/$depth")

    assert (answer.status, answer.body) == (200, b"1")
    assert other.status == 404, "administration has it"


@pytest.mark.parametrize("token", ["", "rubbish", signed(name="sends")])
async def test_a_surface_is_not_asked_without_the_right(
    site: RestSite, token: str
) -> None:
    answer = await depth(site, "none", Authorization=token)

    assert answer.status == 401


async def test_an_error_becomes_the_refusal_of_the_surface(site: RestSite) -> None:
    missing = await depth(site, "none")
    invalid = await depth(site, Host="a host")

    assert (missing.status, invalid.status) == (404, 400)
    assert missing.headers["content-type"].startswith("text/plain")
