"""Administration over HTTP: the route, its requests and its refusals.

Owns how a request is read, after it was admitted (`http/route.py`), and how errors are
worded, which is as the real service does. The operation runs as a command of the host,
so an answer leaves after the commit. What an operation does is in `operations.py`.
"""

from __future__ import annotations

import dataclasses
import re

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from twinbus import limits
from twinbus.core.names import EntityPath
from twinbus.core.rights import Claim, Operation
from twinbus.errors import ArgumentError, Bug, TwinbusError
from twinbus.server.access.port import NamespacePort
from twinbus.server.broker import answers
from twinbus.server.broker.directory.placement import host_for_new, host_of
from twinbus.server.broker.nodes import catch_up
from twinbus.server.http import route
from twinbus.server.http.admin.descriptions import STRICT_VERSION
from twinbus.server.http.admin.filters import Filter, parse_filter
from twinbus.server.http.admin.front import front, is_for_strangers
from twinbus.server.http.admin.operations import Administer
from twinbus.server.http.admin.request import (
    AdminReply,
    AdminRequest,
    AdminTarget,
    Forwarding,
    TargetKind,
    parse_target,
)
from twinbus.server.http.admin.xml import (
    ERROR_TYPE,
    read_description,
    read_integer,
    write_error,
)
from twinbus.server.http.auth import Asked, Door
from twinbus.server.http.route import Exchange

_VERSION = re.compile(r"20[0-9]{2}-[0-9]{2}")
# The body may not have been read, so the connection cannot be used again.
_CLOSING = frozenset({401, 413})
# What the real service says first, whatever is wrong with a token.
_INVALID = "claim is empty or token is invalid. "
# Where the token for the target of a field is.
_FORWARD_TOKENS = {
    "forward_to": "servicebussupplementaryauthorization",
    "forward_dead_lettered_messages_to": "servicebusdlqsupplementaryauthorization",
}

_OF_ENTITY = frozenset(
    {
        TargetKind.ENTITY,
        TargetKind.SUBSCRIPTIONS,
        TargetKind.SUBSCRIPTION,
        TargetKind.RULES,
        TargetKind.RULE,
    }
)

_SUB_CODES = {
    400: "SubCode=40000. Bad Request. ",
    403: "SubCode=40301. Forbidden. ",
    405: "SubCode=40500. Method Not Allowed. ",
    412: "SubCode=41200. Precondition Failed. ",
    413: "SubCode=41300. Request Entity Too Large. ",
    # Not busy: a shard that is sick must make a pair fail over.
    500: "SubCode=50000. Internal Server Error. ",
    503: "SubCode=50300. Server Busy. ",
}


def admin_route(port: NamespacePort) -> Route:
    """Takes every path that the other routes leave; it must be the last."""

    async def answer(request: Request) -> Response:
        exchange = AdminExchange(port, request)
        return exchange.front() if is_for_strangers(request) else await exchange.run()

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


