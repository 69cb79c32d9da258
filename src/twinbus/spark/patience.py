"""Asking a namespace that may be away for a while.

Owns which errors pass by themselves and how long to pause before asking again. An error
that does not pass is the caller's at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from twinbus import limits
from twinbus.errors import RemoteError
from twinbus.pairing.rules.classification import Kind, kind_of

_T = TypeVar("_T")
_PASSING = (Kind.CONNECTION, Kind.TIMEOUT, Kind.SERVICE, Kind.BUSY)

_log = logging.getLogger(__name__)


def passes(error: RemoteError) -> bool:
    """Whether it is worth asking again."""
    return kind_of(error) in _PASSING


def patiently(ask: Callable[[], _T], seconds: float | None = None) -> _T:
    """Ask until there is an answer, for so long at most; None is for ever."""
    pause_seconds = limits.AWAY_PAUSE_SECONDS_MIN
    while True:
        try:
            return ask()
        except RemoteError as error:
            if not passes(error) or (seconds is not None and seconds < pause_seconds):
                raise
            _log.warning("The namespace is asked again: %s", error)
        threading.Event().wait(pause_seconds)
        if seconds is not None:
            seconds -= pause_seconds
        pause_seconds = min(pause_seconds * 2, limits.AWAY_PAUSE_SECONDS_MAX)
