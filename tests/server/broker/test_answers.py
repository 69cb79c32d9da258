"""The status of each error on each surface: one matrix.

Owns the table. A surface has no status for an error that it cannot raise.
"""

from __future__ import annotations

import pytest

from twinbus import errors
from twinbus.errors import TwinbusError
from twinbus.server.broker.answers import STATUSES, status_of, text_of
from twinbus.server.http import route
from twinbus.server.http.rest import route as rest

TABLES = {
    "$management": STATUSES,
    "$cbs": STATUSES,
    "REST": rest.STATUSES,
    "administration": route.STATUSES,
    "upkeep": route.STATUSES,
}

# The surface does not raise that error.
NO = None

# For each error: $management, $cbs, REST, administration, upkeep.
MATRIX: dict[TwinbusError, tuple[int | None, ...]] = {
    errors.Unauthorized(): (401, 401, 401, 401, 401),
    errors.EntityNotFound("q"): (404, 404, 410, 404, 404),
    errors.EntityExists(): (409, NO, NO, 409, 409),
    errors.EntityDisabled(): (403, NO, 403, NO, NO),
    errors.QuotaExceeded(): (403, NO, 403, 403, NO),
    errors.MessageTooLarge(): (403, NO, 403, NO, NO),
    errors.MessageNotFound(): (404, NO, 404, NO, NO),
    errors.LockLost(): (410, NO, 410, NO, NO),
    errors.SessionLockLost(): (410, NO, NO, NO, NO),
    errors.SessionCannotBeLocked(): (410, NO, NO, NO, NO),
    errors.OperationTimeout(): (408, NO, NO, NO, NO),
    errors.NotImplementedByServer(): (501, NO, NO, NO, NO),
    route.MethodNotAllowed(): (NO, NO, NO, 405, 405),
    route.PreconditionFailed(): (NO, NO, NO, 412, 412),
    route.BodyTooLarge(): (NO, NO, NO, 413, 413),
    errors.CallerError(): (400, 400, 400, 400, 400),
    errors.ArgumentError(): (400, 400, 400, 400, 400),
    errors.ArgumentOutOfRange(): (400, 400, 400, 400, 400),
    errors.InvalidField(): (400, NO, 400, 400, 400),
    errors.FilterError(): (400, NO, 400, 400, 400),
    errors.ConfigError(): (400, NO, 400, 400, 400),
    errors.TransactionUnknown(): (400, NO, 400, 400, 400),
    errors.PeerError(): (400, NO, 400, 400, NO),
    errors.DecodeError(): (400, NO, 400, 400, NO),
    errors.BusyError(): (503, NO, 503, 503, 503),
    errors.StoreFault(): (500, NO, 500, 500, 500),
    errors.Bug(): (500, NO, 500, 500, 500),
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
    assert status_of(error, TABLES[surface]) == status


def test_the_text_of_a_defect_is_hidden() -> None:
    assert text_of(errors.BusyError("Wait.")) == "Wait."
    assert "page 7" not in text_of(errors.Bug("page 7 is in two trees"))
