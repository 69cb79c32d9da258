"""Administration over HTTP: the route, and the way of a request through a turn.

Owns the order of things: the path is read, the caller is admitted, then the body is
taken in, bounded, and the operation runs as a command of the host. So nobody without
the right makes the server work, and no answer leaves before its change is on disk.
What an operation does is in `admin_operations.py`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
from contextlib import AbstractContextManager, nullcontext

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from twinbus import limits
from twinbus.core.rights import Operation
from twinbus.errors import ArgumentError, TwinbusError
from twinbus.server.admin_auth import Credentials, RulesOf, admit, admit_forward
from twinbus.server.admin_descriptions import STRICT_VERSION
from twinbus.server.admin_operations import perform
from twinbus.server.admin_paths import Kind, Place, parse_place
from twinbus.server.admin_replies import (
    AdminReply,
    AdminRequest,
    BodyTooLarge,
    refusal,
)
from twinbus.server.admin_values import read_integer
from twinbus.server.admin_xml import read_description
from twinbus.server.host import Host
from twinbus.server.namespace import Namespace
from twinbus.server.port import NamespacePort

_VERSION = re.compile(r"20[0-9]{2}-[0-9]{2}")
_AUTHORITY = re.compile(r"[A-Za-z0-9._\-\[\]:]{1,255}")
# A body that was not read is not worth a connection.
_CLOSING = frozenset({401, 413})


def admin_route(port: NamespacePort) -> Route:
    """Everything that no other route wants; it must be the last."""

    async def answer(request: Request) -> Response:
        try:
            reply = await _Exchange(port, request).run()
        except ClientDisconnect:
            return Response(status_code=400)
        return _response(reply)

    return Route("/{path:path}", answer, methods=["GET", "PUT", "DELETE"])


def _response(reply: AdminReply) -> Response:
    headers = {}
    if reply.content_type is not None:
        headers["Content-Type"] = reply.content_type
    if reply.etag is not None:
        headers["ETag"] = reply.etag
    if reply.status in _CLOSING:
        headers["Connection"] = "close"
    return Response(reply.body, reply.status, headers)


class _Exchange:
    """One request and its answer."""

    def __init__(self, port: NamespacePort, request: Request) -> None:
        self._port = port
        self._request = request
        self._method = request.method
        self._authority = request.headers.get("host", "")
        self._host = port.choose(self._authority.partition(":")[0])
        self._rules_of: RulesOf = lambda key: port.rules_of(self._host, key)
        self._place: Place | None = None

    async def run(self) -> AdminReply:
        """Answer the request, whatever happens."""
        try:
            return await self._answer()
        except TwinbusError as error:
            namespace = self._host.namespace.name
            now_ms = self._host.clock.now_ms()
            return refusal(error, self._method, self._place, namespace, now_ms)

    async def _answer(self) -> AdminReply:
        if not _AUTHORITY.fullmatch(self._authority):
            raise ArgumentError("The Host of the request is missing or odd.")
        raw_path = bytes(self._request.scope["raw_path"]).decode("ascii", "replace")
        place = self._place = parse_place(raw_path)
        credentials = self._credentials()
        now_s = self._host.token_clock.now_ms() // 1000
        admit(credentials, self._rules_of, self._operation(place), place, now_s)
        request = self._read(raw_path, place, credentials)
        if self._method != "PUT":
            return await _in_turn(self._host, request, 0)
        body = await self._body()
        described = dataclasses.replace(request, description=read_description(body))
        return await _in_turn(self._host, described, len(body))

    def _credentials(self) -> Credentials:
        headers = self._request.headers
        get = headers.get
        return Credentials(
            authorization=get("authorization", ""),
            forward=get("servicebussupplementaryauthorization", ""),
            forward_dead_letter=get("servicebusdlqsupplementaryauthorization", ""),
            authority=self._authority,
            namespace=self._host.namespace.name,
            tokens=self._port.tokens_of(self._host),
            counted=self._counted if "authorization" in headers else nullcontext,
        )

    def _counted(self) -> AbstractContextManager[None]:
        client = self._request.client
        now_ms = self._host.token_clock.now_ms()
        return self._port.failures.counted(client.host if client else "", now_ms)

    def _operation(self, place: Place) -> Operation:
        if self._method == "DELETE":
            return Operation.DELETE_ENTITY
        if self._method == "PUT":
            is_update = "if-match" in self._request.headers
            return Operation.UPDATE_ENTITY if is_update else Operation.CREATE_ENTITY
        if place.kind is Kind.NAMESPACE:
            return Operation.READ_NAMESPACE
        return Operation.LIST_ENTITIES if place.kind.is_list else Operation.READ_ENTITY

    def _read(
        self, raw_path: str, place: Place, credentials: Credentials
    ) -> AdminRequest:
        """The request without its body."""
        query = self._request.query_params
        version = query.get("api-version", STRICT_VERSION)
        if not _VERSION.fullmatch(version):
            raise ArgumentError("The api-version must be a year and a month: 2021-05.")
        if "$filter" in query:
            raise ArgumentError("$filter is not supported. Leave it out.")
        root = f"{self._request.scope['scheme']}://{self._authority}"
        given = bytes(self._request.scope["query_string"]).decode("ascii", "replace")
        return AdminRequest(
            method=self._method,
            place=place,
            url=f"{root}{raw_path}?{given}" if given else f"{root}{raw_path}",
            root=f"{root}/",
            version=version,
            if_match=self._request.headers.get("if-match"),
            skip=_count(query.get("$skip", "0"), "$skip"),
            top=_count(query.get("$top", str(limits.ADMIN_PAGE_ENTRIES_MAX)), "$top"),
            check_forward=lambda field, target: self._check_forward(
                credentials, field, target
            ),
        )

    def _check_forward(self, credentials: Credentials, field: str, target: str) -> None:
        is_usual = field == "forward_to"
        token = credentials.forward if is_usual else credentials.forward_dead_letter
        now_s = self._host.token_clock.now_ms() // 1000
        admit_forward(credentials, token, self._rules_of, target, now_s)

    async def _body(self) -> bytes:
        chunks: list[bytes] = []
        size_bytes = 0
        async for chunk in self._request.stream():
            size_bytes += len(chunk)
            if size_bytes > limits.ADMIN_BODY_BYTES_MAX:
                raise BodyTooLarge(
                    f"A body has at most {limits.ADMIN_BODY_BYTES_MAX} bytes."
                )
            chunks.append(chunk)
        return b"".join(chunks)


def _count(text: str, name: str) -> int:
    value = read_integer(name, text)
    if value < 0:
        raise ArgumentError(f"{name} must not be negative.")
    return value


class _Command:
    """A request in a turn of the host (`host.Command`)."""

    def __init__(self, request: AdminRequest, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.done: asyncio.Future[AdminReply] = asyncio.Future()
        self._request = request
        self._reply: AdminReply | None = None

    def apply(self, namespace: Namespace, now_ms: int) -> None:
        """Carry it out; a refusal changes nothing and is told after the turn."""
        self._reply = perform(namespace, self._request, now_ms)

    def release(self) -> None:
        """It is on disk."""
        assert self._reply is not None
        if not self.done.done():
            self.done.set_result(self._reply)

    def fail(self, error: TwinbusError) -> None:
        """It did not happen."""
        if not self.done.done():
            self.done.set_exception(error)


async def _in_turn(host: Host, request: AdminRequest, size_bytes: int) -> AdminReply:
    command = _Command(request, size_bytes)
    host.submit(command)
    return await command.done
