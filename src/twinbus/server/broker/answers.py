"""What a client is told about an error: its status and its text.

Owns the one table from errors to status codes. A surface that differs adds its own
lines (`STATUSES | {EntityNotFound: 410}`) and looks errors up in the result.
Knows nothing about how an answer is written.
"""

from __future__ import annotations

from collections.abc import Mapping

from twinbus import errors
from twinbus.errors import TwinbusError

# An error without a line has the status of its nearest base class.
STATUSES: dict[type[TwinbusError], int] = {
    errors.TwinbusError: 500,
    errors.CallerError: 400,
    errors.PeerError: 400,
    errors.BusyError: 503,
    errors.Unauthorized: 401,
    errors.EntityDisabled: 403,
    errors.QuotaExceeded: 403,
    errors.MessageTooLarge: 403,
    errors.EntityNotFound: 404,
    errors.MessageNotFound: 404,
    errors.OperationTimeout: 408,
    errors.EntityExists: 409,
    errors.LockLost: 410,
    errors.SessionLockLost: 410,
    errors.SessionCannotBeLocked: 410,
    errors.NotImplementedByServer: 501,
}

# Details of a defect are for the operator.
SEE_LOG = "The log of the server says more."


def status_of(
    error: TwinbusError, statuses: Mapping[type[TwinbusError], int] = STATUSES
) -> int:
    """The status code of an error, by the nearest of its classes."""
    return next(statuses[kind] for kind in type(error).__mro__ if kind in statuses)


def text_of(error: TwinbusError) -> str:
    """The text of an error, without the details of a defect."""
    if isinstance(error, errors.Bug):
        return f"The request failed. {SEE_LOG}"
    return error.text
