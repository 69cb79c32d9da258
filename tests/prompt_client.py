"""The official Python client, which looks for answers more often than by itself.

Owns the pauses between its looks while a link opens and closes, half a second for each:
they were most of the time of many tests. What it sends, its deadlines and the pauses
between its retries are as they are. Programs that tests start as processes have the
client unchanged.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from azure.servicebus import _servicebus_receiver, _servicebus_sender, _session_browser
from azure.servicebus._pyamqp import _connection, client, session
from azure.servicebus._pyamqp.aio import (
    _client_async,
    _connection_async,
    _session_async,
)
from azure.servicebus.aio import (
    _servicebus_receiver_async,
    _servicebus_sender_async,
    _session_browser_async,
)

# In seconds: a link that opens, a state of the connection, a thread that has to end.
_SHORTER = {0.05: 0.005, 0.1: 0.005, 1: 0.02}
_POLLING: dict[str, tuple[ModuleType, ...]] = {
    "time": (
        *(_servicebus_receiver, _servicebus_sender, _session_browser),
        *(_connection, client, session),
    ),
    "asyncio": (
        *(_servicebus_receiver_async, _servicebus_sender_async, _session_browser_async),
        *(_client_async, _connection_async, _session_async),
    ),
}


class _Prompt:
    """A module whose `sleep` is shorter if it is one of these pauses."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if name != "sleep":
            return found
        return lambda seconds: found(_SHORTER.get(seconds, seconds))


def look_more_often() -> None:
    """Shorten these pauses, as long as this process runs."""
    for name, modules in _POLLING.items():
        for module in modules:
            setattr(module, name, _Prompt(getattr(module, name)))