class AdminExchange(Exchange):
    """One request about entities."""

    unproved = _INVALID

    def __init__(self, port: NamespacePort, request: Request) -> None:
        super().__init__(port, request)
        self._method = request.method
        # Known when the path is read.
        self._target: AdminTarget | None = None

    def front(self) -> Response:
        """Answer a stranger who asks for no more than the namespace."""
        try:
            route.check_authority(self.authority)
        except TwinbusError as error:
            return self.refusal(error)
        url = f"{self.request.scope['scheme']}://{self.authority}/"
        return front(self.request, url, self.host.clock.now().wall_ms)

    def asked(self) -> Asked:
        """Read the path, which may be none of an entity."""
        target = self._target = parse_target(self.raw_path)
        operation = self._operation(target)
        return Asked(operation, target.scope, target.spelled, self.authority)

    def counted_at(self, asked: Asked) -> EntityPath:
        """The queue, topic or subscription, also for its rules; lists are of none."""
        del asked
        assert self._target is not None
        return self._target.path if self._target.kind in _OF_ENTITY else EntityPath("")

    async def answer(self, claim: Claim) -> Response:
        """Run the request as a command."""
        del claim
        if self.host.faults is not None:
            self.host.faults.check_manage()
        assert self._target is not None
        request = self._read(self._target)
        path = self._target.path
        if len(self.host.hosts) > 1:
            # Another node may have made or changed it, in any shard, just now.
            await catch_up(self.host)
        if self._method != "PUT":
            host = host_of(self.host, path)
            reply = await host.run(Administer(request))
        else:
            body = await self.body()
            described = dataclasses.replace(request, description=read_description(body))
            with host_for_new(self.host, path) as host:
                reply = await host.run(Administer(described), len(body))
        if self._method != "GET" and host.mover is not None:
            # Other shards know of it before the client goes on.
            await host.mover.settle(host)
        return _response(reply)

    def refusal(self, error: TwinbusError) -> Response:
        """The answer that an error becomes, as the real service words it."""
        status = answers.status_of(error, route.STATUSES)
        namespace = self.host.namespace.name
        tracker = self._target.tracker(namespace) if self._target else namespace
        detail = self._detail(error, status, tracker)
        body = write_error(status, detail, tracker, self.host.clock.now().wall_ms)
        return _response(AdminReply(status, body, ERROR_TYPE))

    def _detail(self, error: TwinbusError, status: int, tracker: str) -> str:
        is_entity = self._target is not None and self._target.kind is TargetKind.ENTITY
        if status == 409:
            if is_entity:
                return f"SubCode=40900. Conflict. {error.text}"
            return f"The messaging entity '{tracker}' already exists."
        if status == 404:
            if self._method == "DELETE":
                return "No service is hosted at the specified address."
            if is_entity:
                return f"SubCode=40400. Not Found. {error.text}"
            return f"Entity '{tracker}' was not found. {error.text}"
        if isinstance(error, Bug):
            return f"SubCode=50000. Internal Server Error. {answers.SEE_LOG}"
        return _SUB_CODES.get(status, "") + error.text

    def _operation(self, target: AdminTarget) -> Operation:
        if self._method == "DELETE":
            return Operation.DELETE_ENTITY
        if self._method == "PUT":
            is_update = "if-match" in self.request.headers
            return Operation.UPDATE_ENTITY if is_update else Operation.CREATE_ENTITY
        if target.kind is TargetKind.NAMESPACE:
            return Operation.READ_NAMESPACE
        return Operation.LIST_ENTITIES if target.kind.is_list else Operation.READ_ENTITY

    def _read(self, target: AdminTarget) -> AdminRequest:
        """The request without its body."""
        raw_path = self.raw_path
        query = self.request.query_params
        version = query.get("api-version", STRICT_VERSION)
        if not _VERSION.fullmatch(version):
            raise ArgumentError("The api-version must be a year and a month: 2021-05.")
        root = f"{self.request.scope['scheme']}://{self.authority}"
        given = bytes(self.request.scope["query_string"]).decode("ascii", "replace")
        return AdminRequest(
            method=self._method,
            target=target,
            url=f"{root}{raw_path}?{given}" if given else f"{root}{raw_path}",
            root=f"{root}/",
            version=version,
            if_match=self.request.headers.get("if-match"),
            skip=_count(query.get("$skip", "0"), "$skip"),
            top=_count(query.get("$top", str(limits.ADMIN_PAGE_ENTRIES_MAX)), "$top"),
            wanted=_wanted(query.get("$filter"), target.kind),
            filter_text=query.get("$filter"),
            forwarding=self._forwarding() if self._method == "PUT" else None,
        )

    def _forwarding(self) -> Forwarding:
        """What proves that the request may make an entity send to another."""
        tokens = {
            field: tuple(
                self.request.headers.get(name, "") for name in (own, "authorization")
            )
            for field, own in _FORWARD_TOKENS.items()
        }
        door = Door.of(self.port, self.host)
        return Forwarding(tokens, self.authority, door, self.now_s())


def _wanted(text: str | None, kind: TargetKind) -> Filter:
    """What `$filter` lets through; without it that is all."""
    if text is None:
        return lambda _facts: True
    if not kind.is_list or kind is TargetKind.RULES:
        raise ArgumentError(
            "$filter is for lists of queues, topics and subscriptions. Leave it out."
        )
    return parse_filter(text, has_path=kind is not TargetKind.SUBSCRIPTIONS)


def _count(text: str, name: str) -> int:
    value = read_integer(name, text)
    if value < 0:
        raise ArgumentError(f"{name} must not be negative.")
    return value
