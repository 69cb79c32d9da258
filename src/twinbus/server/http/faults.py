"""Rehearsed faults over HTTP: list them, switch them on and off.

Owns the paths `/$faults` and `/$faults/{id}`, which no entity can have. All of it needs
Manage on the namespace, which no fault takes away: `unauthorized` and `management-down`
leave these paths alone, so that a fault can be ended. Without `--faults` they are
refused. What a fault is, is in `broker/faults.py`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from starlette.responses import JSONResponse, Response

from twinbus.core.names import EntityPath
from twinbus.core.rights import Claim, Operation
from twinbus.errors import ArgumentError, CallerError, TwinbusError
from twinbus.server.access.port import NamespacePort
from twinbus.server.broker import answers
from twinbus.server.broker.directory.placement import find_entity
from twinbus.server.broker.faults import read_request
from twinbus.server.http import route
from twinbus.server.http.auth import Asked
from twinbus.server.http.route import (
    Exchange,
    MethodNotAllowed,
    SurfaceRoute,
    split_path,
)

_FAULTS = "$faults"


@dataclass(frozen=True, slots=True)
class FaultsRequest:
    """A request for the switchboard."""

    # The path as the client wrote it, without outer slashes: this may be signed.
    spelled: str
    # The number of one fault, as text.
    fault: str = ""


def find_faults(method: str, raw_path: str) -> FaultsRequest | None:
    """Read the path of a request, as it stands in the request line."""
    del method
    split = split_path(raw_path)
    if split is None or split[1][0].lower() != _FAULTS or len(split[1]) > 2:
        return None
    return FaultsRequest(split[0], "".join(split[1][1:]))


def faults_route(port: NamespacePort) -> SurfaceRoute:
    """Takes the requests whose paths are those of this file."""
    return SurfaceRoute(port, find_faults, FaultsExchange)


class FaultsExchange(Exchange):
    """One request for the switchboard."""

    def asked(self) -> Asked:
        """To rehearse, whatever the method is."""
        path = EntityPath("")
        spelled = self.found.spelled
        return Asked(Operation.REHEARSE_FAULTS, path, spelled, self.authority)

    async def answer(self, claim: Claim) -> Response:
        """Carry the request out; refusals are raised."""
        del claim
        return JSONResponse(await self._answer(), headers={"Cache-Control": "no-store"})

    async def _answer(self) -> Any:
        faults, switchboard = self.host.faults, self.port.switchboard
        if faults is None or switchboard is None:
            raise CallerError(
                "This server was started without --faults. Nothing was changed."
            )
        method = self.request.method
        if method == "GET" and not self.found.fault:
            return {"value": [fault.describe() for fault in faults.on.values()]}
        if method == "POST" and not self.found.fault:
            shards = len(self.host.hosts)
            asked = read_request(await self._json(), self._has_entity, shards)
            return switchboard.add(asked).describe()
        if method == "DELETE":
            chosen = self._number() if self.found.fault else None
            cleared = switchboard.clear(chosen)
            return {"cleared": [fault.describe() for fault in cleared]}
        raise MethodNotAllowed(f"{method} is not known for /{self.found.spelled}.")

    def refusal(self, error: TwinbusError) -> Response:
        """The answer that an error becomes."""
        status = answers.status_of(error, route.STATUSES)
        body = {
            "error": {"code": type(error).__name__, "message": answers.text_of(error)}
        }
        return JSONResponse(body, status, {"Connection": "close"})

    def _has_entity(self, key: str) -> bool:
        return find_entity(self.host, key) is not None

    def _number(self) -> int:
        text = self.found.fault
        if not text.isdecimal():
            raise ArgumentError(f"'{text}' is no number of a fault.")
        return int(text)

    async def _json(self) -> Any:
        try:
            return json.loads(await self.body())
        except (ValueError, RecursionError):
            raise ArgumentError("The body is not JSON.") from None
