"""The status of each error on each surface: one matrix.

Owns the table. A surface has no status for an error that it cannot raise.
"""

from __future__ import annotations

import pytest

from twinbus import errors
from twinbus.errors import TwinbusError
from twinbus.server.amqp.management import operations as management
from twinbus.server.http import upkeep
from twinbus.server.http.admin import replies as admin
from twinbus.server.http.rest import route as rest

TABLES = {
    "$management": management._STATUSES,
    "REST": rest._STATUS,
    "administration": admin._STATUS,
    "upkeep": upkeep._STATUS,
}

# The surface does not raise that error.
NO = None

# For each error: $management, REST, administration, upkeep.
MATRIX: dict[TwinbusError, tuple[int | None, ...]] = {
    errors.Unauthorized(): (401, 401, 401, 401),
    errors.EntityNotFound("q"): (404, 410, 404, 404),
    errors.EntityExists(): (409, NO, 409, 409),
    errors.EntityDisabled(): (403, 403, NO, NO),
    errors.QuotaExceeded(): (403, 403, 403, NO),
    errors.MessageTooLarge(): (403, 403, NO, NO),
    errors.MessageNotFound(): (404, 404, NO, NO),
    errors.LockLost(): (410, 410, NO, NO),
    errors.SessionLockLost(): (410, NO, NO, NO),
    errors.SessionCannotBeLocked(): (410, NO, NO, NO),
    errors.OperationTimeout(): (408, NO, NO, NO),
    errors.NotImplementedByServer(): (501, NO, NO, NO),
    admin.MethodNotAllowed(): (NO, NO, 405, 405),
    admin.PreconditionFailed(): (NO, NO, 412, 412),
    admin.BodyTooLarge(): (NO, NO, 413, 413),
    errors.CallerError(): (400, 400, 400, 400),
    errors.ArgumentError(): (400, 400, 400, 400),
    errors.ArgumentOutOfRange(): (400, 400, 400, 400),
    errors.InvalidField(): (400, 400, 400, 400),
    errors.FilterError(): (400, 400, 400, 400),
    errors.ConfigError(): (400, 400, 400, 400),
    errors.TransactionUnknown(): (400, 400, 400, 400),
    errors.PeerError(): (400, 400, 400, NO),
    errors.DecodeError(): (400, 400, 400, NO),
    errors.BusyError(): (503, 503, 503, 503),
    errors.StoreFault(): (500, 500, 503, 503),
    errors.Bug(): (500, 500, 500, 500),
}


def cells() -> list[object]:
    return [
        pytest.param(surface, error, status, id=f"{type(error).__name__}-{surface}")
        for error, statuses in MATRIX.items()
        for surface, status in zip(TABLES, statuses, strict=True)
        if status is not None
    ]


@pytest.mark.parametrize(("surface", "error", "status"), cells())
def test_an_error_has_its_status_on_each_surface(
    surface: str, error: TwinbusError, status: int
) -> None:
    table = TABLES[surface]

    found = next((s for kind, s in table if isinstance(error, kind)), 500)

    assert found == status
